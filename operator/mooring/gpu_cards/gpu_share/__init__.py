"""GPUShare: several pods on one GPU card, by memory."""
