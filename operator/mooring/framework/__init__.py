"""What a plugin author needs: protocols of plugins, verdicts, the handle and the registry."""
