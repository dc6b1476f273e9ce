"""`timbermark demo`: the main job from end to end, on data that comes with the install."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli.app import app

if TYPE_CHECKING:
    from timbermark.estimator import TimberClassifier
    from timbermark.marking.embedding import EmbedResult

_N_TRAIN, _N_FRESH = 1_100, 100


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where models, key and mark are left.")] = Path(
        "timbermark-demo"
    ),
) -> None:
    """Train on scikit-learn's digits, mark, verify four suspects, one of them after an attack."""
    _say("loading; the first time, the kernels are compiled")
    from sklearn.datasets import load_digits
    from sklearn.utils import shuffle

    from timbermark.attacks.tuning import tune_model_only
    from timbermark.boosting.warmup import is_cold, warm_up
    from timbermark.estimator import TimberClassifier
    from timbermark.marking.embedding import embed
    from timbermark.ownership.keys import OwnerKey

    if is_cold():
        warm_up()
    X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    train, fresh, test = _cut(X, y)

    _say(f"training on {len(train[0])} rows of scikit-learn's digits")
    model = TimberClassifier(random_state=0, verbose=1).fit(*train)
    _say("marking")
    key = OwnerKey.generate()
    result = embed(model, *train, key=key, owner="timbermark demo", validation=test)
    _say(f"a thief fine-tunes the stolen model on {len(fresh[0])} fresh rows")
    stolen = tune_model_only(result.model, *fresh)
    _say("someone else trains a model of their own on those rows")
    innocent = TimberClassifier(random_state=1).fit(*fresh)

    suspects = {
        "model.timber": ("your model", model),
        "marked.timber": ("the same, marked", result.model),
        "stolen.timber": ("stolen, fine-tuned", stolen),
        "innocent.timber": ("trained apart", innocent),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, (_, suspect) in suspects.items():
        suspect.save(out / name)
    key.save(out / "owner.key", force=True)
    result.mark.save(out / "digits.mark", force=True)
    _show(suspects, result, test)
    typer.echo(str(result))
    typer.echo(f"left in {out}/: {', '.join(suspects)}, owner.key, digits.mark")
    typer.echo(f"try: timbermark verify {out}/stolen.timber {out}/digits.mark")


def _cut(X: Any, y: Any) -> list[tuple[Any, Any]]:
    """Return three parts: for training, for the thief, for testing."""
    ends = (0, _N_TRAIN, _N_TRAIN + _N_FRESH, len(X))
    return [(X[a:b], y[a:b]) for a, b in pairwise(ends)]


def _show(
    suspects: dict[str, tuple[str, TimberClassifier]], result: EmbedResult, test: tuple[Any, Any]
) -> None:
    from rich.console import Console
    from rich.table import Table

    from timbermark.verification.verifying import verify

    table = Table("suspect", "accuracy", "evidence", "chance of coincidence", "verdict")
    for description, suspect in suspects.values():
        verdict = verify(suspect, result.mark)
        table.add_row(
            description,
            f"{suspect.score(*test):.4f}",
            f"{verdict.bits:.0f} bits",
            verdict.chance,
            verdict.level,
        )
    Console().print(table)


def _say(text: str) -> None:
    print(f"timbermark: {text}", file=sys.stderr)
