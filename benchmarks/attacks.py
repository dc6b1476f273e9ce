"""What default marks survive: every attack, over sets, libraries and seeds.

The owner trains on 60 % of the rows and marks with the defaults; the thief has another 20 % with
their labels; accuracies are measured on the last 20 %. Two kinds of distillation are repeated by a
thief who has 75 % of all rows, the owner's own among them. The unmarked model is attacked as well,
which must give it no evidence.

Models, marks and the results of every single attack are kept in ``--work``, and one JSON line per
finished run goes to ``--out``: a later call continues. ``--summary`` only prints the tables of what
is there; they are Markdown.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
from fidelity import load, make_model

import timbermark as tm
from timbermark.attacks.lab import run_attacks
from timbermark.attacks.registry import ATTACKS, CHAINS, find_attacks
from timbermark.attacks.stolen import Thief, steal

warnings.simplefilter("ignore")
SETS = ("pendigits", "letter", "avila", "optdigits", "census", "wine")
LIBRARIES = ("lightgbm", "xgboost", "histogram", "catboost", "timbermark")
COUNTED_SETS = ("pendigits", "letter", "avila", "optdigits", "census")
COUNTED_LIBRARIES = ("lightgbm", "xgboost", "histogram", "timbermark")
ENDINGS = {"lightgbm": "txt", "xgboost": "ubj", "catboost": "cbm", "timbermark": "timber"}
MORE_ROWS = ("distil-scores:1", "distil-labels:1")
ENOUGH, KEPT = 64.0, 0.5


def run(name, library, seed, wanted, work):
    """Train, mark and attack; what is in the folder already is taken up. Returns one record."""
    X, y = load(name, seed)
    first, second = int(0.6 * len(X)), int(0.8 * len(X))
    place = work / f"{name}-{library}-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    files = [place / f"{what}.{ENDINGS.get(library, 'skops')}" for what in ("unmarked", "marked")]
    mark, facts = place / "secret.mark", place / "mark.json"
    if not facts.exists():
        model = make_model(library, False, 200, seed).fit(X[:first], y[:first])
        start = time.perf_counter()
        try:
            made = tm.embed(
                model, X[:first], y[:first], key=tm.OwnerKey.generate(), owner="benchmark",
                random_state=seed,
            )  # fmt: skip
        except tm.errors.InputError as error:
            return {"set": name, "library": library, "seed": seed, "error": str(error)}
        before, after = (m.predict(X[second:]).ravel() for m in (model, made.model))
        tm.save(model, files[0], overwrite=True)
        tm.save(made.model, files[1], overwrite=True)
        made.mark.save(mark, force=True)
        strength = {"triggers": made.strength.k, "alphabet": made.strength.q}
        record = {
            **strength, "lead": made.strength.lead, "bits": made.bits,
            "changed": float((before != after).mean()), "embed": time.perf_counter() - start,
        }  # fmt: skip
        facts.write_text(json.dumps(record))
    secret = tm.Mark.load(mark)
    given = X[first:second], y[first:second]
    tested = X[second:], y[second:]
    found = tm.attack(
        files[1], secret, *given, attacks=wanted, evaluation=tested, out=place / "lab",
        random_state=seed, verbose=1,
    )  # fmt: skip
    more = np.random.default_rng(seed).permutation(first)[: int(0.55 * len(X))]
    rows = np.concatenate([more, np.arange(first, second)])
    thief = Thief(X[rows], y[rows].astype(np.int64), seed)
    distilled = run_attacks(steal(files[1]), secret, thief, tested, find_attacks(MORE_ROWS))
    thief = Thief(given[0], given[1].astype(np.int64), seed)
    clean = run_attacks(steal(files[0]), secret, thief, tested, find_attacks("fast"))
    return {
        "set": name, "library": library, "seed": seed, **json.loads(facts.read_text()),
        "untouched": asdict(found.untouched), "own_accuracy": found.own_accuracy,
        "rows": [asdict(row) for row in found.rows],
        "more_rows": [asdict(row) for row in distilled.rows],
        "unmarked": max(
            max(row.score_bits or 0.0, row.label_bits or 0.0)
            for row in (clean.untouched, *clean.rows)
        ),
    }  # fmt: skip


def kept(row):
    """Whether a thief keeps half of what was stolen; None where there was nothing to steal."""
    return None if row["theft_kept"] is None else row["theft_kept"] >= KEPT


def taken(records, wanted, theft=True):
    """Rows that were run, that ``wanted`` accepts, and whose theft is kept or not or None."""
    return [
        row
        for record in records
        for row in record["rows"]
        if row["score_bits"] is not None and wanted(row) and kept(row) is theft
    ]


def is_single(row):
    return row["family"] not in ("copy", "dodge", "chain")


def is_chain(row):
    return row["family"] == "chain"


def renews_leaves(row):
    """Whether an attack estimates a quarter of the leaves or more anew from the thief's rows."""
    name, strength = row["attack"], row["strength"]
    return (name in ("refit", "library-refit") and strength <= 0.2) or (
        name == "flatten-rows" and strength >= 0.25
    )


