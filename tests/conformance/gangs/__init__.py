"""Random gangs, given to the real kube-scheduler with its gates on and to Mooring."""
