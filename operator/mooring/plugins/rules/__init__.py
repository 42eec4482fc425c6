"""The plugin that runs the rules of a profile."""
