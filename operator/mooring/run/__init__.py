"""What runs the process of `mooring run`."""
