"""Prediction against LightGBM: its estimator and its bare booster, batches of 1 to 100,000 rows.

200 rounds of 20 leaves, two threads, alternating, best of several. Every call gets other rows: a
processor learns the path of a row that is asked again and again. lleaves and daal4py take part
where they are installed (lleaves 1.3 needs llvmlite 0.43, and so an environment of its own).
"""

import sys
import tempfile
import warnings
from functools import partial

import lightgbm
import numpy as np
from common import alternate, load, run_parts, show

from timbermark import TimberClassifier

warnings.filterwarnings("ignore")
SIZES = (1, 100, 20_000, 100_000)
CALLS = {1: 200, 100: 20}


def two_classes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 28))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] + rng.normal(size=n)
    return X, (y > 0).astype(int)


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and labels, and 100,000 rows to predict."""
    if name == "two classes":
        return *two_classes(20_000, 0), two_classes(SIZES[-1], 1)[0]
    X, y, X_test, _ = load(name)
    return X, y, np.resize(X_test, (SIZES[-1], X.shape[1]))


def compiled(booster: lightgbm.Booster) -> dict:
    """Other predictors of the same LightGBM model, as far as they are installed."""
    found = {}
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        booster.save_model(file.name)
        try:
            import lleaves

            model = lleaves.Model(model_file=file.name)
            model.compile()
            found["lleaves"] = partial(model.predict, n_jobs=2)
        except ImportError:
            print("lleaves is not installed", file=sys.stderr)
        try:
            import daal4py

            model = daal4py.mb.convert_model(booster)
            is_classifier = booster.num_model_per_iteration() > 1
            found["daal4py"] = model.predict_proba if is_classifier else model.predict
        except ImportError:
            print("daal4py is not installed", file=sys.stderr)
    return found


def call_all(predict, batches: list[np.ndarray]) -> None:
    for rows in batches:
        predict(rows)


def batches() -> dict:
    table, result = [], {}
    for name in ("letter", "pendigits", "two classes"):
        X, y, asked = rows_of(name)
        ours = TimberClassifier(n_jobs=2, random_state=0).fit(X, y)
        light = lightgbm.LGBMClassifier(
            n_estimators=200, num_leaves=20, min_child_samples=10, n_jobs=2, verbose=-1
        ).fit(X, y)
        contenders = {
            "ours": ours.predict_proba,
            "LightGBM": light.predict_proba,
            "booster": partial(light.booster_.predict, num_threads=2),
            **compiled(light.booster_),
        }
        for size in SIZES:
            n_calls = CALLS.get(size, 1)
            parts = [asked[i * size : (i + 1) * size].copy() for i in range(n_calls)]
            runs = {kind: partial(call_all, run, parts) for kind, run in contenders.items()}
            for run in runs.values():
                run()
            times = alternate(runs, 5 if size <= 100 else 3)
            ratios = {k: t / times["ours"] for k, t in times.items() if k != "ours"}
            table.append([name, size, times["ours"] / n_calls * 1e6, *ratios.values()])
            result.setdefault(name, {})[str(size)] = ratios
    show("predict_proba, times as fast as", ["data", "rows", "ours µs", *ratios], table)
    return result


if __name__ == "__main__":
    run_parts({"batches": batches})
