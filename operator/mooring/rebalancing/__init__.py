"""Moves running pods to the nodes that the scheduler would choose for them today."""
