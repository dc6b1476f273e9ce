"""`timbermark update`: learn rows and forget rows in the trees of a model of our own."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timbermark.cli.app import app
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import Output
from timbermark.errors import InputError
from timbermark.files import will_write

if TYPE_CHECKING:
    import numpy as np

    from timbermark.boosting.state import State
    from timbermark.kernels.workers import Workers
    from timbermark.trees.model_file import SavedModel

_MODES = ("lazy", "exact")


@command(app)
def update(
    model: Annotated[Path, argument("A model of timbermark's own engine.")],
    state: Annotated[Path, option("Its training state, as save_state wrote it.")],
    out: Annotated[Path, option("Where the updated model goes.")],
    output: Output,
    add: Annotated[Path | None, option("Rows to learn, CSV or Parquet.")] = None,
    label: Annotated[str | None, option("The column of answers.")] = None,
    weight: Annotated[str | None, option("The column of weights, if any.")] = None,
    forget: Annotated[
        Path | None,
        option("Rows to forget: their numbers, one a line, or a table of their values."),
    ] = None,
    state_out: Annotated[
        Path | None, option("Where the new state goes; OUT with .state by default.")
    ] = None,
    mode: Annotated[str, option("lazy, or exact: as if trained again.")] = "lazy",
) -> None:
    """Learn and forget rows in place: no new trees, no second training.

    Rows are numbered as they came: training rows from 0 on, then those of each update. A number
    stays a row's own, whatever is forgotten. The state holds facts about training rows: keep it
    to yourself.
    """
    target = state_out or out.with_suffix(".state")
    _check_request(add, label, weight, forget, mode)
    files = {"MODEL": model, "--state": state, "--add": add, "--forget": forget}
    output.check({"--out": out, "--state-out": target}, files)
    # The engine alone: importing scikit-learn takes longer than an update.
    from timbermark.boosting.progress import training_bar
    from timbermark.boosting.state_file import load_state
    from timbermark.boosting.updating import update_ensemble
    from timbermark.kernels.workers import Workers, count_threads

    saved, before = _read_model(model), load_state(state)
    before.check(saved.ensemble)
    X, y, weights = _read_added(saved, add, label, weight)
    n_threads, verbose = count_threads(saved.params.get("n_jobs")), saved.params.get("verbose")
    with (
        Workers(n_threads) as workers,
        training_bar(before.params.max_iter, bool(verbose)) as progress,
    ):
        gone = _find_forgotten(saved, before, forget, label, workers)
        ensemble, after = update_ensemble(
            saved.ensemble, before, X, y, weights, workers, mode, progress=progress, forget=gone
        )
    _write_both(replace(saved, ensemble=ensemble), after, out, target)
    n_learnt = len(X) if weights is None else int((weights > 0).sum())
    facts = {
        "learnt": n_learnt,
        "forgotten": before.n_rows + n_learnt - after.n_rows,
        "rows": after.n_rows,
        "mode": mode,
        "out": str(out),
        "state": str(target),
    }
    output.show(
        facts,
        f"learnt {facts['learnt']} rows, forgot {facts['forgotten']}; {facts['rows']} are left",
        f"{out}: the updated model\n{target}: its state, keep it to yourself",
    )


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


def _read_model(path: Path) -> SavedModel:
    from timbermark.files import container_kind
    from timbermark.trees.model_file import CLASSIFIER, REGRESSOR, read_model

    kind = container_kind(path)
    if kind not in (CLASSIFIER, REGRESSOR):
        raise InputError(
            f"{path} is not a model of timbermark's own engine.",
            hint="only TimberClassifier and TimberRegressor learn in place; train others again.",
        )
    return read_model(path, kind)


def _read_added(
    model: SavedModel, add: Path | None, label: str | None, weight: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the rows to learn, their answers and, if they have any, their weights."""
    import numpy as np

    from timbermark.cli.tables import list_features, read_table
    from timbermark.estimator_checks import check_weight

    if add is None:
        return np.empty((0, model.ensemble.n_features)), np.zeros(0), None
    for flag, column in (("--label", label), ("--weight", weight)):
        if column is not None and column not in list_features(add):
            raise InputError(
                f"{add} has no column '{column}'.", hint=f"check the name after {flag}."
            )
    X, y = _read_rows(model, add, label, weight)
    assert y is not None  # --add needs --label
    cells = None if weight is None else read_table(add, [weight], None).X[:, 0]
    return X, y, check_weight(cells, len(X))


def _find_forgotten(
    model: SavedModel, state: State, path: Path | None, label: str | None, workers: Workers
) -> np.ndarray:
    """Return the numbers of the rows to forget, which a file lists by number or by value."""
    from timbermark.estimator_checks import check_numbers_of_rows
    from timbermark.files.tables import is_parquet

    if path is None:
        return check_numbers_of_rows([])
    if not is_parquet(path):
        lines = [line.strip() for line in path.read_bytes().splitlines()]
        lines = [line for line in lines if line]
        if not lines:
            raise InputError(f"{path} names no rows.", hint="write one number a line.")
        if all(line.lstrip(b"-").isdigit() for line in lines):
            return check_numbers_of_rows([int(line) for line in lines])
    return state.match(*_read_rows(model, path, label, None), workers)


def _read_rows(
    model: SavedModel, path: Path, label: str | None, weight: str | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return rows [n, d] of a table, and their answers as the engine takes them, if it has any."""
    import numpy as np

    from timbermark.cli.tables import list_features, read_labels, read_table
    from timbermark.estimator_checks import check_labels, check_numbers

    n_features = model.ensemble.n_features
    names = list_features(path, (label, weight)) if model.names is None else model.names
    if len(names) != n_features:
        raise InputError(
            f"{path} has {len(names)} columns of features, but the model takes {n_features}.",
            hint="give its features in their order, and name the column of answers with --label.",
        )
    table = read_table(path, names, label)
    if np.isinf(table.X).any():
        raise InputError(
            f"{path} holds an infinite number.", hint="leave cells empty whose value is missing."
        )
    if table.labels is None:
        return table.X, None
    if model.classes is None:
        return table.X, check_numbers(read_labels(table.labels, np.zeros(0)), len(table.X))
    return table.X, check_labels(
        read_labels(table.labels, model.classes), len(table.X), model.classes
    )


def _write_both(model: SavedModel, state: State, out: Path, state_out: Path) -> None:
    """Write the model and its state, or neither: one is of no use to the other's predecessor.

    Both are written under other names first. Whoever is killed in the last moment finds the old
    state in a folder beside the new one.
    """
    from timbermark.boosting.state_file import save_state
    from timbermark.trees.model_file import write_model

    model_target, state_target = Path(os.path.realpath(out)), Path(os.path.realpath(state_out))
    with (
        tempfile.TemporaryDirectory(prefix=".timbermark-", dir=model_target.parent) as model_folder,
        tempfile.TemporaryDirectory(prefix=".timbermark-", dir=state_target.parent) as state_folder,
    ):
        model_draft, state_draft = Path(model_folder) / "model", Path(state_folder) / "state"
        kept = Path(state_folder) / "kept"
        write_model(model_draft, model)
        save_state(state_draft, state)
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
