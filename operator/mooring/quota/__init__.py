"""Queues limit how much a team's pods may use, and let teams borrow unused quota from others."""
