"""One attempt to have some questions answered, over HTTP: bounded in time and size."""

from __future__ import annotations

import asyncio
import email.utils
import json
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from timbermark.errors import InputError
from timbermark.verification.endpoints.protocols.contract import Dialect, ReplyError

if TYPE_CHECKING:
    import httpx

FailureKind: TypeAlias = Literal["again", "refused", "final"]

MAX_REPLY = 16 << 20
"""Bytes of a reply; the probabilities of 1,000 rows and 100 classes take 2 million."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 422})
_LONGEST_EXCERPT = 200
_LATER = "try again later."


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer."""

    kind: FailureKind  # "again": may be tried again; "refused": these rows; "final": anything else
    message: str  # ends the sentence "The server …"
    hint: str = ""
    wait: float | None = None  # seconds that the server asks to wait

    def to_dict(self) -> dict[str, Any]:
        """Return the failure, ready for JSON."""
        return asdict(self)


class FailureError(Exception):
    """Carries a `Failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def open_client(cafile: str | None) -> httpx.AsyncClient:
    """Return a client that checks certificates, against ``cafile`` if there is one."""
    import httpx

    try:
        context = ssl.create_default_context(cafile=cafile)
    except OSError as error:  # of which every error of TLS is one, too
        raise InputError(
            f"{cafile} holds no certificates that can be used ({error.strerror or error}).",
            hint="give a PEM file.",
        ) from None
    return httpx.AsyncClient(
        verify=context, follow_redirects=False, timeout=None, limits=httpx.Limits(max_connections=1)
    )


async def send(
    client: httpx.AsyncClient,
    url: str,
    headers: Mapping[str, str],
    body: str,
    n: int,
    dialect: Dialect,
    timeout: float,
) -> list[Any]:
    """Return the n answers to one request, or raise FailureError.

    ``timeout`` is for the whole of it, in seconds: a server that sends a byte now and then does not
    hold it up.
    """
    import httpx

    try:
        async with asyncio.timeout(timeout):
            request = client.build_request(
                "POST",
                url,
                content=body.encode(),
                headers={
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",
                    "Content-Type": "application/json",
                    **headers,
                },
            )
            response = await client.send(request, stream=True)
            try:
                reply = await _read(response)
            finally:
                await response.aclose()
    except TimeoutError:
        _fail("again", f"did not answer within {timeout:g} s.", "allow more with timeout=60.")
    except httpx.TransportError as error:
        _explain(error)
    except httpx.HTTPError as error:
        _fail("final", f"cannot be asked ({_excerpt(str(error))}).", "check the address.")
    _check_status(response, reply)
    return read_answers(reply, n, dialect)


def read_answers(reply: bytes, n: int, dialect: Dialect) -> list[Any]:
    """Return the n answers in the body of a reply, or raise FailureError.

    >>> from timbermark.verification.endpoints.protocols.mlflow import MLflow
    >>> read_answers(b'{"predictions": ["a", NaN]}', 2, MLflow())
    ['a', None]
    """
    hint = "does it speak this protocol? A path to the answers can be given, see the documentation."
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        said = _excerpt(reply[:2000].decode(errors="replace"))
        _fail("final", f"answered with something that is no JSON: {said or 'nothing'}.", hint)
    try:
        return dialect.read_reply(value, n)
    except ReplyError as error:
        _fail("final", f"gave a reply that cannot be read: {error}.", hint)


async def _read(response: httpx.Response) -> bytes:
    pieces, size = [], 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > MAX_REPLY:
            _fail(
                "final",
                f"gave a reply of more than {MAX_REPLY >> 20} MiB.",
                "ask fewer questions at once.",
            )
        pieces.append(piece)
    return b"".join(pieces)


def _check_status(response: httpx.Response, reply: bytes) -> None:
    code = response.status_code
    if 200 <= code < 300:
        return
    said = f"answered with status {code}"
    excerpt = _excerpt(reply[:2000].decode(errors="replace"))
    detail = f": {excerpt}." if excerpt else "."
    if 300 <= code < 400:
        target = _excerpt(response.headers.get("location", "").partition("?")[0])
        _fail(
            "final",
            f"redirects to {target or 'another address'} (status {code}), which is not followed.",
            "give that address if it is the right one.",
        )
    if code in (401, 403, 407):
        _fail(
            "final",
            f"refused the credentials, or their absence, with status {code}.",
            "give the right ones, as a token or as headers.",
        )
    if code in _AGAIN:
        _fail("again", said + detail, _LATER, wait=_read_wait(response.headers.get("retry-after")))
    if code in _REFUSED:
        _fail("refused", said + detail, "does it take such rows, with these columns and types?")
    if code == 413:
        _fail("final", said + ": the request is too large.", "ask fewer questions at once.")
    _fail("final", said + detail, "check the address and the protocol.")


def _explain(error: httpx.TransportError) -> NoReturn:
    import httpx

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            _fail(
                "final",
                f"has a certificate that cannot be trusted ({seen.verify_message}).",
                'name the file of the authority that signed it, as in cafile="ca.pem".',
            )
        if isinstance(seen, ssl.SSLError):
            _fail("final", f"does not speak TLS as expected ({seen.reason}).", "check the address.")
        seen = seen.__cause__ or seen.__context__
    said = _excerpt(str(error)) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        _fail("again", f"cannot be reached ({said}).", "check the address and the network.")
    if isinstance(error, httpx.UnsupportedProtocol | httpx.ProxyError):
        _fail("final", f"cannot be asked ({said}).", "check the address and the proxy.")
    _fail("again", f"broke off in the middle of an answer ({said}).", _LATER)


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


def _fail(kind: FailureKind, message: str, hint: str, wait: float | None = None) -> NoReturn:
    raise FailureError(Failure(kind, message, hint, wait)) from None
