"""Decides about a whole pod group: searches nodes for all members, and reserves nodes."""
