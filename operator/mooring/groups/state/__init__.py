"""Pod groups and their members, counted."""
