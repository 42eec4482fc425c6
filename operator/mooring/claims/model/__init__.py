"""Parses objects of resource.k8s.io."""
