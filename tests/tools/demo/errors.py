"""The demo's own failure."""


class DemoError(Exception):
    """Something did not come true that the demo promises; the text is one line."""
