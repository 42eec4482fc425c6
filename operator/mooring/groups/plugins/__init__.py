"""Plugins for pod groups: gangs and topology domains."""
