"""Queues: how much pods of a team may use, and who gives back what it borrowed."""
