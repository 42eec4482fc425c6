"""Runs plugins: the pipeline of a profile, checked calls of plugins, and their metrics."""
