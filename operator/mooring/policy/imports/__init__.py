"""Configurations of kube-scheduler, old and new, turned into SchedulingProfiles."""
