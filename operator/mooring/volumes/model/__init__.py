"""Parses volumes and storage objects."""
