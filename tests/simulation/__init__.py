"""The whole scheduler in a simulated world: one seed, one history, every interleaving again."""
