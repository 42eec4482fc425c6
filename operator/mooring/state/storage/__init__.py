"""Volumes, claims and attachments: what is counted of them, and what is assumed."""
