"""How work shares the one thread of the process."""
