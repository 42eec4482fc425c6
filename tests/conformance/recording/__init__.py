"""A scene put before the real kube-scheduler, and what came of it."""
