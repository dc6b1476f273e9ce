"""Marking models of other libraries: margins, symbols, accuracy, innocents, time, size, files.

`./dev bench libraries [marking without speed files]`; all of them if none is named. Models with
their library's default parameters and 200 rounds; a fifth of the training rows is kept apart.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import alternate, load, run_parts, show
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from timbermark import OwnerKey, embed, verify
from timbermark.errors import InputError
from timbermark.libraries.registry import load_model, module_of, save_model
from timbermark.trees import reference

warnings.filterwarnings("ignore")
ROUNDS = 200
SETS = ("letter", "pendigits", "optdigits", "cancer")
ENDINGS = {"xgboost": "json", "lightgbm": "txt", "catboost": "cbm"}


def make(library: str, seed: int = 0):
    if library == "xgboost":
        import xgboost

        return xgboost.XGBClassifier(n_estimators=ROUNDS, n_jobs=2, random_state=seed)
    if library == "lightgbm":
        import lightgbm

        return lightgbm.LGBMClassifier(n_estimators=ROUNDS, n_jobs=2, verbose=-1, random_state=seed)
    if library == "catboost":
        import catboost

        return catboost.CatBoostClassifier(
            iterations=ROUNDS, thread_count=2, verbose=False, allow_writing_files=False,
            random_seed=seed,
        )  # fmt: skip
    if library == "histogram":
        return HistGradientBoostingClassifier(
            max_iter=ROUNDS, early_stopping=False, random_state=seed
        )
    return GradientBoostingClassifier(n_estimators=ROUNDS, random_state=seed)


LIBRARIES = ("xgboost", "lightgbm", "catboost", "histogram", "gradient")


def scene(name: str, seed: int = 0):
    if name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    else:
        X, y, X_test, y_test = load(name, seed)
    X, X_more, y, y_more = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
    return (X, y), (X_more, y_more), (X_test, y_test)


def unequal(model, X) -> int:
    """On how many rows the library's margins differ from ours, in a batch or one by one."""
    module = module_of(model)
    reading = module.read(model)
    ours = reference.margins(reading.ensemble, module.rows(reading, X))
    wrong = (ours != module.margins(model, X)).any(axis=1)
    for i in range(0, len(X), max(1, len(X) // 50)):
        wrong[i] |= bool((ours[i : i + 1] != module.margins(model, X[i : i + 1])).any())
    return int(wrong.sum())


def size_of(model, library: str) -> int:
    """Bytes of its own file, or of its trees where it has none."""
    if library not in ENDINGS:
        return module_of(model).read(model).ensemble.n_nodes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{ENDINGS[library]}"
        save_model(model, path)
        return path.stat().st_size


def mark_by_default(model, train, candidates, validation):
    """The mark with all defaults, and whether it kept the budget of half a point."""
    given = {"key": OwnerKey.generate(), "candidates": candidates, "validation": validation}
    try:
        return embed(model, *train, **given), "yes"
    except InputError:
        return embed(model, *train, **given, max_accuracy_loss=1.0), "no"


def marking() -> dict:
    rows, lost, unset, differ, innocent = [], {}, 0, 0, 0.0
    # One row of breast cancer's test half is 1.4 points: five splits of it count as one set.
    for name, seed in [(name, 0) for name in SETS[:-1]] + [(SETS[-1], seed) for seed in range(5)]:
        train, candidates, test = scene(name, seed)
        for library in LIBRARIES:
            clock = time.perf_counter()
            model = make(library).fit(*train)
            trained = time.perf_counter() - clock
            # One half of the test rows is for the budget, the other says what was lost.
            held, asked = (tuple(part[i::2] for part in test) for i in range(2))
            clock = time.perf_counter()
            made, kept = mark_by_default(model, train, candidates, held)
            marked = time.perf_counter() - clock
            verdict = verify(made.model, made.mark)
            unset += verdict.trials - verdict.matched
            points = 100 * (model.score(*asked) - made.model.score(*asked))
            lost.setdefault((name, library), []).append(points)
            off = unequal(model, test[0]) + unequal(made.model, test[0])
            differ += off
            stranger = make(library, seed=1).fit(*candidates)
            bits = max(verify(m, made.mark).evidence_bits for m in (model, stranger))
            innocent = max(innocent, bits)
            times = alternate(
                {
                    "before": lambda m=model, X=test[0]: m.predict(X),
                    "after": lambda m=made.model, X=test[0]: m.predict(X),
                },
                5,
            )
            rows.append(
                [name, library, verdict.trials, verdict.trials - verdict.matched, kept, points, off,
                 bits, marked / trained, size_of(made.model, library) /
                 size_of(model, library), times["after"] / times["before"]]
            )  # fmt: skip
            print(*rows[-1], file=sys.stderr)
    header = ["data", "library", "k", "not set", "in budget", "points lost", "rows unequal",
              "innocent bits", "embed / fit", "size", "predict"]  # fmt: skip
    show("default embed, library defaults, 200 rounds", header, rows)
    return {
        "symbols_not_set": unset,
        "points_lost_mean": float(np.mean([np.mean(each) for each in lost.values()])),
        "rows_with_unequal_margins": differ,
        "innocent_most_bits": innocent,
    }


def without() -> dict:
    """The same without training rows, on two sets; here every budget is allowed."""
    rows, unset = [], 0
    for name in ("pendigits", "cancer"):
        train, candidates, test = scene(name)
        for library in LIBRARIES:
            model = make(library).fit(*train)
            clock = time.perf_counter()
            made = embed(
                model, None, None, key=OwnerKey.generate(), candidates=candidates,
                validation=test, max_accuracy_loss=1.0,
            )  # fmt: skip
            taken = time.perf_counter() - clock
            verdict = verify(made.model, made.mark)
            unset += verdict.trials - verdict.matched
            points = 100 * (model.score(*test) - made.model.score(*test))
            size = size_of(made.model, library) / size_of(model, library)
            missed = verdict.trials - verdict.matched
            rows.append([name, library, verdict.trials, missed, points, size, taken])
            print(*rows[-1], file=sys.stderr)
    header = ["data", "library", "k", "not set", "points lost", "size", "seconds"]
    show("embed without training rows", header, rows)
    return {
        "without_rows_symbols_not_set": unset,
        "without_rows_points_lost_mean": float(np.mean([row[4] for row in rows])),
    }


def speed() -> dict:
    result = {}
    train, candidates, _ = scene("letter")
    for library in ("xgboost", "lightgbm"):
        model = make(library).fit(*train)

        def fit(library=library):
            make(library).fit(*train)

        def mark(model=model):
            embed(
                model, *train, key=OwnerKey.generate(), candidates=candidates,
                max_accuracy_loss=0.05,
            )  # fmt: skip

        best = alternate({"fit": fit, "embed": mark}, 3)
        result[f"embed_against_{library}"] = best["embed"] / best["fit"]
    show("embed against training in the library, letter", list(result), [list(result.values())])
    return result


def files() -> dict:
    import xgboost

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 20)), rng.integers(0, 10, 4000)
    model = xgboost.XGBClassifier(n_estimators=100, n_jobs=2).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(path)

        def there_and_back():
            loaded = load_model(path)
            module = module_of(loaded)
            reading = module.read(loaded)
            module.save(module.write(reading, reading.ensemble), Path(folder) / "again.json")

        best = alternate({"read and write": there_and_back}, 3)
    result = {"read_write_1000_trees_s": best["read and write"]}
    show("XGBoost, 1,000 trees, 10 classes", list(result), [list(result.values())])
    return result


PARTS = {"marking": marking, "without": without, "speed": speed, "files": files}

if __name__ == "__main__":
    run_parts(PARTS)
