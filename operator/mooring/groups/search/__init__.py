"""Pod groups, decided as one: nodes for all members, their binding, and their reports."""
