"""`timbermark verify`: does a suspect carry a mark?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli import DONE, INDICATIVE, NONE
from timbermark.cli.app import app
from timbermark.cli.endpoints import (
    read_body,
    read_headers,
    read_stop,
    read_token,
    split_words,
)
from timbermark.cli.printing import show, show_json
from timbermark.cli.questions import read_rows
from timbermark.cli.secrets import unlock
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.ownership.statistics import Level
    from timbermark.ownership.verdict import Verdict

_CODES = {"conclusive": DONE, "indicative": INDICATIVE, "none": NONE}
_SERVER = "Endpoints: the server"
_ASKING = "Endpoints: asking"


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
    return typer.Option(*names, rich_help_panel=_SERVER, **about)


def _asking(*names: str, **about: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_ASKING, **about)


@app.command()
def verify(
    suspect: Annotated[
        str,
        typer.Argument(help="A model file of any library, an https:// address, or answers.csv."),
    ],
    mark: Annotated[Path, typer.Argument(help="Your secret mark.")],
    answers: Annotated[
        Answers, typer.Option(help="What counts; another kind than auto takes costs a bit.")
    ] = Answers.auto,
    table: Annotated[bool, typer.Option("--table", help="One line per trigger: secret.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
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
    journal: Annotated[
        Path | None, _asking(help="Keeps every answer; resumes an interrupted run.")
    ] = None,
    batch: Annotated[int | None, _asking(help="Questions in each request.  [1]")] = None,
    rate: Annotated[float | None, _asking(help="Questions per minute, at most.")] = None,
    decoys: Annotated[int | None, _asking(help="Decoys for each trigger.  [1]")] = None,
    decoys_from: Annotated[
        Path | None, _asking(help="Rows whose values decoys take; many/*.parquet will do.")
    ] = None,
    stop_at: Annotated[
        str | None, _asking(help="Bits that are enough; off asks everything.  [64]")
    ] = None,
    in_doubt: Annotated[
        InDoubt | None, _asking(help="After a crash: ask again what was under way, or skip it.")
    ] = None,
) -> None:
    """Ask a suspect your triggers and say what its answers prove.

    Exit codes: 0 conclusive (64 bits and more), 3 indicative (from 20 bits, convinces only you),
    1 none, 2 bad input, 4 anything unexpected.
    """
    from timbermark.ownership.mark import Mark
    from timbermark.verification.endpoints.endpoint import Endpoint, is_url
    from timbermark.verification.verifying import verify as ask

    server: dict[str, Any] = {
        "protocol": protocol and protocol.value,
        "body": read_body(body),
        "answer": answer,
        "output": output,
        "columns": split_words(columns),
        "classes": split_words(classes),
        "class_numbers": class_numbers or None,
        "scale": scale and scale.value,
        "token": read_token(token_env, token_file),
        "headers": read_headers(headers_file) or None,
        "cafile": cafile,
        "timeout": timeout,
        "retries": retries,
        "idempotency_header": idempotency_header,
        "batch": batch,
        "rate": rate,
    }
    server = {name: value for name, value in server.items() if value is not None}
    asked: Any = suspect
    if is_url(suspect):
        asked = Endpoint(suspect, **server)
    elif server:
        flag = next(iter(server)).replace("_", "-")
        raise InputError(f"--{flag} is for endpoints.", hint="leave it out for a file.")
    else:
        Path(suspect).stat()  # before the passphrase is asked for
    opened = unlock(lambda secret: Mark.load(mark, secret))
    verdict = ask(
        asked,
        opened,
        answers=answers.value,
        journal=journal,
        decoys=decoys,
        decoys_from=read_rows(opened, decoys_from),
        stop_at=read_stop(stop_at),  # type: ignore[arg-type]  # checked there
        in_doubt=in_doubt and in_doubt.value,  # type: ignore[arg-type]  # one of the same words
        progress=True,
    )
    if as_json:
        show_json({**verdict.to_dict(), **({"table": _table(verdict)} if table else {})})
    else:
        show(str(verdict))
        for row in _table(verdict) if table else ():
            match = "match" if row["matched"] else "no match"
            show(
                f"{row['trigger']:5}  wanted {row['expected']!s:12} got {row['response']!s:12} "
                f"{match}"
            )
    raise typer.Exit(exit_code(verdict.level))


def exit_code(level: Level) -> int:
    """Return the exit code of a level of evidence.

    >>> exit_code("conclusive"), exit_code("indicative"), exit_code("none")
    (0, 3, 1)
    """
    return _CODES[level]


def _table(verdict: Verdict) -> list[dict[str, Any]]:
    return [
        {"trigger": a.trigger, "expected": a.expected, "response": a.response, "matched": a.matched}
        for a in verdict.table()
    ]
