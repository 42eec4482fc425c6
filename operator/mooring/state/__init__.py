"""Keeps the cluster as columns, and the scheduler's assumptions about pods."""
