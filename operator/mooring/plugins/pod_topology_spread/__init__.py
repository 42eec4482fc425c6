"""The plugin PodTopologySpread: spreads pods over topology domains."""
