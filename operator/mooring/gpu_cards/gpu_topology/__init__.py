"""The plugin GPUTopology, which gives a pod whole GPU cards that are well connected."""
