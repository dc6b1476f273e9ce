"""Time of `embed` relative to the training of the model that it marks, on two threads.

Training and marking alternate; the best of several rounds of each counts. ``million`` takes minutes
and several gigabytes.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from common import run_parts, show
from fidelity import load
from sklearn.datasets import make_classification

import timbermark as tm

warnings.simplefilter("ignore")
KEY = tm.OwnerKey.generate()
SEALS = ("splits", "both")


def lightgbm_model():
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=200, n_jobs=2, verbose=-1, random_state=0)


def xgboost_model():
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=200, n_jobs=2, random_state=0)


def made_up(n, d):
    return make_classification(
        n, d, n_informative=d // 2, n_redundant=0, flip_y=0.05, class_sep=0.7, random_state=0
    )


def compare(title, make, X, y, rounds):
    best = {"train": np.inf} | dict.fromkeys(SEALS, np.inf)
    bits = {}
    tm.warmup()
    for _ in range(rounds):
        model = make()
        start = time.perf_counter()
        model.fit(X, y)
        best["train"] = min(best["train"], time.perf_counter() - start)
        for seals in SEALS:
            start = time.perf_counter()
            made = tm.embed(model, X, y, key=KEY, owner="benchmark", seals=seals)
            best[seals] = min(best[seals], time.perf_counter() - start)
            bits[seals] = round(made.bits)
    ratios = {seals: best[seals] / best["train"] for seals in SEALS}
    show(
        title,
        ["", "training s", *(f"{s} s" for s in SEALS), *(f"{s} / training" for s in SEALS), "bits"],
        [["", best["train"], *(best[s] for s in SEALS), *ratios.values(), str(bits)]],
    )
    return {**best, **{f"{s} / training": ratio for s, ratio in ratios.items()}}


def census():
    return compare("census, 60,000 rows, LightGBM", lightgbm_model, *load("census", 0), 3)


def hundred_thousand():
    return compare("100,000 × 20, XGBoost", xgboost_model, *made_up(100_000, 20), 3)


def million():
    return compare("1,000,000 × 28, LightGBM", lightgbm_model, *made_up(1_000_000, 28), 1)


if __name__ == "__main__":
    run_parts({"census": census, "hundred-thousand": hundred_thousand, "million": million})
