"""GPU cards that pods share."""
