"""Immutable values, parsed once from raw API objects; other packages use only these values."""
