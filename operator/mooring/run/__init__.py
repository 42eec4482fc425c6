"""Runs `mooring run`: its settings, its process, one replica, and the connections of the parts."""
