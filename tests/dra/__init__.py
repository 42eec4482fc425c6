"""Allocations of devices, compared with those of kube-scheduler's allocator, device for device.

`oracle.go` calls the public allocator of Kubernetes' Go modules on cases that `families.py` draws
with a seed; `comparing.py` asks Mooring's allocator the same. `data/` has cases with recorded
answers, which tests compare without Go; `python -m dra` draws and compares new ones.
"""
