"""`timbermark verify`: does a suspect carry a mark?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli import DONE, INDICATIVE, NONE
from timbermark.cli.app import app
from timbermark.cli.printing import show, show_json
from timbermark.cli.secrets import unlock

if TYPE_CHECKING:
    from timbermark.ownership.verdict import Verdict

_CODES = {"conclusive": DONE, "indicative": INDICATIVE, "none": NONE}


class Answers(StrEnum):
    """What a suspect is asked for."""

    auto = "auto"
    labels = "labels"
    scores = "scores"
    numbers = "numbers"


@app.command()
def verify(
    suspect: Annotated[Path, typer.Argument(help="The suspect's model file, of any library.")],
    mark: Annotated[Path, typer.Argument(help="Your secret mark.")],
    answers: Annotated[
        Answers, typer.Option(help="What counts; another kind than auto takes costs a bit.")
    ] = Answers.auto,
    table: Annotated[bool, typer.Option("--table", help="One line per trigger: secret.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Ask a suspect your triggers and say what its answers prove.

    Exit codes: 0 conclusive (64 bits and more), 3 indicative (from 20 bits, convinces only you),
    1 none, 2 bad input, 4 anything unexpected.
    """
    from timbermark.ownership.mark import Mark
    from timbermark.verification.verifying import verify as ask

    if not suspect.exists():
        suspect.stat()  # before the passphrase is asked for
    verdict = ask(suspect, unlock(lambda secret: Mark.load(mark, secret)), answers=answers.value)
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
    raise typer.Exit(_CODES[verdict.level])


def _table(verdict: Verdict) -> list[dict[str, Any]]:
    return [
        {"trigger": a.trigger, "expected": a.expected, "response": a.response, "matched": a.matched}
        for a in verdict.table()
    ]
