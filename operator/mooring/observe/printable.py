"""Texts of others for a terminal: no character of them may control it, or hide another one."""


def printable(text: str) -> str:
    """Return the text in one line, with unprintable characters escaped as in Python.

    That are control characters, those of C1 included, and those that change the direction of text.
    """
    if text.isprintable():
        return text
    line = " ".join(text.splitlines())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
