"""Runs the whole scheduler in a simulated world; equal seeds give equal histories."""
