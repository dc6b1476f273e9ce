"""The command line: commands and the one error handler.

Results go to stdout; notes, progress and errors go to stderr.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from timbermark.cli.exit_codes import BAD_INPUT, DONE, ENDED, INTERRUPTED, UNEXPECTED
from timbermark.cli.outputs import say_error
from timbermark.errors import TimbermarkError, explain_missing
from timbermark.files import watch_writes

__all__ = ["main"]

DEBUG = "TIMBERMARK_DEBUG"


def main(
    argv: Sequence[str] | None = None,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    finish: Callable[[], object] = lambda: None,
) -> int:
    """Run the command line on ``argv`` (default: the process's own) and return the exit code.

    This is the only place where an error becomes a message. A `TimbermarkError` prints its
    sentence and its hint, in the words of the command line, on stderr and gives exit code 2; so
    does a file that the system refuses, and one that needs more memory than there is. Anything else
    is a bug and gives exit code 4. Its traceback is printed only if the environment variable
    TIMBERMARK_DEBUG is 1. Whoever interrupts it (Ctrl-C, exit code 130) or ends it (SIGTERM, 143)
    is told which files are left behind; ``interrupted`` tells that an error comes from Ctrl-C.
    ``finish`` is called when it is too late to interrupt, before anything else is said.
    """
    with watch_writes() as written:
        try:
            code = _run(argv, interrupted)
            finish()
        except KeyboardInterrupt:
            finish()
            code = INTERRUPTED
        if code in (INTERRUPTED, ENDED):
            _tell_end("Interrupted" if code == INTERRUPTED else "Ended", written())
    return code


def _tell_end(said: str, left: Sequence[Path]) -> None:
    """Print which files a command leaves behind that did not come to its end."""
    names = ", ".join(os.path.relpath(path) for path in left)
    hint = ""
    if any(path.is_file() and _begins(path, b"timbermark journal ") for path in left):
        hint = "the same command goes on from the journal, and asks nothing twice."
    _refuse(0, f"{said}. {f'Left behind: {names}.' if names else 'Nothing was written.'}", hint)


def _begins(path: Path, words: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(words)) == words


def _run(argv: Sequence[str] | None, interrupted: Callable[[], bool]) -> int:
    try:
        with _tidy_end(), _interruptions(interrupted):
            from timbermark.cli.app import app

            app(args=argv, prog_name="timbermark")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except TimbermarkError as error:
        return _refuse(BAD_INPUT, *say_error(error))
    except OSError as error:
        if error.strerror is None:
            return _report_bug(error)
        what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        folder = isinstance(error, IsADirectoryError)
        hint = "give a file." if folder else "check the path, its permissions and the disk."
        return _refuse(BAD_INPUT, f"{what}.", hint)
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


@contextmanager
def _interruptions(interrupted: Callable[[], bool]) -> Iterator[None]:
    """Raise KeyboardInterrupt in place of whatever an interruption has become on its way."""
    try:
        yield
    except Exception as error:
        if interrupted():
            raise KeyboardInterrupt from error
        raise


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
