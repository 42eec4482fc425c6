"""The plugin PodTopologySpread, filter and score."""
