"""`timbermark verify`: is a suspect marked?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from timbermark.cli.app import app
from timbermark.cli.secrets import unlocked


@app.command()
def verify(
    suspect: Annotated[Path, typer.Argument(help="The suspect's model file, of any library.")],
    mark: Annotated[Path, typer.Argument(help="Your secret mark.")],
    table: Annotated[bool, typer.Option("--table", help="One line per trigger: secret.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Ask a suspect your triggers. Exit code 0: marked, 1: not marked, 2: bad input."""
    from timbermark.marking.asking import verify as judge
    from timbermark.ownership.mark import Mark

    verdict = judge(suspect, unlocked(lambda secret: Mark.load(mark, secret)))
    if as_json:
        typer.echo(json.dumps(verdict.to_dict()))
    else:
        typer.echo(str(verdict))
    if table:
        for row in verdict.table():
            said = "match" if row.matched else "no match"
            typer.echo(
                f"{row.trigger:5}  wanted {row.expected!s:12} got {row.response!s:12} {said}"
            )
    raise typer.Exit(0 if verdict.marked else 1)
