"""Can a thief tell marked trees from untouched ones by anything that the file says?

Many XGBoost and LightGBM models are trained on made and real data with varied parameters; each is
marked with the defaults. A classifier learns to tell trees of marked models from trees of unmarked
ones by statistics of nodes and trees (values, weights, covers, counts, gains, whether they follow
from each other, their order, digits of thresholds), on some models, and is judged on others that it
never saw. ``--seals`` marks with one seal alone. Marks that need thresholds between two values of a
column's grid (7.5 among whole numbers; a note of the result says so) can be seen by a look at the
thresholds where the library cuts at values, so the others are also judged by themselves.

One statistic needs no learning: in the first round all rows have the same gradient and weight but
for their label, so that a leaf of n rows, m of them positive, is −η(np − m)/(H + λ), H its weight.
`off_grid` is the share of first-round leaves for which m is no whole number.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

import timbermark as tm


def make_data(i, rng):
    """A data set of its own for each model."""
    kind = i % 6
    if kind == 0:
        X, y = load_digits(return_X_y=True)
    elif kind == 1:
        X, y = load_breast_cancer(return_X_y=True)
        X, y = np.tile(X, (3, 1)) * rng.normal(1, 0.03, (3 * len(X), X.shape[1])), np.tile(y, 3)
    else:
        classes = 2 if kind < 4 else int(rng.integers(3, 6))
        X, y = make_classification(
            int(rng.integers(2000, 6000)), int(rng.integers(8, 30)), n_informative=6,
            n_classes=classes, n_clusters_per_class=2, flip_y=rng.uniform(0.01, 0.15),
            weights=[0.8] if classes == 2 and kind == 2 else None,
            random_state=int(rng.integers(1 << 30)),
        )  # fmt: skip
    keep = rng.permutation(len(X))[: int(rng.uniform(0.7, 1.0) * len(X))]
    return X[keep], y[keep]


def make_model(library, rng):
    trees, rate = int(rng.integers(40, 200)), float(rng.choice([0.05, 0.1, 0.3]))
    seed = int(rng.integers(1 << 30))
    if library == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(
            n_estimators=trees, learning_rate=rate, max_depth=int(rng.integers(3, 8)),
            reg_lambda=float(rng.choice([0.5, 1.0, 3.0])), random_state=seed, n_jobs=2,
            subsample=float(rng.choice([0.7, 1.0])),
        )  # fmt: skip
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=trees, learning_rate=rate, num_leaves=int(rng.integers(8, 64)),
        reg_lambda=float(rng.choice([0.0, 0.0, 1.0])), random_state=seed, n_jobs=2, verbose=-1,
    )  # fmt: skip


def count_digits(threshold, is_split):
    """How many digits it takes to write each threshold; -1 at leaves."""
    written = [len(str(x).strip("-").replace(".", "").strip("0")) for x in threshold]
    return np.where(is_split, written, -1)


def read_trees(model):
    """Each tree of a model's file as arrays: left, right, value, weight, count, gain, feature."""
    if hasattr(model, "get_booster"):
        document = json.loads(bytes(model.get_booster().save_raw("json")))
        for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
            left = np.array(tree["left_children"])
            weight = np.array(tree["base_weights"], float)
            yield {
                "left": left,
                "right": np.array(tree["right_children"]),
                "value": np.where(left < 0, np.array(tree["split_conditions"], float), weight),
                "base": weight,
                "weight": np.array(tree["sum_hessian"], float),
                "count": np.array(tree["sum_hessian"], float),
                "gain": np.array(tree["loss_changes"], float),
                "feature": np.array(tree["split_indices"]),
                "digits": count_digits(np.array(tree["split_conditions"], np.float32), left >= 0),
            }
        return
    for block in model.booster_.model_to_string().split("Tree=")[1:]:
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        n = int(fields["num_leaves"]) - 1
        if n == 0:
            continue

        def numbers(name, fields=fields):
            return np.array(fields[name].split(), float)

        def child(name, n=n):
            found = numbers(name).astype(int)
            return np.where(found >= 0, found, n + ~found)

        none = np.full(n + 1, -1)
        value = np.concatenate([numbers("internal_value"), numbers("leaf_value")])
        yield {
            "left": np.concatenate([child("left_child"), none]),
            "right": np.concatenate([child("right_child"), none]),
            "value": value,
            "base": value,
            "weight": np.concatenate([numbers("internal_weight"), numbers("leaf_weight")]),
            "count": np.concatenate([numbers("internal_count"), numbers("leaf_count")]),
            "gain": np.concatenate([numbers("split_gain"), np.zeros(n + 1)]),
            "feature": np.concatenate([numbers("split_feature"), none]),
            "digits": np.concatenate([count_digits(numbers("threshold"), none[1:] < 0), none]),
        }


