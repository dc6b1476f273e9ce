"""`timbermark update`: learn rows and forget rows in the trees of a model of our own."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.outputs import check_outputs, show, show_json
from timbermark.errors import InputError
from timbermark.files import will_write

_MODES = ("lazy", "exact")


@app.command()
def update(
    model: Annotated[Path, typer.Argument(help="A model of timbermark's own engine.")],
    state: Annotated[Path, typer.Option(help="Its training state, as save_state wrote it.")],
    out: Annotated[Path, typer.Option(help="Where the updated model goes.")],
    add: Annotated[Path | None, typer.Option(help="Rows to learn, CSV or Parquet.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of answers.")] = None,
    weight: Annotated[str | None, typer.Option(help="The column of weights, if any.")] = None,
    forget: Annotated[
        Path | None,
        typer.Option(help="Rows to forget: their numbers, one a line, or a table of their values."),
    ] = None,
    state_out: Annotated[
        Path | None, typer.Option(help="Where the new state goes; OUT with .state by default.")
    ] = None,
    mode: Annotated[str, typer.Option(help="lazy, or exact: as if trained again.")] = "lazy",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Learn and forget rows in place: no new trees, no second training.

    Rows are numbered as they came: training rows from 0 on, then those of each update. A number
    stays a row's own, whatever is forgotten. The state holds facts about training rows: keep it
    to yourself.
    """
    target = state_out or out.with_suffix(".state")
    _check_request(add, label, weight, forget, mode)
    files = {"MODEL": model, "--state": state, "--add": add, "--forget": forget}
    check_outputs({"--out": out, "--state-out": target}, files, force)
    estimator = _load(model).load_state(state)
    X, y, weights = _read_added(estimator, add, label, weight)
    gone = None if forget is None else _read_forgotten(estimator, forget, label)
    n_before = estimator.count_rows()
    with warnings.catch_warnings():
        # The columns were found by their names.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        if add is None:
            estimator.forget(gone, mode=mode)
        else:
            estimator.update(X, y, weights, mode=mode, forget=gone)
    _write_both(estimator, out, target)
    n_learnt = 0 if X is None else len(X) if weights is None else int((weights > 0).sum())
    n_after = estimator.count_rows()
    facts = {
        "learnt": n_learnt,
        "forgotten": n_before + n_learnt - n_after,
        "rows": n_after,
        "mode": mode,
        "out": str(out),
        "state": str(target),
    }
    if as_json:
        show_json(facts)
        return
    show(f"learnt {facts['learnt']} rows, forgot {facts['forgotten']}; {facts['rows']} are left")
    show(f"{out}: the updated model\n{target}: its state, keep it to yourself")


def _check_request(
    add: Path | None, label: str | None, weight: str | None, forget: Path | None, mode: str
) -> None:
    if add is None and forget is None:
        raise InputError(
            "There is nothing to learn and nothing to forget.",
            hint="give rows to learn with --add, or rows to forget with --forget.",
        )
    if add is not None and label is None:
        raise InputError("--add needs the answers of its rows.", hint="name them with --label.")
    if weight is not None and add is None:
        raise InputError("--weight is for the rows of --add.", hint="leave it out.")
    if mode not in _MODES:
        raise InputError(f"--mode {mode} is not known.", hint=f"use {' or '.join(_MODES)}.")


def _load(path: Path) -> Any:
    from timbermark.estimator import TimberClassifier, TimberRegressor, load_estimator
    from timbermark.files import container_kind

    if container_kind(path) not in (TimberClassifier.file_kind, TimberRegressor.file_kind):
        raise InputError(
            f"{path} is not a model of timbermark's own engine.",
            hint="only TimberClassifier and TimberRegressor learn in place; train others again.",
        )
    return load_estimator(path)


def _read_added(estimator: Any, add: Path | None, label: str | None, weight: str | None) -> Any:
    """Return the rows to learn, their answers and their weights; None where there are none."""
    if add is None:
        return None, None, None
    from timbermark.cli.tables import list_features, read_table

    for flag, column in (("--label", label), ("--weight", weight)):
        if column is not None and column not in list_features(add, ()):
            raise InputError(
                f"{add} has no column '{column}'.", hint=f"check the name after {flag}."
            )
    table = read_table(add, _features(estimator, add, label, weight), label)
    weights = None if weight is None else read_table(add, [weight], None).X[:, 0]
    return table.X, _answers(estimator, table), weights


def _read_forgotten(estimator: Any, path: Path, label: str | None) -> Any:
    """Return the numbers of the rows to forget, or their values, with answers if they are there."""
    from timbermark.cli.tables import read_table
    from timbermark.files.tables import is_parquet

    if not is_parquet(path):
        lines = [line.strip() for line in path.read_bytes().splitlines()]
        lines = [line for line in lines if line]
        if not lines:
            raise InputError(f"{path} names no rows.", hint="write one number a line.")
        if all(line.lstrip(b"-").isdigit() for line in lines):
            return [int(line) for line in lines]
    table = read_table(path, _features(estimator, path, label, None), label)
    return table.X if table.labels is None else (table.X, _answers(estimator, table))


def _features(estimator: Any, path: Path, *left_out: str | None) -> list[str]:
    from timbermark.cli.tables import list_features

    names = getattr(estimator, "feature_names_in_", None)
    return list_features(path, left_out) if names is None else [str(name) for name in names]


def _answers(estimator: Any, table: Any) -> Any:
    import numpy as np

    from timbermark.cli.tables import read_labels

    return read_labels(table.labels, getattr(estimator, "classes_", np.zeros(0)))


def _write_both(estimator: Any, out: Path, state: Path) -> None:
    """Write the model and its state, or neither: one is of no use to the other's predecessor.

    Both are written under other names first. Whoever is killed in the last moment finds the old
    state in a folder beside the new one.
    """
    model_target, state_target = Path(os.path.realpath(out)), Path(os.path.realpath(state))
    with (
        tempfile.TemporaryDirectory(prefix=".timbermark-", dir=model_target.parent) as model_folder,
        tempfile.TemporaryDirectory(prefix=".timbermark-", dir=state_target.parent) as state_folder,
    ):
        model_draft, state_draft = Path(model_folder) / "model", Path(state_folder) / "state"
        kept = Path(state_folder) / "kept"
        estimator.save(model_draft)
        estimator.save_state(state_draft)
        will_write(model_target)
        will_write(state_target)
        if state_target.exists():
            state_target.replace(kept)
        try:
            state_draft.replace(state_target)
            model_draft.replace(model_target)
        except BaseException:
            state_target.unlink(missing_ok=True)
            if kept.exists():
                kept.replace(state_target)
            raise
