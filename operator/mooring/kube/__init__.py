"""The Kubernetes API over HTTP: client, reflector, writes, events and lease; raw JSON only."""
