"""Keeps volumes, claims and attachments: their counts, and assumptions about objects."""
