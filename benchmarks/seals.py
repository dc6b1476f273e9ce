"""What the split seal costs and what it survives, on the neutral trees of six kinds of models.

The owner has 60 % of the rows, the thief 20 % (a third as many), the rest tells the cost. Every
attack changes the trees or the answers, and the evidence in bits is that of the split seal alone:
by scores or numbers, and in the column ``labels`` by labels. ``--wide 0`` has free boundaries
alone. One line for each run goes to ``--out`` (CSV); the table at the end has the worst and the
median over all runs.
"""

from __future__ import annotations

import argparse
import csv
import pickle
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import load_prices, show
from fidelity import load, make_model
from sklearn.metrics import roc_auc_score
from timbermark.ownership.split_evidence import (
    mixed_bits,
    split_evidence,
    split_gains,
    split_strata,
)

from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.marking.boundaries import Cuts, scan
from timbermark.marking.models import open_model
from timbermark.marking.splits import SplitLimits, find_splits, set_thresholds
from timbermark.trees.ensemble import Ensemble

warnings.simplefilter("ignore")
SETS = (
    "spambase", "churn", "census", "wine", "avila", "pendigits", "letter", "diamonds", "cancer",
    "digits",
)  # fmt: skip
LIBRARIES = ("xgboost", "lightgbm", "catboost", "histogram", "gradient", "timbermark")
DEFAULT_RATES = {"xgboost": 0.3, "catboost": 0.1}
WORKERS = Workers(1)


def make_regressor(library, seed):
    if library == "lightgbm":
        from lightgbm import LGBMRegressor

        return LGBMRegressor(n_estimators=200, random_state=seed, verbose=-1, n_jobs=1)
    if library == "xgboost":
        from xgboost import XGBRegressor

        return XGBRegressor(n_estimators=200, random_state=seed, n_jobs=1)
    if library == "histogram":
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(max_iter=200, random_state=seed, early_stopping=False)
    if library == "catboost":
        from catboost import CatBoostRegressor

        return CatBoostRegressor(
            iterations=200, random_seed=seed, verbose=0, allow_writing_files=False, thread_count=1
        )
    if library == "gradient":
        from sklearn.ensemble import GradientBoostingRegressor

        return GradientBoostingRegressor(n_estimators=200, random_state=seed)
    from timbermark import TimberRegressor

    return TimberRegressor(max_iter=200, random_state=seed)


def load_set(name, seed):
    if name != "diamonds":
        return load(name, seed)
    X, y = load_prices()
    order = np.random.default_rng(seed).permutation(len(X))[:20_000]
    return X[order], np.log(y[order])


def prepare(name, library, seed, cache):
    """The rows, the owner's model, the thief's, and 50 more trees on the thief's rows."""
    place = cache / f"{name}-{library}-{seed}.pickle" if cache else None
    X, y = load_set(name, seed)
    if library == "gradient":
        X = np.nan_to_num(X, nan=-1.0)
    first, second = int(0.6 * len(X)), int(0.8 * len(X))
    parts = [(X[a:b], y[a:b]) for a, b in ((0, first), (first, second), (second, len(X)))]
    if place and place.exists():
        return (*parts, *pickle.loads(place.read_bytes()))
    models = []
    for rows, target in parts[:2]:
        model = (
            make_regressor(library, seed) if name == "diamonds"
            else make_model(library, False, 200, seed)
        )  # fmt: skip
        for key in ("n_jobs", "thread_count"):
            if key in model.get_params():
                model.set_params(**{key: 1})
        start = time.perf_counter()
        models.append(model.fit(rows, target))
        if len(models) == 1:
            took = time.perf_counter() - start
    if place:
        cache.mkdir(parents=True, exist_ok=True)
        place.write_bytes(pickle.dumps((*models, took)))
    return (*parts, *models, took)


class Trees:
    """An ensemble that answers."""

    def __init__(self, foreign, e: Ensemble):
        self.foreign, self.e, self.router = foreign, e, Router(e)

    def margins(self, Z):
        return self.router.margins(self.router.route(Z, WORKERS), WORKERS)

    def __call__(self, Z):
        return self.foreign.answers(self.margins(Z))


