"""The process of `mooring run`."""