def share(rows, what="score_bits"):
    good = sum(row[what] >= ENOUGH for row in rows)
    return f"{good} of {len(rows)} ({good / len(rows):.0%})" if rows else "none"


def summarize(records):
    """Print the figures of the issue as Markdown."""
    failed = [r for r in records if "error" in r]
    records = [r for r in records if "error" not in r]
    if not records:
        sys.exit("There are no results yet. Hint: run without --summary first.")
    print(f"{len(records)} runs, {len(failed)} without a mark\n")
    counted = [r for r in records if r["set"] in COUNTED_SETS and r["library"] in COUNTED_LIBRARIES]
    many, two = (
        [r for r in counted if (r["set"] == "census") is is_two] for is_two in (False, True)
    )
    print("| scores, theft kept ≥ .5 but where stated | with 64 bits or more |\n|---|---|")
    for words, rows in (
        ("attacks but copying and dodging", taken(counted, is_single)),
        ("sets with many classes", taken(many, is_single)),
        (
            "the same but those that estimate leaves anew",
            taken(many, lambda row: is_single(row) and not renews_leaves(row)),
        ),
        ("census (two classes)", taken(two, is_single)),
        ("where nothing could be stolen", taken(counted, is_single, None)),
        ("chains of two", taken(counted, is_chain)),
        ("chains of two, many classes", taken(many, is_chain)),
        ("dodging", taken(counted, lambda row: row["family"] == "dodge")),
    ):
        print(f"| {words} | {share(rows)} |")
    print(f"| the first row by labels alone | {share(taken(counted, is_single), 'label_bits')} |")
    print(
        f"| unmarked models under attack: most bits | {max(r['unmarked'] for r in records):.1f} |"
    )
    print("\n| set | library | triggers, labels, lead | changed | untouched | single | chains |")
    print("|---|---|---|---|---|---|---|")
    groups = {}
    for record in records:
        groups.setdefault((record["set"], record["library"]), []).append(record)
    for (name, library), part in sorted(groups.items()):
        marks = "; ".join(f"{r['triggers']}, {r['alphabet']}, {r['lead']:g}" for r in part)
        bits = np.mean([r["untouched"]["score_bits"] for r in part])
        changed = np.mean([r["changed"] for r in part])
        print(
            f"| {name} | {library} | {marks} | {changed:.2%} | {bits:.0f} | "
            f"{share(taken(part, is_single) or taken(part, is_single, None))} | "
            f"{share([row for theft in (True, None) for row in taken(part, is_chain, theft)])} |"
        )
    print("\n| attack | strength | runs | theft kept (median) | scores: median, least | labels: "
          "median | 64 bits where theft kept ≥ .5 |\n|---|---|---|---|---|---|---|")  # fmt: skip
    cells = {}
    for record in records:
        for row in record["rows"]:
            if row["score_bits"] is not None:
                cells.setdefault((row["attack"], row["strength"]), []).append(row)
    order = [(a.name, s) for a in (*ATTACKS, *CHAINS) for s in a.strengths]
    for key in [k for k in order if k in cells]:
        rows = cells[key]
        scores = [row["score_bits"] for row in rows]
        theft = [row["theft_kept"] for row in rows if row["theft_kept"] is not None]
        print(
            f"| {key[0]} | {key[1]:g} | {len(rows)} | {np.median(theft):.2f} | "
            f"{np.median(scores):.0f}, {min(scores):.0f} | "
            f"{np.median([r['label_bits'] for r in rows]):.0f} | "
            f"{share([row for row in rows if kept(row)])} |"
        )
    print(
        "\n| distillation by a thief with 75 % of the rows | runs | theft kept | scores | labels |"
    )
    print("|---|---|---|---|---|")
    for name in ("distil-scores", "distil-labels"):
        rows = [r for record in records for r in record["more_rows"] if r["attack"] == name]
        means = [np.median([r[w] for r in rows]) for w in ("score_bits", "label_bits")]
        stolen = [r["theft_kept"] for r in rows if r["theft_kept"] is not None]
        left = f"{np.median(stolen):.2f} in {len(stolen)}" if stolen else "nothing to steal"
        print(f"| {name} | {len(rows)} | {left} | {means[0]:.0f} | {means[1]:.0f} |")
    for record in failed:
        print(f"\n{record['set']}, {record['library']}, seed {record['seed']}: {record['error']}")


