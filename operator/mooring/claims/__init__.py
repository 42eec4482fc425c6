"""ResourceClaims and devices (dynamic resource allocation)."""
