"""Pod groups in every format, parsed."""
