"""Convert kube-scheduler's configurations, and queues of other schedulers, to Mooring's."""
