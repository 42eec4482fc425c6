"""What a plugin's author needs: protocols of plugins, verdicts, the handle and the registry."""
