"""The only mutable data: the cluster as columns, what is assumed on it, and the queue."""
