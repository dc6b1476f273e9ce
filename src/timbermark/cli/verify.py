"""`timbermark verify`: does a suspect carry a mark?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.options import Answers, EndpointFlags, read_label_map, takes_endpoints
from timbermark.cli.outputs import check_report
from timbermark.cli.printing import exit_code, show, show_json
from timbermark.cli.secrets import is_roll, load_roll, unlock

if TYPE_CHECKING:
    from timbermark.verification.verdict import Verdict


@app.command()
@takes_endpoints
def verify(
    suspect: Annotated[
        str,
        typer.Argument(help="A model file of any library, an https:// address, or answers.csv."),
    ],
    mark: Annotated[Path, typer.Argument(help="Your secret mark, or a roll that holds it.")],
    endpoint: EndpointFlags,
    answers: Annotated[
        Answers, typer.Option(help="What counts; another kind than auto takes costs a bit.")
    ] = Answers.auto,
    label_map: Annotated[
        str | None,
        typer.Option(help="Its labels and the mark's, as no=0,yes=1, if they differ; costs bits."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page to file, HTML; nothing in it is secret.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="One line per trigger: secret.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing page.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Ask a suspect your triggers and say what its answers prove.

    Exit codes: 0 conclusive (64 bits and more), 3 indicative (from 20 bits, convinces only you),
    1 none, 2 bad input, 4 anything unexpected.
    """
    from timbermark.ownership.mark import Mark
    from timbermark.verification.verifying import verify as ask

    labels = read_label_map(label_map)
    asked = endpoint.open(suspect)
    files = {"the suspect": Path(suspect), "the mark": mark, "--journal": endpoint.journal}
    check_report(report, files, force)
    if is_roll(mark):
        # Every copy carries the owner's mark, which the roll holds.
        opened = unlock(lambda secret: load_roll(mark, secret)).mark
    else:
        opened = unlock(lambda secret: Mark.load(mark, secret))
    verdict = ask(
        asked,
        opened,
        answers=answers.value,
        label_map=labels,
        **endpoint.asking(opened.feature_names, opened.columns),
        progress=True,
    )
    if report is not None:
        verdict.report(report, force=force)
    if as_json:
        show_json({**verdict.to_dict(), **({"table": _table(verdict)} if table else {})})
    else:
        show(str(verdict))
        for row in _table(verdict) if table else ():
            match = "match" if row["matched"] else "no match"
            show(
                f"{row['trigger']:5}  {row['seal']:6}  wanted {row['expected']!s:12} got "
                f"{row['response']!s:12} {match}"
            )
        if report is not None:
            show(f"{report}: the page")
    raise typer.Exit(exit_code(verdict.level))


def _table(verdict: Verdict) -> list[dict[str, Any]]:
    return [asdict(answer) for answer in verdict.table()]
