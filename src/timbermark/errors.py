"""Every exception that timbermark raises on purpose, each with a hint.

A message is one sentence that names what is wrong and the value; the hint says what to do. All of
them are `TimbermarkError`, and each is also the built-in exception that a caller would expect.
"""


class TimbermarkError(Exception):
    """The base of all errors raised on purpose: one sentence and a hint.

    ``str(error)`` is ``"message Hint: hint"``, or the message alone when there is no hint.

    >>> print(TimbermarkError("learning_rate=-1 must be > 0.", hint="0.1 is a good start."))
    learning_rate=-1 must be > 0. Hint: 0.1 is a good start.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        # Both go to `args`, so that the error survives being sent between processes.
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} Hint: {self.hint}" if self.hint else self.message


class InputError(TimbermarkError, ValueError):
    """An argument or a data set that cannot be used; nothing has been changed."""


class FileFormatError(TimbermarkError, ValueError):
    """A file that is damaged, foreign, of another kind, or written by a newer version."""


class EvidenceError(InputError):
    """A claim, a time stamp, an opening or a pack that contradicts itself or what it is held to."""


class StateError(TimbermarkError, ValueError):
    """A training state that is absent or that belongs to another model."""


class MissingLibraryError(TimbermarkError, ImportError):
    """A foreign library that is needed now but not installed.

    >>> print(MissingLibraryError.for_extra("xgboost", "to read an XGBoost model"))
    xgboost is needed to read an XGBoost model. Hint: pip install "timbermark[xgboost]"
    """

    @classmethod
    def for_extra(cls, extra: str, purpose: str) -> "MissingLibraryError":
        """Return the error for the extra called ``extra``, needed for ``purpose`` ("to read …")."""
        return cls(f"{extra} is needed {purpose}.", hint=f'pip install "timbermark[{extra}]"')
