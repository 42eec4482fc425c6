"""Mooring: a Kubernetes scheduler whose policy is a custom resource."""

__version__ = "0.1.0"
