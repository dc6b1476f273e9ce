"""The command line: commands, the one error handler, the exit codes.

Exit 0 means yes, 1 means no (not marked), 2 means bad input. Results go to stdout; notes, progress
and errors go to stderr.
"""

import sys
from collections.abc import Sequence

from timbermark.errors import TimbermarkError

__all__ = ["main"]

BAD_INPUT = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on ``argv`` (default: the process's own) and return the exit code.

    This is the only place where an error becomes a message: a `TimbermarkError` prints its
    sentence and its hint on stderr and gives exit code 2, and so does a file that cannot be opened.
    Anything else is a bug and keeps its traceback.
    """
    from timbermark.cli.app import app

    try:
        app(args=argv, prog_name="timbermark")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except TimbermarkError as error:
        _complain(error.message, error.hint)
    except OSError as error:
        if error.filename is None:
            raise
        _complain(f"{error.filename}: {error.strerror}.", "check the path and its permissions.")
    return BAD_INPUT


def _complain(message: str, hint: str) -> None:
    print(f"timbermark: {message}", file=sys.stderr)
    if hint:
        print(f"Hint: {hint}", file=sys.stderr)
