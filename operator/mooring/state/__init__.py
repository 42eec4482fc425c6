"""The only mutable data: the cluster as columns, and the assumptions about it."""
