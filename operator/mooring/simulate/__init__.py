"""Decisions without a cluster: manifests or a dump in, decision records out."""
