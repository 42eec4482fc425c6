"""The error of the recorder."""


class RecordingError(Exception):
    """A case could not be recorded; the text names the case, the missing event and the log."""
