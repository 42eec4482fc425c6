"""kopf's handlers: an object in, a change or a status out."""
