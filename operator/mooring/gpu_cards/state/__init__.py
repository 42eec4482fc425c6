"""The cards of nodes, counted."""
