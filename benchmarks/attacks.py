"""What default marks survive: every attack, over sets, libraries and seeds.

The owner trains on 60 % of the rows and marks with the defaults; the thief has another 20 % with
their labels; the last 20 % measure how good attacked models are. Two kinds of distillation are
repeated by a thief who has 75 % of all rows, the owner's own among them. The unmarked model is
attacked as well, which must give it no evidence. Of sets of numbers the owner has half, the thief a
fifth.

Models, marks and the results of every single attack are kept in ``--work``, and one JSON line per
finished run goes to ``--out``: a later call continues. ``--summary`` only prints the tables of what
is there; they are Markdown, failures first.
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

import fidelity
import models
import numpy as np
from common import mark_fields

import timbermark as tm
from timbermark.attacks.lab import run_attacks
from timbermark.attacks.registry import ATTACKS, CHAINS, HARDEST, find_attacks
from timbermark.attacks.stolen import Labelled, Thief, steal

warnings.simplefilter("ignore")
SETS = ("pendigits", "letter", "avila", "optdigits", "census", "wine")
NUMBER_SETS = {
    "diamonds": "diamonds", "diamonds-log": "diamonds log", "wine-quality": "wine",
    "poisson": "poisson",
}  # fmt: skip
"""Sets of numbers, and what the benchmark of regressors calls them."""
KNOWN_SETS = (*fidelity.SETS, *NUMBER_SETS)
TWO_CLASSES = ("census", "spambase", "churn", "cancer")
LIBRARIES = ("lightgbm", "xgboost", "histogram", "catboost", "timbermark")
KNOWN_LIBRARIES = (*LIBRARIES, "gradient")
ENDINGS = {"lightgbm": "txt", "xgboost": "ubj", "catboost": "cbm", "timbermark": "timber"}
MORE_ROWS = ("distil-scores:1", "distil-labels:1")
ENOUGH, KEPT = 64.0, 0.5
SEALS = {"both seals": "score_bits", "splits": "split_bits", "leaves": "leaf_bits"}
# What the issue asks of each group: names of attacks, or names with one strength.
GROUPS = {
    "leaves fitted anew": ("refit", "library-refit", "update-leaves", "flatten-rows", "leaf-noise"),
    "add-trees": ("add-trees",),
    "average-own:0.5": ("average-own:0.5",),
    "dodging mixed or unsure questions": ("dodge-mixtures", "dodge-unsure"),
    "snap, jitter, rounded and noisy input": (
        "snap-thresholds", "jitter-thresholds:0", "round-input:64", "input-noise:0.03",
        "input-vote",
    ),
}  # fmt: skip


def split(name, seed, most=None):
    """Return the rows and true answers of the owner, of the thief, and to measure on.

    ``most``: how many rows there are altogether, None for all of them.
    """
    if name in NUMBER_SETS:
        owner, *thief, tested = models.load(NUMBER_SETS[name], seed, most)
        return owner, tuple(np.concatenate(part) for part in zip(*thief, strict=True)), tested
    X, y = (part[:most] for part in fidelity.load(name, seed))
    first, second = int(0.6 * len(X)), int(0.8 * len(X))
    parts = slice(first), slice(first, second), slice(second, None)
    return tuple((X[part], y[part]) for part in parts)


def new_model(name, library, seed):
    if name in NUMBER_SETS:
        return models.make_model(library, name == "poisson", seed)
    model = fidelity.make_model(library, False, 200, seed)
    # Threads that wait for each other make a busy machine crawl.
    return model.set_params(n_jobs=1) if "n_jobs" in model.get_params() else model


def run(name, library, seed, wanted, work, most=None):
    """Train, mark and attack; what is in the folder already is taken up. Returns one record."""
    owner, given, tested = split(name, seed, most)
    about = {"set": name, "library": library, "seed": seed}
    place = work / f"{name}-{library}-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    files = [place / f"{what}.{ENDINGS.get(library, 'skops')}" for what in ("unmarked", "marked")]
    mark, facts = place / "secret.mark", place / "mark.json"
    if not facts.exists():
        model = new_model(name, library, seed).fit(*owner)
        start = time.perf_counter()
        try:
            made = tm.embed(
                model, *owner, key=tm.OwnerKey.generate(), owner="benchmark", random_state=seed
            )
        except tm.errors.InputError as error:
            return {**about, "error": str(error)}
        before, after = (m.predict(tested[0]).ravel() for m in (model, made.model))
        tm.save(model, files[0], force=True)
        tm.save(made.model, files[1], force=True)
        made.mark.save(mark, force=True)
        record = {
            **mark_fields(made), "bits": made.bits, "embed": time.perf_counter() - start,
            "changed": float((before != after).mean()) if name not in NUMBER_SETS else None,
        }  # fmt: skip
        facts.write_text(json.dumps(record))
    secret = tm.Mark.load(mark)
    found = tm.attack(
        files[1], secret, *given, attacks=wanted, evaluation=tested, out=place / "lab",
        random_state=seed, progress=True,
    )  # fmt: skip
    thief = Thief(*given, seed)
    clean = run_attacks(steal(files[0]), secret, thief, Labelled(*tested), find_attacks("fast"))
    return {
        **about, **json.loads(facts.read_text()), "measure": found.measure,
        "untouched": asdict(found.untouched), "own_quality": found.own_quality,
        "rows": [asdict(row) for row in found.rows],
        "more_rows": distil_more(owner, given, tested, files[1], secret, seed)
        if set(MORE_ROWS) <= set(wanted) else [],
        "unmarked": max(
            max(row.score_bits or 0.0, row.label_bits or 0.0)
            for row in (clean.untouched, *clean.rows)
        ),
    }  # fmt: skip


def distil_more(owner, given, tested, file, mark, seed):
    """Distil with nearly all of the owner's rows as well; classifiers only."""
    stolen = steal(file)
    if stolen.task != "classification":
        return []
    n = len(owner[0]) + len(given[0]) + len(tested[0])
    some = np.random.default_rng(seed).permutation(len(owner[0]))[: int(0.55 * n)]
    X, y = (np.concatenate([mine[some], more]) for mine, more in zip(owner, given, strict=True))
    found = run_attacks(stolen, mark, Thief(X, y, seed), Labelled(*tested), find_attacks(MORE_ROWS))
    return [asdict(row) for row in found.rows]


