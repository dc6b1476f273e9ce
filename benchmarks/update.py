"""The in-place update against training again: speed, marks that took, accuracy; state files.

Holdout scenario: the lowest-confidence rows of a fifth of the training data get the label the
model finds most likely among the wrong ones. 200 iterations, 20 leaves, 2 threads, best of 3.
"""

import copy
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import NAMES, alternate, finish, geometric_mean, load, show

from timbermark import TimberClassifier

warnings.filterwarnings("ignore")
RATIOS = (0.001, 0.01, 0.1)
SEEDS = 5


def flips(model, X, y, k):
    """The ``k`` right answers of least confidence, and the most likely wrong label of each."""
    sure = model.predict_proba(X)
    here = np.searchsorted(model.classes_, y).clip(0, len(model.classes_) - 1)
    right = model.classes_[sure.argmax(axis=1)] == y
    rows = np.argsort(np.where(right, sure.max(axis=1), 2.0), kind="stable")[:k]
    rest = sure[rows].copy()
    rest[np.arange(len(rows)), here[rows]] = -1.0
    return rows, model.classes_[rest.argmax(axis=1)]


def scenario(name, ratio, seed, **params):
    X, y, X_test, y_test = load(name, seed)
    order = np.random.default_rng(seed).permutation(len(X))
    cut = int(0.8 * len(X))
    train, rest = order[:cut], order[cut:]
    model = TimberClassifier(n_jobs=2, random_state=seed, **params).fit(X[train], y[train])
    k = int(np.ceil(np.ceil(ratio * cut) / 2))
    rows, label = flips(model, X[rest], y[rest], k)
    return model, X[train], y[train], X[rest][rows], label, X_test, y_test


def compare() -> dict:
    result = {}
    for ratio in RATIOS:
        rows, speeds, took, points = [], [], [0, 0], []
        for name in NAMES:
            drops, names_took = [], [0, 0]
            for seed in range(SEEDS):
                model, X, y, X_new, label, X_test, y_test = scenario(name, ratio, seed)
                every = np.concatenate([X, X_new]), np.concatenate([y, label])
                fitted, updated = {}, {}

                def again(model=model, every=every):
                    TimberClassifier(n_jobs=2, random_state=model.random_state).fit(*every)

                def lazy(model=model, X_new=X_new, label=label, out=updated):
                    out["model"] = copy.copy(model)
                    out["model"]._state = model._state
                    out["model"].update(X_new, label)

                if seed == 0:
                    best = alternate({"fit": again, "update": lazy}, 3)
                    speeds.append(best["fit"] / best["update"])
                else:
                    lazy()
                fitted = copy.copy(model)
                fitted._state = model._state
                fitted.update(X_new, label, mode="exact")
                names_took[0] += int((updated["model"].predict(X_new) == label).sum())
                names_took[1] += int((fitted.predict(X_new) == label).sum())
                accuracy = updated["model"].score(X_test, y_test), fitted.score(X_test, y_test)
                drops.append(100 * (accuracy[0] - accuracy[1]))
            took[0] += names_took[0]
            took[1] += names_took[1]
            points.append(float(np.mean(drops)))
            share = names_took[0] / max(names_took[1], 1)
            rows.append([name, len(label), *best.values(), speeds[-1], share, points[-1]])
        header = ["data", "rows", "fit s", "update s", "times as fast", "took / exact", "points"]
        show(f"lazy update, ratio {ratio}, mean of {SEEDS} seeds", header, rows)
        result[str(ratio)] = {
            "speed_geometric_mean": geometric_mean(speeds),
            "took_against_exact": took[0] / took[1],
            "points_against_exact": float(np.mean(points)),
            "points_by_data": dict(zip(NAMES, points, strict=True)),
        }
    return result


def files() -> dict:
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("pendigits", "letter"):
            X, y, _, _ = load(name)
            whole = TimberClassifier(preset="paper", n_jobs=2, random_state=0).fit(X, y)
            whole.save_state(place / "state")
            result[f"{name}_state_mb"] = (place / "state").stat().st_size / 1e6
        model, _, _, X_new, label, _, _ = scenario("pendigits", 0.01, 0, preset="paper")
        model.save(place / "model")
        model.save_state(place / "state")
        best = float("inf")
        for _ in range(3):
            clock = time.perf_counter()
            loaded = TimberClassifier.load(place / "model").load_state(place / "state")
            loaded.update(X_new, label)
            loaded.save(place / "model2")
            loaded.save_state(place / "state2")
            best = min(best, time.perf_counter() - clock)
        result["whole_update_s"] = best
    show("state files, paper preset", list(result), [list(result.values())])
    return result


if __name__ == "__main__":
    finish({"update": compare(), "files": files()})
