"""Options that several commands have, declared once, and what they name: servers, rows, rolls.

Passphrases come from a prompt or the environment, never from the command line.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from timbermark.cli.tables import LOCAL, is_pattern, on_scheduler
from timbermark.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from timbermark.tracing.roll import Roll


_ASKING_NAMES = ("journal", "decoys", "decoys_from", "scheduler", "stop_at", "in_doubt")


def share_options(
    declare: Callable[..., None],
    name: str,
    gather: Callable[[Mapping[str, Any]], object],
    *more: Callable[..., None],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options in the signature of ``declare``.

    The command gets them together in its parameter ``name``, as ``gather`` makes it of their values
    by name; ``declare`` and ``more`` of its kind are never called.

    >>> def declare(loud: bool = False) -> None: ...
    >>> @share_options(declare, "flags", dict)
    ... def greet(who: str, flags: dict) -> None:
    ...     print(who, flags)
    >>> greet(who="Ann", loud=True)
    Ann {'loud': True}
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        options: dict[str, inspect.Parameter] = {}
        for part in (declare, *more):
            options.update(inspect.signature(part, eval_str=True).parameters)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option: given.pop(option) for option in options}
            command(**given, **{name: gather(values)})

        shown = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in (*own.parameters.values(), *options.values())
            if parameter.name != name
        ]
        # Typer reads the signature and the annotations, and looks behind no wrapper.
        run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        del run.__wrapped__
        return run

    return decorate


class Answers(StrEnum):
    """What a suspect is asked for."""

    auto = "auto"
    labels = "labels"
    scores = "scores"
    numbers = "numbers"


class Protocol(StrEnum):
    """What a server speaks."""

    auto = "auto"
    mlflow = "mlflow"
    kserve_v1 = "kserve-v1"
    kserve_v2 = "kserve-v2"
    json = "json"


class Scale(StrEnum):
    """What scores are."""

    auto = "auto"
    probabilities = "probabilities"
    margins = "margins"


class InDoubt(StrEnum):
    """What becomes of questions that were under way when a run crashed."""

    ask = "ask"
    skip = "skip"


def _server(*names: str, **about: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Endpoints: the server", **about)


def _asking(*names: str, **about: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Endpoints: asking", **about)


def _declare(
    protocol: Annotated[
        Protocol | None, _server(help="What it speaks; auto: the address tells.")
    ] = None,
    body: Annotated[
        str | None, _server(help='Template of the request, as {"rows": "$rows"}, or @file.')
    ] = None,
    answer: Annotated[str | None, _server(help="Path to the answers, as results.*.label.")] = None,
    output: Annotated[str | None, _server(help="kserve-v2: the output to ask for.")] = None,
    columns: Annotated[
        str | None, _server(help="Its names of the columns in its order, with commas.")
    ] = None,
    classes: Annotated[
        str | None, _server(help="The classes of its scores in their order, with commas.")
    ] = None,
    class_numbers: Annotated[
        bool, _server("--class-numbers", help="It answers with numbers from 0 for classes.")
    ] = False,
    scale: Annotated[Scale | None, _server(help="What its scores are.")] = None,
    token_env: Annotated[
        str | None, _server(help="Environment variable that holds a bearer token.")
    ] = None,
    token_file: Annotated[Path | None, _server(help="File that holds a bearer token.")] = None,
    headers_file: Annotated[
        Path | None, _server(help="File of further headers, one Name: value on a line.")
    ] = None,
    cafile: Annotated[Path | None, _server(help="Certificates to trust, PEM.")] = None,
    timeout: Annotated[float | None, _server(help="Seconds for each request.  [30]")] = None,
    retries: Annotated[int | None, _server(help="Of each request.  [6]")] = None,
    idempotency_header: Annotated[
        str | None, _server(help="Header for a key that a repeated request has again.")
    ] = None,
    batch: Annotated[int | None, _asking(help="Questions in each request.  [1]")] = None,
    rate: Annotated[float | None, _asking(help="Questions per minute, at most.")] = None,
    journal: Annotated[
        Path | None, _asking(help="Keeps every answer; resumes an interrupted run.")
    ] = None,
    decoys: Annotated[int | None, _asking(help="Decoys for each trigger.  [1]")] = None,
    decoys_from: Annotated[
        Path | None, _asking(help="Rows whose values decoys take; many/*.parquet will do.")
    ] = None,
    scheduler: Annotated[
        str | None,
        _asking(
            help="Where many files of --decoys-from are read: local, or a Dask scheduler's "
            "address.  [local]"
        ),
    ] = None,
    stop_at: Annotated[
        str | None, _asking(help="Bits that are enough; off asks everything.  [64]")
    ] = None,
    in_doubt: Annotated[
        InDoubt | None, _asking(help="After a crash: ask again what was under way, or skip it.")
    ] = None,
) -> None:
    """Declare the options in a signature, which is read and never called."""


@dataclass(frozen=True, slots=True)
class EndpointFlags:
    """What was said on the command line about a server and about asking it."""

    given: Mapping[str, Any]

    @property
    def journal(self) -> Path | None:
        """Return the file that keeps the answers, if one is named."""
        path: Path | None = self.given["journal"]
        return path

    def open(self, suspect: str) -> Any:
        """Return an `Endpoint` for an address; any other suspect as it is.

        Raises InputError for options of servers with a file, and OSError for a file that is not
        there.
        """
        from timbermark.verification.endpoint import Endpoint
        from timbermark.verification.suspects import is_url

        server = self._read_server()
        if is_url(suspect):
            return Endpoint(suspect, **server)
        if server:
            flag = next(iter(server)).replace("_", "-")
            raise InputError(f"--{flag} is for endpoints.", hint="leave it out for a file.")
        Path(suspect).stat()  # before a passphrase is asked for
        return suspect

    def asking(self, feature_names: Sequence[str] | None, columns: Any) -> dict[str, Any]:
        """Return how it is asked: arguments of `timbermark.verify`; names, columns: the mark's."""
        given = self.given
        return {
            "journal": given["journal"],
            "decoys": given["decoys"],
            "decoys_from": read_rows(
                feature_names, given["decoys_from"], columns, given["scheduler"] or LOCAL
            ),
            "stop_at": read_stop(given["stop_at"]),
            "in_doubt": given["in_doubt"] and given["in_doubt"].value,
        }

    def refuse(self, reason: str, *, only_asking: bool = False) -> None:
        """Raise InputError if any of them, or any about asking, was given."""
        for name, value in self.given.items():
            if value not in (None, False) and (name in _ASKING_NAMES or not only_asking):
                flag = name.replace("_", "-")
                raise InputError(f"--{flag} is given {reason}.", hint="leave it out.")

    def _read_server(self) -> dict[str, Any]:
        given = self.given
        server: dict[str, Any] = {
            "protocol": given["protocol"] and given["protocol"].value,
            "body": read_body(given["body"]),
            "answer": given["answer"],
            "output": given["output"],
            "columns": split_words(given["columns"]),
            "classes": split_words(given["classes"]),
            "class_numbers": given["class_numbers"] or None,
            "scale": given["scale"] and given["scale"].value,
            "token": read_token(given["token_env"], given["token_file"]),
            "headers": read_headers(given["headers_file"]) or None,
            "cafile": given["cafile"],
            "timeout": given["timeout"],
            "retries": given["retries"],
            "idempotency_header": given["idempotency_header"],
            "batch": given["batch"],
            "rate": given["rate"],
        }
        return {name: value for name, value in server.items() if value is not None}


