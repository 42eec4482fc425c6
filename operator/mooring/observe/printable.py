"""Makes text safe for a terminal: no character may control it, or hide other characters."""


def printable(text: str) -> str:
    """Return the text in one line, with unprintable characters escaped as in Python.

    Control characters and characters that change the direction of text are unprintable.
    """
    if text.isprintable():
        return text
    line = " ".join(text.splitlines())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
