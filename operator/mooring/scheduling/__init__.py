"""Schedules pods: takes a pod from the queue, chooses its node, assumes the pod and binds it."""
