"""Random clusters with one pending pod, which try unusual parts of the API; a seed repeats them."""