OFF = 0.05
"""How far from a whole number m is off the grid; single precision gives some thousandths."""


def off_grid(model):
    """The share of first-round leaves that are off the library's grid; nan if there are none.

    The thief is one who knows the learning rate and the regularization.
    """
    rate, penalty = model.get_params()["learning_rate"], model.get_params()["reg_lambda"]
    n_classes = len(model.classes_)
    n_outputs = 1 if n_classes == 2 else n_classes
    off = []
    if hasattr(model, "get_booster"):
        document = json.loads(bytes(model.get_booster().save_raw("json")))
        base = np.atleast_1d(json.loads(document["learner"]["learner_model_param"]["base_score"]))
        shares = base if n_classes == 2 else np.exp(base) / np.exp(base).sum()
        curved = 1.0 if n_classes == 2 else 2.0
        for tree, p in zip(read_trees(model), shares, strict=False):
            leaf = tree["left"] < 0
            weight = tree["weight"][leaf]
            n = np.round(weight / (curved * p * (1 - p)))
            m = n * p + tree["value"][leaf] * (weight + penalty) / rate
            off.append(np.abs(m - np.round(m)) > OFF)
    else:
        curved = 1.0 if n_classes == 2 else n_classes / (n_classes - 1)
        for tree, _ in zip(read_trees(model), range(n_outputs), strict=False):
            leaf = tree["left"] < 0
            n, value = tree["count"][leaf], tree["value"][leaf]
            # Leaves hold what boosting starts from, the log of the odds or of the share of a class.
            start = np.average(value, weights=n)
            for _ in range(30):
                p = 1 / (1 + np.exp(-start)) if n_classes == 2 else np.exp(min(start, -1e-9))
                weight = curved * n * p * (1 - p) + penalty
                start = np.average(value, weights=weight)
            m = n * p + (value - start) * weight / rate
            off.append(np.abs(m - np.round(m)) > OFF)
    return float(np.concatenate(off).mean()) if off else np.nan


def node_features(tree, place, scale):
    """[nodes, f]: what a thief can compute of every split and of the leaves below it."""
    inner = np.flatnonzero(tree["left"] >= 0)
    left, right = tree["left"][inner], tree["right"][inner]
    value, weight, gain, base = tree["value"], tree["weight"], tree["gain"], tree["base"]
    leaf = tree["left"] < 0
    v_left, v_right = value[left] / scale, value[right] / scale
    w_left, w_right = weight[left], weight[right]
    mean = (base[left] * w_left + base[right] * w_right) / np.maximum(w_left + w_right, 1e-12)
    spread = (
        (base[left] - base[right]) ** 2 * w_left * w_right / np.maximum(w_left + w_right, 1e-12)
    )
    n = len(inner)
    return np.column_stack(
        [
            np.full(n, place),
            v_left, v_right, np.abs(v_left - v_right), np.abs(v_left) * np.sqrt(w_left),
            np.abs(v_right) * np.sqrt(w_right), w_left, w_right, np.minimum(w_left, w_right),
            np.log(np.maximum(gain[inner], 1e-12)),
            np.log(np.maximum(spread, 1e-12)) - np.log(np.maximum(gain[inner], 1e-12)),
            (base[inner] - mean) / scale,
            np.abs(weight[inner] - w_left - w_right) / np.maximum(weight[inner], 1e-12),
            np.log(np.maximum(gain[inner], 1e-12) / np.maximum(gain[inner].max(), 1e-12)),
            leaf[left], leaf[right], tree["count"][left], tree["count"][right],
            inner / max(n, 1), np.sign(v_left) == np.sign(v_right), tree["digits"][inner],
        ]
    )  # fmt: skip


