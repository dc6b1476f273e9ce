"""The run's end of the pipes to its courier."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from timbermark.errors import InputError, require_library
from timbermark.verification.endpoints.sending import Failure, FailureError

_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.readline()); "
    "from timbermark.verification.endpoints.courier import main; main()"
)
_FAREWELL = 5.0


class Delivery:
    """A courier at work; use it in a ``with`` block.

    ``setting`` is what `courier.Courier` takes. ``history`` is what the journal holds.

    Raises InputError if the journal is refused, MissingLibraryError without httpx.
    """

    def __init__(self, setting: Mapping[str, Any]) -> None:
        require_library("httpx", "endpoints", "to ask a server")
        # A session of its own, or else an interrupt from the keyboard would reach it, too.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("TIMBERMARK_DEBUG") == "1" else subprocess.DEVNULL,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            self._say(sys.path)
            self.history = self._exchange(setting)
        except BaseException:
            self._close(wait=True)
            raise

    def __enter__(self) -> Delivery:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Whoever interrupts a run does not wait for a slow server; the courier does.
        self._close(wait=kind is None or issubclass(kind, Exception))

    def ask(self, first: int, n: int, body: str) -> list[Any]:
        """Return the answers to n questions. Raises FailureError, or InputError for the journal."""
        answers: list[Any] = self._exchange({"first": first, "n": n, "body": body})["answers"]
        return answers

    def note(self, record: Mapping[str, Any]) -> None:
        """Write a record into the journal."""
        self._exchange({"record": record})

    def _exchange(self, said: Any) -> dict[str, Any]:
        self._say(said)
        line = self._hear()
        if not line:
            raise InputError(
                "The process that sends the questions was ended.",
                hint="run the same command again: a journal goes on where it stopped.",
            )
        reply: dict[str, Any] = json.loads(line)
        if "failure" in reply:
            failure = Failure(**reply["failure"])
            if reply.get("own"):
                raise InputError(failure.message, failure.hint)
            raise FailureError(failure)
        return reply

    def _say(self, said: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the missing reply tells
            self._process.stdin.write(json.dumps(said) + "\n")
            self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _close(self, wait: bool) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        if wait:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_FAREWELL)
