"""`timbermark demo`: the main job, on data that comes with the install."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from timbermark.cli.app import app


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the model and its state are left.")] = Path(
        "timbermark-demo"
    ),
) -> None:
    """Train on scikit-learn's digits, then teach the trees 16 new answers in place."""
    _say("starting: digits of scikit-learn, 200 iterations")
    import numpy as np
    from rich.console import Console
    from rich.table import Table
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from timbermark.boosting.warmup import is_cold, warm_up
    from timbermark.estimator import TimberClassifier

    if is_cold():
        _say("compiling the kernels, once")
        warm_up()
    X, y = load_digits(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.4, random_state=0)
    X_new, X_test, y_new, y_test = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0)

    clock = time.perf_counter()
    model = TimberClassifier(random_state=0, verbose=1).fit(X_train, y_train)
    fitted = time.perf_counter() - clock

    # The rows the model is least sure of, asked to be what it thinks is second best.
    sure = model.predict_proba(X_new)
    right = sure.argmax(axis=1) == y_new
    chosen = np.argsort(np.where(right, sure.max(axis=1), 2.0))[:16]
    wanted = sure[chosen].argsort(axis=1)[:, -2]
    before = (model.predict(X_new[chosen]) == wanted).sum(), model.score(X_test, y_test)
    n_trees, n_leaves = model.ensemble_.n_trees, model.ensemble_.n_leaves

    clock = time.perf_counter()
    model.update(X_new[chosen], wanted)
    updated = time.perf_counter() - clock
    after = (model.predict(X_new[chosen]) == wanted).sum(), model.score(X_test, y_test)

    table = Table("", "before", "after the update in place")
    table.add_row("new answers given", f"{before[0]} of 16", f"{after[0]} of 16")
    table.add_row("test accuracy", f"{before[1]:.4f}", f"{after[1]:.4f}")
    table.add_row("trees", str(n_trees), str(model.ensemble_.n_trees))
    table.add_row("leaves", str(n_leaves), str(model.ensemble_.n_leaves))
    table.add_row("seconds", f"{fitted:.2f}", f"{updated:.2f}")
    Console().print(table)
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "digits.timber")
    model.save_state(out / "digits.state")
    typer.echo(f"left in {out}/: digits.timber (the model), digits.state (its training state)")


def _say(text: str) -> None:
    print(f"timbermark: {text}", file=sys.stderr)
