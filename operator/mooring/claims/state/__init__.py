"""Keeps claims for devices, their allocations, and the slices and classes of devices."""
