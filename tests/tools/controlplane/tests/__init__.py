"""Tests of the control plane's own launcher."""
