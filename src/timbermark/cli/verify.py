"""`timbermark verify`, `check` and `questions`: does a suspect carry a mark?

`check` is for pipelines, with an exit code and JUnit XML; `questions` writes the questions of a
mark as a file, for suspects without a program.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.options import (
    Answers,
    EndpointFlags,
    is_roll,
    load_roll,
    read_label_map,
    read_rows,
    split_words,
    takes_endpoints,
    unlock,
)
from timbermark.cli.outputs import (
    DONE,
    NONE,
    check_outputs,
    check_report,
    exit_code,
    show,
    show_json,
    tell,
)
from timbermark.files import atomic_write

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


@app.command()
def questions(
    mark: Annotated[
        Path, typer.Argument(help="Your secret mark or roll, or evidence opened for you.")
    ],
    out: Annotated[Path, typer.Option(help="Where the questions go: .csv or .parquet.")],
    decoys: Annotated[int, typer.Option(help="Decoys for each trigger.")] = 1,
    decoys_from: Annotated[
        Path | None, typer.Option(help="Rows whose values decoys take; many/*.parquet will do.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="The suspect's columns in its order, with commas.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Write your triggers among decoys; `timbermark verify answers.csv mark` judges the answers.

    Have them answered in any way, and write the answers beside the ids in the first column: labels
    in a column called label, or scores in columns called like the classes.
    """
    from timbermark.ownership.mark import Mark
    from timbermark.verification.judge import find_parts
    from timbermark.verification.packs import is_pack, read_pack
    from timbermark.verification.table import id_column, write_questions

    check_outputs({"--out": out}, {"the mark": mark, "--decoys-from": decoys_from}, force)
    opened: Mark
    if is_pack(mark):
        # A judge asks what was opened for him.
        claim, opening = find_parts(read_pack(mark), None)
        opened = opening.check(claim)
    elif is_roll(mark):
        opened = unlock(lambda secret: load_roll(mark, secret)).grid
    else:
        opened = unlock(lambda secret: Mark.load(mark, secret))
    n = write_questions(
        opened,
        out,
        decoys=decoys,
        decoys_from=read_rows(opened.feature_names, decoys_from, opened.columns),
        columns=split_words(columns),
    )
    if as_json:
        facts = {"questions": str(out), "rows": n, "triggers": opened.n_triggers}
        show_json({**facts, "id_column": id_column(opened)})
        return
    show(f"{out}: {n} questions, {opened.n_triggers} of them triggers; keep it to yourself")
    show(f"answers belong beside the column '{id_column(opened)}'; their order does not matter")


@app.command()
@takes_endpoints
def check(
    served: Annotated[str, typer.Argument(help="The served model's file, or its address.")],
    mark: Annotated[Path, typer.Argument(help="Your secret mark.")],
    endpoint: EndpointFlags,
    at_least: Annotated[float, typer.Option(help="Bits of evidence that are wanted.")] = 64.0,
    unmarked: Annotated[
        Path | None,
        typer.Option(
            "--max-changed-from",
            help="The model before marking: only thresholds and leaf values may differ.",
        ),
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Rows whose answers are compared with that model's.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The column of these rows that is no feature.")
    ] = None,
    max_changed: Annotated[
        float, typer.Option(help="The share of these answers that may differ.")
    ] = 0.01,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML; replaces a file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check in a pipeline that the model that is served carries your mark.

    Exit codes: 0 everything passed, 1 something failed, 2 bad input, 4 anything unexpected.
    """
    from timbermark.ownership.mark import Mark
    from timbermark.verification.checking import check as run_check
    from timbermark.verification.suspects import is_url

    asked = endpoint.open(served)
    given = {"SERVED": Path(served), "MARK": mark, "--max-changed-from": unmarked, "--rows": rows}
    if junit is not None:
        check_outputs({"--junit": junit}, given, force=True)
    secret = unlock(lambda passphrase: Mark.load(mark, passphrase))
    asking = endpoint.asking(secret.feature_names, secret.columns)
    if is_url(served) and asking["stop_at"] is None:
        asking["stop_at"] = at_least
    found = run_check(
        asked,
        secret,
        at_least=at_least,
        unmarked=unmarked,
        rows=read_rows(secret.feature_names, rows, secret.columns, label=label),
        max_changed=max_changed,
        **asking,
        progress=True,
    )
    if junit is not None:
        atomic_write(junit, found.to_junit())
    if as_json:
        show_json(found.to_dict())
    else:
        for finding in found.findings:
            show(f"{'ok    ' if finding.passed else 'FAILED'}  {finding.name}: {finding.said}")
        if unmarked is not None and rows is None:
            tell(["Answers were not compared: --rows names rows to compare them on."])
    raise typer.Exit(DONE if found.passed else NONE)
