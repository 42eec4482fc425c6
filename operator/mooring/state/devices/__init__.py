"""The books of GPU cards: which pod has which card of which node, and what is left."""
