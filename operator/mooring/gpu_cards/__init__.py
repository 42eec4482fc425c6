"""Counts the GPU cards of nodes, and assigns cards or shares of cards to pods."""
