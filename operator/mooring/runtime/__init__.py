"""What runs plugins."""
