"""Random clusters with one pod waiting: from a seed the same again, into the API's corners."""
