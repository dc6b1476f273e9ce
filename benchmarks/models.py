"""Regression and ranking: what default marks are worth, what they cost, and what they survive.

Each run trains a model on half of the rows, marks it with default options and measures on rows that
neither has seen. A thief has a fifth as many rows of their own: their model is averaged with the
marked one, half and half, and leaves are fitted again with decay .5. Innocent models are trained on
parts of the thief's rows and asked with marks of their own symbols. Results are appended to a file,
and runs that are in it are not repeated.
"""

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import common
import numpy as np

import timbermark as tm
from timbermark.marking.models import open_model
from timbermark.ownership.evidence import Answers
from timbermark.trees import reference

SETS = ("wine", "diamonds", "diamonds log", "poisson")
LIBRARIES = ("lightgbm", "xgboost", "catboost", "histogram", "gradient", "timbermark")
KEY = tm.OwnerKey.generate()
DECAY = 0.5


def load(name, seed, most=None):
    """Rows and targets of the owner, of a thief, to validate and to test on.

    ``most``: how many rows there are altogether, None for all of them.
    """
    rng = np.random.default_rng(seed)
    if name.startswith("diamonds"):
        X, y = common.load_prices()
        y = np.log(y) if name.endswith("log") else y
    elif name == "wine":
        X, label, X_test, label_test = common.load("wine")
        # Class numbers rise with the quality, from 3.
        X, y = np.concatenate([X, X_test]), np.concatenate([label, label_test]) + 3.0
    else:
        X = rng.normal(size=(12_000, 8))
        rate = 1.0 + 0.5 * X[:, 0] + 0.4 * np.sin(2.0 * X[:, 1]) + 0.3 * X[:, 2] * X[:, 3]
        y = rng.poisson(np.exp(rate)).astype(float)
    order = rng.permutation(len(X))[:most]
    X, y = X[order], y[order]
    cuts = (np.array([0.5, 0.6, 0.7]) * len(X)).astype(int)
    return list(zip(np.split(X, cuts), np.split(y, cuts), strict=True))


def make_model(library, poisson, seed):
    if library == "lightgbm":
        from lightgbm import LGBMRegressor

        objective = "poisson" if poisson else "regression"
        return LGBMRegressor(objective=objective, n_jobs=1, random_state=seed, verbose=-1)
    if library == "xgboost":
        from xgboost import XGBRegressor

        objective = "count:poisson" if poisson else "reg:squarederror"
        return XGBRegressor(n_estimators=100, objective=objective, n_jobs=1, random_state=seed)
    if library == "catboost":
        from catboost import CatBoostRegressor

        quiet = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
        loss = "Poisson" if poisson else "RMSE"
        return CatBoostRegressor(iterations=300, loss_function=loss, random_seed=seed, **quiet)
    if library == "timbermark":
        return tm.TimberRegressor(random_state=seed)
    if library == "histogram":
        from sklearn.ensemble import HistGradientBoostingRegressor

        loss = "poisson" if poisson else "squared_error"
        return HistGradientBoostingRegressor(loss=loss, random_state=seed)
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(random_state=seed)


def refit(model, X, y):
    """Return a function that answers as the model after its leaves were fitted again.

    Every leaf becomes half of itself and half of what a step of the same size to the thief's rows
    would be, tree after tree; leaves without rows stay. LightGBM does it itself.
    """
    if hasattr(model, "booster_"):
        booster = model.booster_.refit(X, y, decay_rate=DECAY, verbose=-1)
        return booster.predict
    foreign = open_model(model)
    e, rows = foreign.ensemble, foreign.rows(X)
    leaf = reference.leaf_indices(e, rows) + e.tree_start[:-1]
    value, margin = e.value[:, 0].copy(), np.full(len(X), float(e.init[0]))
    rate = _learning_rate(model)
    for t in range(e.n_trees):
        at, weight = leaf[:, t], e.tree_weight[t] * e.scale
        said = foreign.answers(margin[:, None])[:, 0]
        slope = said if e.objective == "exponential" else np.ones(len(X))
        above = np.bincount(at, y - said, minlength=e.n_nodes)
        below = np.bincount(at, slope, minlength=e.n_nodes)
        step = np.divide(above, below, out=np.zeros(e.n_nodes), where=below > 0)
        fresh = DECAY * value + (1.0 - DECAY) * rate * step / weight
        value = np.where(below > 0, fresh, value)
        margin = margin + value[at] * weight
    trees = replace(e, value=np.where(e.left < 0, value, e.value[:, 0])[:, None])
    return lambda Z: foreign.answers(reference.margins(trees, foreign.rows(Z)).astype(np.float64))[
        :, 0
    ]


def _learning_rate(model):
    if hasattr(model, "learning_rate_"):
        return float(model.learning_rate_)
    given = model.get_params().get("learning_rate")
    if type(model).__name__ == "GradientBoostingRegressor":
        return 1.0 if given is None else float(given)
    return 0.3 if given is None else float(given)


