"""Schedules the pods of manifests or of a cluster dump without a cluster."""
