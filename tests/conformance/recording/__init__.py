"""Shows scenes to the real kube-scheduler, and records its decisions."""
