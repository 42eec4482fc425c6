"""Allocates devices to pods by ResourceClaim."""