def grow_on(stolen, thief, library, rounds=50):
    """More trees at the library's default rate, from the stolen model's margins."""
    import lightgbm

    Z, y = thief
    e = stolen.e
    params = {
        "learning_rate": DEFAULT_RATES.get(library, 0.1), "verbosity": -1, "num_threads": 1,
        "deterministic": True, "boost_from_average": False, "lambda_l2": 1.0,
        "objective": "regression" if e.gives_numbers
        else "binary" if e.n_outputs == 1 else "multiclass",
    }  # fmt: skip
    if e.n_outputs > 1:
        params["num_class"] = e.n_outputs
    start = stolen.margins(Z) * stolen.foreign.margin_scale
    data = lightgbm.Dataset(Z, y, init_score=start.T.ravel())
    booster = lightgbm.train(params, data, rounds)

    def answer(Z, n):
        more = booster.predict(Z, raw_score=True, num_iteration=n).reshape(len(Z), -1)
        return stolen.foreign.answers(stolen.margins(Z) + more / stolen.foreign.margin_scale)

    return answer


def refit(stolen, thief, decay):
    """Every leaf anew on the thief's rows, round after round, by Newton steps."""
    Z, y = thief
    e, foreign = stolen.e, stolen.foreign
    routes, router = stolen.router.route(Z, WORKERS), stolen.router
    rounds = max(len(trees) for trees in router.trees)
    value = e.value.copy()

    def walk(rate):
        margins = np.tile(e.init.astype(float), (len(Z), 1))
        both = square = 0.0
        for t in range(rounds):
            if e.gives_numbers:
                gradient, hessian = y[:, None] - margins, np.ones((len(Z), 1))
            else:
                p = foreign.answers(margins)[:, -e.n_outputs :]
                truth = y[:, None] == np.arange(foreign.answers(margins[:1]).shape[1])
                gradient, hessian = truth[:, -e.n_outputs :] - p, p * (1 - p)
            added = np.zeros_like(margins)
            for c in range(e.n_outputs):
                first, leaf = router.first[c], routes.leaf[c]
                if t >= len(leaf):
                    continue
                nodes = router.nodes[c][first[t] : first[t + 1]]
                factor = router.factor[c][first[t] : first[t + 1]]
                column = c if e.value.shape[1] > 1 else 0
                here, size = leaf[t], len(nodes)
                h = np.bincount(here, hessian[:, c], size)
                step = np.bincount(here, gradient[:, c], size) / (h + 1e-3)
                step = np.clip(step, -3.0, 3.0)
                old = e.value[nodes, column] * factor
                both += float((h * old * step).sum())
                square += float((h * step**2).sum())
                new = old
                if rate is not None:
                    reached = np.bincount(here, minlength=size) > 0
                    new = np.where(reached, decay * old + (1 - decay) * rate * step, old)
                    value[nodes, column] = new / factor
                added[:, c] = new[here]
            margins += added
        return both / max(square, 1e-12)

    walk(float(np.clip(walk(None), 1e-3, 1.0)))
    return Trees(foreign, replace(e, value=value))


