"""What a plugin author reads: protocols, verdicts, the registry and the pipeline."""
