"""Tests the launcher of the control plane."""
