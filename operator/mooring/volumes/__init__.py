"""Parses storage objects, keeps the state of volumes, and has the plugins that read both."""
