"""Texts of others for a terminal: no character of them may control it, or hide another one."""


def printable(text: str) -> str:
    """Return the text in one line, with unprintable characters escaped as in Python.

    Control characters, C1 included, and characters that change the direction of text are
    unprintable.
    """
    if text.isprintable():
        return text
    line = " ".join(text.splitlines())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
