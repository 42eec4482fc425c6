"""Mooring's information about itself: metrics, logs, decision records and the HTTP endpoints."""
