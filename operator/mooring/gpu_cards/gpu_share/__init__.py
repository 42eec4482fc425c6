"""GPUShare: several pods share the memory of one GPU card."""