def cut(stolen, share):
    e = stolen.e
    per = max(e.n_trees // e.n_outputs, 1) if (e.tree_output >= 0).all() else e.n_trees
    width = e.n_trees // per
    t = max(int(share * per), 1) * width
    last = e.tree_start[t]
    nodes = ("feature", "threshold", "left", "right", "missing_left", "missing_kind",
             "category_set", "value", "count", "hessian", "gain")  # fmt: skip
    parts = {name: getattr(e, name)[:last] for name in nodes}
    return Trees(
        stolen.foreign,
        replace(e, tree_start=e.tree_start[: t + 1], tree_output=e.tree_output[:t],
                tree_weight=e.tree_weight[:t], **parts),
    )  # fmt: skip


def move(stolen, Z, rng, how):
    """Thresholds to the middle of the thief's own gaps, or anywhere in them."""
    e = stolen.e
    cuts = Cuts.of(e)
    gaps = scan(cuts, Z)
    low, high = (np.where(np.isfinite(v), v, cuts.value) for v in (gaps.below, gaps.above))
    share = 0.5 if how == "snap" else rng.random(len(low))
    moved = low + share * (high - low)
    threshold = e.threshold.copy()
    for f in np.unique(cuts.feature):
        own = cuts.feature == f
        nodes = np.flatnonzero((e.feature == f) & np.isfinite(e.threshold))
        threshold[nodes] = moved[own][np.searchsorted(cuts.value[own], e.threshold[nodes])]
    return Trees(stolen.foreign, replace(e, threshold=threshold))


def attacks(stolen, own, thief, library, rng):
    """Yield names and what answers."""
    Z, _ = thief
    yield "untouched", stolen
    yield "thief's own", own
    for decay in (0.9, 0.5, 0.2, 0.0):
        yield f"refit {decay}", refit(stolen, thief, decay)
    for weight in (0.5, 0.9):
        yield f"average {weight}", lambda Z, w=weight: (1 - w) * stolen(Z) + w * own(Z)
    longer = grow_on(stolen, thief, library)
    for n in (5, 20, 50):
        yield f"{n} more trees", lambda Z, n=n: longer(Z, n)
    for share in (0.5, 0.25):
        yield f"first {share} of trees", cut(stolen, share)
    numbers = stolen.e.gives_numbers
    for digits in (3, 2):
        yield f"{digits} digits", lambda Z, d=digits: stolen(Z).round(d)
    low, high = np.nanmin(Z, axis=0), np.nanmax(Z, axis=0)
    for levels in (1024, 64):
        step = np.maximum(high - low, 1e-30) / levels
        yield (
            f"input of {levels} levels",
            lambda Z, s=step: stolen(low + np.rint((Z - low) / s) * s),
        )
    spread = np.nanstd(Z, axis=0)
    yield (
        "input noise .03",
        lambda Z: stolen(Z + 0.03 * spread * np.random.default_rng(1).standard_normal(Z.shape)),
    )
    snapped = move(stolen, Z, rng, "snap")
    yield "snap", snapped
    yield "jitter", move(stolen, Z, rng, "jitter")
    yield "snap + refit 0.2", refit(snapped, thief, 0.2)
    if not numbers:
        for share in (0.05, 0.1):
            yield f"dodge {share}", dodge(stolen, own, Z, share)
        yield "snap + dodge 0.05", dodge(snapped, own, Z, 0.05)


def dodge(stolen, own, Z, share):
    def sureness(p):
        top = np.sort(p, axis=1)
        return top[:, -1] - top[:, -2]

    level = np.quantile(sureness(stolen(Z)), share)

    def answer(Z):
        p = stolen(Z)
        return np.where((sureness(p) < level)[:, None], own(Z), p)

    return answer


def run(name, library, seed, limits, cache, quick):
    owner, thief, test, model, own_model, took = prepare(name, library, seed, cache)
    foreign, own_foreign = open_model(model), open_model(own_model)
    plain = Trees(foreign, foreign.ensemble)
    own_trees = Trees(own_foreign, own_foreign.ensemble)

    def own(Z):
        found = own_trees(Z)
        if foreign.task != "classification" or found.shape[1] == len(foreign.classes):
            return found
        whole = np.zeros((len(Z), len(foreign.classes)))
        whole[:, np.searchsorted(foreign.classes, own_foreign.classes)] = found
        return whole

    Z, Z_thief, Z_test = (foreign.rows(part[0]) for part in (owner, thief, test))
    margins, best = plain.margins(Z), np.inf  # embed knows them
    for _ in range(1 if quick else 3):
        start = time.perf_counter()
        splits = find_splits(
            plain.router, owner[0], Z, foreign.rows, foreign.answers, WORKERS, seed, limits,
            margins=margins,
        )  # fmt: skip
        best = min(best, time.perf_counter() - start)
    b, k = splits.boundaries, len(splits)
    rng = np.random.default_rng(seed + 100)
    symbols = rng.integers(2, size=k)
    stolen = Trees(foreign, set_thresholds(foreign.ensemble, b, symbols))
    asked = foreign.rows(splits.rows()) if k else Z[:0]
    kind = "numbers" if foreign.ensemble.gives_numbers else "scores"
    strata = split_strata(splits.base, b.column, b.b - b.a, splits.reference, b.wide)

    def evidence(answer):
        return split_evidence(
            answer(asked).reshape(k, 3, -1), splits.reference, symbols, kind, strata
        ) if k else 0.0  # fmt: skip

    record = {
        "set": name, "library": library, "seed": seed, "free": int((~b.wide).sum()),
        "wide": int(b.wide.sum()), "labels": int(splits.labels_differ.sum()),
        "candidates": splits.candidates[0], "wide candidates": splits.candidates[1],
        "time": best / took,
    }  # fmt: skip
    alone = Trees(foreign, set_thresholds(
        foreign.ensemble, b.take(np.flatnonzero(~b.wide)), symbols[~b.wide]))  # fmt: skip
    before, after, free_after = plain(Z_test), stolen(Z_test), alone(Z_test)
    if kind == "scores":
        label = before.argmax(1)
        record |= {
            "changed free %": 100 * (label != free_after.argmax(1)).mean(),
            "changed %": 100 * (label != after.argmax(1)).mean(),
            "drift": np.abs(before - after).max(1).mean(),
            "accuracy lost": (label == test[1]).mean() - (after.argmax(1) == test[1]).mean(),
            "visible in 2 digits": (
                splits.reference[:, 0].round(2) != splits.reference[:, 1].round(2)
            ).any(1).mean() if k else 0.0,
        }  # fmt: skip
        if before.shape[1] == 2:
            record["AUC lost"] = roc_auc_score(test[1], before[:, 1]) - roc_auc_score(
                test[1], after[:, 1]
            )
    else:
        error = np.sqrt(((before[:, 0] - test[1]) ** 2).mean())
        record |= {
            "drift": np.abs(before - after).mean() / error,
            "accuracy lost": np.sqrt(((after[:, 0] - test[1]) ** 2).mean()) / error - 1.0,
        }
    record["unmarked"] = evidence(plain)
    if k:
        middles = stolen(asked).reshape(k, 3, -1).copy()
        middles[:, ::2] = np.nan
        gains = split_gains(middles, splits.reference, symbols, kind)[:, rng.permutation(k)]
        record["middles alone"] = mixed_bits(gains)
        enough = (n for n in range(1, k + 1) if mixed_bits(gains[:, :n]) >= 64.0)
        record["questions to 64 bits"] = next(enough, 3 * k)
    for what, answer in attacks(stolen, own, (Z_thief, thief[1]), library, rng):
        record[what] = evidence(answer)
        if kind == "scores" and "more trees" in what:
            right = (answer(Z_test).argmax(1) == test[1]).mean()
            record[f"accuracy after {what}"] = right - (after.argmax(1) == test[1]).mean()
    if kind == "scores" and k:
        record["by labels"] = split_evidence(
            stolen(asked).argmax(1).reshape(k, 3), splits.reference, symbols, "labels"
        )
        sure = np.sort(before, axis=1)
        level = np.quantile(sure[:, -1] - sure[:, -2], 0.1)
        middle = np.sort(stolen(asked)[1::3], axis=1)
        record["middles unsure"] = ((middle[:, -1] - middle[:, -2]) < level).mean()
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated")
    parser.add_argument("--free", type=int, default=SplitLimits().free)
    parser.add_argument("--wide", type=int, default=SplitLimits().wide)
    parser.add_argument("--least-rows", type=int, default=SplitLimits().least_rows)
    parser.add_argument("--wide-price", type=float, default=SplitLimits().wide_price)
    parser.add_argument("--out", type=Path, default=Path("timbermark-seals.csv"))
    parser.add_argument("--models", type=Path, default=None, help="a folder that keeps models")
    parser.add_argument("--quick", action="store_true", help="one timing instead of three")
    given = parser.parse_args()
    limits = SplitLimits(
        free=given.free, wide=given.wide, least_rows=given.least_rows, wide_price=given.wide_price
    )
    records = []
    for seed in map(int, given.seeds.split(",")):
        for name in given.sets.split(","):
            for library in given.libraries.split(","):
                record = run(name, library, seed, limits, given.models, given.quick)
                records.append(record)
                print(
                    " ".join(
                        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                        for key, value in record.items()
                    ),
                    flush=True,
                )
                names = list(dict.fromkeys(key for r in records for key in r))
                with given.out.open("w", newline="") as file:
                    writer = csv.DictWriter(file, names)
                    writer.writeheader()
                    writer.writerows(records)
    rows = []
    for key in names[3:]:
        values = [float(r[key]) for r in records if key in r]
        low = sum(v < 64 for v in values)
        rows.append([key, min(values), float(np.median(values)), float(np.mean(values)),
                     max(values), f"{len(values) - low} of {len(values)}"])  # fmt: skip
    show("The split seal", ["", "least", "median", "mean", "most", "64 bits"], rows)


if __name__ == "__main__":
    main()
