"""`timbermark verify`, `check` and `questions`: does a suspect carry a mark?

`check` is for pipelines, with an exit code and JUnit XML; `questions` writes the questions of a
mark as a file, for suspects without a program.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.exit_codes import DONE, NONE, exit_code
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import Output, tell
from timbermark.files import atomic_write

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark


@command(app)
def verify(
    suspect: options.Suspect,
    mark: Annotated[Path, argument("Your secret mark, or a roll that holds it.")],
    endpoint: options.EndpointFlags,
    output: Output,
    answers: options.AnswersWanted = options.Answers.auto,
    label_map: options.SuspectLabels = None,
    report: options.Report = None,
    table: Annotated[bool, option("One line per trigger: secret.", "--table")] = False,
) -> None:
    """Ask a suspect your triggers and say what its answers prove.

    Exit codes: 0 conclusive (64 bits and more), 3 indicative (from 20 bits, convinces only you),
    1 none, 2 bad input, 4 anything unexpected.
    """
    from timbermark.verification.verifying import verify as ask

    labels = options.read_label_map(label_map)
    asked = endpoint.open(suspect)
    files = {"the suspect": Path(suspect), "the mark": mark, "--journal": endpoint.journal}
    output.check_report(report, files)
    # Every copy carries the owner's mark, which the roll holds.
    opened = options.load_roll(mark).mark if options.is_roll(mark) else options.load_mark(mark)
    verdict = ask(
        asked, opened, answers=answers.value, label_map=labels,
        **endpoint.asking(opened.feature_names, opened.columns), progress=True,
    )  # fmt: skip
    rows = [asdict(answer) for answer in verdict.table()] if table else []
    lines = [
        f"{row['trigger']:5}  {row['seal']:6}  wanted {row['expected']!s:12} got "
        f"{row['response']!s:12} {'match' if row['matched'] else 'no match'}"
        for row in rows
    ]
    output.finish(verdict, report, {"table": rows} if table else {}, lines)
    raise typer.Exit(exit_code(verdict.level))


@command(app)
def questions(
    mark: Annotated[Path, argument("Your secret mark or roll, or evidence opened for you.")],
    out: Annotated[Path, option("Where the questions go: .csv or .parquet.")],
    output: Output,
    decoys: Annotated[int, option("Decoys for each trigger.")] = 1,
    decoys_from: Annotated[Path | None, option(options.DECOYS_FROM)] = None,
    columns: Annotated[
        str | None, option("The suspect's columns in its order, with commas.")
    ] = None,
) -> None:
    """Write your triggers among decoys; `timbermark verify answers.csv mark` judges the answers.

    Have them answered in any way, and write the answers beside the ids in the first column: labels
    in a column called label, or scores in columns called like the classes.
    """
    from timbermark.verification.judge import find_parts
    from timbermark.verification.packs import is_pack, read_pack
    from timbermark.verification.table import id_column, write_questions

    output.check({"--out": out}, {"the mark": mark, "--decoys-from": decoys_from})
    opened: Mark
    if is_pack(mark):
        # A judge asks what was opened for him.
        claim, opening = find_parts(read_pack(mark), None)
        opened = opening.check(claim)
    else:
        opened = options.load_roll(mark).grid if options.is_roll(mark) else options.load_mark(mark)
    n = write_questions(
        opened,
        out,
        decoys=decoys,
        decoys_from=options.read_rows(opened.feature_names, decoys_from, opened.columns),
        columns=options.split_words(columns),
    )
    names, triggers = id_column(opened), opened.n_triggers
    output.show(
        {"questions": str(out), "rows": n, "triggers": triggers, "id_column": names},
        f"{out}: {n} questions, {triggers} of them triggers; keep it to yourself",
        f"answers belong beside the column '{names}'; their order does not matter",
    )


@command(app)
def check(
    served: Annotated[str, argument("The served model's file, or its address.")],
    mark: options.SecretMark,
    endpoint: options.EndpointFlags,
    at_least: Annotated[float, option("Bits of evidence that are wanted.")] = 64.0,
    unmarked: Annotated[
        Path | None,
        option(
            "The model before marking: only thresholds and leaf values may differ.",
            "--max-changed-from",
        ),
    ] = None,
    rows: Annotated[
        Path | None, option("Rows whose answers are compared with that model's.")
    ] = None,
    label: Annotated[str | None, option("The column of these rows that is no feature.")] = None,
    max_changed: Annotated[float, option("The share of these answers that may differ.")] = 0.01,
    junit: Annotated[Path | None, option("Write JUnit XML; replaces a file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Check in a pipeline that the model that is served carries your mark.

    Exit codes: 0 everything passed, 1 something failed, 2 bad input, 4 anything unexpected.
    """
    from timbermark.verification.checking import check as run_check
    from timbermark.verification.suspects import is_url

    asked = endpoint.open(served)
    given = {"SERVED": Path(served), "MARK": mark, "--max-changed-from": unmarked, "--rows": rows}
    Output(force=True).check({"--junit": junit}, given)
    secret = options.load_mark(mark)
    asking = endpoint.asking(secret.feature_names, secret.columns)
    if is_url(served) and asking["stop_at"] is None:
        asking["stop_at"] = at_least
    compared = options.read_rows(secret.feature_names, rows, secret.columns, label=label)
    found = run_check(
        asked, secret, at_least=at_least, unmarked=unmarked, rows=compared,
        max_changed=max_changed, **asking, progress=True,
    )  # fmt: skip
    if junit is not None:
        atomic_write(junit, found.to_junit())
    lines = (f"{'ok    ' if f.passed else 'FAILED'}  {f.name}: {f.said}" for f in found.findings)
    Output(as_json=as_json).show(found.to_dict(), *lines)
    if not as_json and unmarked is not None and rows is None:
        tell(["Answers were not compared: --rows names rows to compare them on."])
    raise typer.Exit(DONE if found.passed else NONE)
