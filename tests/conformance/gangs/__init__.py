"""Gives random gangs to the real kube-scheduler (with its feature gates on) and to Mooring."""
