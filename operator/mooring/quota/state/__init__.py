"""Counts the quota that the pods of each Queue use, and how much more they may use."""
