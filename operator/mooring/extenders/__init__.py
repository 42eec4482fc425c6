"""Calls to scheduler extenders: HTTP services that filter, score, preempt or bind (extender.go)."""
