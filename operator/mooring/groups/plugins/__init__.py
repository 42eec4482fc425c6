"""Plugins for pod groups: gangs, topology domains, and scores of domains."""
