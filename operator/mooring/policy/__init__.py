"""The policy: pydantic models of the CRDs and of plugin arguments, read, merged, explained."""
