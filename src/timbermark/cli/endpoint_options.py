"""The options of endpoints, declared once for every command that asks a suspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from timbermark.cli.endpoints import (
    read_body,
    read_headers,
    read_stop,
    read_token,
    split_words,
)
from timbermark.cli.large_tables import LOCAL
from timbermark.cli.questions import read_rows
from timbermark.cli.shared_options import share_options
from timbermark.errors import InputError

_ASKING_NAMES = ("journal", "decoys", "decoys_from", "scheduler", "stop_at", "in_doubt")


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
        from timbermark.verification.endpoints.endpoint import Endpoint, is_url

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
