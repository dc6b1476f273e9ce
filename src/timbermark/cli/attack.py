"""`timbermark attack`: what a mark survives, on the owner's own model.

The option --attacks of other commands shares its words and its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import Output, show, tell
from timbermark.cli.tables import check_width, list_features, on_scheduler, read_given
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult
    from timbermark.libraries.contract import ForeignModel


def take_attacks(given: list[str] | None) -> str | list[str]:
    """Return what the lab takes for the words after --attacks, which commas may separate.

    >>> take_attacks(["refit:0.5,majority"]), take_attacks(None)
    (['refit:0.5', 'majority'], 'fast')
    """
    words = [word.strip() for text in given or ["fast"] for word in text.split(",")]
    words = [word for word in words if word]
    return words[0] if len(words) == 1 and words[0] in ("all", "fast", "chains") else words


def show_found(found: AttackResult, output: Output) -> None:
    """Print what the lab found, and its notes."""
    from timbermark.attacks.results import explain, summarize

    tell(explain(found))
    output.show(found.to_dict(), str(found), *filter(None, [summarize(found)]))


def check_attacks(given: list[str] | None, validation: Path | None) -> str | list[str] | None:
    """Return the attacks to try, None for none. Raises InputError for unknown ones."""
    if not given:
        return None
    from timbermark.attacks.registry import find_attacks

    wanted = take_attacks(given)
    find_attacks(wanted)
    if validation is None:
        raise InputError(
            "--attacks needs rows that the model was not trained on.",
            hint="give them with --validation, and their labels with --label.",
        )
    return wanted


def check_forecast(
    model: ForeignModel, rows: dict[str, Any], label_map: Mapping[str, str] | None = None
) -> None:
    """Raise InputError if the validation rows are too few for attacks or have no labels."""
    from timbermark.attacks.lab import take_validation
    from timbermark.boosting.progress import step_bar

    with step_bar(True) as say:
        take_validation(model, rows["validation"], say, label_map)


@command(app)
def attack(
    model: Annotated[Path, argument("The marked model's file, or a folder of timbermark guard.")],
    rows: Annotated[Path, option("The thief's rows: CSV, .csv.gz, Parquet or 'many/*.parquet'.")],
    label: Annotated[str, option("The column of labels, numbers or grades.")],
    output: Output,
    mark: Annotated[Path | None, option("Its secret mark; guards have none.")] = None,
    group: options.Group = None,
    label_map: options.LabelMap = None,
    attacks: Annotated[
        list[str] | None,
        option(
            "all, fast (default), chains, or a name such as refit, refit:0.5 or "
            "keep-first:0.5+refit:0.9; can be repeated."
        ),
    ] = None,
    evaluation: Annotated[
        Path | None, option("Labelled rows to measure models on; else a part of --rows.")
    ] = None,
    out: Annotated[
        Path | None, option("A folder for results.csv and the chart; it is taken up again.")
    ] = None,
    report: Annotated[
        Path | None, option("Write a page to file, HTML: the chart and the table.")
    ] = None,
    seed: options.Seed = 0,
    scheduler: options.Scheduler = "local",
) -> None:
    """Attack your own marked or guarded model as a thief would, and show what evidence is left.

    The table states bits of evidence by scores and by labels, the accuracy (RMSE of regressors,
    NDCG of rankers), and how much of the theft's worth the thief keeps: 1 as good as your model, 0
    no better than what the thief's rows alone would give. Guards have attacks of their own, such as
    distil-scores, learn-labels:3 or drop-unsure; nothing is written to the ledger.
    """
    from timbermark.attacks.lab import attack as run
    from timbermark.attacks.lab import known_labels
    from timbermark.attacks.registry import GUARD_ATTACKS, find_attacks
    from timbermark.marking.models import open_model
    from timbermark.serving import load_folder

    files = {"MODEL": model, "--mark": mark, "--rows": rows, "--evaluation": evaluation}
    output.check_report(report, files)
    wanted, mapped = take_attacks(attacks), options.read_label_map(label_map)
    guard = load_folder(model, keep=False).guard if model.is_dir() else None
    find_attacks(wanted, None if guard is None else GUARD_ATTACKS)
    if (mark is None) != (guard is not None):
        raise InputError(
            "A marked model goes with --mark, and a folder of a guard without.",
            hint="give --mark secret.mark." if mark is None else "leave --mark out.",
            code="attack.mark",
            parameter="mark",
        )
    opened = open_model(model if guard is None else guard.model)
    secret = None if mark is None else options.load_mark(mark)
    if (group is not None) != (opened.task == "ranking"):
        raise InputError(
            f"--group is for rankers and needed by them, and the model is one of {opened.task}.",
            hint="name the column of groups (qid)." if group is None else "leave it out.",
        )
    named = group is not None and opened.feature_names is None
    names = list_features(rows, (label, group)) if named else None
    classes = getattr(guard, "classes_", known_labels(opened, secret))

    def read(flag: str, path: Path) -> tuple[Any, Any, Any]:
        found = read_given(
            opened, path, label, names=names, group=group, scheduler=scheduler, classes=classes,
            mapped=mapped is not None,
        )  # fmt: skip
        if found[1] is None:
            raise InputError(
                f"{path} of {flag} has no column '{label}'.", hint="check the name after --label."
            )
        if opened.feature_names is None:
            check_width(opened, path, found[0])
        return found

    X, y, groups = read("--rows", rows)
    tested = None if evaluation is None else read("--evaluation", evaluation)
    with on_scheduler(scheduler, [X] if tested is None else [X, tested[0]]):
        found = run(
            opened if guard is None else guard, secret, X, y, groups=groups, label_map=mapped,
            evaluation=tested if tested is None or group is not None else tested[:2], out=out,
            attacks=wanted, random_state=seed, progress=True,
        )  # fmt: skip
    if report is not None:
        found.report(report, force=output.force)
    show_found(found, output)
    written = {out: "results.csv, chart.png, chart.svg", report: "the page"}
    for path, text in written.items():
        if path is not None and not output.as_json:
            show(f"{path}: {text}")
