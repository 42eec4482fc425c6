"""The cluster as the API server shows it, copied into the state and compared from time to time."""
