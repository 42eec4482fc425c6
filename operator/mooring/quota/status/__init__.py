"""Writes the status of Queues."""
