"""The plugin GPUShare, with which several pods share the memory of one GPU card."""
