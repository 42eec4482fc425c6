"""Volumes: their objects, tables and plugins."""
