"""Learning and forgetting in place against training again: speed, accuracy; state files.

``./dev bench update [learn] [forget] [files]``. 200 iterations, 20 leaves, 2 threads; times are the
best of three, taken in turns, with the first seed. Learning: the holdout scenario of the paper, in
which the lowest-confidence rows of a fifth of the training data get the label that the model finds
most likely among the wrong ones. Forgetting: rows drawn at random. Defaults were chosen with seeds
0 to 2; the others chose nothing.
"""

import copy
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import NAMES, alternate, geometric_mean, load, run_parts, show

from timbermark import TimberClassifier

warnings.filterwarnings("ignore")
RATIOS = (0.001, 0.01, 0.1)
SEEDS = 5
SMALL = "segmentation"
"""Its 126 rows train in no time: it is shown, but left out of the means."""


def flips(model, X, y, k):
    """The ``k`` right answers of least confidence, and the most likely wrong label of each."""
    sure = model.predict_proba(X)
    here = np.searchsorted(model.classes_, y).clip(0, len(model.classes_) - 1)
    right = model.classes_[sure.argmax(axis=1)] == y
    rows = np.argsort(np.where(right, sure.max(axis=1), 2.0), kind="stable")[:k]
    rest = sure[rows].copy()
    rest[np.arange(len(rows)), here[rows]] = -1.0
    return rows, model.classes_[rest.argmax(axis=1)]


def fitted(name, seed, **params):
    """A model of four fifths of the training rows, all rows, which are which, and test rows."""
    X, y, X_test, y_test = load(name, seed)
    order = np.random.default_rng(seed).permutation(len(X))
    train, rest = np.split(order, [int(0.8 * len(X))])
    model = TimberClassifier(n_jobs=2, random_state=seed, **params).fit(X[train], y[train])
    return model, (X, y, train, rest), (X_test, y_test)


def to_learn(model, rows, ratio):
    X, y, train, rest = rows
    k = int(np.ceil(np.ceil(ratio * len(train)) / 2))
    chosen, label = flips(model, X[rest], y[rest], k)
    return X[rest][chosen], label


def again(model):
    """The model with its state, which a copy does not have."""
    other = copy.copy(model)
    other._state = model._state
    return other


def learning(model, rows, ratio, seed):
    X, y, train, _ = rows
    new, label = to_learn(model, rows, ratio)
    left = np.concatenate([X[train], new]), np.concatenate([y[train], label])
    return left, new, lambda m, **mode: m.update(new, label, **mode), label


def forgetting(model, rows, ratio, seed):
    X, y, train, _ = rows
    gone = np.random.default_rng(seed + 100).permutation(len(train))
    gone = np.sort(gone[: int(np.ceil(ratio * len(train)))])
    kept = np.delete(train, gone)
    return (X[kept], y[kept]), X[train[gone]], lambda m, **mode: m.forget(gone, **mode), None


def compare(kind) -> dict:
    """The table of one kind of update.

    ``took``: rows that get the new label, against exact; ``same``: forgotten rows that get the
    label that exact gives them.
    """
    found = {(name, ratio): [] for name in NAMES for ratio in RATIOS}
    best = {}
    for name in NAMES:
        for seed in range(SEEDS):
            model, rows, test = fitted(name, seed)
            for ratio in RATIOS:
                left, touched, change, label = kind(model, rows, ratio, seed)
                if seed == 0:
                    best[name, ratio] = alternate(
                        {
                            "fit": lambda left=left, seed=seed: TimberClassifier(
                                n_jobs=2, random_state=seed
                            ).fit(*left),
                            "update": lambda model=model, change=change: change(again(model)),
                        },
                        3,
                    )
                lazy, exact = change(again(model)), change(again(model), mode="exact")
                said, wanted = lazy.predict(touched), exact.predict(touched)
                if label is None:
                    took = np.sum(said == wanted), len(wanted)
                else:
                    took = np.sum(said == label), np.sum(wanted == label)
                found[name, ratio].append(
                    [*took, 100 * (lazy.score(*test) - exact.score(*test)), len(touched)]
                )
    return {str(ratio): summarize(kind.__name__, ratio, found, best) for ratio in RATIOS}


def summarize(title, ratio, found, best) -> dict:
    rows = []
    for name in NAMES:
        took, of, points, size = np.array(found[name, ratio]).T
        seconds = best[name, ratio]
        rows.append(
            [name, int(size[0]), *seconds.values(), seconds["fit"] / seconds["update"],
             took.sum() / max(of.sum(), 1), points.mean(), points.min()]
        )  # fmt: skip
    header = ["data", "rows", "fit s", "update s", "times as fast", "as exact", "points", "worst"]
    show(f"{title}, ratio {ratio}, mean of {SEEDS} seeds", header, rows)
    large = [row for row in rows if row[0] != SMALL]
    counts = np.array([np.array(found[row[0], ratio])[:, :2].sum(axis=0) for row in large])
    unseen = np.array([np.array(found[row[0], ratio])[3:, 2].mean() for row in large])
    return {
        "speed_geometric_mean": geometric_mean([row[4] for row in large]),
        "speed_worst": min(row[4] for row in large),
        "as_exact": counts[:, 0].sum() / counts[:, 1].sum(),
        "points_against_exact": float(np.mean([row[6] for row in large])),
        "points_with_seeds_that_chose_nothing": float(unseen.mean()),
        "points_by_data": {row[0]: row[6] for row in rows},
    }


def learn() -> dict:
    return compare(learning)


def forget() -> dict:
    return compare(forgetting)


def files() -> dict:
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("pendigits", "letter"):
            X, y, _, _ = load(name)
            whole = TimberClassifier(preset="paper", n_jobs=2, random_state=0).fit(X, y)
            whole.save_state(place / "state")
            result[f"{name}_state_mb"] = (place / "state").stat().st_size / 1e6
        model, rows, _ = fitted("pendigits", 0, preset="paper")
        new, label = to_learn(model, rows, 0.01)
        model.save(place / "model")
        model.save_state(place / "state")
        best = {"load, learn, save": float("inf"), "whole command": float("inf")}
        header = ",".join([*(f"c{i}" for i in range(new.shape[1])), "label"])
        np.savetxt(
            place / "new.csv",
            np.column_stack([new, label]),
            "%.9g",
            ",",
            header=header,
            comments="",
        )
        command = [
            sys.executable, "-m", "timbermark", "update", place / "model", "--state",
            place / "state", "--add", place / "new.csv", "--label", "label", "--out",
            place / "model3", "--force",
        ]  # fmt: skip
        for _ in range(5):
            clock = time.perf_counter()
            loaded = TimberClassifier.load(place / "model").load_state(place / "state")
            loaded.update(new, label)
            loaded.save(place / "model2")
            loaded.save_state(place / "state2")
            taken = time.perf_counter() - clock
            best["load, learn, save"] = min(best["load, learn, save"], taken)
            clock = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            best["whole command"] = min(best["whole command"], time.perf_counter() - clock)
    result |= best
    show("state files, paper preset", list(result), [list(result.values())])
    return result


if __name__ == "__main__":
    run_parts({"learn": learn, "forget": forget, "files": files})
