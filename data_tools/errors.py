"""Mistakes that a user can mend."""


class DataToolsError(ValueError):
    """A mistake in the data or in the arguments that a user can mend."""


class RecordError(DataToolsError):
    """A record that cannot be used; `reason` is the word that it is counted under."""

    def __init__(self, message: str, *, reason: str = "unusable") -> None:
        super().__init__(message)
        self.reason = reason
