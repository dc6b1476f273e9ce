"""The command line: commands and the one error handler.

Results go to stdout; notes, progress and errors go to stderr.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from timbermark.cli.printing import BAD_INPUT, DONE, UNEXPECTED, say_error
from timbermark.errors import TimbermarkError, explain_missing

__all__ = ["main"]

DEBUG = "TIMBERMARK_DEBUG"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on ``argv`` (default: the process's own) and return the exit code.

    This is the only place where an error becomes a message. A `TimbermarkError` prints its
    sentence and its hint, in the words of the command line, on stderr and gives exit code 2; so
    does a file that the system refuses, and one that needs more memory than there is. Anything else
    is a bug and gives exit code 4. Its traceback is printed only if the environment variable
    TIMBERMARK_DEBUG is 1.
    """
    from timbermark.cli.app import app

    try:
        with _tidy_end():
            app(args=argv, prog_name="timbermark")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except TimbermarkError as error:
        return _refuse(BAD_INPUT, *say_error(error))
    except OSError as error:
        if error.strerror is None:
            return _report_bug(error)
        what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        return _refuse(BAD_INPUT, f"{what}.", "check the path, its permissions and the disk.")
    except ModuleNotFoundError as error:
        missing = explain_missing(error)
        if missing is None:
            return _report_bug(error)
        return _refuse(BAD_INPUT, missing.message, missing.hint)
    except MemoryError:
        return _refuse(
            BAD_INPUT, "There is not enough memory.", "end other programs, or give fewer rows."
        )
    except Exception as error:
        return _report_bug(error)
    return DONE


@contextmanager
def _tidy_end() -> Iterator[None]:
    """Let a process that is told to end remove its unfinished files first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse(code: int, message: str, hint: str) -> int:
    print(f"timbermark: {message}", file=sys.stderr)
    if hint:
        print(f"Hint: {hint}", file=sys.stderr)
    return code


def _report_bug(error: Exception) -> int:
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    said = " ".join(str(error).split())[:300]
    return _refuse(
        UNEXPECTED,
        f"Something unexpected happened ({type(error).__name__}: {said}); this is a bug, please "
        "report it.",
        f"{DEBUG}=1 shows the traceback that a report needs.",
    )
