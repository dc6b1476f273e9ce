"""What evidence says of innocent suspects, what thieves leave of a mark, how long a verdict takes.

``innocents``: models that know nothing of a mark, asked for labels at once, labels one by one, and
scores. Marks are embedded with default and with tight budgets and judged as they are ("whole": a
secret, scrypt and redraws of their own). For each of them many other secrets are drawn, which give
other symbols for the same triggers ("redrawn": all but scrypt, which takes a fraction of a second
and mixes what is random already). No share of trials with b bits may exceed 2^-b beyond chance.

``verify``: the whole command on a file of timbermark, in seconds.

``robustness``: LightGBM and XGBoost models with default marks; a thief with 20 % of the rows
averages, refits and distils them.

One JSON line per step goes to ``--out``, which a later call continues. ``--quick`` is a minute.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import show
from fidelity import load
from lightgbm import LGBMClassifier
from rich.progress import track
from scipy.stats import binom
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import DMatrix as Matrix
from xgboost import XGBClassifier, train

import timbermark as tm
from timbermark.ownership import Inquiry, judge

warnings.simplefilter("ignore")
KEY = tm.OwnerKey.generate()
BITS = range(1, 13)
KINDS = ("labels", "labels one by one", "scores")
INNOCENT_SETS = ("digits", "segmentation", "wine", "optdigits", "spambase", "churn", "pendigits")
BUDGETS = {
    "default": tm.Budget(),
    "tight": tm.Budget(changed=0.004, drift=0.004, accuracy=0.002, auc=0.001),
    "tightest": tm.Budget(changed=0.002, drift=0.002, accuracy=0.001, auc=0.0005),
}
MOST_ROWS = 3000
ROBUST_SETS = ("pendigits", "letter", "avila")
SHARES, DECAYS = (0.5, 0.7, 0.9), (0.9, 0.5)
WANTED = {
    "averaged, 0.5 the thief's": 100,
    "averaged, 0.9 the thief's": 64,
    "leaves refitted, decay 0.5": 100,
}
MOST_LOST = 2.0
"""Points of accuracy: an attack that costs the thief more is none."""


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


def ask(model, mark):
    """Scores [k, K] in the order of the mark's classes."""
    rows = np.nan_to_num(mark.triggers, nan=-1.0)
    scores = np.zeros((len(rows), len(mark.classes)))
    scores[:, np.searchsorted(mark.classes, model.classes_)] = model.predict_proba(rows)
    return scores


def judge_all(mark, scores):
    """Bits of the three kinds; those who answer with labels give the most likely one."""
    asked = Inquiry("innocent")
    labels = scores.argmax(axis=1)
    return [
        judge(mark, asked, labels=labels).bits,
        judge(mark, asked, labels=labels, one_by_one=True).bits,
        judge(mark, asked, scores=scores).bits,
    ]


def redraw(mark):
    """The mark with another secret and so with other symbols; only scrypt is left out."""
    other = replace(mark, draws=1, secret=secrets.token_bytes(32))
    other._derived["seed"] = secrets.token_bytes(32)
    return other


