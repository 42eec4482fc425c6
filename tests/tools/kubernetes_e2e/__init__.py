"""Runs Kubernetes' own test cases of scheduling against Mooring and kube-scheduler.

`make conformance` builds the cases from Kubernetes' Go module (`main.go`), runs each scheduler on
its own control plane with equal nodes, and prints a table of the results.
"""
