"""Results on stdout, as text or as JSON; notes on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from timbermark.cli.wording import use_flags


def show(text: str) -> None:
    """Print a result on stdout; a reader that has gone away does not change the exit code."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        # The descriptor itself, because Python flushes the old stream once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_json(facts: Mapping[str, Any]) -> None:
    """Print facts as one line of JSON; numbers that JSON does not have become null."""
    show(json.dumps(_plain(facts), allow_nan=False))


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print one line for each fact that there is."""
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        if value is None or value == []:
            continue
        if isinstance(value, bool):
            value = "yes" if value else "no"
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        show(f"{name.replace('_', ' '):{width}}{value}")


def tell(notes: Iterable[str]) -> None:
    """Print notes on stderr, in the words of the command line."""
    for note in notes:
        typer.echo(f"note: {use_flags(note)[0]}", err=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)
