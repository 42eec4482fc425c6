"""Schedules pod groups: finds nodes for all members of a group together."""
