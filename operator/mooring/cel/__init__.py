"""Parses, checks and evaluates CEL expressions over devices, as kube-scheduler does."""
