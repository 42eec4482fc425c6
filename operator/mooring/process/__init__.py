"""Lets tasks share the one thread of the process."""
