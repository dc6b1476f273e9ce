"""An endpoint: where a suspect is asked over HTTP, and how."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from timbermark.errors import InputError
from timbermark.verification.endpoints.protocols import complete_url, open_dialect

ProtocolName: TypeAlias = Literal["auto", "mlflow", "kserve-v1", "kserve-v2", "json"]
ScaleWanted: TypeAlias = Literal["auto", "probabilities", "margins"]

_SCALES = ("auto", "probabilities", "margins")
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Endpoint:
    """A suspect behind HTTP, to be given to `timbermark.verify`. Nothing is sent before that.

    ``url`` is the whole address; an address of a model is completed. ``protocol`` follows from it
    where the path is that of a protocol. ``body`` and ``answer`` are the template of the request
    and the path to the answers for ``protocol="json"``; see docs/verifying.md.

    Raises InputError for anything that cannot be meant.

    >>> Endpoint("http://localhost:5000/invocations", token="secret")
    Endpoint(http://localhost:5000/invocations, protocol='mlflow')
    >>> Endpoint("https://host/score", protocol="json", body={"rows": "$rows"}, answer="labels").url
    'https://host/score'
    """

    url: str = field(kw_only=False)
    protocol: ProtocolName = "auto"
    token: str | None = None  # sent as "Authorization: Bearer …"
    headers: Mapping[str, str] = field(default_factory=dict)  # more of them, such as an API key
    body: Any = None  # protocol "json": the request, with "$rows" where questions go
    answer: str | None = None  # a path to the answers, such as "results.*.label"
    output: str | None = None  # protocol "kserve-v2": which output is asked for
    columns: Sequence[str] | None = None  # the server's names, for each feature in its order
    classes: Sequence[Any] | None = None  # of the scores, in their order; by default the mark's
    class_numbers: bool = False  # labels are numbers from 0 in the order of the mark's classes
    scale: ScaleWanted = "auto"  # of scores
    batch: int = 1  # questions in each request
    rate: float | None = None  # questions for each minute, at most
    timeout: float = 30.0  # seconds for each request
    retries: int = 6  # of each request
    cafile: str | os.PathLike[str] | None = None  # certificates to trust, PEM
    idempotency_header: str | None = None  # carries a key that is the same for a repeated request

    def __post_init__(self) -> None:
        _check_url(self.url)
        url, protocol = complete_url(self.url, self.protocol)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "protocol", protocol)
        dialect = open_dialect(protocol, self.options)
        _check_number("batch", self.batch, 1, 10_000, whole=True)
        _check_number("timeout", self.timeout, 0.01, 3600.0)
        _check_number("retries", self.retries, 0, 100, whole=True)
        if self.rate is not None:
            _check_number("rate", self.rate, 0.001, 1e6)
        if self.batch > 1 and dialect.one_at_a_time:
            raise InputError(
                f"batch={self.batch} does not fit a template for one question.",
                hint="use $rows or $records, or leave it out.",
            )
        if self.scale not in _SCALES:
            raise InputError(f"scale={self.scale!r} is not known.", hint=f"use one of {_SCALES}.")
        object.__setattr__(self, "headers", MappingProxyType(_check_headers(self.headers)))
        for name in ("columns", "classes"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _check_names(name, given))
        if self.token is not None:
            _check_headers({"Authorization": self.token})

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the protocol."""
        return {"body": self.body, "answer": self.answer, "output": self.output}

    @property
    def shown_url(self) -> str:
        """Return the address without what may be secret in it."""
        return urlunsplit(urlsplit(self.url)._replace(query="", fragment=""))

    @property
    def sent_headers(self) -> dict[str, str]:
        """Return all headers, credentials included."""
        bearer = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return {**self.headers, **bearer}

    @property
    def exposes_credentials(self) -> bool:
        """Return whether credentials are sent without encryption."""
        parts = urlsplit(self.url)
        secret = self.token is not None or bool(self.headers)
        return secret and parts.scheme == "http" and parts.hostname not in _LOCAL

    def __repr__(self) -> str:
        return f"Endpoint({self.shown_url}, protocol={self.protocol!r})"


def is_url(word: object) -> bool:
    """Return whether a word is meant as an address.

    >>> is_url("https://host/score"), is_url("model.json")
    (True, False)
    """
    return isinstance(word, str) and word.lower().startswith(("http://", "https://"))


def _check_url(url: Any) -> None:
    hint = "as in https://host/invocations."
    if not is_url(url):
        raise InputError(f"{url!r:.80} is no address of an endpoint.", hint=hint)
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known or any(c.isspace() or not c.isprintable() for c in url):
        raise InputError("The address of the endpoint is not a sound one.", hint=hint)
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "The address of the endpoint holds a name or a password.",
            hint="give credentials as a token or as headers; addresses are written down.",
        )


def _check_number(name: str, value: Any, low: float, high: float, whole: bool = False) -> None:
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not low <= value <= high:
        kind = "whole number" if whole else "number"
        raise InputError(
            f"{name}={value!r} is no {kind} from {low:g} to {high:g}.", hint="leave it out."
        )


def _check_headers(headers: Any) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise InputError("headers is no dictionary.", hint='as in {"X-Api-Key": "…"}.')
    for name, value in headers.items():
        sound = isinstance(name, str) and isinstance(value, str) and name.isascii() and name
        if not sound or not value.isascii() or not (name + value).isprintable():
            # The value itself is not shown: it may be a secret.
            raise InputError(
                f"The header or token {name!r:.40} holds something that cannot be sent.",
                hint="headers are printable ASCII texts on one line.",
            )
    return dict(headers)


def _check_names(what: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
        raise InputError(f"{what} is no list.", hint="give each name once, in order.")
    if len(set(given)) < len(given):
        raise InputError(f"{what} names something twice.", hint="give each name once, in order.")
    return tuple(given)