def tree_features(tree, nodes):
    """[f]: the same, summed up over the tree, and what only the tree shows."""
    leaf = tree["left"] < 0
    value, weight = np.abs(tree["value"][leaf]), tree["weight"][leaf]
    quantiles = [0.0, 0.1, 0.5, 0.9, 1.0]
    gain = tree["gain"][~leaf]
    ordered = np.diff(gain)
    return np.concatenate(
        [
            [nodes[0, 0], leaf.sum(), (ordered > 0).mean() if len(ordered) else 0],
            np.quantile(nodes[:, 1:], quantiles, axis=0).ravel(),
            np.quantile(value * np.sqrt(weight), quantiles),
            [np.corrcoef(value, np.log(weight + 1e-9))[0, 1] if len(value) > 2 else 0.0],
            [(weight * tree["value"][leaf]).sum() / weight.sum()],
        ]
    )


def features_of(model):
    trees = [tree for tree in read_trees(model) if (tree["left"] >= 0).any()]
    scale = np.median([np.abs(tree["value"][tree["left"] < 0]).mean() for tree in trees])
    nodes = [node_features(t, i / len(trees), scale) for i, t in enumerate(trees)]
    return nodes, np.array([tree_features(t, n) for t, n in zip(trees, nodes, strict=True)])


def judge(features, fold):
    """AUC of telling marked from unmarked: by trees, by nodes, and by whole models."""
    scores = {"trees": [], "nodes": [], "models": []}
    for held in range(fold):
        train = [f for i, f in enumerate(features) if i % fold != held]
        test = [f for i, f in enumerate(features) if i % fold == held]

        def stack(models, what):
            parts, labels = [], []
            for unmarked, marked in models:
                for label, (nodes, trees) in enumerate((unmarked, marked)):
                    part = np.concatenate(nodes) if what == "nodes" else trees
                    parts.append(part)
                    labels.append(np.full(len(part), label))
            return np.concatenate(parts), np.concatenate(labels)

        for what in ("trees", "nodes"):
            X, y = stack(train, what)
            some = np.random.default_rng(0).permutation(len(X))[:200_000]
            spy = HistGradientBoostingClassifier(max_iter=150, random_state=0).fit(X[some], y[some])
            Z, z = stack(test, what)
            scores[what].append(roc_auc_score(z, spy.predict_proba(Z)[:, 1]))
            if what == "trees":
                means = [[spy.predict_proba(m[1])[:, 1].mean() for m in pair] for pair in test]
                flat = np.array(means).ravel()
                scores["models"].append(roc_auc_score(np.tile([0, 1], len(test)), flat))
    return {what: float(np.mean(values)) for what, values in scores.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--libraries", default="xgboost,lightgbm")
    parser.add_argument("--seals", default="both", choices=("both", "splits", "leaves"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    key = tm.OwnerKey.generate()
    for library in given.libraries.split(","):
        rng = np.random.default_rng(0)
        features, shares, on_grid, failed = [], [], [], 0
        while len(features) < given.models:
            X, y = make_data(len(features) + failed, rng)
            model = make_model(library, rng).fit(X, y)
            try:
                result = tm.embed(model, X, y, key=key, owner="thief study", seals=given.seals)
            except tm.errors.InputError as error:
                failed += 1
                print(f"{library}: no mark ({error})", file=sys.stderr)
                continue
            features.append((features_of(model), features_of(result.model)))
            shares.append((off_grid(model), off_grid(result.model)))
            on_grid.append(all(note.code != "off_grid" for note in result.notes))
            print(f"{library} {len(features)}", end="\r", file=sys.stderr, flush=True)
        unmarked, marked = np.nanmean(shares, axis=0)
        by_grid = roc_auc_score(np.tile([0, 1], len(shares)), np.nan_to_num(shares).ravel())
        print(
            f"{library}: {len(features)} models, {failed} without a mark; first-round leaves off "
            f"the grid: {unmarked:.1%} of unmarked, {marked:.1%} of marked, AUC {by_grid:.3f}",
        )
        natural = [f for f, natural in zip(features, on_grid, strict=True) if natural]
        for name, some in (("all", features), ("thresholds on the columns' grids", natural)):
            found = judge(some, min(5, len(some)))
            print(
                f"  {name}, {len(some)} models: AUC of telling marked from unmarked by tree "
                f"{found['trees']:.3f}, by node {found['nodes']:.3f}, by whole model "
                f"{found['models']:.3f} (chance 0.5)",
                flush=True,
            )


if __name__ == "__main__":
    main()
