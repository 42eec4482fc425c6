"""What can go wrong while recording."""


class RecordingError(Exception):
    """A case could not be recorded; the text says which, what was awaited, and where the log is."""
