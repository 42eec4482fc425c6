"""Queues as the API server has them."""
