"""Plans moves of running pods to where they would be placed today, and carries them out."""
