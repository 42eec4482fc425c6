"""Cards and requests for them, parsed."""
