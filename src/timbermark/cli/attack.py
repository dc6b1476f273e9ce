"""`timbermark attack`: what a mark survives, on the owner's own model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.attack_results import show_found, take_attacks
from timbermark.cli.large_tables import FileTable, on_scheduler, open_files
from timbermark.cli.marking_options import Group, Scheduler
from timbermark.cli.options import LabelMap, read_label_map
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
    label: Annotated[str, typer.Option(help="The column of labels, numbers or grades.")],
    group: Group = None,
    label_map: LabelMap = None,
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            help="all, fast (default), chains, or a name such as refit, refit:0.5 or "
            "keep-first:0.5+refit:0.9; can be repeated."
        ),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="Labelled rows to measure models on; else a part of --rows."),
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

    The table states bits of evidence by scores and by labels, the accuracy (RMSE of regressors,
    NDCG of rankers), and how much of the theft's worth the thief keeps: 1 as good as your model, 0
    no better than what the thief's rows alone would give.
    """
    from timbermark.attacks.lab import attack as run
    from timbermark.attacks.lab import known_labels
    from timbermark.attacks.registry import find_attacks
    from timbermark.cli.groups import list_features, read_groups
    from timbermark.cli.tables import check_width, read_labels, read_table
    from timbermark.marking.models import open_model
    from timbermark.ownership.mark import Mark

    files = {"MODEL": model, "--mark": mark, "--rows": rows, "--evaluation": evaluation}
    check_report(report, files, force)
    wanted, mapped = take_attacks(attacks), read_label_map(label_map)
    find_attacks(wanted)
    opened = open_model(model)
    secret = unlock(lambda passphrase: Mark.load(mark, passphrase))
    if (group is not None) != (opened.task == "ranking"):
        raise InputError(
            f"--group is for rankers and needed by them, and the model is one of {opened.task}.",
            hint="name the column of groups (qid)." if group is None else "leave it out.",
        )
    names: Sequence[str] | None = opened.feature_names
    if names is None and group is not None:
        names = list_features(rows, (label, group))

    def read(flag: str, path: Path) -> tuple[Any, Any, Any]:
        """Return rows, labels and groups."""
        table = open_files(opened, path, label, scheduler) or read_table(
            path, names, label, opened.text_columns, opened.known_texts
        )
        if table.labels is None:
            raise InputError(
                f"{path} of {flag} has no column '{label}'.", hint="check the name after --label."
            )
        if isinstance(table, FileTable):
            if group is not None:
                raise InputError(
                    "--group goes with rows that fit in memory, in one file.",
                    hint="give such a file.",
                )
            return table.X, table.labels, None
        if names is None:
            check_width(opened, table)
        known = known_labels(opened, secret)
        labels = table.labels if mapped is not None else read_labels(table.labels, known)
        return table.X, labels, None if group is None else read_groups(path, group)

    X, y, groups = read("--rows", rows)
    tested = None if evaluation is None else read("--evaluation", evaluation)
    with on_scheduler(scheduler, [X] if tested is None else [X, tested[0]]):
        found = run(
            opened, secret, X, y, groups=groups, label_map=mapped, attacks=wanted,
            evaluation=tested if tested is None or group is not None else tested[:2], out=out,
            random_state=seed, progress=True,
        )  # fmt: skip
    if report is not None:
        found.report(report, force=force)
    show_found(found, as_json)
    if out is not None and not as_json:
        show(f"{out}: results.csv, chart.png, chart.svg")
    if report is not None and not as_json:
        show(f"{report}: the page")
