"""Gives devices to pods by ResourceClaims (dynamic resource allocation)."""