def named(row):
    """The attack with its strength."""
    return row["attack"] if row["family"] == "chain" else f"{row['attack']}:{row['strength']:g}"


def kept(row):
    """Whether a thief keeps half of what was stolen; None where there was nothing to steal."""
    return None if row["theft_kept"] is None else row["theft_kept"] >= KEPT


def taken(records, wanted=lambda row: True, theft=True):
    """Rows that were run, that ``wanted`` accepts, and whose theft is kept or not or None."""
    return [
        {**row, "where": f"{record['set']}, {record['library']}, {record['seed']}"}
        for record in records
        for row in record["rows"]
        if row["score_bits"] is not None and wanted(row) and kept(row) is theft
    ]


def is_single(row):
    """Whether a row counts among single attacks: all but copying and chains."""
    return row["family"] not in ("copy", "chain")


def share(rows, what="score_bits"):
    """How many rows have enough evidence; files of older marks do not tell seals apart."""
    told = [row for row in rows if row.get(what) is not None]
    good = sum(row[what] >= ENOUGH for row in told)
    return f"{good} of {len(told)} ({good / len(told):.1%})" if told else "–"


def print_table(head, lines):
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for line in lines:
        print(f"| {' | '.join(map(str, line))} |")


def summarize(records):
    """Print failures and shares as Markdown."""
    failed = [r for r in records if "error" in r]
    records = [r for r in records if "error" not in r]
    if not records:
        sys.exit("There are no results yet. Hint: run without --summary first.")
    print(f"{len(records)} runs, {len(failed)} without a mark")
    for record in failed:
        print(f"- {record['set']}, {record['library']}, seed {record['seed']}: {record['error']}")
    print_failures(records)
    print_shares(records)
    print_models(records)
    print_attacks(records)
    print_distillation(records)


