"""What evidence says of innocent suspects, and how long a verdict takes.

``innocents``: models that know nothing of a mark, asked for scores and for labels, or for numbers;
unmarked models that were attacked are among them. Marks are embedded with default and with tight
budgets and judged as they are ("whole": a secret, scrypt and redraws of their own). For each of
them many other symbols are drawn for the same triggers ("redrawn"). No share of trials with b bits
may exceed 2^-b beyond chance.

``verify``: the whole command on a file of timbermark, in seconds.

One JSON line per step goes to ``--out``, which a later call continues. ``--quick`` is a minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import load_prices, mark_fields, redrawn_bits, show
from fidelity import load
from lightgbm import LGBMClassifier, LGBMRegressor
from rich.progress import track
from scipy.stats import binom
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier, XGBRegressor

import timbermark as tm
from timbermark.attacks.registry import find_attacks
from timbermark.attacks.stolen import NotOfferedError, Thief, steal
from timbermark.ownership.evidence import Answers, sum_prices, total_bits, weigh

warnings.simplefilter("ignore")
KEY = tm.OwnerKey.generate()
BITS = range(1, 13)
KINDS = ("labels", "scores", "numbers")
INNOCENT_SETS = (
    "digits", "segmentation", "wine", "optdigits", "spambase", "churn", "pendigits", "diamonds",
)  # fmt: skip
ATTACKS = ("refit:0.2", "add-trees:5", "snap-thresholds:1", "average-own:0.5")
"""What is done to unmarked models, which must not gain evidence by it."""
BUDGETS = {
    "default": tm.Budget(),
    "tight": tm.Budget(changed=0.004, drift=0.004, accuracy=0.002, auc=0.001),
    "tightest": tm.Budget(changed=0.002, drift=0.002, accuracy=0.001, auc=0.0005),
}
MOST_ROWS = 3000


def make_suspects(X, y, seed):
    """Models of five kinds and more, by somebody who has these rows."""
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    models = {
        "LightGBM": LGBMClassifier(n_estimators=40, random_state=seed, verbose=-1, n_jobs=1),
        "LightGBM, small": LGBMClassifier(
            n_estimators=20, num_leaves=7, subsample=0.7, subsample_freq=1, random_state=seed + 1,
            verbose=-1, n_jobs=1,
        ),
        "XGBoost": XGBClassifier(n_estimators=40, random_state=seed, n_jobs=1),
        "XGBoost, deep": XGBClassifier(
            n_estimators=30, max_depth=9, subsample=0.7, random_state=seed + 1, n_jobs=1
        ),
        "random forest": RandomForestClassifier(100, random_state=seed),
        "histogram boosting": HistGradientBoostingClassifier(max_iter=40, random_state=seed),
        "logistic regression": logistic,
        "nearest neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
    }  # fmt: skip
    return {name: model.fit(X, y) for name, model in models.items()}


def make_regressors(X, y, seed):
    """Regressors of several kinds, by somebody who has these rows."""
    models = {
        "LightGBM": LGBMRegressor(n_estimators=40, random_state=seed, verbose=-1, n_jobs=1),
        "XGBoost": XGBRegressor(n_estimators=40, random_state=seed, n_jobs=1),
        "random forest": RandomForestRegressor(50, random_state=seed),
        "histogram boosting": HistGradientBoostingRegressor(max_iter=40, random_state=seed),
    }
    return {name: model.fit(X, y) for name, model in models.items()}


def make_owner(name, step):
    """The owner's model, which alternates between two libraries; diamonds is a regressor."""
    second = (step // len(INNOCENT_SETS)) % 2
    regressors, classifiers = (LGBMRegressor, XGBRegressor), (LGBMClassifier, XGBClassifier)
    kinds = regressors if name == "diamonds" else classifiers
    more = {} if second else {"verbose": -1}
    return kinds[second](n_estimators=60, random_state=step, n_jobs=1, **more)


def attacked(model, X, y, seed):
    """The unmarked model after attacks by somebody who has these rows."""
    found, stolen = {}, steal(model)
    target = y if stolen.task == "regression" else np.searchsorted(stolen.classes, y)
    thief = Thief(X, target, seed)
    for attack, strength in find_attacks(ATTACKS):
        try:
            left = attack.run(stolen, thief, strength)
        except NotOfferedError:
            continue
        found[f"unmarked, {attack.name}:{strength:g}"] = left.answer
    return found


def answers_of(suspect, mark):
    """A suspect's answers, by kind: scores and labels in the order of the classes, or numbers."""
    rows = np.nan_to_num(mark.rows().astype(float), nan=-1.0)
    if mark.answers == "numbers":
        given = suspect(rows) if callable(suspect) else suspect.predict(rows)
        return {"numbers": Answers("numbers", np.asarray(given, float).reshape(-1))}
    if callable(suspect):
        scores = np.asarray(suspect(rows), float)
    else:
        scores = np.zeros((len(rows), len(mark.classes)))
        scores[:, np.searchsorted(mark.classes, suspect.classes_)] = suspect.predict_proba(rows)
    labels = Answers("labels", scores.argmax(axis=1).astype(np.int32))
    return {"labels": labels, "scores": Answers("scores", scores)}


def bits_of(mark, answers):
    """What answers prove, after the mark's prices."""
    seals = weigh(mark, answers)
    return total_bits([s.bits for s in seals], len(mark.seals)) - sum_prices(mark.prices)


def load_some(name, step):
    """Rows and labels, or logarithms of prices."""
    if name == "diamonds":
        X, y = load_prices()
        some = np.random.default_rng(step).permutation(len(X))[:MOST_ROWS]
        return X[some], np.log(y[some])
    X, y = load(name, step)
    X, y = np.nan_to_num(X[:MOST_ROWS], nan=-1.0), y[:MOST_ROWS]
    return X, np.unique(y, return_inverse=True)[1]


def run_innocents(step, n_redrawn):
    """One data set and one owner's model: marks with all budgets against all suspects."""
    name = INNOCENT_SETS[step % len(INNOCENT_SETS)]
    X, y = load_some(name, step)
    half, numbers = len(X) // 2, name == "diamonds"
    first = [] if numbers else [np.flatnonzero(y == label)[0] for label in np.unique(y)]
    own = np.union1d(np.arange(half), first).astype(int)  # every class is in both halves
    other = np.union1d(np.arange(half, len(X)), first).astype(int)
    model = make_owner(name, step).fit(X[own], y[own])
    suspects = {"the unmarked model": model, **attacked(model, X[other], y[other], step)}
    for whose, rows in (("owner's rows", own), ("other rows", other)):
        made = (make_regressors if numbers else make_suspects)(X[rows], y[rows], step)
        suspects |= {f"{kind}, {whose}": suspect for kind, suspect in made.items()}
    records, previous, rng = [], None, np.random.default_rng(step)
    for budget, limits in ({"default": tm.Budget()} if numbers else BUDGETS).items():
        about = {"step": step, "set": name, "budget": budget}
        try:
            result = tm.embed(
                model, X[own], y[own], key=KEY, owner="benchmark", budget=limits,
                random_state=step, weak=True,
            )  # fmt: skip
        except tm.errors.InputError as error:
            records.append({**about, "error": str(error)})
            continue
        mark = result.mark
        asked = dict(suspects)
        if previous is not None:
            asked["the model with another mark"] = previous
        previous = result.model
        whole = {kind: {} for kind in KINDS}
        counts = {kind: np.zeros(len(BITS), int) for kind in KINDS}
        most = {}
        for suspect, one in asked.items():
            for kind, answers in answers_of(one, mark).items():
                whole[kind][suspect] = bits_of(mark, answers)
                found = redrawn_bits(mark, answers, n_redrawn, rng)
                counts[kind] += (found[:, None] >= np.array(BITS)).sum(axis=0)
                most[kind] = max(most.get(kind, -np.inf), float(found.max()))
        records.append(
            {
                **about, **mark_fields(result), "draws": mark.draws, "whole": whole,
                "redrawn": {kind: c.tolist() for kind, c in counts.items()},
                "n_redrawn": {kind: n_redrawn * len(whole[kind]) for kind in KINDS},
                "most": most,
                "marked": {
                    kind: bits_of(mark, answers)
                    for kind, answers in answers_of(result.model, mark).items()
                },
            }
        )  # fmt: skip
    return records


def summarize_innocents(records):
    """Print the table: shares with at least b bits against 2^-b. Returns whether all are within."""
    done = [r for r in records if "error" not in r]
    whole = {kind: np.array([b for r in done for b in r["whole"][kind].values()]) for kind in KINDS}
    kinds = [kind for kind in KINDS if len(whole[kind])]
    counts = {
        "whole": {k: (whole[k][:, None] >= np.array(BITS)).sum(axis=0) for k in kinds},
        "redrawn": {k: sum(np.array(r["redrawn"][k]) for r in done) for k in kinds},
    }
    totals = {
        "whole": {kind: len(whole[kind]) for kind in kinds},
        "redrawn": {kind: sum(r["n_redrawn"][kind] for r in done) for kind in kinds},
    }
    rows, sound = [], True
    for place, bits in enumerate(BITS):
        row = [bits, f"{2.0**-bits:.5f}"]
        for part in counts:
            for kind in kinds:
                count, total = counts[part][kind][place], totals[part][kind]
                beyond = binom.sf(count - 1, total, 2.0**-bits) < 0.001 / len(BITS)
                sound &= not beyond
                row.append(f"{count / total:.5f}{' !' if beyond else ''}")
        rows.append(row)
    show(
        f"innocents: trials {totals}, {len(done)} marks; {len(records) - len(done)} budgets "
        f"allowed no mark; draws {np.bincount([r['draws'] for r in done]).tolist()}",
        ["bits", "2^-bits", *(f"{part}, {kind}" for part in counts for kind in kinds)],
        rows,
    )
    largest = {
        "whole": {kind: round(float(whole[kind].max()), 2) for kind in kinds},
        "redrawn": {k: round(max(r["most"].get(k, 0.0) for r in done), 2) for k in kinds},
    }
    print("largest evidence of an innocent suspect, bits:", largest)
    marked = {k: [r["marked"][k] for r in done if k in r["marked"]] for k in kinds}
    medians = {kind: round(float(np.median(bits)), 1) for kind, bits in marked.items()}
    print("marked models, median bits:", medians)
    return {"trials": totals, "largest": largest, "within": bool(sound)}


def run_verify():
    """Seconds of the whole command on a file of timbermark, and what it may not import."""
    X, y = load("digits", 0)
    model = tm.TimberClassifier(max_iter=60, random_state=0).fit(X[:1200], y[:1200])
    result = tm.embed(model, X[:1200], y[:1200], key=KEY, owner="benchmark")
    with tempfile.TemporaryDirectory() as folder:
        tm.save(result.model, f"{folder}/model.timber")
        result.mark.save(f"{folder}/mark")
        command = [
            sys.executable, "-X", "importtime", "-m", "timbermark", "verify",
            f"{folder}/model.timber", f"{folder}/mark",
        ]  # fmt: skip
        times = []
        for _ in range(5):
            start = time.perf_counter()
            plain = [part for part in command if part not in ("-X", "importtime")]
            code = subprocess.run(plain, capture_output=True, check=False).returncode
            times.append(time.perf_counter() - start)
        told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    heavy = [name for name in ("numba", "sklearn") if f" {name}\n" in told]
    found = {"seconds": min(times), "code": code, "imports": heavy}
    print(f"verify: {found['seconds']:.2f} s, exit code {code}, heavy imports: {heavy or 'none'}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("all", "innocents", "verify"), default="all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("timbermark-evidence.jsonl"))
    parser.add_argument("--steps", type=int, default=42, help="data sets and models of innocents")
    parser.add_argument("--redrawn", type=int, default=200, help="draws for each mark, suspect")
    given = parser.parse_args()
    if given.quick:
        given.out = given.out.with_name("quick-" + given.out.name)
    steps, redrawn = (2, 5) if given.quick else (given.steps, given.redrawn)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    records = [json.loads(line) for line in lines]
    results = {}

    def add(part, found):
        records.extend({"part": part, **record} for record in found)
        with given.out.open("a") as file:
            file.writelines(json.dumps(r) + "\n" for r in records[-len(found) :])

    def of(part):
        return [r for r in records if r["part"] == part]

    if given.part in ("all", "innocents"):
        known = {r["step"] for r in of("innocents")}
        for step in track([s for s in range(steps) if s not in known], "innocents"):
            add("innocents", run_innocents(step, redrawn))
        results["innocents"] = summarize_innocents(of("innocents"))
    if given.part in ("all", "verify"):
        results["verify"] = run_verify()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
