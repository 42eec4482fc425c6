"""Volumes and storage objects, parsed."""
