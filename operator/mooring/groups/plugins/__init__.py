"""Pod groups: gangs, topology domains, and how many members a domain takes."""
