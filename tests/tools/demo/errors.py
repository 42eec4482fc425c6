"""The error of the demo."""


class DemoError(Exception):
    """A promise of the demo did not come true; the text is one line."""
