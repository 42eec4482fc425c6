"""Allocates devices to pods through ResourceClaims (dynamic resource allocation)."""
