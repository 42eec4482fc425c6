"""Counts pod groups and their members."""
