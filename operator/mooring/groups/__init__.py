"""Pod groups: their objects, counts, plugins, search and status."""
