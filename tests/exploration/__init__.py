"""Runs the engine through every order of events in a small world."""
