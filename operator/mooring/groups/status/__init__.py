"""Writes the status of PodGroups."""