def print_failures(records):
    """Attacks that keep half of the theft and leave less than 64 bits, the most frequent first."""
    by_attack = {}
    for row in taken(records):
        by_attack.setdefault(named(row), []).append(row)
    lines = []
    for name, rows in by_attack.items():
        bad = sorted((r for r in rows if r["score_bits"] < ENOUGH), key=lambda r: r["score_bits"])
        if bad:
            shown = "; ".join(f"{r['where']}: {r['score_bits']:.0f}" for r in bad[:4])
            rest = f"; {len(bad) - 4} more" if len(bad) > 4 else ""
            lines.append((len(bad) / len(rows), name, f"{len(bad)} of {len(rows)}", shown + rest))
    print(f"\nFailures: theft kept ≥ {KEPT:g} and less than {ENOUGH:g} bits")
    print_table(
        ("attack", "failed", "where (set, library, seed): bits"),
        [line[1:] for line in sorted(lines, key=lambda line: -line[0])],
    )


def print_shares(records):
    """The share of attacks with theft kept that leave enough, overall, by family and by seal."""
    families = list(dict.fromkeys(a.family for a in ATTACKS))
    narrow = [r for r in records if r["set"] in (*TWO_CLASSES, "wine")]
    numbers = [r for r in records if r["measure"] != "accuracy"]

    def of_group(names):
        return lambda row: row["attack"] in names or named(row) in names

    lines = [
        ("single attacks but copying", taken(records, is_single)),
        *((f"family {f}", taken(records, lambda r, f=f: r["family"] == f)) for f in families),
        *((words, taken(records, of_group(names))) for words, names in GROUPS.items()),
        (
            "average-own:0.9, any theft",
            [
                row
                for theft in (True, False, None)
                for row in taken(records, of_group(("average-own:0.9",)), theft)
            ],
        ),
        ("two classes and wine, single", taken(narrow, is_single)),
        ("numbers, single", taken(numbers, is_single)),
        ("numbers, average-own:0.5", taken(numbers, of_group(("average-own:0.5",)))),
        ("numbers, refit:0.5", taken(numbers, of_group(("refit:0.5",)))),
        ("chains of two", taken(records, lambda r: r["family"] == "chain")),
        *((f"hardest: {name}", taken(records, of_group((name,)))) for name in HARDEST),
        ("where nothing could be stolen, single", taken(records, is_single, None)),
    ]
    print(f"\nShare with {ENOUGH:g} bits or more where theft kept ≥ {KEPT:g}")
    print_table(
        ("attacks", *SEALS, "labels alone"),
        [
            (words, *(share(rows, what) for what in SEALS.values()), share(rows, "label_bits"))
            for words, rows in lines
        ],
    )
    most = max(r["unmarked"] for r in records)
    print(f"\nUnmarked models under attack: at most {most:.1f} bits.")


def print_models(records):
    groups = {}
    for record in records:
        groups.setdefault((record["set"], record["library"]), []).append(record)
    lines = []
    for (name, library), part in sorted(groups.items()):
        changed = [r["changed"] for r in part if r["changed"] is not None]
        is_chain = lambda row: row["family"] == "chain"  # noqa: E731
        lines.append((
            name, library,
            "; ".join(f"{r['splits']}, {r['leaves']}" for r in part),
            f"{np.mean(changed):.2%}" if changed else "–",
            f"{np.mean([r['untouched']['score_bits'] for r in part]):.0f}",
            share(taken(part, is_single) or taken(part, is_single, None)),
            share(taken(part, is_chain) or taken(part, is_chain, None)),
        ))  # fmt: skip
    print("\nBy model; all attacks where nothing could be stolen")
    print_table(
        (
            "set",
            "library",
            "triggers in splits, leaves",
            "changed",
            "untouched",
            "single",
            "chains",
        ),
        lines,
    )


