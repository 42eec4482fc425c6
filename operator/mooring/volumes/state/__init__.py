"""Keeps volumes, claims and attachments, counts them, and assumes changes of them."""
