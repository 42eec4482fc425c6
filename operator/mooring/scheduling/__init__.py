"""Schedules pods: takes a pod from the queue, decides, assumes and binds it."""
