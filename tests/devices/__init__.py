"""GPU nodes and pods for tests and experiments."""
