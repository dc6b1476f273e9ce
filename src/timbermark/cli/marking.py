"""`timbermark embed` and `timbermark plan`: a mark, and the forecast of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from timbermark.cli.app import app
from timbermark.cli.secrets import new_passphrase, unlocked
from timbermark.errors import InputError
from timbermark.files import atomic_write

if TYPE_CHECKING:
    from timbermark.marking.embedding import EmbedResult

Model = Annotated[Path, typer.Argument(help="The model file.")]
Train = Annotated[Path | None, typer.Option(help="Training rows, CSV or Parquet.")]
Label = Annotated[str, typer.Option(help="Name of the label column in all tables.")]
State = Annotated[Path | None, typer.Option(help="The model's training state, if saved.")]
Separate = Annotated[Path | None, typer.Option("--candidates", help="Rows to take triggers from.")]
Validation = Annotated[Path | None, typer.Option(help="Held-out rows to measure the cost on.")]
Strategy = Annotated[str, typer.Option(help="auto, confidence, cluster, outlier, wrong or random.")]
Selection = Annotated[str, typer.Option(help="isolation, confidence or distance.")]
Triggers = Annotated[str, typer.Option("--triggers", help="auto, or how many.")]
Alphabet = Annotated[str, typer.Option(help="auto, 2 or 4.")]
Rate = Annotated[
    float | None, typer.Option(help="What the model was trained with, if its file does not say.")
]
Ridge = Annotated[float | None, typer.Option("--l2", help="The same.")]
LeastHessian = Annotated[float | None, typer.Option(help="The same.")]
LeastRows = Annotated[int | None, typer.Option(help="The same.")]
Seed = Annotated[int, typer.Option(help="For random choices.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]


@app.command()
def plan(
    model: Model,
    label: Label,
    train: Train = None,
    state: State = None,
    candidates: Separate = None,
    validation: Validation = None,
    strategy: Strategy = "auto",
    selection: Selection = "isolation",
    triggers: Triggers = "auto",
    alphabet: Alphabet = "auto",
    learning_rate: Rate = None,
    l2: Ridge = None,
    min_hessian: LeastHessian = None,
    min_samples_leaf: LeastRows = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show what a mark would be: triggers, evidence. Changes nothing."""
    from timbermark.marking.planning import plan as forecast

    given = _given(model, train, label, state, candidates, validation)
    found = forecast(
        **given, strategy=strategy, selection=cast(Any, selection), n_triggers=_number(triggers),
        alphabet=_number(alphabet), random_state=seed,
        training=_said(learning_rate, l2, min_hessian, min_samples_leaf),
    )  # fmt: skip
    if as_json:
        names = [n for n in dir(found) if not n.startswith("_")]
        typer.echo(json.dumps({name: getattr(found, name) for name in names}))
    else:
        typer.echo(str(found))


@app.command()
def embed(
    model: Model,
    label: Label,
    key: Annotated[Path, typer.Option(help="Your owner key.")],
    out: Annotated[Path, typer.Option(help="Where the marked model goes.")],
    mark: Annotated[Path, typer.Option(help="Where the secret mark goes.")],
    owner: Annotated[str, typer.Option(help="Whom the mark speaks for.")] = "the owner",
    train: Train = None,
    state: State = None,
    candidates: Separate = None,
    validation: Validation = None,
    strategy: Strategy = "auto",
    selection: Selection = "isolation",
    triggers: Triggers = "auto",
    alphabet: Alphabet = "auto",
    max_accuracy_loss: Annotated[
        float, typer.Option(help="A share: 0.005 is half a point.")
    ] = 0.005,
    learning_rate: Rate = None,
    l2: Ridge = None,
    min_hessian: LeastHessian = None,
    min_samples_leaf: LeastRows = None,
    seed: Seed = 0,
    passphrase: Annotated[bool, typer.Option("--passphrase", help="Encrypt the mark.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Json = False,
) -> None:
    """Mark a model: a model of the same kind, and a secret mark that proves it is yours."""
    for path in (out, mark):
        if path.exists() and not force:
            raise InputError(f"{path} exists already.", hint="use --force to overwrite it.")
    from timbermark.marking.embedding import embed as mark_model
    from timbermark.ownership.keys import OwnerKey

    owner_key = unlocked(lambda secret: OwnerKey.load(key, secret))
    given = _given(model, train, label, state, candidates, validation)
    result = mark_model(
        **given, key=owner_key, owner=owner, strategy=strategy, selection=cast(Any, selection),
        n_triggers=_number(triggers), alphabet=_number(alphabet),
        max_accuracy_loss=max_accuracy_loss, random_state=seed, verbose=1,
        training=_said(learning_rate, l2, min_hessian, min_samples_leaf),
    )  # fmt: skip
    _write_both(result, out, mark, new_passphrase(passphrase), force)
    for note in result.notes:
        typer.echo(note, err=True)
    if as_json:
        typer.echo(json.dumps({**result.cost.to_dict(), "strategy": result.strategy}))
    else:
        typer.echo(f"{result.cost}\nstrategy: {result.strategy} ({result.why})")
        typer.echo(f"{out}: the marked model\n{mark}: the secret mark, keep it")


def _said(
    rate: float | None, l2: float | None, min_hessian: float | None, min_samples: int | None
) -> dict[str, float]:
    """What the user says of the model's training, by the names that Python has for it."""
    names = ("learning_rate", "l2_regularization", "min_hessian", "min_samples_leaf")
    values = (rate, l2, min_hessian, min_samples)
    return {n: value for n, value in zip(names, values, strict=True) if value is not None}


def _given(
    path: Path,
    train: Path | None,
    label: str,
    state: Path | None,
    candidates: Path | None,
    validation: Path | None,
) -> dict[str, Any]:
    from timbermark.marking.models import feature_names, load

    model = load(path)
    if state is not None:
        if not hasattr(model, "load_state"):
            raise InputError(
                f"A {type(model).__name__} has no training state.", hint="give --train instead."
            )
        model.load_state(state)
    names = feature_names(model)
    X, y = _rows(model, names, train, label) or (None, None)
    return {
        "model": model,
        "X": X,
        "y": y,
        "candidates": _rows(model, names, candidates, label),
        "validation": _rows(model, names, validation, label),
    }


def _write_both(
    result: EmbedResult, out: Path, mark: Path, passphrase: str | None, force: bool
) -> None:
    """The mark and the model, or neither: a model without its mark would prove nothing."""
    from timbermark.marking.models import save

    old = mark.read_bytes() if mark.exists() else None
    result.mark.save(mark, passphrase, force=force)
    try:
        save(result.model, out, overwrite=force)
    except BaseException:
        if old is None:
            mark.unlink(missing_ok=True)
        else:
            atomic_write(mark, old)
        raise


def _rows(
    model: Any, expected: list[str] | None, path: Path | None, label: str
) -> tuple[Any, Any] | None:
    if path is None:
        return None
    from timbermark.cli.tables import read_table

    X, y, names = read_table(path, label)
    if expected is not None:
        # LightGBM knows a column by its name without blanks.
        bare = [n.replace(" ", "_") for n in names]
        names = [n if n in expected or b in names else b for n, b in zip(names, bare, strict=True)]
        missing = [name for name in expected if name not in names]
        if missing:
            raise InputError(
                f"{path} lacks the model's feature '{missing[0]}'.",
                hint=f"the model wants {', '.join(map(str, expected[:20]))}.",
            )
        X = X[:, [names.index(name) for name in expected]]
    kind = np.asarray(getattr(model, "classes_", [0])).dtype.kind
    return X, y.astype(str) if y is not None and kind in "UO" else y


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text
