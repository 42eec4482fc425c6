"""Parses Queues from the API server."""
