"""What Mooring says about itself: metrics, logs, decision records and the HTTP endpoints."""
