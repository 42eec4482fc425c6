"""Parses pod groups of every format."""
