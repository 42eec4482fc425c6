"""Runs plugins: builds the pipeline of a profile, checks results, and measures calls."""
