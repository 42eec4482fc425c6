"""Kueue's own controller beside Mooring, on a control plane with kube-controller-manager.

`make kueue` builds the controller from its Go module and runs these tests; no other target does.
"""
