"""Every exception that timbermark raises on purpose, each with a hint.

A message is one sentence that names what is wrong and the value; the hint says what to do. All of
them are `TimbermarkError`, and each is also the built-in exception that a caller would expect.
Whoever catches `TimbermarkError` catches them all. A file that is not there or cannot be opened is
an `OSError`, as elsewhere in Python.

>>> from timbermark import Budget
>>> try:
...     Budget(changed=-1)
... except TimbermarkError as error:
...     print(type(error).__name__, "with a hint" if error.hint else "without")
InputError with a hint
"""

from importlib.util import find_spec

__all__ = [
    "EvidenceError",
    "FileFormatError",
    "InputError",
    "MissingLibraryError",
    "PassphraseError",
    "PassphraseNeededError",
    "StateError",
    "TimbermarkError",
]

# What `pip install timbermark` brings and the verifier alone does without, by module.
_ENGINE = {
    "llvmlite": "llvmlite",
    "numba": "numba",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "threadpoolctl": "threadpoolctl",
}


class TimbermarkError(Exception):
    """The base of all errors raised on purpose: one sentence and a hint.

    ``str(error)`` is ``"message Hint: hint"``, or the message alone when there is no hint.
    ``code`` names the problem for programs and tests; sentences may be reworded, codes may not.
    ``parameter`` is the argument that the error speaks of. Messages and hints mention arguments as
    ``name=value`` (``name=…`` where any value will do), or begin with the name of the error's own
    one; the command line shows both as flags.

    >>> print(TimbermarkError("learning_rate=-1 must be > 0.", hint="0.1 is a good start."))
    learning_rate=-1 must be > 0. Hint: 0.1 is a good start.
    """

    def __init__(self, message: str, hint: str = "", code: str = "", parameter: str = "") -> None:
        # All go to `args`, so that the error survives being sent between processes.
        super().__init__(message, hint, code, parameter)
        self.message = message
        self.hint = hint
        self.code = code
        self.parameter = parameter

    def __str__(self) -> str:
        return f"{self.message} Hint: {self.hint}" if self.hint else self.message


class InputError(TimbermarkError, ValueError):
    """An argument or a data set that cannot be used; nothing has been changed."""


class FileFormatError(TimbermarkError, ValueError):
    """A file that is damaged, foreign, of another kind, or written by a newer version."""


class EvidenceError(InputError):
    """A claim, a time stamp, an opening or a pack that contradicts itself or what it is held to."""


class PassphraseError(InputError):
    """A passphrase that is wrong, missing, or given where none is needed."""


class PassphraseNeededError(PassphraseError):
    """A file that is encrypted and no passphrase: ask for one and try again."""


class StateError(TimbermarkError, ValueError):
    """A training state that is absent or that belongs to another model."""


class MissingLibraryError(TimbermarkError, ImportError):
    """A library that is needed now but not installed.

    >>> print(MissingLibraryError.for_extra("xgboost", "to read an XGBoost model"))
    xgboost is needed to read an XGBoost model. Hint: pip install "timbermark[xgboost]"
    """

    @classmethod
    def for_extra(
        cls, extra: str, purpose: str, library: str | None = None
    ) -> "MissingLibraryError":
        """Return the error for the extra called ``extra``, needed for ``purpose`` ("to read …").

        ``library`` is what the extra installs, where that has another name.
        """
        hint = f'pip install "timbermark[{extra}]"'
        return cls(f"{library or extra} is needed {purpose}.", hint=hint)


def require_library(module: str, extra: str, purpose: str) -> None:
    """Raise MissingLibraryError unless ``module``, which ``extra`` installs, can be imported.

    Call it before long work begins.

    >>> require_library("not_there", "report", "to draw a chart")
    Traceback (most recent call last):
    timbermark.errors.MissingLibraryError: not_there is needed to draw a chart. \
Hint: pip install "timbermark[report]"
    """
    if find_spec(module) is None:
        raise MissingLibraryError.for_extra(extra, purpose, module)


def explain_missing(error: ModuleNotFoundError) -> MissingLibraryError | None:
    """Return what to tell someone who has the verifier alone and asks for more.

    None if what is missing is none of timbermark's own dependencies.

    >>> print(explain_missing(ModuleNotFoundError("No module named 'sklearn'", name="sklearn")))
    scikit-learn is not installed: this is the verifier alone. Hint: pip install timbermark
    """
    package = _ENGINE.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    return MissingLibraryError(
        f"{package} is not installed: this is the verifier alone.", hint="pip install timbermark"
    )
