"""Converts configurations of kube-scheduler, and queues of other schedulers, to Mooring's."""
