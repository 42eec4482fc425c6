"""`make demo`: Mooring places pods on a real control plane and follows a policy that changes."""
