"""The plugin that runs a profile's rules."""
