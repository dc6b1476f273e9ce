"""Endpoints: suspects behind HTTP, what asking them by hand costs, and how they are asked."""

from __future__ import annotations

import copy
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, get_args
from urllib.parse import urlsplit, urlunsplit

from timbermark.errors import InputError
from timbermark.ownership.evidence import Price
from timbermark.verification.answers import ReadingRules, Scale, most_odd
from timbermark.verification.dialects import (
    MOST_PATHS,
    Batch,
    Dialect,
    complete_url,
    is_placeholder,
    open_dialect,
    own_path,
)
from timbermark.verification.http import OWN_HEADERS, FailureError, Line, Pace
from timbermark.verification.inquiry import Facts, Inquiry
from timbermark.verification.journal import History, Journal
from timbermark.verification.questions import DECOY, Question
from timbermark.verification.refusals import check_choice, check_number, refusal
from timbermark.verification.suspects import is_url
from timbermark.verification.transcript import Context, Note

ProtocolName: TypeAlias = Literal["auto", "mlflow", "kserve-v1", "kserve-v2", "json"]

_LOCAL = ("localhost", "127.0.0.1", "::1")
_PATH_BITS = float(MOST_PATHS.bit_length() - 1)
_MOST_OUTPUTS = 1024
_STANDARD_OUTPUTS = ("predict", "predict_proba", "decision_function", "predict_log_proba")
"""What servers of scikit-learn's interface call their outputs."""
_BITS_PER_BYTE = 8.0
_COMMON, _BITS_PER_SIGN = frozenset("abcdefghijklmnopqrstuvwxyz-_./:"), 5.0
_USUAL_KEYS = frozenset(
    (
        *("columns", "data", "dataframe", "dataframe_records", "dataframe_split", "examples"),
        *("feature_names", "features", "index", "input", "inputs", "input_data", "instance"),
        *("instances", "items", "json", "names", "ndarray", "observations", "parameters"),
        *("payload", "queries", "records", "request", "row", "rows", "sample", "samples"),
        *("signature_name", "values", "x", "X"),
    )
)
"""32 names under which servers take rows: one of them costs 5 bits."""
_FORM_BITS = 2.0
"""The template's placeholder is one of four; every further list or object costs as much."""
_BATCH_BITS, _ROUND_BATCH_BITS = 16.0, 5.0
_ROUND_BATCHES = frozenset(
    (*(2**i for i in range(1, 14)), *(n * 10**i for n in (1, 2, 5) for i in range(5)))
)
"""Usual numbers of rows in a request, fewer than 32 from 2 to 10,000."""
_CREDENTIALS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")
_REPEATED = ("idempotency-key", "x-idempotency-key", "x-request-id")
"""Usual headers that carry a key or the name of a request."""
_HEADER_SIGNS = frozenset("!#$%&'*+-.^_`|~")
_LONGEST_SHOWN = 200
_ROOM, _ROOM_PER_SCORE = 256, 28
"""Bytes of the journal that are set aside for each answer before its question is asked."""


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
    scale: Scale = "auto"  # of scores
    batch: int = 1  # questions in each request
    rate: float | None = None  # questions for each minute, at most
    timeout: float = 30.0  # seconds for each request
    retries: int = 6  # of each request
    cafile: str | os.PathLike[str] | None = None  # certificates to trust, PEM
    idempotency_header: str | None = None  # carries a key that is the same for a repeated request

    # Whether whoever judges asks with credentials of their own; only `for_judge` sets it.
    is_judges: bool = field(default=False, init=False, repr=False)

    one_by_one: ClassVar[bool] = True  # questions may have decoys, a journal and an early end

    def __post_init__(self) -> None:
        _check_url(self.url)
        url, protocol = complete_url(self.url, self.protocol)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "protocol", protocol)
        _check_body(self.body)
        one_at_a_time = self.dialect.one_at_a_time
        check_number("batch", self.batch, 1, 10_000, whole=True)
        check_number("timeout", self.timeout, 0.01, 3600.0)
        check_number("retries", self.retries, 0, 100, whole=True)
        if self.rate is not None:
            check_number("rate", self.rate, 0.001, 1e6)
        if self.batch > 1 and one_at_a_time:
            raise refusal("batch.one", batch=self.batch)
        check_choice("scale", self.scale, get_args(Scale))
        object.__setattr__(self, "headers", MappingProxyType(_check_headers(self.headers)))
        for name in ("columns", "classes"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _check_names(name, given))
        if self.token is not None:
            _check_headers({"Authorization": self.token})
        if self.idempotency_header is not None:
            _check_headers({self.idempotency_header: "x"})

    def for_judge(self) -> Endpoint:
        """Return the same endpoint, asked by a judge, whose credentials no claimant chose.

        >>> Endpoint("https://host/invocations", token="secret").for_judge().is_judges
        True
        """
        found = copy.copy(self)
        object.__setattr__(found, "is_judges", True)
        return found

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the protocol."""
        return {"body": self.body, "answer": self.answer, "output": self.output}

    @property
    def dialect(self) -> Dialect:
        """Return the protocol with its options."""
        return open_dialect(self.protocol, self.options)

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

    @property
    def facts(self) -> Facts:
        """Return what is known of the server, what was chosen by hand and what that costs."""
        warnings = (Note("credentials-in-the-open"),) if self.exposes_credentials else ()
        context = Context(
            f"endpoint {self.shown_url}", "http", request=_describe(self), warnings=warnings
        )
        return Facts(
            context=context.choosing(*list_choices(self)),
            server_columns=None if self.columns is None else tuple(map(str, self.columns)),
            sends_names=self.dialect.sends_names,
            reading=ReadingRules(
                classes=None if self.classes is None else tuple(self.classes),
                class_numbers=self.class_numbers,
                scale=self.scale,
            ),
        )

    def ask(self, inquiry: Inquiry) -> Iterator[Mapping[int, Any]]:
        """Yield answers, one request after the other, until enough is known.

        Every answer is in the inquiry's journal by then, and what that holds already is not asked
        again. Raises InputError if the server does not answer, or not with what can be read.
        """
        pace, taken, refused = Pace(self.rate), 0, 0
        with Line(self) as line:
            while waiting := inquiry.following(self.batch):
                while waiting:
                    batch, waiting = waiting[: self.batch], waiting[self.batch :]
                    held = inquiry.journal.answers
                    known = {q.id: held[q.id] for q in batch if q.id in held}
                    asked = [q for q in batch if q.id not in known]
                    if asked:
                        pace.wait(len(asked))
                        said = _ask(self, inquiry, line, asked, taken > 0, refused)
                        refused += sum(answer is None for answer in said.values())
                        known.update(said)
                    inquiry.n_asked += len(batch)
                    taken += sum(answer is not None for answer in known.values())
                    yield {q.row: known[q.id] for q in batch if q.row != DECOY}

    def __repr__(self) -> str:
        return f"Endpoint({self.shown_url}, protocol={self.protocol!r})"


def _ask(
    endpoint: Endpoint,
    inquiry: Inquiry,
    line: Line,
    questions: Sequence[Question],
    taken: bool,
    refused: int,
) -> dict[str, Any]:
    """Return the answers to some questions, by their ids; None for those that are refused."""
    ids, journal = [question.id for question in questions], inquiry.journal
    batch = Batch(inquiry.wire(questions), inquiry.columns.names)
    body = json.dumps(endpoint.dialect.make_body(batch), allow_nan=False)
    room = len(ids) * (_ROOM + _ROOM_PER_SCORE * len(inquiry.mark.classes))
    headers = {}
    if endpoint.idempotency_header:
        name = f"{journal.run}/{'/'.join(ids)}"
        headers[endpoint.idempotency_header] = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    journal.add({"asking": ids}, reserve=room)
    try:
        answers = line.ask(body, len(ids), headers)
    except FailureError as error:
        journal.add({"failed": ids})
        # A server may refuse single rows, such as an age of 150, or answer them in another form.
        # That rule knows no symbols, so these questions count as not answered; a server that takes
        # nothing is misunderstood.
        of_rows = error.kind in ("refused", "unread")
        if not of_rows or not taken or refused >= most_odd(inquiry.n_asked):
            raise _complaint(endpoint, journal, error) from None
        if len(questions) > 1:
            found: dict[str, Any] = {}
            for question in questions:
                found |= _ask(endpoint, inquiry, line, [question], taken, refused)
                refused += found[question.id] is None
            return found
        answers = [None]
    said = dict(zip(ids, answers, strict=True))
    journal.add({"answers": [[name, answer] for name, answer in said.items()]})
    return said


def _complaint(endpoint: Endpoint, journal: History, failure: FailureError) -> InputError:
    hint, message = failure.hint, failure.message
    if isinstance(journal, Journal) and journal.answers:
        kept = f"the journal holds {len(journal.answers)} answers, and the same command goes on."
        hint = f"{hint} {kept[0].upper()}{kept[1:]}" if hint else kept
    if failure.kind == "again":
        message = f"{message.removesuffix('.')}, in {endpoint.retries + 1} attempts."
    return InputError(
        f"The server at {endpoint.shown_url} {message}",
        hint,
        code=f"server.{failure.kind}",
        parameter=failure.parameter,
    )


def list_choices(endpoint: Endpoint) -> Iterator[Price | Note]:
    """Yield what was chosen by hand about requests and replies: its price, or what depends on it.

    A path to the answers is one of 1,024 at most, which is checked against each reply. An output is
    one of four standard names, or one of 1,024. Of a template everything costs what it takes to
    write it down: 2 bits for the placeholder and for each list or object in it, 5 bits for a usual
    key, and for other keys and all constants 5 bits a common sign and 8 bits a byte. So does what
    the address has beyond its host and the protocol's own path: any of it may choose among models.
    Several rows in a request cost 5 bits if their number is a round one (a power of two; 1, 2 or 5
    and zeros) and 16 bits if not: a server's answers may depend on the other rows.

    >>> next(list_choices(Endpoint("http://host/invocations", answer="results.*.label"))).bits
    10.0
    """
    if endpoint.body is not None:
        written = json.dumps(endpoint.body, ensure_ascii=False)
        n_bytes = len(written.encode(errors="replace"))
        yield Price("template", sum(_price_parts(endpoint.body)), {"bytes": n_bytes})
        yield Note("template", {"body": _shorten(written)})
    if endpoint.dialect.chooses_path:
        yield Price("path", _PATH_BITS)
        yield Note("path", {"path": _shorten(endpoint.answer or "")})
    if endpoint.output is not None:
        standard = endpoint.output in _STANDARD_OUTPUTS
        count = len(_STANDARD_OUTPUTS) if standard else _MOST_OUTPUTS
        yield Price("output", float(count.bit_length() - 1), {"outputs": count})
        yield Note("output", {"output": _shorten(endpoint.output), "most": _MOST_OUTPUTS})
    parts = urlsplit(endpoint.url)
    if parts.query:
        n_bytes = len(parts.query.encode())
        yield Price("query", _BITS_PER_BYTE * n_bytes, {"bytes": n_bytes})
        yield Note("query")
    path = own_path(endpoint.protocol, parts.path)
    if path:
        yield Price("address", _price_of_word(path), {"letters": len(path)})
    if endpoint.batch > 1:
        bits = _ROUND_BATCH_BITS if endpoint.batch in _ROUND_BATCHES else _BATCH_BITS
        yield Price("batch", bits, {"rows": endpoint.batch})
    # A header may choose among models, and what it says is not shown: it has no price. Credentials
    # do so, too, wherever each customer has a model; only a judge's own are nobody's choice.
    sent, repeated = [*endpoint.sent_headers], endpoint.idempotency_header
    kinds = {"credentials" if name.lower() in _CREDENTIALS else "plain" for name in sent}
    if repeated is not None:
        sent.append(repeated)
        kinds |= set() if repeated.lower() in _REPEATED else {"plain"}
    if sent:
        by_choice = "credentials" in kinds and not endpoint.is_judges
        code = "credentials" if by_choice and "plain" not in kinds else "headers"
        caps = "plain" in kinds or by_choice
        yield Note(code, {"names": _shorten(", ".join(sent)), "caps": caps})


def _price_of_word(word: str) -> float:
    """Return what it takes to write a word down: 5 bits for a common sign, 8 a byte for others."""
    return sum(
        _BITS_PER_SIGN if sign in _COMMON else _BITS_PER_BYTE * len(sign.encode()) for sign in word
    )


def _price_parts(template: Any, is_inside: bool = False) -> Iterator[float]:
    if is_placeholder(template):
        yield _FORM_BITS
    elif isinstance(template, dict | list):
        yield _FORM_BITS if is_inside else 0.0
        keys = list(template) if isinstance(template, dict) else []
        for key in keys:
            usual = key in _USUAL_KEYS
            yield _BITS_PER_SIGN if usual else _BITS_PER_SIGN + _price_of_word(str(key))
        for part in template.values() if isinstance(template, dict) else template:
            yield from _price_parts(part, is_inside=True)
    else:
        written = template if isinstance(template, str) else json.dumps(template)
        yield _BITS_PER_SIGN + _price_of_word(written)


def _describe(endpoint: Endpoint) -> dict[str, Any]:
    """Return the request for the verdict, without credentials."""
    return {
        "url": endpoint.shown_url,
        "protocol": endpoint.protocol,
        "has_query": bool(urlsplit(endpoint.url).query),
        "headers": sorted(endpoint.headers),
        "has_token": endpoint.token is not None,
        "body": "" if endpoint.body is None else json.dumps(endpoint.body, ensure_ascii=False),
        "answer": endpoint.answer or "",
        "output": endpoint.output or "",
    }


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _check_url(url: Any) -> None:
    if not is_url(url):
        raise refusal("url", url=url)
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known or any(c.isspace() or not c.isprintable() for c in url):
        raise refusal("url:not-sound")
    if parts.username is not None or parts.password is not None:
        raise refusal("url.credentials")


def _check_body(body: Any) -> None:
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise refusal("template:no-json-value") from None


def _check_headers(headers: Any) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise refusal("headers.unsendable", where="")
    for name, value in headers.items():
        sound = isinstance(name, str) and isinstance(value, str) and name.isascii() and name != ""
        if (
            not sound
            or not all(c.isalnum() or c in _HEADER_SIGNS for c in name)
            or not (value.isascii() and value.isprintable() and value == value.strip())
        ):
            # The value itself is not shown: it may be a secret.
            raise refusal("headers.unsendable", where=f", at {name!r:.40}")
        if name.lower() in OWN_HEADERS:
            raise refusal("headers.own", name=name)
    return dict(headers)


def _check_names(what: str, given: Any) -> tuple[Any, ...]:
    given = given.tolist() if hasattr(given, "tolist") else given
    try:
        fits = isinstance(given, Sequence) and 0 < len(given) == len(set(given))
    except TypeError:
        fits = False
    if not fits or isinstance(given, str | bytes):
        raise refusal("names", what=what)
    return tuple(given)