takes_endpoints = share_options(_declare, "endpoint", EndpointFlags)
"""Gives a command the options of endpoints, which it gets as `EndpointFlags` in ``endpoint``."""


def read_token(variable: str | None, file: Path | None) -> str | None:
    """Return the token from an environment variable or from a file; None if neither is named."""
    if variable is not None and file is not None:
        raise InputError("--token-env and --token-file are both given.", hint="give one of them.")
    if variable is not None:
        token = os.environ.get(variable, "").strip()
        if not token:
            raise InputError(
                f"The environment variable {variable} holds no token.", hint="set it, or leave out."
            )
        return token
    if file is None:
        return None
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if not token:
        raise InputError(f"{file} holds no token.", hint="write it there, and nothing else.")
    return token


def read_headers(file: Path | None) -> dict[str, str]:
    """Return the headers in a file, one "Name: value" on each line."""
    headers: dict[str, str] = {}
    if file is None:
        return headers
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and (not colon or not name.strip()):
            # The line is not shown: it may be a secret.
            raise InputError(
                f"{file} holds a line that is no header.", hint='as in "X-Api-Key: …".'
            )
        if line.strip():
            headers[name.strip()] = value.strip()
    return headers


def read_body(given: str | None) -> Any:
    """Return the template of the request: JSON, or @ and the name of a file that holds it."""
    if given is None:
        return None
    if given.startswith("@"):
        given = Path(given[1:]).read_text(encoding="utf-8", errors="replace")
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"The template of the request is no JSON ({error}).",
            hint='as in \'{"rows": "$rows"}\'.',
            code="template",
            parameter="body",
        ) from None


def split_words(given: str | None) -> list[str] | None:
    """Return words that are separated by commas.

    >>> split_words("age, income")
    ['age', 'income']
    """
    return None if given is None else [word.strip() for word in given.split(",")]


