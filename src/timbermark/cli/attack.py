"""`timbermark attack`: what a mark survives, on the owner's own model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.attack_results import show_found, take_attacks
from timbermark.cli.large_tables import FileTable, on_scheduler, open_files
from timbermark.cli.marking_options import Scheduler
from timbermark.cli.outputs import check_report
from timbermark.cli.printing import show
from timbermark.cli.secrets import unlock
from timbermark.errors import InputError


@app.command()
def attack(
    model: Annotated[Path, typer.Argument(help="The marked model's file, of any library.")],
    mark: Annotated[Path, typer.Option(help="Its secret mark.")],
    rows: Annotated[
        Path, typer.Option(help="The thief's rows: CSV, .csv.gz, Parquet or 'many/*.parquet'.")
    ],
    label: Annotated[str, typer.Option(help="The label column.")],
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            help="all, fast (default), or a name such as refit, refit:0.5 or "
            "keep-first:0.5+refit:0.9; can be repeated."
        ),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="Labelled rows to measure accuracy on; else a part of --rows."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for results.csv and the chart; it is taken up again."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page to file, HTML: the chart and the table.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing page.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For random choices.")] = 0,
    scheduler: Scheduler = "local",
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Attack your own marked model as a thief would, and show what evidence is left.

    The table states bits of evidence by scores and by labels, the accuracy, and how much of the
    theft's worth the thief keeps: 1 as good as your model, 0 no better than what the thief's rows
    alone would give.
    """
    from timbermark.attacks.lab import attack as run
    from timbermark.attacks.lab import known_labels
    from timbermark.attacks.registry import find_attacks
    from timbermark.cli.tables import check_width, read_labels, read_table
    from timbermark.marking.models import open_model
    from timbermark.ownership.mark import Mark

    files = {"MODEL": model, "--mark": mark, "--rows": rows, "--evaluation": evaluation}
    check_report(report, files, force)
    wanted = take_attacks(attacks)
    find_attacks(wanted)
    opened = open_model(model)
    secret = unlock(lambda passphrase: Mark.load(mark, passphrase))
    tables: list[Any] = []
    for flag, path in (("--rows", rows), ("--evaluation", evaluation)):
        if path is None:
            tables.append(None)
            continue
        table = open_files(opened, path, label, scheduler) or read_table(
            path, opened.feature_names, label, opened.text_columns, opened.known_texts
        )
        if table.labels is None:
            raise InputError(
                f"{path} of {flag} has no column '{label}'.", hint="check the name after --label."
            )
        if isinstance(table, FileTable):
            tables.append((table.X, table.labels))
            continue
        if opened.feature_names is None:
            check_width(opened, table)
        tables.append((table.X, read_labels(table.labels, known_labels(opened, secret))))
    with on_scheduler(scheduler, [table[0] for table in tables if table is not None]):
        found = run(
            opened, secret, *tables[0], attacks=wanted, evaluation=tables[1], out=out,
            random_state=seed, verbose=1,
        )  # fmt: skip
    if report is not None:
        found.report(report, force=force)
    show_found(found, as_json)
    if out is not None and not as_json:
        show(f"{out}: results.csv, chart.png, chart.svg")
    if report is not None and not as_json:
        show(f"{report}: the page")
