"""The Kubernetes API over HTTP: client, reflector, writes, events and lease; all in raw JSON."""
