"""Compares Mooring with recorded decisions of the real kube-scheduler.

`data/` has the recorded cases, `python -m conformance.record` records more cases, and `python -m
conformance.check` prints in how many cases Mooring decides the same.
"""
