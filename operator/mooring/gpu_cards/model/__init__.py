"""Parses GPU cards and requests for cards."""