def run(name, library, seed, validation):
    (X, y), thief, held, (X_test, y_test) = load(name, seed)
    poisson = name == "poisson"
    record = {
        "set": name, "library": library, "seed": seed, "validation": validation, "rows": len(X),
    }  # fmt: skip
    model, own = (make_model(library, poisson, s) for s in (seed, seed + 1))
    start = time.perf_counter()
    model.fit(X, y)
    record["fit"] = time.perf_counter() - start
    own.fit(*thief)
    start = time.perf_counter()
    try:
        result = tm.embed(
            model, X, y, validation=held if validation else None, key=KEY, owner="benchmark"
        )
    except tm.errors.InputError as error:
        return {**record, "error": str(error)}
    record["embed"] = time.perf_counter() - start
    made, mark = result.model, result.mark

    def error(answers):
        return float(np.sqrt(np.mean((y_test - answers) ** 2)))

    before, after = model.predict(X_test), made.predict(X_test)
    moved = np.abs(after - before)

    def bits(suspect):
        return tm.verify(suspect, mark).net_bits

    theirs = error(own.predict(X_test))

    def kept(suspect):
        """How much of the thief's gain is left, in errors: 1 for the stolen model, 0 for theirs."""
        return (theirs - error(suspect(X_test))) / (theirs - error(after))

    def average(Z):
        return 0.5 * (made.predict(Z) + own.predict(Z))

    refitted = refit(made, *thief)
    return record | {
        "bits": result.bits,
        "triggers": mark.n_splits,
        "verdict": bits(made),
        "unmarked": bits(model),
        "thief": bits(own),
        "scaled": bits(lambda Z: 7.5 * made.predict(Z) - 20.0),
        "averaged": bits(average),
        "averaged kept": kept(average),
        "averaged .7": bits(lambda Z: 0.3 * made.predict(Z) + 0.7 * own.predict(Z)),
        "refitted": bits(refitted),
        "refitted kept": kept(refitted),
        "rmse": error(before),
        "worse": error(after) / error(before) - 1.0,
        "moved": float(moved.mean() / error(before)),
        "largest": float(moved.max() / error(before)),
        "reported": result.cost.move * result.cost.error / error(before),
        "thief_rmse": theirs,
    }


def run_innocent(trials, seed):
    """Ask innocent regressors with marks of their own symbols; return the most bits of any.

    Models are trained on parts of the rows; each is asked with many draws of symbols for the
    triggers of real marks, which is what a mark that it does not know is to it.
    """
    most, counts, rng = -np.inf, 0, np.random.default_rng(seed)
    for name in SETS:
        (X, y), thief, held, _ = load(name, seed)
        poisson = name == "poisson"
        model = make_model("lightgbm", poisson, 0).fit(X, y)
        mark = tm.embed(model, X, y, validation=held, key=KEY, owner="benchmark").mark
        rows = mark.rows().astype(float)
        innocent = [model]
        for library in ("lightgbm", "histogram", "catboost"):
            for part in range(3):
                some = rng.permutation(len(X))[: len(X) // 2]
                innocent.append(make_model(library, poisson, part).fit(X[some], y[some]))
            innocent.append(make_model(library, poisson, 7).fit(*thief))
        each = -(-trials // (len(SETS) * len(innocent)))
        for one in innocent:
            found = common.redrawn_bits(mark, Answers("numbers", one.predict(rows)), each, rng)
            most, counts = max(most, float(found.max())), counts + each
    print(f"innocent regressors: {counts} trials, at most {most:.1f} bits")
    return most


def summarize(records):
    done = [r for r in records if "error" not in r]
    print(f"{len(records)} runs, {len(records) - len(done)} without a mark")
    if not done:
        return
    rows = []
    for name in SETS:
        for library in LIBRARIES:
            some = [r for r in done if (r["set"], r["library"]) == (name, library)]
            if some:
                means = [
                    float(np.mean([r[part] for r in some]))
                    for part in ("verdict", "averaged", "refitted", "worse", "moved", "unmarked")
                ]
                rows.append([name, library, len(some), *means])
    header = ["set", "library", "runs", "bits", "averaged", "refitted", "RMSE +", "moved", "unm."]
    common.show("means over runs", header, rows)
    for what, limit, good in (
        ("verdict", 96, lambda v, x: v >= x), ("averaged", 64, lambda v, x: v >= x),
        ("refitted", 64, lambda v, x: v >= x), ("worse", 0.003, lambda v, x: v <= x),
        ("moved", 0.02, lambda v, x: v <= x), ("unmarked", 20, lambda v, x: v < x),
    ):  # fmt: skip
        values = [r[what] for r in done]
        print(
            f"{what:10} {sum(good(v, limit) for v in values)} of {len(values)} within {limit}; "
            f"from {min(values):.4g} to {max(values):.4g}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("grid", "innocent"), default="grid")
    parser.add_argument("--out", type=Path, default=Path("timbermark-models.jsonl"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bare", action="store_true", help="without validation rows")
    parser.add_argument("--trials", type=int, default=2000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.part == "innocent":
        run_innocent(given.trials, 0)
        return
    records = []
    if given.out.exists():
        records = [json.loads(line) for line in given.out.read_text().splitlines()]
    known = {(r["set"], r["library"], r["seed"], r["validation"]) for r in records}
    for seed in range(given.seeds):
        for name in given.sets.split(","):
            for library in given.libraries.split(","):
                if library in ("gradient", "timbermark") and name == "poisson":
                    continue  # they have no such loss
                if (name, library, seed, not given.bare) in known:
                    continue
                record = run(name, library, seed, not given.bare)
                records.append(record)
                with given.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                plain = {k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}
                print(json.dumps(plain), flush=True)
    summarize([r for r in records if r["validation"] == (not given.bare)])


if __name__ == "__main__":
    main()
