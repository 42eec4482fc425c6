"""Copies the cluster from the API server into the state, and compares both at intervals."""
