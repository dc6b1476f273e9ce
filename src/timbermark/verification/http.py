"""Ask a server over HTTP: requests bounded in time and size, repeated at a measured pace.

A request runs in a thread with an event loop of its own: only so is its whole time bounded, however
slowly a server sends, and only so can it be used inside of another event loop, as notebooks have.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import random
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from timbermark.errors import require_library
from timbermark.verification.dialects import Dialect, ReplyError
from timbermark.verification.refusals import refusal, say_refusal

if TYPE_CHECKING:
    import httpx

    from timbermark.verification.endpoint import Endpoint

FailureKind: TypeAlias = Literal["again", "refused", "unread", "final"]

MAX_REPLY = 16 << 20
"""Bytes of a reply; the probabilities of 1,000 rows and 100 classes take 2 million."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
LONGEST_WAIT = 900.0
"""Seconds; a server that asks to wait longer ends the run."""
OWN_HEADERS = frozenset(
    {
        *("accept", "accept-encoding", "content-type", "content-length", "host"),
        *("transfer-encoding", "connection", "expect", "te", "trailer", "upgrade"),
    }
)
"""Headers that the protocol sets itself, in lower case."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 422})
_LONGEST_EXCERPT = 200
_SHORTEST_SECRET = 4


class FailureError(Exception):
    """Why there is no answer.

    ``kind``: "again" may be tried again, "refused" is about these rows, "unread" a reply that holds
    no answers, "final" is anything else.
    ``message`` ends the sentence "The server …"; ``wait``: seconds that the server asks to wait.
    """

    def __init__(
        self, kind: FailureKind, code: str, wait: float | None = None, **facts: Any
    ) -> None:
        self.message, self.hint, self.parameter = say_refusal(f"server:{code}", facts)
        super().__init__(self.message)
        self.kind, self.wait = kind, wait


@dataclass(slots=True)
class Pace:
    """Keeps questions to a number per minute; None sets no limit.

    >>> Pace(None).wait(5)
    """

    rate: float | None
    _next: float = 0.0

    def wait(self, n: int) -> None:
        """Wait until n questions may be asked."""
        if self.rate is None:
            return
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + n * 60.0 / self.rate


class Line:
    """A connection to one server; use it in a ``with`` block.

    What its headers and its address hold never appears in a message: it may be a secret.

    Raises MissingLibraryError without httpx, InputError if ``cafile`` holds no certificates.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        require_library("httpx", "endpoints", "to ask a server")
        self._endpoint, self._headers = endpoint, endpoint.sent_headers
        query = urlsplit(endpoint.url).query
        values = [value for _, value in parse_qsl(query)]
        secrets = [query, *values, *self._headers.values()]
        secrets += [secret.removeprefix("Bearer ") for secret in self._headers.values()]
        # The longest first: one may be a part of another.
        self._secrets = sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len)[::-1]
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="timbermark-http")
        self._runner = asyncio.Runner()
        self._client = _open_client(endpoint.cafile)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        def close() -> None:
            self._runner.run(self._client.aclose())
            self._runner.close()

        is_interrupted = kind is not None and not issubclass(kind, Exception)
        if is_interrupted:
            # Whoever interrupts a run does not wait for a slow server.
            loop = self._runner.get_loop()
            for task in asyncio.all_tasks(loop):
                loop.call_soon_threadsafe(task.cancel)
        done = self._worker.submit(close)
        if not is_interrupted:
            done.result()
        self._worker.shutdown(wait=False, cancel_futures=False)

    def ask(self, body: str, n: int, headers: Mapping[str, str]) -> list[Any]:
        """Return the n answers to one request, repeating it if it fails for a passing reason.

        Pauses double each time, with jitter, or follow Retry-After. Raises FailureError with the
        last failure, or if the server asks to wait too long.
        """
        pause = FIRST_PAUSE
        for left in range(self._endpoint.retries, -1, -1):
            try:
                attempt = self._worker.submit(self._runner.run, self._send(body, n, headers))
                return attempt.result()
            except FailureError as error:
                last = error
                if last.kind != "again" or not left:
                    raise
            if last.wait is not None and last.wait > LONGEST_WAIT:
                raise FailureError("final", "waits", seconds=last.wait)
            # Between a half and the whole, so that several clients do not come back together.
            time.sleep(pause * random.uniform(0.5, 1.0) if last.wait is None else last.wait)
            pause = min(2.0 * pause, LONGEST_PAUSE)
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, body: str, n: int, more: Mapping[str, str]) -> list[Any]:
        import httpx

        headers = {
            **self._headers,
            **more,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                request = self._client.build_request(
                    "POST", self._endpoint.url, content=body.encode(), headers=headers
                )
                response = await self._client.send(request, stream=True)
                try:
                    reply = await _read(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise FailureError("again", "timeout", seconds=self._endpoint.timeout) from None
        except httpx.TransportError as error:
            raise _explain(error) from None
        except httpx.HTTPError as error:
            raise FailureError("final", "address", why=_excerpt(str(error))) from None
        self._check_status(response, reply)
        found = read_reply(reply, n, self._endpoint.dialect, self._clean)
        return [self._clean_answer(answer) for answer in found]

    def _clean(self, text: str) -> str:
        """Return a text of the server without credentials that it may repeat."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def _clean_answer(self, answer: Any) -> Any:
        """Return an answer without credentials: answers stand in journals, packs and messages."""
        if isinstance(answer, dict):
            return {self._clean_answer(name): score for name, score in answer.items()}
        # A short header may be the name of a class.
        is_long = isinstance(answer, str) and len(answer) >= 2 * _SHORTEST_SECRET
        return self._clean(answer) if is_long else answer

    def _check_status(self, response: httpx.Response, reply: bytes) -> None:
        code = response.status_code
        if 200 <= code < 300:
            return
        excerpt = _excerpt(self._clean(reply[:2000].decode(errors="replace")))
        facts: dict[str, Any] = {"status": code, "said": f": {excerpt}" if excerpt else ""}
        if 300 <= code < 400:
            target = _excerpt(self._clean(response.headers.get("location", "").partition("?")[0]))
            raise FailureError(
                "final", "redirects", target=target or "another address", status=code
            )
        if code in (401, 403, 407):
            raise FailureError("final", "credentials", status=code)
        if code in _AGAIN:
            wait = _read_wait(response.headers.get("retry-after"))
            raise FailureError("again", "busy", wait, **facts)
        if code in _REFUSED:
            raise FailureError("refused", "rows", **facts)
        raise FailureError("final", "request-too-large" if code == 413 else "status", **facts)


def _open_client(cafile: str | os.PathLike[str] | None) -> httpx.AsyncClient:
    """Return a client that checks certificates, against ``cafile`` if there is one."""
    import httpx

    try:
        context = ssl.create_default_context(cafile=cafile)
    except OSError as error:  # of which every error of TLS is one, too
        raise refusal("cafile", cafile=cafile, why=error.strerror or error) from None
    return httpx.AsyncClient(
        verify=context, follow_redirects=False, timeout=None, limits=httpx.Limits(max_connections=1)
    )


def read_reply(reply: bytes, n: int, dialect: Dialect, clean: Any = str) -> list[Any]:
    """Return the n answers in the body of a reply, or raise FailureError.

    >>> from timbermark.verification.dialects import open_dialect
    >>> read_reply(b'{"predictions": ["a", NaN]}', 2, open_dialect("mlflow", {}))
    ['a', None]
    """
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        said = _excerpt(clean(reply[:2000].decode(errors="replace")))
        raise FailureError("final", "no-json", said=said or "nothing") from None
    try:
        return dialect.read_reply(value, n)
    except ReplyError as error:
        raise FailureError("unread", "no-answers", why=_excerpt(clean(str(error)))) from None


async def _read(response: httpx.Response) -> bytes:
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        # What unpacks to gigabytes is never unpacked.
        raise FailureError("final", "compressed", coding=_excerpt(coding))
    pieces, size = [], 0
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > MAX_REPLY:
            raise FailureError("final", "reply-too-large", most=MAX_REPLY >> 20)
        pieces.append(piece)
    return b"".join(pieces)


def _explain(error: httpx.TransportError) -> FailureError:
    import httpx

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return FailureError("final", "certificate", why=seen.verify_message)
        if isinstance(seen, ssl.SSLError):
            return FailureError("final", "tls", why=seen.reason)
        seen = seen.__cause__ or seen.__context__
    said = _excerpt(str(error)) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        return FailureError("again", "unreachable", why=said)
    if isinstance(error, httpx.UnsupportedProtocol | httpx.ProxyError):
        return FailureError("final", "address", why=said)
    return FailureError("again", "broke-off", why=said)


def _read_wait(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which has seconds or a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _excerpt(text: str) -> str:
    """Return the beginning of a text from outside, fit for any terminal."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    cut = len(plain) > _LONGEST_EXCERPT
    return plain[:_LONGEST_EXCERPT] + "…" if cut else plain
