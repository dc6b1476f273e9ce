"""What each seal costs and proves: splits alone, leaves alone and both, on rows nobody else saw.

The owner has 60 % of the rows and trains on one thread; the rest tells the cost. Every choice of
seals marks the same model with the defaults, one after the other, so that times are comparable.
One line for each mark goes to ``--out`` (CSV, continued by a later call); the table at the end has
the mean and the worst over all of them. What attacks leave of the seals: ``./dev bench attacks``.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path

import models
import numpy as np
from common import mark_fields, show
from fidelity import LIBRARIES, load, make_model
from sklearn.metrics import roc_auc_score

import timbermark as tm

warnings.simplefilter("ignore")
SETS = (
    "spambase", "churn", "census", "wine", "avila", "pendigits", "letter", "cancer", "digits",
    "diamonds",
)  # fmt: skip
SEALS = ("splits", "leaves", "both")
FIELDS = (
    "set", "library", "seed", "seals", "splits", "leaves", "lead", "bits", "label_bits", "changed",
    "drift", "loss", "train", "embed", "error",
)  # fmt: skip
KEY = tm.OwnerKey.generate()


def prepare(name, library, seed):
    """Return the owner's rows, other rows, and the model and how long its training took."""
    if name == "diamonds":
        owner, *rest = models.load("diamonds log", seed, 20_000)
        rest = tuple(np.concatenate(part) for part in zip(*rest, strict=True))
        model = models.make_model(library, False, seed)
    else:
        X, y = load(name, seed)
        X = np.nan_to_num(X, nan=-1.0) if library == "gradient" else X
        cut = int(0.6 * len(X))
        owner, rest = (X[:cut], y[:cut]), (X[cut:], y[cut:])
        model = make_model(library, False, 200, seed)
    for option in ("n_jobs", "thread_count"):
        if option in model.get_params():
            model.set_params(**{option: 1})
    start = time.perf_counter()
    model.fit(*owner)
    return owner, rest, model, time.perf_counter() - start


def loss(model, X, y):
    """1 - AUC, error, or root mean square error: what is lost where it grows."""
    if not hasattr(model, "predict_proba"):
        return float(np.sqrt(np.mean((np.ravel(model.predict(X)) - y) ** 2)))
    scores = model.predict_proba(X)
    if scores.shape[1] == 2:
        return 1.0 - roc_auc_score(y, scores[:, 1])
    return float((np.ravel(model.predict(X)) != y).mean())


def run(name, library, seed, seals):
    """Mark one model with each choice of seals; yields one record for each."""
    owner, (X, y), model, took = prepare(name, library, seed)
    before, lost = model.predict(X).ravel(), loss(model, X, y)
    for choice in seals:
        record = {"set": name, "library": library, "seed": seed, "seals": choice, "train": took}
        if name == "diamonds" and choice != "splits":
            continue  # numbers have the split seal alone
        start = time.perf_counter()
        try:
            made = tm.embed(
                model, *owner, key=KEY, owner="benchmark", seals=choice, random_state=seed
            )
        except tm.errors.InputError as error:
            yield {**record, "error": error.code or str(error)}
            continue
        record["embed"] = time.perf_counter() - start
        is_classifier = hasattr(model, "predict_proba")
        if is_classifier:
            change = np.abs(made.model.predict_proba(X) - model.predict_proba(X))
            record["changed"] = float((made.model.predict(X).ravel() != before).mean())
            record["drift"] = float(change.sum(axis=1).mean() / 2)
            labels = tm.verify(lambda rows, m=made.model: m.predict(rows).ravel(), made.mark)
            record["label_bits"] = labels.bits
        else:
            change = made.model.predict(X).ravel() - before
            record["drift"] = float(np.abs(change).mean() / np.std(before))
        after = loss(made.model, X, y)
        record["loss"] = after - lost if is_classifier else after / lost - 1.0
        verdict = tm.verify(made.model, made.mark)
        yield {**record, **mark_fields(made), "bits": verdict.bits}


def summarize(records):
    """Print the mean and the worst of every choice of seals, and marks of less than 64 bits."""
    rows = []
    for choice in SEALS:
        made = [r for r in records if r["seals"] == choice and not r.get("error")]
        if not made:
            continue
        bits = np.array([float(r["bits"]) for r in made])
        ratio = [float(r["embed"]) / float(r["train"]) for r in made]
        cells = [choice, len(made), f"{np.median(bits):.0f}, {bits.min():.0f}"]
        for field in ("changed", "drift", "loss"):
            found = [float(r[field]) for r in made if r.get(field) not in (None, "")]
            cells.append(f"{np.mean(found):.3%}, {np.max(found):.3%}" if found else "–")
        rows.append([*cells, f"{np.median(ratio):.2f}, {max(ratio):.2f}"])
    show(
        "mean, worst; bits: median, least; time: median, longest",
        ["seals", "marks", "bits", "labels changed", "drift", "loss", "embed / training"],
        rows,
    )
    for r in records:
        if r.get("error") or float(r["bits"]) < 64:
            print(
                f"- {r['set']}, {r['library']}, {r['seed']}, {r['seals']}: "
                + str(r.get("error") or f"{float(r['bits']):.0f} bits")
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated")
    parser.add_argument("--seals", default=",".join(SEALS))
    parser.add_argument("--out", type=Path, default=Path("timbermark-seals.csv"))
    given = parser.parse_args()
    records = []
    if given.out.exists():
        with given.out.open(newline="") as file:
            records = list(csv.DictReader(file))
    done = {(r["set"], r["library"], r["seed"]) for r in records}
    with given.out.open("a", newline="") as file:
        table = csv.DictWriter(file, FIELDS)
        if not records:
            table.writeheader()
        for seed in given.seeds.split(","):
            for name in given.sets.split(","):
                for library in given.libraries.split(","):
                    if (name, library, seed) in done:
                        continue
                    for record in run(name, library, int(seed), given.seals.split(",")):
                        table.writerow(record)
                        file.flush()
                        records.append(record)
    summarize(records)


if __name__ == "__main__":
    main()
