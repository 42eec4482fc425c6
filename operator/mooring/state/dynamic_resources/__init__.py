"""Claims for devices, what is allocated, and the slices and classes of devices."""
