"""Prediction against LightGBM: its estimator and its bare booster, batches of 1 to 100,000 rows.

200 rounds of 20 leaves, two threads, alternating, best of several. Every call gets other rows: a
processor learns the path of a row that is asked again and again. lleaves and daal4py predict with
the same LightGBM model; lleaves 1.3 needs an old llvmlite, so that `./dev bench predict` makes an
environment of its own (requirements/predict.lock). With the Numba of that time our large batches of
two classes take twice as long: compare with lleaves by way of LightGBM, which is the same in both.
"""

import tempfile
import warnings
from functools import partial

import daal4py
import lightgbm
import lleaves
import numpy as np
from common import alternate, load, run_parts, show

from timbermark import TimberClassifier

warnings.filterwarnings("ignore")
SIZES = (1, 100, 20_000, 100_000)
CALLS = {1: 200, 100: 20}
KINDS = ("LightGBM", "booster", "lleaves", "daal4py")


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
    """Other predictors of the same LightGBM model."""
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        booster.save_model(file.name)
        model = lleaves.Model(model_file=file.name)
        model.compile()
    return {
        "lleaves": partial(model.predict, n_jobs=2),
        "daal4py": daal4py.mb.convert_model(booster).predict_proba,
    }


def call_all(predict, batches: list[np.ndarray]) -> None:
    for rows in batches:
        predict(rows)


def batches() -> dict:
    table, result = [], {}
    for name in ("two classes", "pendigits", "letter"):
        X, y, asked = rows_of(name)
        ours = TimberClassifier(n_jobs=2, random_state=0).fit(X, y)
        light = lightgbm.LGBMClassifier(
            n_estimators=200, num_leaves=20, min_child_samples=10, n_jobs=2, verbose=-1
        ).fit(X, y)
        contenders = {
            "ours": ours.predict_proba,
            "LightGBM": light.predict_proba,
            "booster": partial(light.booster_.predict, num_threads=2),
        }
        if name != "letter":  # lleaves takes many minutes to compile its 5,200 trees
            contenders |= compiled(light.booster_)
        for size in SIZES:
            n_calls = CALLS.get(size, 1)
            parts = [asked[i * size : (i + 1) * size].copy() for i in range(n_calls)]
            runs = {kind: partial(call_all, run, parts) for kind, run in contenders.items()}
            for run in runs.values():
                run()
            times = alternate(runs, 5 if size <= 100 else 3)
            ratios = {k: times.get(k, float("nan")) / times["ours"] for k in KINDS}
            table.append([name, size, times["ours"] / n_calls * 1e6, *ratios.values()])
            result.setdefault(name, {})[str(size)] = ratios
    show("predict_proba, times as fast as", ["data", "rows", "ours µs", *KINDS], table)
    return result


if __name__ == "__main__":
    run_parts({"batches": batches})
