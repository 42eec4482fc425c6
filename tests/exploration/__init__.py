"""Runs the queue and the group cycle through every order of events in a small world."""
