"""Training and prediction against LightGBM; accuracy against the best of three libraries.

200 iterations, 20 leaves, learning rate 0.1, 2 threads, best of 3, alternating. Arguments name
the parts to run: speed, large, accuracy, growth, numbers, start (default: all). In ``numbers``, the
regressor's part, the libraries are also asked with their own defaults.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial

import lightgbm
import numpy as np
import xgboost
from common import NAMES, alternate, geometric_mean, load, load_diamonds, run_parts, show
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from timbermark import TimberClassifier, TimberRegressor

warnings.filterwarnings("ignore")
SEEDS = 5


CLASSES = {
    "ours": TimberClassifier,
    "lightgbm": lightgbm.LGBMClassifier,
    "xgboost": xgboost.XGBClassifier,
    "hist": HistGradientBoostingClassifier,
}
NUMBERS = {
    "ours": TimberRegressor,
    "lightgbm": lightgbm.LGBMRegressor,
    "xgboost": xgboost.XGBRegressor,
    "hist": HistGradientBoostingRegressor,
}


def ours(seed: int = 0, kinds: dict = CLASSES, **more):
    return kinds["ours"](n_jobs=2, random_state=seed, **more)


def light(seed: int = 0, kinds: dict = CLASSES):
    return kinds["lightgbm"](
        n_estimators=200, num_leaves=20, learning_rate=0.1, min_child_samples=10, n_jobs=2,
        random_state=seed, verbose=-1,
    )  # fmt: skip


def others(seed: int, kinds: dict = CLASSES) -> dict:
    return {
        "lightgbm": light(seed, kinds),
        "xgboost": kinds["xgboost"](
            n_estimators=200, learning_rate=0.1, max_leaves=20, max_depth=0,
            grow_policy="lossguide", tree_method="hist", n_jobs=2, random_state=seed,
        ),
        "hist": kinds["hist"](
            max_iter=200, learning_rate=0.1, max_leaf_nodes=20, min_samples_leaf=10,
            early_stopping=False, random_state=seed,
        ),
    }  # fmt: skip


def defaults(seed: int) -> dict:
    """The libraries' regressors as they come."""
    return {
        "lightgbm default": NUMBERS["lightgbm"](n_jobs=2, random_state=seed, verbose=-1),
        "xgboost default": NUMBERS["xgboost"](n_jobs=2, random_state=seed),
        "hist default": NUMBERS["hist"](random_state=seed),
    }


def fit_one(make, X, y):
    make().fit(X, y)


def speed() -> dict:
    rows, result = [], {}
    ours(max_iter=2).fit(*load("segmentation")[:2])
    for name in NAMES:
        X, y, X_test, _ = load(name)
        fit = alternate(
            {"ours": partial(fit_one, ours, X, y), "light": partial(fit_one, light, X, y)}, 3
        )
        a, b = ours().fit(X, y), light().fit(X, y)
        predict = alternate(
            {"ours": partial(a.predict_proba, X_test), "light": partial(b.predict_proba, X_test)}, 3
        )
        ratio = fit["light"] / fit["ours"], predict["light"] / predict["ours"]
        rows.append([name, fit["ours"], fit["light"], ratio[0], predict["ours"], ratio[1]])
        result[name] = {"fit": ratio[0], "predict": ratio[1]}
    total = {
        "fit_geometric_mean": geometric_mean([r["fit"] for r in result.values()]),
        "fit_worst": min(r["fit"] for r in result.values()),
        "predict_geometric_mean": geometric_mean([r["predict"] for r in result.values()]),
    }
    header = ["data", "fit s", "LightGBM s", "times as fast", "predict s", "times as fast"]
    show("speed", header, rows)
    return {"by_data": result, **total}


def noisy_numbers(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 28))
    return X, X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] + rng.normal(size=n)