def run_innocents(step, n_redrawn):
    """One data set and one owner's model: marks with all budgets against all suspects."""
    name = INNOCENT_SETS[step % len(INNOCENT_SETS)]
    X, y = load(name, step)
    X, y = np.nan_to_num(X[:MOST_ROWS], nan=-1.0), y[:MOST_ROWS]
    y = np.unique(y, return_inverse=True)[1]
    half = len(X) // 2
    model = (
        LGBMClassifier(n_estimators=60, random_state=step, verbose=-1, n_jobs=1)
        if (step // len(INNOCENT_SETS)) % 2 == 0
        else XGBClassifier(n_estimators=60, random_state=step, n_jobs=1)
    )
    labels = np.unique(y)
    first = np.array([np.flatnonzero(y == label)[0] for label in labels])
    own = np.union1d(np.arange(half), first)  # every class is in both halves
    other = np.union1d(np.arange(half, len(X)), first)
    model.fit(X[own], y[own])
    suspects = {"the unmarked model": model}
    for whose, rows in (("owner's rows", own), ("other rows", other)):
        made = make_suspects(X[rows], y[rows], step)
        suspects |= {f"{kind}, {whose}": suspect for kind, suspect in made.items()}
    records, previous = [], None
    for budget, limits in BUDGETS.items():
        try:
            result = tm.embed(
                model, X[own], y[own], key=KEY, owner="benchmark", budget=limits,
                random_state=step, weak=True,
            )  # fmt: skip
        except tm.errors.InputError as error:
            records.append({"step": step, "set": name, "budget": budget, "error": str(error)})
            continue
        mark = result.mark
        asked = dict(suspects)
        if previous is not None:
            asked["the model with another mark"] = previous
        previous = result.model
        whole, redrawn = {}, np.zeros((len(KINDS), len(BITS)), int)
        most, answers = np.zeros(len(KINDS)), {k: ask(s, mark) for k, s in asked.items()}
        for suspect, scores in answers.items():
            whole[suspect] = judge_all(mark, scores)
            for _ in range(n_redrawn):
                found = np.array(judge_all(redraw(mark), scores))
                redrawn += found[:, None] >= np.array(BITS)
                most = np.maximum(most, found)
        records.append(
            {
                "step": step, "set": name, "budget": budget, "draws": mark.draws,
                "triggers": mark.n_triggers, "q": mark.q, "whole": whole,
                "redrawn": redrawn.tolist(), "n_redrawn": n_redrawn * len(answers),
                "most": most.tolist(), "marked": judge_all(mark, ask(result.model, mark)),
            }
        )  # fmt: skip
    return records


def summarize_innocents(records):
    """Print the table: shares with at least b bits against 2^-b. Returns whether all are within."""
    done = [r for r in records if "error" not in r]
    sets = {
        "whole": np.array([b for r in done for b in r["whole"].values()]),
        "redrawn": None,
    }
    n_redrawn = sum(r["n_redrawn"] for r in done)
    counts = {"redrawn": sum(np.array(r["redrawn"]) for r in done)}
    counts["whole"] = (sets["whole"].T[:, :, None] >= np.array(BITS)).sum(axis=1)
    totals = {"whole": len(sets["whole"]), "redrawn": n_redrawn}
    rows, sound = [], True
    for place, bits in enumerate(BITS):
        row = [bits, f"{2.0**-bits:.5f}"]
        for part in ("whole", "redrawn"):
            for kind in range(len(KINDS)):
                count = counts[part][kind][place]
                chance = binom.sf(count - 1, totals[part], 2.0**-bits)
                beyond = chance < 0.001 / len(BITS)
                sound &= not beyond
                row.append(f"{count / totals[part]:.5f}{' !' if beyond else ''}")
        rows.append(row)
    show(
        f"innocents: {totals['whole']} whole and {totals['redrawn']} redrawn trials of "
        f"{len(done)} marks; {len(records) - len(done)} budgets allowed no mark; "
        f"draws {np.bincount([r['draws'] for r in done]).tolist()}",
        [
            "bits",
            "2^-bits",
            *(f"{part}, {kind}" for part in ("whole", "redrawn") for kind in KINDS),
        ],
        rows,
    )
    largest = {
        "whole": sets["whole"].max(axis=0).round(2).tolist(),
        "redrawn": np.max([r["most"] for r in done], axis=0).round(2).tolist(),
    }
    print("largest evidence of an innocent suspect, bits:", largest)
    print("marked models, median bits:", np.median([r["marked"] for r in done], axis=0).round(1))
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


def refit(library, model, X, y, decay):
    """The model's trees with leaves that are a mixture of old and refitted; rows to scores."""
    if library == "LightGBM":
        booster = model.booster_.refit(X, y, decay_rate=decay)
        return booster.predict
    booster = model.get_booster()
    params = {
        "process_type": "update", "updater": "refresh", "refresh_leaf": True,
        "objective": "multi:softprob", "num_class": model.n_classes_, "nthread": 1,
    }  # fmt: skip
    fresh = train(
        params, Matrix(X, y), num_boost_round=booster.num_boosted_rounds(), xgb_model=booster.copy()
    )
    # Without a decay of its own in the library: both models have the same trees, leaf by leaf.
    files = [json.loads(bytes(b.save_raw("json"))) for b in (booster, fresh)]
    trees = [f["learner"]["gradient_booster"]["model"]["trees"] for f in files]
    for old, new in zip(*trees, strict=True):
        leaf = np.array(old["left_children"]) < 0
        value, other = np.array(old["split_conditions"]), np.array(new["split_conditions"])
        mixed = np.where(leaf, decay * value + (1.0 - decay) * other, value)
        old["split_conditions"] = mixed.tolist()
    decayed = booster.copy()
    decayed.load_model(bytearray(json.dumps(files[0]).encode()))
    return lambda rows: decayed.predict(Matrix(rows))


def make_stolen(library, marked, own, X, y, seed):
    """Each attack as a function from rows to scores. ``own``: a model that fits the thief's."""

    def fresh(number):
        return own.__class__(**own.get_params()).set_params(random_state=seed + number)

    def average(share):
        return lambda R: (1 - share) * marked.predict_proba(R) + share * own.predict_proba(R)

    attacks = {f"averaged, {share} the thief's": average(share) for share in SHARES}
    for decay in DECAYS:
        attacks[f"leaves refitted, decay {decay}"] = refit(library, marked, X, y, decay)
    scores = marked.predict_proba(X)
    labels = scores.argmax(axis=1)
    if len(np.unique(labels)) == scores.shape[1]:
        attacks["distilled from labels"] = fresh(1).fit(X, labels).predict_proba
    rows, classes = np.nonzero(scores > 0.005)
    if len(np.unique(classes)) == scores.shape[1]:
        student = fresh(2).fit(X[rows], classes, sample_weight=scores[rows, classes])
        attacks["distilled from probabilities"] = student.predict_proba
    return attacks


def run_robustness(name, library, seed):
    """A default mark after each attack: bits by scores and labels, and what the thief loses."""
    X, y = load(name, seed)
    test, thief = len(X) // 5, 2 * len(X) // 5

    def make(number):
        if library == "LightGBM":
            return LGBMClassifier(random_state=number, verbose=-1, n_jobs=1)
        return XGBClassifier(random_state=number, n_jobs=1)

    model = make(seed).fit(X[thief:], y[thief:])
    record = {"set": name, "library": library, "seed": seed}
    result = tm.embed(model, X[thief:], y[thief:], key=KEY, owner="benchmark", random_state=seed)
    mark, rows, labels = result.mark, (X[test:thief], y[test:thief]), y[:test]
    own = make(seed + 100).fit(*rows)
    attacks = {"untouched": result.model.predict_proba, "the thief's own": own.predict_proba}
    attacks |= make_stolen(library, result.model, own, *rows, seed)
    before = (result.model.predict_proba(X[:test]).argmax(axis=1) == labels).mean()
    found = {}
    for attack, suspect in attacks.items():
        scores = np.asarray(suspect(mark.triggers), float)
        accuracy = (np.asarray(suspect(X[:test])).argmax(axis=1) == labels).mean()
        at_once, _, by_scores = judge_all(mark, scores)
        found[attack] = [by_scores, at_once, float(100 * (before - accuracy))]
    strength = {"triggers": mark.n_triggers, "q": mark.q, "lead": result.strength.lead}
    return record | strength | {"attacks": found}


def summarize_robustness(records):
    """Print bits by scores, bits by labels and points lost of every attack."""
    rows = []
    for r in records:
        for attack, (scores, labels, lost) in r["attacks"].items():
            what = f"{r['set']}, {r['library']}, {r['triggers']} × {r['q']}, lead {r['lead']}"
            wanted = WANTED.get(attack) if lost < MOST_LOST else None
            reached = "" if wanted is None else f"{wanted}, {'yes' if scores >= wanted else 'NO'}"
            rows.append([what, attack, f"{scores:.0f}", f"{labels:.0f}", f"{lost:.2f}", reached])
    header = ["model and mark", "suspect", "bits, scores", "bits, labels", "points lost", "wanted"]
    show("what thieves leave of a mark", header, rows)
    return {
        attack: [round(r["attacks"][attack][0], 1) for r in records if attack in r["attacks"]]
        for attack in dict.fromkeys(a for r in records for a in r["attacks"])
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--part", choices=("all", "innocents", "verify", "robustness"), default="all"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("timbermark-evidence.jsonl"))
    parser.add_argument("--steps", type=int, default=42, help="data sets and models of innocents")
    parser.add_argument("--redrawn", type=int, default=20, help="secrets for each mark and suspect")
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
    if given.part in ("all", "robustness"):
        known = {(r["set"], r["library"]) for r in of("robustness")}
        sets = ROBUST_SETS[:1] if given.quick else ROBUST_SETS
        cells = [(name, library) for name in sets for library in ("LightGBM", "XGBoost")]
        for name, library in track([c for c in cells if c not in known], "robustness"):
            add("robustness", [run_robustness(name, library, 0)])
        results["robustness"] = summarize_robustness(of("robustness"))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
