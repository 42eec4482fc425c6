"""Allocates devices to the ResourceClaims of pods."""
