"""Keeps pods that wait for a node: active, in backoff, unschedulable, gated, and in flight."""
