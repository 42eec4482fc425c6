"""Plans moves of running pods to the nodes that would be chosen today; makes the moves."""
