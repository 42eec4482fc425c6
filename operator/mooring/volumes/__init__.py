"""Volumes: their objects, state and plugins."""
