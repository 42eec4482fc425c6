"""The books of GPU cards: which pod has which card of which node, and how much is left."""
