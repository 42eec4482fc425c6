"""Faults between Mooring and a real API server, and an auditor that says what they did."""
