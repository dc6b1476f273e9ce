"""A copy for each customer: what tells copies apart, who is traced after attacks, what it costs.

The owner trains on 60 % of the rows and makes copies for 100 customers with the defaults; leakers
have another 20 % with their labels; the last 20 % tell what copies cost. A single leaker attacks
their copy as in the lab; colluders mix two, three or five copies first. Evidence is that of the
best leaker after all prices, and that of groups (at least one of these took part). One line for
each run goes to ``--out``: a later call continues. ``--part innocents`` simulates leaks on symbols
alone. ``--summary`` only prints the tables of what is there; they are Markdown.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np

import timbermark as tm
from attacks import NUMBER_SETS, new_model, split
from timbermark.attacks.registry import find_attacks
from timbermark.attacks.stolen import NotOfferedError, Thief, steal
from timbermark.tracing.codes import BIASES, group_bits, group_gains

warnings.simplefilter("ignore")
SETS = ("spambase", "census", "wine", "avila", "diamonds", "digits")
LIBRARIES = ("xgboost", "lightgbm", "catboost")
CUSTOMERS = [f"customer {number}" for number in range(100)]
SINGLE = (
    "refit:0", "add-trees:20", "average-own:0.5", "keep-first:0.5", "leaf-noise:0.5", "prune:0.5",
    "round-answers:2", "round-input:64", "dodge-unsure:0.1", "snap-thresholds:1",
    "jitter-thresholds:0",
)  # fmt: skip
WANTED = SINGLE[:4]
COALITIONS = (2, 3, 5)
WAYS = ("average", "pick", "majority", "minority", "snap")
BOUNDARIES = 60


class Suspect:
    """An attacked model as `timbermark.trace` asks a fitted one."""

    def __init__(self, model):
        self.n_features_in_ = model.foreign.ensemble.n_features if model.foreign else None
        if model.task == "classification":
            self.classes_ = model.classes
            self.predict_proba = model.answer
            self.predict = lambda X: model.classes[model.answer(X).argmax(axis=1)]
        else:
            self.predict = lambda X: model.answer(X)[:, 0]


def mix(copies, way, rng):
    """Return what colluders make of their stolen copies.

    They see where thresholds differ, and treat all of a column that differ alike in one way.
    """
    if way == "average":
        return copies[0].served(lambda X: np.mean([copy.answer(X) for copy in copies], axis=0))
    trees = [copy.trees().ensemble for copy in copies]
    at = np.stack([e.threshold for e in trees])
    differ = np.flatnonzero((at != at[0]).any(axis=0))
    new = at[0].copy()
    keys, place = np.unique(
        np.vstack([trees[0].feature[differ], at[:, differ]]).T, axis=0, return_inverse=True
    )
    values = keys[:, 1:]
    if way == "snap":
        chosen = (values.min(axis=1) + values.max(axis=1)) / 2
        if trees[0].input_dtype == "f4":
            chosen = chosen.astype(np.float32).astype(float)
    else:
        number = rng.integers(0, len(copies), len(keys))
        if way != "pick":
            votes = (values[:, :, None] == values[:, None]).sum(axis=2) + 0.1 * rng.random(
                values.shape
            )
            number = (votes if way == "majority" else -votes).argmax(axis=1)
        chosen = values[np.arange(len(keys)), number]
    new[differ] = chosen[place.ravel()]
    return copies[0].put_thresholds(new)


def look(suspect, made, guilty):
    found = tm.trace(Suspect(suspect), made.roll)
    bits = {finding.names[0]: finding.bits for finding in found.customers}
    best = max(bits[name] for name in guilty)
    group = found.group
    return {
        "bits": round(best, 1),
        "group": round(group.bits, 1) if group is not None and {*group.names} & {*guilty} else None,
        "innocent": round(max(b for name, b in bits.items() if name not in guilty), 1),
    }


def change(name, model, copies, X):
    """Return how copies differ from the unmarked model and from each other, on unseen rows."""
    ask = "predict" if name in NUMBER_SETS else "predict_proba"
    said = [np.asarray(getattr(m, ask)(X), float) for m in (model, *copies)]
    if name in NUMBER_SETS:
        scale = said[0].std()
        return {
            "moved_to_unmarked": np.mean([np.abs(s - said[0]).mean() for s in said[1:]]) / scale,
            "moved_between": np.mean([np.abs(a - b).mean() for a, b in combinations(said[1:], 2)])
            / scale,
        }
    labels = [s.argmax(axis=1) for s in said]
    return {
        "changed_to_unmarked": float(np.mean([(s != labels[0]).mean() for s in labels[1:]])),
        "changed_between": float(
            np.mean([(a != b).mean() for a, b in combinations(labels[1:], 2)])
        ),
    }


def run(name, library, seed, most, seals, turns):
    owner, given, tested = split(name, seed, most)
    model = new_model(name, library, seed).fit(*owner)
    about = {"set": name, "library": library, "seed": seed, "seals": seals}
    start = time.perf_counter()
    try:
        made = tm.copies(
            model, *owner, customers=CUSTOMERS, key=tm.OwnerKey.generate(), owner="benchmark",
            random_state=seed, seals=seals, weak=True,
        )  # fmt: skip
    except tm.errors.InputError as error:
        return {**about, "error": str(error)}
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    stolen = {c: made.copies[c] for c in CUSTOMERS[: COALITIONS[-1] + turns]}
    each = (time.perf_counter() - start) / len(stolen)
    base = made.copies.base.ensemble
    start = time.perf_counter()
    for customer in CUSTOMERS[:10]:
        made.roll.place(base, made.roll.symbols([customer])[0])
    own = (time.perf_counter() - start) / 10
    start = time.perf_counter()
    more = made.roll.with_customers([f"later {number}" for number in range(20)])
    enrol = (time.perf_counter() - start) / 20
    with tempfile.TemporaryDirectory() as folder:
        many = made.roll.to_bytes()
        size = len(many) + (len(more.to_bytes()) - len(many)) / 20 * 900
        made.roll.save(Path(folder) / "secret.roll")
    record = {
        **about, "boundaries": made.roll.n_boundaries, "traces": made.traces, "making": seconds,
        "per_copy": own + enrol, "writing": each - own, "roll_of_1000": size,
        **{k: float(v) for k, v in change(name, model, list(stolen.values()), tested[0]).items()},
        "owner": tm.verify(stolen[CUSTOMERS[0]], made.mark).bits,
        "unmarked": tm.trace(model, made.roll).bits,
    }  # fmt: skip
    thief = Thief(*given, seed)
    copies = {c: steal(m) for c, m in stolen.items()}
    thief.once("kind", copies[CUSTOMERS[0]].trees)
    record["single"] = {"untouched": [look(copies[c], made, [c]) for c in CUSTOMERS[: 2 * turns]]}
    for attack, strength in find_attacks(list(SINGLE)):
        try:
            done = [attack.run(copies[c], thief, strength) for c in CUSTOMERS[:turns]]
        except NotOfferedError as reason:
            record["single"][f"{attack.name}:{strength:g}"] = reason.code
            continue
        record["single"][f"{attack.name}:{strength:g}"] = [
            look(one, made, [c]) for one, c in zip(done, CUSTOMERS, strict=False)
        ]
    rng = np.random.default_rng(seed)
    refit, strength = find_attacks(["refit:0"])[0]
    record["coalitions"] = {}
    for k in COALITIONS:
        for way in WAYS:
            found = []
            for turn in range(turns):
                names = CUSTOMERS[turn : turn + k]
                found.append(look(mix([copies[c] for c in names], way, rng), made, names))
            record["coalitions"][f"{k} {way}"] = found
        names = CUSTOMERS[:k]
        mixed = refit.run(mix([copies[c] for c in names], "pick", rng), thief, strength)
        record["coalitions"][f"{k} pick+refit"] = [look(mixed, made, names)]
    return record


def innocents(seed, leaks):
    """Return the most evidence against any of 99 innocents in each of many simulated leaks."""
    rng = np.random.default_rng(seed)
    reference = np.tile([[[0.0], [1.0]]], (BOUNDARIES, 1, 1))
    found = []
    for leak in range(leaks):
        biases = np.asarray(BIASES)[rng.integers(0, len(BIASES), BOUNDARIES)]
        symbols = rng.integers(0, 256, (len(CUSTOMERS), BOUNDARIES)) < biases
        k = (1, 2, 3, 5)[leak % 4]
        mean = symbols[:k].mean(axis=0)
        shown = mean if leak % 8 < 4 else symbols[rng.integers(0, k, BOUNDARIES), range(BOUNDARIES)]
        shown = np.where(rng.random(BOUNDARIES) < 0.05, rng.random(BOUNDARIES), shown)
        rows = np.stack([np.zeros(BOUNDARIES), shown, np.ones(BOUNDARIES)], axis=1)
        bits = group_bits(*group_gains(rows, reference, biases, "numbers"), symbols)
        found.append(float(bits[k:].max()) - np.log2(len(CUSTOMERS)))
    return {"innocents": len(found), "most": max(found), "share": {
        str(b): float(np.mean(np.array(found) >= b)) for b in (1, 2, 4, 8, 16, 20)
    }}  # fmt: skip


def summarize(records):
    """Print what the results come to."""
    runs = [r for r in records if "boundaries" in r]
    print("| set | library | seed | boundaries | traces | untouched | unmarked | owner's mark "
          "| labels changed: to unmarked, between copies | s each + library | MB of 1,000 |"
          )  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for r in runs:
        bits = [f["bits"] for f in r["single"]["untouched"]]
        cost = (
            f"{r['changed_to_unmarked']:.3%}, {r['changed_between']:.3%}"
            if "changed_between" in r
            else f"numbers moved {r['moved_to_unmarked']:.1e}, {r['moved_between']:.1e} deviations"
        )
        print(
            f"| {r['set']} | {r['library']} | {r['seed']} | {r['boundaries']} | {r['traces']} "
            f"| {min(bits):.0f} "
            f"| {r['unmarked']:.1f} | {r['owner']:.0f} | {cost} "
            f"| {r['per_copy']:.2f} + {r['writing']:.2f} | {r['roll_of_1000'] / 1e6:.2f} |"
        )
    innocent = 0.0
    for title, part, least in (
        ("single leaker", "single", 1), ("single leaker, refused without weak", "single", 0),
        ("coalition", "coalitions", 1),
        ("coalition, 500 boundaries and more", "coalitions", 500),
    ):  # fmt: skip
        print(f"\n| {title} | runs | conclusive alone | or as a group | least | median bits |")
        print("|---|---|---|---|---|---|")
        # Below 2 the number is that of traced leakers: 0 where `copies` refuses without ``weak``.
        chosen = [r for r in runs if r["boundaries"] >= least]
        if least < 2:
            chosen = [r for r in runs if (r["traces"] > 0) == bool(least)]
        for attack in dict.fromkeys(key for r in chosen for key in r[part]):
            found = [f for r in chosen if isinstance(r[part].get(attack), list)
                     for f in r[part][attack]]  # fmt: skip
            if not found:
                continue
            alone = [f["bits"] for f in found]
            either = [max(f["bits"], f["group"] or 0.0) for f in found]
            innocent = max(innocent, *(f["innocent"] for f in found))
            shares = [f"{np.mean(np.array(bits) >= 64):.0%}" for bits in (alone, either)]
            print(
                f"| {attack} | {len(found)} | {shares[0]} | {shares[1]} | {min(alone):.0f} "
                f"| {np.median(alone):.0f} |"
            )
    print(f"\nMost evidence against an innocent in these runs: {innocent:.1f} bits")
    for r in records:
        if "error" in r:
            print(f"{r['set']}, {r['library']}: {r['error']}")
        if "innocents" in r:
            print(f"{r['innocents']} simulated leaks: {r['most']:.1f} bits at most; {r['share']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--seals", default="auto")
    parser.add_argument("--turns", type=int, default=2, help="leakers and coalitions of each kind")
    parser.add_argument("--leaks", type=int, default=10_000, help="simulated, of --part innocents")
    parser.add_argument("--most", type=int, default=20_000, help="rows of each set")
    parser.add_argument("--part", choices=("leaks", "innocents"), default="leaks")
    parser.add_argument("--out", type=Path, default=Path("docs/copies/results.jsonl"))
    parser.add_argument("--summary", action="store_true")
    asked = parser.parse_args()
    known = [json.loads(line) for line in asked.out.read_text().splitlines()] if (
        asked.out.exists()
    ) else []  # fmt: skip
    if asked.summary:
        return summarize(known)
    asked.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(record):
        known.append(record)
        with asked.out.open("a") as file:
            file.write(json.dumps(record) + "\n")

    if asked.part == "innocents":
        keep(innocents(asked.seeds[0], asked.leaks))
    else:
        done = {(r.get("set"), r.get("library"), r.get("seed"), r.get("seals")) for r in known}
        for name in asked.sets:
            for library in asked.libraries:
                for seed in asked.seeds:
                    if (name, library, seed, asked.seals) not in done:
                        keep(run(name, library, seed, asked.most, asked.seals, asked.turns))
    return summarize(known)


if __name__ == "__main__":
    main()
