"""Kubernetes' own test cases of scheduling, run against Mooring and against kube-scheduler.

`make conformance` builds them from Kubernetes' Go module (`main.go`), runs each scheduler on a
control plane of its own with the same nodes, and prints a table of what both do.
"""
