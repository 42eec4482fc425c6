"""Pop, decide, assume, bind: a pod's way from the queue to its node."""