def write_csv(records, path):
    """Write every result as a row: model, mark, attack, evidence, theft."""
    about = ("set", "library", "seed", "triggers", "alphabet", "lead", "changed")
    found = (
        "attack", "family", "strength", "score_bits", "label_bits", "accuracy", "theft_kept",
        "skipped",
    )  # fmt: skip
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*about, *found])
        for record in records:
            if "error" in record:
                continue
            for row in (record["untouched"], *record["rows"]):
                cells = [*(record[name] for name in about), *(row[name] for name in found)]
                table.writerow([round(c, 4) if isinstance(c, float) else c for c in cells])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--attacks", default="all", help="all, fast, or names with commas")
    parser.add_argument("--work", type=Path, default=Path("timbermark-attacks"))
    parser.add_argument("--out", type=Path, default=Path("timbermark-attacks.jsonl"))
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--csv", type=Path, help="write all results as one table")
    given = parser.parse_args()
    wanted = given.attacks if given.attacks in ("all", "fast") else given.attacks.split(",")
    sets, libraries = given.sets.split(","), given.libraries.split(",")
    try:
        find_attacks(wanted)
    except tm.errors.InputError as error:
        sys.exit(str(error))
    for word, known in [(s, SETS) for s in sets] + [(name, LIBRARIES) for name in libraries]:
        if word not in known:
            sys.exit(f"'{word}' is not known. Hint: use some of {', '.join(known)}.")
    records = []
    if given.out.exists():
        records = [json.loads(line) for line in given.out.read_text().splitlines()]
    asked = "+".join(wanted) if isinstance(wanted, list) else wanted
    done = {(r["set"], r["library"], r["seed"], r["attacks"]) for r in records}
    for seed in () if given.summary else range(given.seeds):
        for name in sets:
            for library in libraries:
                if (name, library, seed, asked) in done:
                    continue
                record = {"attacks": asked, **run(name, library, seed, wanted, given.work)}
                records.append(record)
                with given.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(f"{name}, {library}, seed {seed}: done", file=sys.stderr, flush=True)
    records = [r for r in records if r["attacks"] == asked]
    summarize(records)
    if given.csv is not None:
        write_csv(records, given.csv)


if __name__ == "__main__":
    main()
