"""Plans moves of running pods to the nodes where they would be placed today; makes the moves."""
