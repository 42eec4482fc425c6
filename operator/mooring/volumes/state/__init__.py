"""Volumes, claims and attachments: their counts, and the assumptions about them."""
