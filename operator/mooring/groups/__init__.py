"""Places pods in groups: objects, counts, plugins, search and status of pod groups."""
