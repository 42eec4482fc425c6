"""Mooring's messages about itself: metrics, logs, decision records and the HTTP endpoints."""
