"""Convert kube-scheduler's configurations, old and new, to SchedulingProfiles."""
