"""The courier: a process of its own that sends questions and writes their answers down.

The run that it works for may be killed at any moment. The courier then still takes in the answer
that is under way, writes it to the journal and ends, so that no answer is lost and no question is
asked again. Both talk in lines of JSON over pipes; credentials go this way, too, because arguments
and environments of processes can be seen by others.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

from timbermark.errors import TimbermarkError
from timbermark.verification.endpoints.protocols import open_dialect
from timbermark.verification.endpoints.sending import Failure, FailureError, open_client, send
from timbermark.verification.journal import History, Journal

# Room in the journal that is taken before a question is sent, for each answer.
_ROOM = 256
_ROOM_PER_SCORE = 28


class _Notes:
    """What stands in for a journal where none is kept."""

    def __init__(self) -> None:
        self.history = History()

    def add(self, record: Mapping[str, Any], reserve: int = 0) -> None:
        pass

    def close(self) -> None:
        pass


class Courier:
    """Sends what it is told to send; see `serve`."""

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self._setting = setting
        self._dialect = open_dialect(setting["protocol"], setting["options"])
        self._client = open_client(setting["cafile"])
        self._journal: Journal | _Notes = _Notes()
        if setting["journal"] is not None:
            self._journal = Journal(setting["journal"], setting["start"], setting["patience"])
        # That of the first run, so that what is asked again after a crash has the same key.
        self._run = self._journal.history.start.get("run", setting["start"]["run"])

    def history(self) -> dict[str, Any]:
        """Return what the journal holds."""
        past = self._journal.history
        return {
            "answers": past.answers,
            "first": past.first,
            "under_way": past.under_way,
            "refused": past.refused,
        }

    async def ask(self, first: int, n: int, body: str) -> list[Any]:
        """Return the answers to n questions; they are in the journal by then."""
        setting = self._setting
        room = n * (_ROOM + _ROOM_PER_SCORE * setting["n_classes"])
        self._journal.add({"asking": [first, n]}, reserve=room)
        headers = dict(setting["headers"])
        if setting["idempotency_header"]:
            name = f"{self._run}/{first}/{n}"
            headers[setting["idempotency_header"]] = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        try:
            answers = await send(
                self._client, setting["url"], headers, body, n, self._dialect, setting["timeout"]
            )
        except FailureError:
            self._journal.add({"failed": [first, n]})
            raise
        self._journal.add({"answers": [first, answers]})
        return answers

    async def close(self) -> None:
        """Give connection and journal free."""
        await self._client.aclose()
        self._journal.close()

    def note(self, record: Mapping[str, Any]) -> None:
        """Write a record that needs no question."""
        self._journal.add(record)


def serve(lines: IO[str], reply: Callable[[Mapping[str, Any]], None]) -> None:
    """Serve one run: the first line is the configuration, each further line a request."""
    try:
        courier = Courier(json.loads(lines.readline()))
    except (TimbermarkError, OSError) as error:
        reply(_show(error))
        return
    loop = asyncio.new_event_loop()
    try:
        reply(courier.history())
        for line in lines:
            reply(_work(courier, loop, json.loads(line)))
    finally:
        loop.run_until_complete(courier.close())
        loop.close()


def _work(
    courier: Courier, loop: asyncio.AbstractEventLoop, job: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        if "record" in job:
            courier.note(job["record"])
            return {}
        answers = courier.ask(job["first"], job["n"], job["body"])
        return {"answers": loop.run_until_complete(answers)}
    except FailureError as error:
        return {"failure": error.failure.to_dict()}
    except (TimbermarkError, OSError) as error:
        return _show(error)


def _show(error: TimbermarkError | OSError) -> dict[str, Any]:
    if isinstance(error, TimbermarkError):
        return {"failure": Failure("final", error.message, error.hint).to_dict(), "own": True}
    said = f"{error.filename}: {error.strerror}." if error.filename else f"{error}."
    hint = "check the path, its permissions and the disk."
    return {"failure": Failure("final", said, hint).to_dict(), "own": True}


def main() -> None:
    """Serve the run at the other end of the pipes."""

    def reply(said: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()

    # The run may have been killed: its answer is in the journal, and nobody is there to be told.
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin, reply)
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stdout = None  # or Python would flush it again, and complain