def two_classes(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = noisy_numbers(n)
    return X, (y > 0).astype(int)


def large() -> dict:
    X, y = two_classes(1_000_000)
    best = alternate(
        {"ours": partial(fit_one, ours, X, y), "light": partial(fit_one, light, X, y)}, 2
    )
    ratio = best["light"] / best["ours"]
    header = ["rows", "ours s", "LightGBM s", "times as fast"]
    show("two classes", header, [[1_000_000, *best.values(), ratio]])
    return {"ratio": ratio}


def growth() -> dict:
    rows = []
    for n in (10_000, 100_000, 1_000_000):
        X, y = two_classes(n)
        best = alternate({"ours": partial(fit_one, partial(ours, keep_state=False), X, y)}, 2)[
            "ours"
        ]
        rows.append([n, best, best / n * 1e6])
    show("cost by rows", ["rows", "s", "µs a row"], rows)
    return {str(n): per_row for n, _, per_row in rows}


def accuracy() -> dict:
    rows, result = [], {}
    for name in NAMES:
        scores: dict[str, list[float]] = {}
        for seed in range(SEEDS):
            X, y, X_test, y_test = load(name, seed)
            # XGBoost wants every class to be there; the rarest wine has five bottles.
            known = np.isin(y_test, y)
            kinds = np.unique(y)
            number = np.searchsorted(kinds, y)
            models = {"ours": ours(seed), "paper": ours(seed, preset="paper"), **others(seed)}
            for kind, model in models.items():
                guess = kinds[model.fit(X, number).predict(X_test)]
                right = float(((guess == y_test) & known).mean())
                scores.setdefault(kind, []).append(right)
        mean = {kind: float(np.mean(s)) for kind, s in scores.items()}
        best = max(mean[k] for k in ("lightgbm", "xgboost", "hist"))
        rows.append([name, *mean.values(), 100 * (mean["ours"] - best)])
        print(name, mean, file=sys.stderr)
        result[name] = {**mean, "best_other": best}
    header = ["data", "ours", "paper preset", "lightgbm", "xgboost", "hist", "points to best"]
    show(f"test accuracy, mean of {SEEDS} seeds", header, rows)
    points = float(np.mean([100 * (r["ours"] - r["best_other"]) for r in result.values()]))
    return {"by_data": result, "points_to_best": points}


def numbers() -> dict:
    """Fit time against LightGBM; RMSE against three libraries, at equal settings and defaults."""
    X, y = noisy_numbers(1_250_000)
    large = X[:1_000_000], y[:1_000_000], X[1_000_000:], y[1_000_000:]
    sets = {"diamonds": [load_diamonds(seed) for seed in range(SEEDS)], "1,000,000 × 28": [large]}
    rows, result = [], {}
    ours(kinds=NUMBERS, max_iter=2).fit(X[:1000], y[:1000])
    for name, splits in sets.items():
        fit = alternate(
            {
                "ours": partial(fit_one, partial(ours, kinds=NUMBERS), *splits[0][:2]),
                "light": partial(fit_one, partial(light, kinds=NUMBERS), *splits[0][:2]),
            },
            3 if name == "diamonds" else 2,
        )
        errors: dict[str, list[float]] = {}
        for seed, (X, y, X_test, y_test) in enumerate(splits):
            models = {"ours": ours(seed, NUMBERS), **others(seed, NUMBERS), **defaults(seed)}
            for kind, model in models.items():
                guess = model.fit(X, y).predict(X_test)
                errors.setdefault(kind, []).append(float(np.sqrt(np.mean((guess - y_test) ** 2))))
        mean = {kind: float(np.mean(e)) for kind, e in errors.items()}
        best = min(error for kind, error in mean.items() if kind != "ours")
        ratio = fit["light"] / fit["ours"]
        rows.append([name, *fit.values(), ratio, *mean.values(), mean["ours"] / best])
        result[name] = {"fit": ratio, **mean, "to_best": mean["ours"] / best}
    header = ["data", "fit s", "LightGBM s", "times as fast", *mean, "to the best"]
    show("numbers: fit time and test RMSE", header, rows)
    return result


def start() -> dict:
    """Seconds to compile everything, to load it from disk, and to import timbermark."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        code = (
            "import time, timbermark.marking.warmup as w; s = time.perf_counter(); w.warm_up(); "
            "print(time.perf_counter() - s)"
        )
        seconds = [
            float(subprocess.run([sys.executable, "-c", code], env=environment, check=True,
                                 capture_output=True, text=True).stdout)
            for _ in range(2)
        ]  # fmt: skip
    clock = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import timbermark"], check=True)
    with_import = time.perf_counter() - clock
    clock = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    bare = time.perf_counter() - clock
    result = {"compile": seconds[0], "from_cache": seconds[1], "import": with_import - bare}
    show("start", list(result), [list(result.values())])
    return result


PARTS = {
    "speed": speed,
    "large": large,
    "growth": growth,
    "accuracy": accuracy,
    "numbers": numbers,
    "start": start,
}

if __name__ == "__main__":
    run_parts(PARTS)
