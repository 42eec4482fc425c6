"""Counts of placed pods by selector, inter-pod term and topology domain."""
