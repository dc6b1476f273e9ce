"""Marking: symbols set, accuracy lost, innocents, forgeries, fine-tuning, speed, the verifier.

`./dev bench mark [embed innocents forgeries speed verify]`; all of them if none is named. Five data
sets, both scenarios (triggers from the training rows, or from a fifth of them kept apart), three
seeds, defaults everywhere. The test rows are cut 80:20 into D_test and D_fine as in the paper.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import mean

import numpy as np
from common import alternate, load, run_parts, show
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import train_test_split
from timbermark.marking.labels import alphabets
from timbermark.marking.surveying import survey

from timbermark import Mark, OwnerKey, TimberClassifier, embed, verify
from timbermark.attacks.tuning import tune_model_only, tune_with_state
from timbermark.errors import InputError, TimbermarkError
from timbermark.marking.choosing import choose, count_labels, count_triggers

warnings.filterwarnings("ignore")
SETS = ("avila", "letter", "optdigits", "pendigits", "wine")
SCENARIOS = ("separate", "training")
SEEDS = (0, 1, 2)
KEYS = 4
STRATEGIES = ("wrong", "outlier", "cluster", "confidence", "random")


def scene(name, scenario, seed):
    """Training rows, candidates (or None), D_test, D_fine, each (X, y)."""
    X, y, X_test, y_test = load(name, seed)
    X_test, X_fine, y_test, y_fine = train_test_split(
        X_test, y_test, test_size=0.2, random_state=seed
    )
    candidates = None
    if scenario == "separate":
        X, X_more, y, y_more = train_test_split(X, y, test_size=0.2, random_state=seed)
        candidates = (X_more, y_more)
    return (X, y), candidates, (X_test, y_test), (X_fine, y_fine)


def embedding() -> dict:
    rows, losses, unset, tuned_bits, tuned_only, levels = [], {}, 0, {}, {}, set()
    for name in SETS:
        for scenario in SCENARIOS:
            cells = []
            for seed in SEEDS:
                train, candidates, test, fine = scene(name, scenario, seed)
                model = TimberClassifier(random_state=seed).fit(*train)
                made = embed(model, *train, key=OwnerKey.generate(), candidates=candidates)
                verdict = verify(made.model, made.mark)
                unset += verdict.trials - verdict.matched
                levels.add(verdict.level)
                lost = 100 * (model.score(*test) - made.model.score(*test))
                moved = model.predict(test[0]) != made.model.predict(test[0])
                owner = verify(tune_with_state(made.model, *fine), made.mark).evidence_bits
                only = verify(tune_model_only(made.model, *fine), made.mark).evidence_bits
                cells.append(
                    (
                        lost,
                        100 * float(moved.mean()),
                        made.cost.rounds,
                        made.cost.replaced,
                        owner,
                        only,
                    )
                )
                losses.setdefault(name, []).append(lost)
                tuned_bits.setdefault(name, []).append(owner)
                tuned_only.setdefault(name, []).append(only)
            by = list(zip(*cells, strict=True))
            bits = verdict.evidence_bits
            rows.append(
                [name, scenario, made.strategy, len(made.mark.triggers), bits, mean(by[0]),
                 max(by[0]), mean(by[1]), max(by[2]), sum(by[3]), min(by[4]), min(by[5])]
            )  # fmt: skip
    header = ["data", "candidates", "strategy", "k", "bits", "points lost", "worst", "% changed",
              "rounds", "replaced", "tuned, owner", "tuned, only"]  # fmt: skip
    show("default embed, 3 seeds; bits after fine-tuning: the least", header, rows)
    per_set = {name: mean(values) for name, values in losses.items()}
    return {
        "symbols_not_set": unset,
        "levels": sorted(levels),
        "points_lost_mean_of_sets": mean(per_set.values()),
        "points_lost_worst_set": max(per_set.values()),
        "points_lost": per_set,
        "points_lost_by_scenario": {s: mean(r[5] for r in rows if r[1] == s) for s in SCENARIOS},
        "owner_state_bits_least": {name: min(bits) for name, bits in tuned_bits.items()},
        "model_only_bits_least": {name: min(bits) for name, bits in tuned_only.items()},
    }


def strangers(train, others, n_classes):
    """40 fitted models that know nothing of the mark: 5 kinds, 2 sets of rows, 4 seeds."""
    import lightgbm
    import xgboost

    n = 40
    kinds = {
        "timbermark": lambda s: TimberClassifier(max_iter=n, random_state=1000 + s),
        "lightgbm": lambda s: lightgbm.LGBMClassifier(
            n_estimators=n, num_leaves=20, random_state=s, verbose=-1, n_jobs=2
        ),
        "xgboost": lambda s: xgboost.XGBClassifier(
            n_estimators=n, random_state=s, n_jobs=2, objective="multi:softprob",
            num_class=n_classes, tree_method="hist",
        ),
        "histogram": lambda s: HistGradientBoostingClassifier(max_iter=n, random_state=s),
        "forest": lambda s: RandomForestClassifier(100, random_state=s, n_jobs=2),
    }  # fmt: skip
    for kind, make in kinds.items():
        for whose, (X, y) in (("owner's rows", train), ("other rows", others)):
            for seed in range(4):
                rng = np.random.default_rng(seed)
                # Every class must be there: one row of each comes along.
                kept = np.union1d(
                    rng.permutation(len(X))[: int(0.8 * len(X))],
                    np.unique(y, return_index=True)[1],
                )
                # XGBoost wants classes without gaps; others take labels as they are.
                known, coded = np.unique(y[kept], return_inverse=True)
                model = make(seed)
                if kind == "xgboost":
                    model.set_params(num_class=len(known))
                model.fit(X[kept], coded)
                yield kind, whose, lambda rows, m=model, k=known: k[np.asarray(m.predict(rows))]


def innocents() -> dict:
    worst, rows, p_values = 0.0, [], []
    for name in SETS:
        train, _, test, _ = scene(name, "training", 0)
        pools = {}
        for scenario in SCENARIOS:
            (X, y), candidates, _, _ = scene(name, scenario, 0)
            model = TimberClassifier(random_state=0).fit(X, y)
            ground = survey(model, X, y, candidates, None, None)
            k = count_triggers("auto", ground.n_rows)
            q = count_labels("auto", len(model.classes_))
            for strategy in STRATEGIES:
                try:
                    choice = choose(
                        ground.pool, strategy, "isolation", k, q, ground.separate, seed=0
                    )
                    pool, chosen = ground.pool, choice.chosen
                    words = alphabets(pool.confidence[chosen], pool.label[chosen], q)
                except InputError:
                    continue  # too few wrong predictions
                about = model.classes_.tolist(), ground.marked.digest, pool.X[chosen], words
                pools[scenario, strategy] = about
        bits = []
        for kind, whose, predict in strangers(train, test, len(np.unique(train[1]))):
            for (scenario, strategy), (classes, digest, triggers, words) in pools.items():
                answers = predict(triggers)
                for _ in range(KEYS):
                    mark = Mark.make(
                        OwnerKey.generate(), owner="bench", model_digest=digest, classes=classes,
                        triggers=triggers, alphabets=words,
                    )  # fmt: skip
                    verdict = verify(_recorded(triggers, answers), mark)
                    bits.append((verdict.evidence_bits, kind, whose, scenario, strategy))
                    p_values.append(verdict.p_value)
        worst = max(worst, max(b[0] for b in bits))
        rows.append([name, len(pools), len(bits), max(b[0] for b in bits), " ".join(max(bits)[1:])])
    header = ["data", "marks", "trials", "bits", "by"]
    show("innocent models: the most evidence against any", header, rows)
    p = np.sort(p_values)
    shares = {f"p<={a}": float((p <= a).mean()) for a in (0.5, 0.1, 0.01, 0.001)}
    counts = np.histogram(p, bins=10, range=(0, 1))[0]
    show("p-values of innocent models: how many in each tenth",
         [f"{i / 10:.1f}" for i in range(10)], [list(map(int, counts))])  # fmt: skip
    return {"trials": len(p), "most_evidence_bits": worst, **shares, "histogram": counts.tolist()}


def _recorded(rows, answers):
    """A suspect that gives the answers already taken, so that a model is asked only once."""
    known = {row.tobytes(): answer for row, answer in zip(rows, answers, strict=True)}
    return lambda X: np.array([known[np.ascontiguousarray(row).tobytes()] for row in X])


def forgeries() -> dict:
    other_key, other_model, refused, tried = [], [], 0, 0
    rng = np.random.default_rng(0)
    for name in SETS:
        train, candidates, _, _ = scene(name, "separate", 0)
        made = []
        for seed in (0, 1):
            model = TimberClassifier(random_state=seed).fit(*train)
            made.append(embed(model, *train, key=OwnerKey.generate(), candidates=candidates))
        first, second = made
        mark = first.mark
        for _ in range(10):
            stranger = Mark.make(
                OwnerKey.generate(), owner=mark.owner, model_digest=mark.model_digest,
                classes=mark.classes, triggers=mark.triggers, alphabets=mark.alphabets,
            )  # fmt: skip
            other_key.append(verify(first.model, stranger).evidence_bits)
        other_model += [
            verify(first.model, second.mark).evidence_bits,
            verify(second.model, first.mark).evidence_bits,
        ]
        data = mark.to_bytes()
        for place in rng.integers(0, len(data), 60):
            changed = bytearray(data)
            changed[place] ^= 1 << int(rng.integers(8))
            tried += 1
            try:
                refused += verify(first.model, Mark.from_bytes(bytes(changed))).evidence_bits < 20
            except TimbermarkError:
                refused += 1
    result = {
        "other_key_most_bits": max(other_key),
        "mark_of_another_model_most_bits": max(other_model),
        "bytes_changed": tried,
        "refused": refused,
    }
    show("forgeries", list(result), [list(result.values())])
    return result


def speed() -> dict:
    result = {}
    for scenario in SCENARIOS:
        train, candidates, _, _ = scene("letter", scenario, 0)
        model = TimberClassifier(random_state=0).fit(*train)

        def fit(train=train):
            TimberClassifier(random_state=0).fit(*train)

        def mark(model=model, train=train, candidates=candidates):
            embed(model, *train, key=OwnerKey.generate(), candidates=candidates)

        best = alternate({"fit": fit, "embed": mark}, 5)
        result[f"embed_against_fit_{scenario}"] = best["embed"] / best["fit"]
    show("whole embed against our fit, letter", list(result), [list(result.values())])
    return result


def verifying() -> dict:
    train, candidates, _, _ = scene("letter", "separate", 0)
    model = TimberClassifier(random_state=0).fit(*train)
    made = embed(model, *train, key=OwnerKey.generate(), candidates=candidates)
    command = Path(sys.executable).parent / "timbermark"
    with tempfile.TemporaryDirectory() as folder:
        made.model.save(f"{folder}/model")
        made.mark.save(f"{folder}/mark")
        run = [str(command), "verify", f"{folder}/model", f"{folder}/mark"]
        best = alternate(
            {
                "verify": lambda: subprocess.run(run, check=True, capture_output=True),
                "python": lambda: subprocess.run(
                    [sys.executable, "-c", "import numpy"], check=True
                ),
            },
            7,
        )
        code = (
            "import sys; from timbermark.cli import main; "
            f"code = main(['verify', {folder + '/model'!r}, {folder + '/mark'!r}]); "
            "sys.exit(code or 10 * ('numba' in sys.modules))"
        )
        light = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=dict(os.environ)
        )
    result = {
        "verify_s": best["verify"],
        "python_and_numpy_s": best["python"],
        "numba_imported": light.returncode == 10,
        "model_nodes": made.model.ensemble_.n_nodes,
    }
    show("timbermark verify, letter, whole command", list(result), [list(result.values())])
    return result


PARTS = {
    "embed": embedding,
    "innocents": innocents,
    "forgeries": forgeries,
    "speed": speed,
    "verify": verifying,
}

if __name__ == "__main__":
    run_parts(PARTS)
