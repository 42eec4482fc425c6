"""Mooring against recorded decisions of the real kube-scheduler.

`data/` is the corpus, `python -m conformance.record` records more of it, and
`python -m conformance.check` says in how many cases Mooring decides the same.
"""
