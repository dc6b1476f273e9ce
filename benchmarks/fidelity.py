"""What marking with the defaults does to models on test rows that nothing else saw.

Sets of the paper, field sets, digits and breast cancer; six kinds of models with 200 rounds; two
classes also with class weights and after early stopping. ``--part large`` marks models of large
tables, ``--part bare`` models without their training rows. ``--part rare`` marks models of 1 % and
0.3 % positives, with validation rows and without, and compares the cost that is reported with the
cost on unseen rows; ``--part stated`` does the latter for small sets of every kind, figure by
figure; docs/fidelity has what both found. One JSON line per run goes to ``--out``, which a later
call continues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import time
import warnings
from pathlib import Path

import numpy as np
from common import load_field, load_rows, mark_fields
from field_sets import encode_texts
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    make_classification,
    make_friedman1,
    make_friedman2,
)
from sklearn.metrics import average_precision_score, roc_auc_score

import timbermark as tm
from timbermark.marking.cost import RowSet, label_figures, number_figures
from timbermark.marking.tallies import Counting

warnings.simplefilter("ignore")
KEY = tm.OwnerKey.generate()
SETS = (
    "spambase",
    "churn",
    "cancer",
    "digits",
    "wine",
    "segmentation",
    "optdigits",
    "pendigits",
    "avila",
    "letter",
    "census",
)
LIBRARIES = ("lightgbm", "xgboost", "histogram", "catboost", "gradient", "timbermark")
LARGE_SETS = ("avila", "letter", "census", "pendigits")


def load(name, seed):
    """Rows and class numbers in an order that follows from the seed."""
    rng = np.random.default_rng(seed)
    if name in ("cancer", "digits"):
        X, y = (load_breast_cancer if name == "cancer" else load_digits)(return_X_y=True)
    elif name in ("spambase", "churn", "census"):
        table = load_field(name)
        rows, y = table.rows, np.array(table.target)
        if name == "census":
            some = rng.permutation(len(rows))[:60_000]
            rows, y = [rows[i] for i in some], y[some]
        X = encode_texts(rows)
    else:
        data = load_rows(name)
        X, y = data.X, data.y
    _, y, counts = np.unique(y, return_inverse=True, return_counts=True)
    kept = np.isin(y, np.flatnonzero(counts >= 20))
    X, y = X[kept], np.unique(y[kept], return_inverse=True)[1]
    order = rng.permutation(len(X))
    return X[order], y[order]


def make_model(library, weighted, rounds, seed):
    balanced = "balanced" if weighted else None
    if library == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(
            n_estimators=rounds, class_weight=balanced, random_state=seed, verbose=-1, n_jobs=2
        )
    if library == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(
            n_estimators=rounds,
            scale_pos_weight=10 if weighted else None,
            random_state=seed,
            n_jobs=2,
        )
    if library == "histogram":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(
            max_iter=rounds, class_weight=balanced, random_state=seed, early_stopping=False
        )
    if library == "catboost":
        from catboost import CatBoostClassifier

        return CatBoostClassifier(
            iterations=rounds,
            auto_class_weights="Balanced" if weighted else None,
            random_seed=seed,
            verbose=0,
            allow_writing_files=False,
            thread_count=2,
        )
    if library == "gradient":
        from sklearn.ensemble import GradientBoostingClassifier

        return GradientBoostingClassifier(n_estimators=rounds, random_state=seed)
    return tm.TimberClassifier(max_iter=rounds, random_state=seed)


def run(name, library, variant, seed, bare=False):
    """Train, mark, and compare on test rows. Returns one record."""
    X, y = load(name, seed)
    cut = int(0.6 * len(X))
    train, test = (X[:cut], y[:cut]), (X[cut:], y[cut:])
    rounds = 30 if "early" in variant else 200
    model = make_model(library, "weighted" in variant, rounds, seed)
    if library == "gradient" and np.isnan(X).any():
        train, test = [(np.nan_to_num(a, nan=-1.0), b) for a, b in (train, test)]
    start = time.perf_counter()
    model.fit(*train)
    fit = time.perf_counter() - start
    record = {
        "set": name,
        "library": library,
        "variant": variant,
        "seed": seed,
        "bare": bare,
        "rows": len(X),
        "test_rows": len(test[0]),
        "fit": fit,
    }
    rows = {"X": None, "candidates": train[0][:3000]} if bare else {"X": train[0], "y": train[1]}
    start = time.perf_counter()
    try:
        result = tm.embed(model, **rows, key=KEY, owner="benchmark", random_state=seed)
    except tm.errors.InputError as error:
        return record | {"embed": time.perf_counter() - start, "error": str(error)}
    record["embed"] = time.perf_counter() - start
    before, after = model.predict_proba(test[0]), result.model.predict_proba(test[0])
    labels = before.argmax(1), after.argmax(1)
    record |= {
        "bits": result.bits,
        **mark_fields(result),
        "verdict": tm.verify(result.model, result.mark).bits,
        "unmarked": tm.verify(model, result.mark).bits,
        "changed": float((labels[0] != labels[1]).mean()),
        "drift": float(np.abs(after - before).max(1).mean()),
        "lost": float((labels[0] == test[1]).mean() - (labels[1] == test[1]).mean()),
        "reported_changed": result.cost.changed / result.cost.n_rows,
        "reported_drift": result.cost.drift,
    }
    if before.shape[1] == 2:
        record["auc_lost"] = float(
            roc_auc_score(test[1], before[:, 1]) - roc_auc_score(test[1], after[:, 1])
        )
        record["score"] = float(after[:, 1].mean() / before[:, 1].mean() - 1.0)
    return record


def grid(bare):
    for seed in range(3):
        for name in SETS:
            two = name in ("spambase", "churn", "cancer", "census")
            for library in LIBRARIES:
                if library == "gradient" and name in LARGE_SETS:
                    continue
                variants = ["plain"]
                if two and not bare:
                    variants.append("early")
                    if library not in ("gradient", "timbermark"):
                        variants += ["weighted", "weighted early"]
                for variant in variants:
                    yield name, library, variant, seed


def summarize(records):
    """Print the figures of the issue: means and worst runs."""
    done = [r for r in records if "error" not in r]
    large = [r for r in done if r["rows"] >= 2000]
    every = [r for r in records if r["rows"] >= 2000]
    print(
        f"{len(records)} runs, {len(records) - len(done)} without a mark; sets of 2,000 rows and "
        f"more: {sum(r['bits'] >= 64 for r in large)} of {len(every)} with 64 bits"
    )
    means = {}
    for r in large:
        if r["set"] != "wine":
            means.setdefault((r["set"], r["library"], r["variant"]), []).append(r)
    for what, unit in (("changed", 100), ("drift", 1), ("lost", 100), ("auc_lost", 1)):
        cells = {
            key: float(np.mean([unit * r[what] for r in runs if what in r]))
            for key, runs in means.items()
            if any(what in r for r in runs)
        }
        if cells:
            worst = max(cells, key=lambda key: cells[key])
            print(
                f"{what:10} mean {np.mean(list(cells.values())):.4f}  worst {cells[worst]:.4f} "
                f"({', '.join(worst)})"
            )
    wine = [r for r in large if r["set"] == "wine"]
    if wine:
        changed = [100 * r["changed"] for r in wine]
        print(f"wine: labels changed {np.mean(changed):.2f} %, at most {max(changed):.2f} %")
    scores = [(abs(r["score"]), r) for r in large if "score" in r]
    if scores:
        worst = max(scores, key=lambda pair: pair[0])
        print(
            f"mean score of the positive class: worst change {100 * worst[0]:.2f} % "
            f"({worst[1]['set']}, {worst[1]['library']}, {worst[1]['variant']})"
        )
    for name, some in (
        ("20,000 rows and more", lambda r: r["rows"] >= 20_000),
        ("fewer rows", lambda r: r["rows"] < 20_000),
    ):
        part = [r for r in done if some(r)]
        if part:
            ratio = [r["embed"] / r["fit"] for r in part]
            over = sum(r["embed"] > max(2 * r["fit"], 3.0) for r in part)
            print(
                f"embed against training, {name}: median {np.median(ratio):.2f}, worst "
                f"{max(ratio):.2f}; {over} of {len(part)} above max(2×, 3 s)"
            )
    if done:
        least, most = min(r["verdict"] for r in done), max(r["unmarked"] for r in done)
        print(f"verdict: marked at least {least:.0f} bits, unmarked at most {most:.1f}")


RARE_SETS = ("synthetic", "census")
RARE_SHARES = (0.01, 0.003)
RARE_LIBRARIES = ("lightgbm", "xgboost", "histogram", "catboost", "timbermark")
RARE_TRAIN, RARE_HELD, RARE_TREES = 40_000, 20_000, 150


def load_rare(name, share, seed):
    """Rows of which a share is positive, in an order that follows from the seed."""
    rng = np.random.default_rng(seed)
    if name == "synthetic":
        X, y = make_classification(
            120_000, 20, n_informative=8, weights=[1.0 - share], flip_y=0.2 * share,
            random_state=seed,
        )  # fmt: skip
    else:
        table = load_field("census")
        X, y = encode_texts(table.rows), np.unique(np.array(table.target), return_inverse=True)[1]
        y = y if y.mean() < 0.5 else 1 - y
        kept = (y == 0) | (rng.random(len(y)) < share * (y == 0).sum() / (y == 1).sum())
        X, y = X[kept], y[kept]
    order = rng.permutation(len(X))
    return X[order], y[order]


def run_rare(name, share, library, seed):
    """Train on rows with rare positives, mark twice, compare on unseen rows. Yields two records."""
    X, y = load_rare(name, share, seed)
    train, held, test = (
        (X[a:b], y[a:b])
        for a, b in (
            (0, RARE_TRAIN),
            (RARE_TRAIN, RARE_TRAIN + RARE_HELD),
            (RARE_TRAIN + RARE_HELD, len(X)),
        )
    )
    model = make_model(library, False, RARE_TREES, seed).fit(*train)
    before = model.predict_proba(test[0])[:, 1]
    for with_held in (True, False):
        record = {"set": name, "share": share, "library": library, "seed": seed, "held": with_held}
        start = time.perf_counter()
        try:
            result = tm.embed(
                model,
                *train,
                key=KEY,
                owner="benchmark",
                random_state=seed,
                validation=held if with_held else None,
            )
        except tm.errors.InputError as error:
            yield record | {"embed": time.perf_counter() - start, "error": str(error)}
            continue
        record |= {"embed": time.perf_counter() - start, "bits": result.bits}
        record |= mark_fields(result)
        record["used"] = dict(result.use)
        record["warnings"] = [note.name for note in result.notes if note.is_warning]
        record |= compare_rare(before, result.model.predict_proba(test[0])[:, 1], test[1])
        positive = result.cost.classes[1]
        told = {
            code: result.cost[(code, positive) if code in ("score", "recall", "churn") else code]
            for code in STATED
        }
        record["reported"] = {code: figure.change for code, figure in told.items()}
        record["stated"] = {code: figure.bound for code, figure in told.items()}
        yield record


def compare_rare(before, after, y):
    """What changed on unseen rows: scores of the positive class before and after."""
    top = [set(np.argsort(-p, kind="stable")[: len(p) // 50].tolist()) for p in (before, after)]
    flipped = (before > 0.5) != (after > 0.5)
    areas = [roc_auc_score(y, p) for p in (before, after)]
    precise = [average_precision_score(y, p) for p in (before, after)]
    own = y == 1
    found = {
        "positives": own.sum(),
        "auc": areas[0] - areas[1],
        "precision": 1.0 - precise[1] / precise[0],
        "score": abs(after.mean() / before.mean() - 1.0),
        "score_of_positives": abs(after[own].mean() / before[own].mean() - 1.0),
        "top": 1.0 - len(top[0] & top[1]) / len(top[0]),
        "churn": flipped.sum() / own.sum(),
        "changed": flipped.mean(),
        "drift": np.abs(after - before).mean(),
        "recall": (before[own] > 0.5).mean() - (after[own] > 0.5).mean(),
        "accuracy": ((before > 0.5) == own).mean() - ((after > 0.5) == own).mean(),
    }
    return {name: float(value) for name, value in found.items()}


STATED = ("auc", "precision", "score", "top", "churn", "changed", "drift", "recall", "accuracy")
"""Figures that are compared with what was stated."""


def summarize_rare(records):
    """Print the figures of the issue for rare positives."""
    for held in (True, False):
        runs = [r for r in records if r["held"] == held]
        done = [r for r in runs if "error" not in r]
        if not done:
            continue
        print(
            f"{'with' if held else 'without'} validation rows: {len(runs)} runs, "
            f"{len(runs) - len(done)} refused, {min(r['bits'] for r in done):.0f} bits at least"
        )
        for what in ("auc", "precision", "score", "score_of_positives", "top", "churn"):
            worst = max(done, key=lambda r: r[what])
            print(
                f"  {what:20} mean {np.mean([r[what] for r in done]):.5f}  worst {worst[what]:.5f} "
                f"({worst['set']}, {worst['share']}, {worst['library']}, seed {worst['seed']})"
            )
        small = [
            {code: r[code] / r["stated"][code] for code in STATED if r[code] > r["stated"][code]}
            for r in done
        ]
        beyond = [found for found in small if found]
        print(f"  stated too small: {len(beyond)} of {len(done)} runs: {beyond}")


def run_rare_part(given):
    """Mark models of rare positives, and summarize."""
    records = []
    if given.out.exists():
        records = [json.loads(line) for line in given.out.read_text().splitlines()]
    known = {tuple(r[k] for k in ("set", "share", "library", "seed")) for r in records}
    runs = itertools.product(range(given.seeds), RARE_LIBRARIES, RARE_SETS, RARE_SHARES)
    for seed, library, name, share in runs:
        key = name, share, library, seed
        if key in known or library not in given.libraries.split(","):
            continue
        found = list(run_rare(*key))
        records += found
        with given.out.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in found)
    summarize_rare(records)


NUMBER_SETS = ("diamonds", "friedman1", "friedman2")
STATED_SETS = ("spambase", "churn", "cancer", "digits", "wine", "synthetic", *NUMBER_SETS)
STATED_LIBRARIES = ("lightgbm", "xgboost", "histogram")
STATED_TREES = 60


def load_stated(name, seed):
    """Rows with classes or numbers, in an order that follows from the seed.

    Columns of Friedman's tables have no grid of decimals, unlike those of the others with numbers.
    """
    if name.startswith("friedman"):
        make = {"friedman1": make_friedman1, "friedman2": make_friedman2}[name]
        return make(8_000, noise=1.0, random_state=seed)
    if name == "diamonds":
        table = load_field(name)
        order = np.random.default_rng(seed).permutation(len(table.rows))[:12_000]
        target = np.array(table.target, np.float64)[order]
        return encode_texts([table.rows[i] for i in order]), target
    if name == "synthetic":
        X, y = make_classification(
            12_000, 15, n_informative=7, n_classes=2, weights=[0.95], random_state=seed
        )
        return X, y
    return load(name, seed)


def make_regressor(library, rounds, seed):
    if library == "lightgbm":
        from lightgbm import LGBMRegressor

        return LGBMRegressor(n_estimators=rounds, random_state=seed, verbose=-1, n_jobs=2)
    if library == "xgboost":
        from xgboost import XGBRegressor

        return XGBRegressor(n_estimators=rounds, random_state=seed, n_jobs=2)
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(max_iter=rounds, random_state=seed, early_stopping=False)


def run_stated(name, library, seed, held):
    """Mark a model, and hold every figure that is stated to the same figure on unseen rows."""
    X, y = load_stated(name, seed)
    cuts = int(0.5 * len(X)), int(0.7 * len(X))
    train, kept, test = (
        (X[a:b], y[a:b]) for a, b in ((0, cuts[0]), (cuts[0], cuts[1]), (cuts[1], len(X)))
    )
    numbers = name in NUMBER_SETS
    if numbers:
        model = make_regressor(library, STATED_TREES, seed).fit(*train)
    else:
        model = make_model(library, False, STATED_TREES, seed).fit(*train)
    record = {"set": name, "library": library, "seed": seed, "held": held}
    try:
        result = tm.embed(
            model, *train, key=KEY, owner="benchmark", random_state=seed,
            validation=kept if held else None, weak=True,
        )  # fmt: skip
    except tm.errors.InputError as error:
        return record | {"error": str(error)}
    cost, rows = result.cost, RowSet("unseen", len(test[0]))
    if numbers:
        sides = [m.predict(test[0])[:, np.newaxis] for m in (model, result.model)]
        tally = Counting("numbers", cost.error, True).tally(*sides, test[1])
        found = number_figures(tally, cost.error, False, rows)
    else:
        sides = [m.predict_proba(test[0]) for m in (model, result.model)]
        tally = Counting("labels").tally(*sides, test[1])
        found = label_figures(tally, cost.classes, rows)
    told = {
        (f.code, str(f.label)): f
        for f in reversed(cost.figures)
        if f.rows is None or "training" not in f.rows.code
    }
    record["figures"] = [
        [f.code, str(f.label), f.change, one.change, one.bound]
        for f in found
        if (one := told.get((f.code, str(f.label)))) is not None and one.bound is not None
    ]
    return record | {"bits": result.bits, **mark_fields(result), "rows": cost.n_rows}


def summarize_stated(records):
    """Print in how many runs a figure on unseen rows is beyond its stated bound."""
    done = [r for r in records if "error" not in r]
    beyond = {}
    for number, r in enumerate(done):
        for code, label, unseen, _, bound in r["figures"]:
            if unseen > bound:
                beyond.setdefault(number, []).append((unseen / max(bound, 1e-12), code, label))
    print(
        f"{len(records)} runs, {len(records) - len(done)} refused; a figure is beyond its bound in "
        f"{len(beyond)} of {len(done)}"
    )
    for number, found in beyond.items():
        r = done[number]
        print(f"  {r['set']}, {r['library']}, seed {r['seed']}, held {r['held']}: {max(found)}")
    ratios = [bound / max(unseen, 1e-12) for r in done for _, _, unseen, _, bound in r["figures"]]
    print(f"a stated bound is {np.median(ratios):.1f} times the figure on unseen rows, the median")


def run_stated_part(given):
    """Mark small models of every kind, and summarize what their costs stated."""
    records = []
    if given.out.exists():
        records = [json.loads(line) for line in given.out.read_text().splitlines()]
    known = {tuple(r[k] for k in ("set", "library", "seed", "held")) for r in records}
    wanted = [name for name in STATED_LIBRARIES if name in given.libraries.split(",")]
    for key in itertools.product(STATED_SETS, wanted, range(given.seeds), (True, False)):
        if key in known:
            continue
        records.append(run_stated(*key))
        with given.out.open("a") as file:
            file.write(json.dumps(records[-1]) + "\n")
    summarize_stated(records)


def run_large():
    """A million rows with two classes, and 300,000 with five."""
    for n, d, classes, library in ((1_000_000, 28, 2, "lightgbm"), (300_000, 50, 5, "timbermark")):
        X, y = make_classification(
            n + 100_000,
            d,
            n_informative=12,
            n_classes=classes,
            flip_y=0.1,
            class_sep=0.7,
            random_state=0,
        )
        model = make_model(library, False, 100, 0)
        if library == "timbermark":
            model.set_params(keep_state=False)
        start = time.perf_counter()
        model.fit(X[:n], y[:n])
        fit = time.perf_counter() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        result = tm.embed(model, X[:n], y[:n], key=KEY, owner="benchmark")
        embed = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before, after = model.predict_proba(X[n:]), result.model.predict_proba(X[n:])
        changed = (before.argmax(1) != after.argmax(1)).mean()
        print(
            f"{n:,} × {d}, {classes} classes, {library}: {result.bits:.0f} bits, labels changed "
            f"{changed:.3%}, mean drift {np.abs(after - before).max(1).mean():.4f}, embed "
            f"{embed / fit:.2f} × training, peak memory {peak / memory:.2f} ×"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--part", choices=("grid", "bare", "large", "rare", "stated"), default="grid"
    )
    parser.add_argument("--out", type=Path, default=Path("timbermark-fidelity.jsonl"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if given.part == "large":
        run_large()
        return
    if given.part in ("rare", "stated"):
        {"rare": run_rare_part, "stated": run_stated_part}[given.part](given)
        return
    records = []
    if given.out.exists():
        records = [json.loads(line) for line in given.out.read_text().splitlines()]
    known = {(r["set"], r["library"], r["variant"], r["seed"], r["bare"]) for r in records}
    bare = given.part == "bare"
    for name, library, variant, seed in grid(bare):
        key = (name, library, variant, seed, bare)
        wanted = name in given.sets.split(",") and library in given.libraries.split(",")
        if not wanted or seed >= given.seeds or key in known:
            continue
        record = run(name, library, variant, seed, bare)
        records.append(record)
        with given.out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(
            json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}),
            flush=True,
        )
    summarize([r for r in records if r["bare"] == bare])


if __name__ == "__main__":
    main()
