"""`make demo`: Mooring places pods on a real control plane and follows changes of its profile."""
