"""GPUTopology: whole GPU cards that are well connected."""
