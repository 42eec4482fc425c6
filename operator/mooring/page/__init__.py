"""The page that the operator serves below /ui/: what the scheduler sees and decides, read-only."""
