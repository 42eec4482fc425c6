"""The interfaces for plugin authors: plugin protocols, verdicts, the handle and the registry."""
