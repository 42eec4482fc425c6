"""Counts what the pods of each queue use, and how much more they may use."""
