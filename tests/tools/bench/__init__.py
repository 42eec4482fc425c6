"""`make bench`: Mooring and kube-scheduler, each alone on the same API server."""