LabelMap: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Which class each label of the rows is, as in no=0,yes=1."),
]
"""The labels of rows where a model's file has none, for `embed`, `plan` and `attack`."""


def read_label_map(given: str | None) -> dict[str, str] | None:
    """Return labels of a suspect or of rows, and the classes for them, as in "a=1,b=2".

    >>> read_label_map("no=0, yes=1")
    {'no': '0', 'yes': '1'}
    """
    if given is None:
        return None
    pairs = [word.partition("=") for word in split_words(given) or ()]
    label_map = {theirs.strip(): yours.strip() for theirs, _, yours in pairs}
    if not all(sign for _, sign, _ in pairs) or len(label_map) < len(pairs):
        raise InputError(
            f"--label-map {given[:40]} does not say once for each label which class it is.",
            hint="as in --label-map no=0,yes=1.",
        )
    return label_map


def read_stop(given: str | None) -> float | str | None:
    """Return the bits at which asking stops: a number, auto or off."""
    if given is None or given in ("auto", "off"):
        return given
    try:
        return float(given)
    except ValueError:
        raise InputError(
            f"--stop-at {given[:40]} is neither a number of bits nor off.",
            hint="64 bits convince anyone, 20 convince you.",
        ) from None


def read_rows(
    feature_names: Sequence[str] | None,
    path: Path | None,
    columns: Sequence[Sequence[str | None] | np.ndarray] | None = None,
    scheduler: str = LOCAL,
    label: str | None = None,
) -> Any:
    """Return rows of a file in the mark's columns; None without a file.

    ``label``: a column that is none of the mark's. ``columns``: the mark's, which are numbers or
    texts; None where only the table tells. What the mark has no value of is missing. Of many
    files, and of Parquet where there is a cluster, some rows are enough.
    """
    if path is not None and _is_sampled(path, scheduler):
        from timbermark.verification.questions import sample_rows

        with on_scheduler(scheduler, [str(path)]):
            return sample_rows(path, feature_names)
    with on_scheduler(scheduler, []):
        pass  # which refuses one that has nothing to do
    if path is None:
        return None
    from timbermark.cli.tables import read_table

    if columns is None:
        return read_table(path, feature_names, label, None).X
    texts = [place for place, column in enumerate(columns) if isinstance(column, tuple)]
    # In columns that the mark has no value of there may be anything; a decoy has none, either.
    known = {
        place: None
        for place, column in enumerate(columns)
        if all(value is None or value != value for value in column)
    }
    X = read_table(path, feature_names, label, frozenset([*texts, *known]), known).X
    if known:
        X[:, list(known)] = None
    return X


def _is_sampled(path: Path, scheduler: str) -> bool:
    from timbermark.files.tables import is_parquet

    return is_pattern(path) or (scheduler != LOCAL and is_parquet(path))


Loaded = TypeVar("Loaded")

VARIABLE = "TIMBERMARK_PASSPHRASE"


def new_passphrase(wanted: bool) -> str | None:
    """Return a passphrase to protect a new file with, asked for twice; None if none is wanted."""
    if not wanted:
        return None
    given = os.environ.get(VARIABLE)
    if given is None:
        given = _ask(twice=True)
    if not given.strip():
        raise InputError("The passphrase is empty.", hint="leave --passphrase out for none.")
    return given


def unlock(load: Callable[[str | None], Loaded]) -> Loaded:
    """Return the result of ``load(passphrase)``; ask for a passphrase only if it is needed."""
    loaded, encrypted = try_to_unlock(load)
    if loaded is None and encrypted:
        return load(None)  # which says that a passphrase is needed
    assert loaded is not None
    return loaded


def try_to_unlock(load: Callable[[str | None], Loaded]) -> tuple[Loaded | None, bool]:
    """Return what ``load(passphrase)`` gives, and whether a passphrase was needed.

    The first is None if it was needed and there is neither one in the environment nor a terminal
    to ask on.
    """
    from timbermark.errors import PassphraseNeededError

    try:
        return load(None), False
    except PassphraseNeededError:
        given = os.environ.get(VARIABLE)
        if given is None and not sys.stdin.isatty():
            return None, True
        return load(_ask(twice=False) if given is None else given), True


def is_roll(path: Path) -> bool:
    """Return whether a file says that it is a roll."""
    from timbermark.files import container_kind

    return container_kind(path) == "roll"


def load_roll(path: Path, secret: str | None) -> Roll:
    """Return the roll in a file."""
    from timbermark.tracing.roll import Roll

    return Roll.load(path, secret)


def _ask(twice: bool) -> str:
    try:
        return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=twice, err=True))
    except typer.Abort as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise InputError("No passphrase was given.", hint=f"type one, or set {VARIABLE}.") from None
