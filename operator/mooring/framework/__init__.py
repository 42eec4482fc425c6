"""The part for plugin authors: protocols, verdicts, the registry and the pipeline."""
