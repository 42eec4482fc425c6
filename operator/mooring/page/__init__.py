"""The page that the operator serves below /ui/: the scheduler's state and decisions, read-only."""
