"""Decides about a pod group as a whole: nodes for all members, and reservations."""
