"""Counts the cards of nodes."""
