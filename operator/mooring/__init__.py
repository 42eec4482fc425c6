"""Mooring: a Kubernetes scheduler that custom resources configure."""

__version__ = "0.1.0"