def print_attacks(records):
    cells = {}
    for record in records:
        for row in record["rows"]:
            if row["score_bits"] is not None:
                cells.setdefault(named(row), []).append(row)
    order = [name_of(a, s) for a in (*ATTACKS, *CHAINS) for s in a.strengths]
    lines = []
    for name in (*(n for n in order if n in cells), *(n for n in cells if n not in order)):
        rows = cells[name]
        theft = [row["theft_kept"] for row in rows if row["theft_kept"] is not None]
        scores = [row["score_bits"] for row in rows]
        labels = [row["label_bits"] for row in rows if row["label_bits"] is not None]
        lines.append((
            name, len(rows), f"{np.median(theft):.2f}" if theft else "–",
            f"{np.median(scores):.0f}, {min(scores):.0f}",
            f"{np.median(labels):.0f}" if labels else "–",
            share([row for row in rows if kept(row)]),
        ))  # fmt: skip
    print("\nBy attack")
    print_table(
        ("attack", "runs", "theft kept (median)", "scores: median, least", "labels: median",
         "64 bits where theft kept ≥ .5"), lines,
    )  # fmt: skip


def name_of(attack, strength):
    return attack.name if attack.family == "chain" else f"{attack.name}:{strength:g}"


def print_distillation(records):
    lines = []
    for name in ("distil-scores", "distil-labels"):
        rows = [r for record in records for r in record["more_rows"] if r["attack"] == name]
        if not rows:
            continue
        means = [np.median([r[w] for r in rows]) for w in ("score_bits", "label_bits")]
        stolen = [r["theft_kept"] for r in rows if r["theft_kept"] is not None]
        left = f"{np.median(stolen):.2f} in {len(stolen)}" if stolen else "nothing to steal"
        lines.append((name, len(rows), left, f"{means[0]:.0f}", f"{means[1]:.0f}"))
    if lines:
        print("\nDistillation by a thief with 75 % of the rows")
        print_table(("attack", "runs", "theft kept", "scores", "labels"), lines)


def write_csv(records, path):
    """Write every result as a row: model, mark, attack, evidence, theft."""
    about = ("set", "library", "seed", "splits", "leaves", "lead", "changed", "measure")
    found = (
        "attack", "family", "strength", "score_bits", "label_bits", "split_bits", "leaf_bits",
        "quality", "theft_kept", "skipped",
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


def read_attacks(attacks, chains):
    """Return the names of what is run: single attacks, and chains apart."""
    singles = [f"{a.name}:{s:g}" for a in ATTACKS for s in a.strengths]
    fast = [f"{a.name}:{s:g}" for a in ATTACKS for s in a.fast]
    wanted = {"all": singles, "fast": fast, "none": []}.get(attacks, attacks.split(","))
    more = {"all": [c.name for c in CHAINS], "hardest": list(HARDEST), "none": []}
    return [*wanted, *more.get(chains, chains.split(","))]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS), help=f"some of {', '.join(KNOWN_SETS)}")
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--seeds", default="3", help="how many, or which ones with commas: 4,7,")
    parser.add_argument("--attacks", default="all", help="all, fast, none, or names with commas")
    parser.add_argument("--chains", default="all", help="all, hardest, none, or a+b,c+d")
    parser.add_argument("--rows", type=int, help="at most so many rows of each set")
    parser.add_argument("--work", type=Path, default=Path("timbermark-attacks"))
    parser.add_argument("--out", type=Path, default=Path("timbermark-attacks.jsonl"))
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--csv", type=Path, help="write all results as one table")
    given = parser.parse_args()
    wanted = read_attacks(given.attacks, given.chains)
    sets, libraries = given.sets.split(","), given.libraries.split(",")
    listed = "," in given.seeds
    seeds = [int(s) for s in given.seeds.split(",") if s] if listed else range(int(given.seeds))
    try:
        find_attacks(wanted)
    except tm.errors.InputError as error:
        sys.exit(str(error))
    for word, known in [(s, KNOWN_SETS) for s in sets] + [(n, KNOWN_LIBRARIES) for n in libraries]:
        if word not in known:
            sys.exit(f"'{word}' is not known. Hint: use some of {', '.join(known)}.")
    records = []
    if given.out.exists():
        records = [json.loads(line) for line in given.out.read_text().splitlines()]
    asked = f"{given.attacks};{given.chains}"
    done = {(r["set"], r["library"], r["seed"], r["attacks"]) for r in records}
    for seed in () if given.summary else seeds:
        for name in sets:
            for library in libraries:
                if (name, library, seed, asked) in done:
                    continue
                record = {
                    "attacks": asked,
                    **run(name, library, seed, wanted, given.work, given.rows),
                }
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
