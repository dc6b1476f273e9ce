"""The guard: what students carry, what it costs, innocents, time, and processes that are killed.

Half of the rows, a third of large sets, train the owner's model (LightGBM, 200 trees); the others
are asked. Parts: students, cost, innocents, attacks, noise, time, kill. The variables GUARD_SETS,
GUARD_QUESTIONS and GUARD_SECONDS make it shorter; GUARD_SHARE is the least share that students see;
with GUARD_APART=1 they ask none of the rows that the guard was made with.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from common import (
    alternate,
    encode_texts,
    load,
    load_field,
    load_prices,
    run_parts,
    show,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import timbermark as tm
from timbermark.guard.ledger_file import read_chains, read_summary
from timbermark.ownership.evidence import Answers, weigh
from timbermark.ownership.seals import NO_ALTERNATIVES

warnings.simplefilter("ignore")
SETS = ("pendigits", "letter", "census", "spambase", "churn", "diamonds")
ASKED = os.environ.get("GUARD_SETS", ",".join(SETS)).split(",")
MOST_ROWS = 60_000
QUESTIONS = [int(n) for n in os.environ.get("GUARD_QUESTIONS", "8000,16000").split(",")]
SHARE = float(os.environ.get("GUARD_SHARE", "0.01"))
APART = os.environ.get("GUARD_APART", "") == "1"
SECONDS = float(os.environ.get("GUARD_SECONDS", "120"))
KEY = tm.OwnerKey(bytes(range(32)))
TRIALS = 2000


@cache
def rows_of(name):
    if name in ("pendigits", "letter"):
        X, y, X_test, y_test = load(name)
        X, y = np.vstack([X, X_test]), np.concatenate([y, y_test])
    elif name == "diamonds":
        X, y = load_prices()
        y = np.log(y)
    else:
        table = load_field(name)
        X, y = encode_texts(table.rows), np.unique(table.target, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    return X[order], y[order]


@cache
def owner_of(name):
    """The owner's model, the rows of its guard, and all rows that it has not seen."""
    import lightgbm

    X, y = rows_of(name)
    half = len(X) // 2 if len(X) < 30_000 else len(X) // 3
    kind = lightgbm.LGBMRegressor if name == "diamonds" else lightgbm.LGBMClassifier
    model = kind(n_estimators=200, verbose=-1, n_jobs=1, random_state=0).fit(X[:half], y[:half])
    rest = len(X) - half
    guard = slice(half, half + rest // 4)
    return model, X[guard], (X[half:], y[half:])


def guard_of(name, share, folder):
    model, mine, _ = owner_of(name)
    return tm.Guard(
        model, mine, key=KEY, owner="Ann Ltd", share=share, ledger=Path(folder) / f"{name}.db"
    )


class Soft:
    """A student of probabilities: a regressor for each class."""

    def __init__(self, make, together=False):
        self.make, self.together = make, together

    def fit(self, X, P):
        self.classes_ = np.arange(P.shape[1])
        columns = [1] if P.shape[1] == 2 else range(P.shape[1])
        self.models = (
            [self.make().fit(X, P)]
            if self.together
            else [self.make().fit(X, P[:, c]) for c in columns]
        )
        return self

    def predict_proba(self, X):
        P = np.column_stack([m.predict(X) for m in self.models]).clip(1e-6, 1.0)
        if P.shape[1] == 1:
            P = np.column_stack([1.0 - P[:, 0], P[:, 0]]).clip(1e-6, 1.0)
        return P / P.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


def students(numbers, soft, regularized):
    import lightgbm
    import xgboost

    regress = numbers or soft
    lgb = lightgbm.LGBMRegressor if regress else lightgbm.LGBMClassifier
    xgb = xgboost.XGBRegressor if regress else xgboost.XGBClassifier
    hist = HistGradientBoostingRegressor if regress else HistGradientBoostingClassifier
    forest = RandomForestRegressor if regress else RandomForestClassifier
    quiet = {"verbose": -1, "n_jobs": 1, "random_state": 1}
    some = {"random_state": 1, "n_jobs": 1}
    made = (
        {
            "LightGBM": lambda: lgb(**quiet),
            "XGBoost": lambda: xgb(**some),
            "HistGradientBoosting": lambda: hist(random_state=1),
            "random forest": lambda: forest(**some),
        }
        if not regularized
        else {
            "forest, 3 rows a leaf": lambda: forest(min_samples_leaf=3, **some),
            "forest, 10 rows a leaf": lambda: forest(min_samples_leaf=10, **some),
            "LightGBM 60 x 8": lambda: lgb(n_estimators=60, num_leaves=8, **quiet),
            "early stopping": lambda: hist(early_stopping=True, random_state=1),
            "linear": lambda: make_pipeline(
                StandardScaler(), Ridge() if regress else LogisticRegression(max_iter=200)
            ),
        }
    )
    if not soft:
        return {name: make() for name, make in made.items()}
    return {name: Soft(make, together="forest" in name) for name, make in made.items()}


def run_students():
    """Bits of students; owners who keep a log of all questions read more out of their answers."""
    lines = []
    for name in ASKED:
        numbers = name == "diamonds"
        _, mine, (X, _) = owner_of(name)
        X = X[len(mine) if APART else 0 :]
        for n in sorted({min(n, len(X)) for n in QUESTIONS}):
            share, asked = max(SHARE, 80 / n), X[:n]
            filled = np.nan_to_num(asked, nan=-1.0)
            with tempfile.TemporaryDirectory() as folder:
                guard = guard_of(name, share, folder)
                answers = {"labels": guard.predict(asked, client="thief")}
                if not numbers:
                    answers["scores"] = guard.predict_proba(asked, client="thief")
                # The same questions are drawn whether labels or scores are asked for.
                marks = [guard.mark("thief")]
                marks += marks if numbers else [guard.mark("thief", rows=asked)]
                # A judge leaves out what other models answer.
                marks += [marks[0] if numbers else _without_alternatives(marks[0])]
                lead = guard.settings.lead
                guard.close()
            for kind, regularized in itertools.product(answers, (False, True)):
                made = students(numbers, kind == "scores", regularized)
                for student, model in made.items():
                    try:
                        model.fit(filled, answers[kind])
                    except Exception as error:
                        print(name, student, "did not train:", str(error)[:80])
                        continue
                    bits = [tm.verify(_suspect(model, numbers), mark).bits for mark in marks]
                    about = [name, n, round(share, 5), marks[0].n_triggers, lead]
                    said = "numbers" if numbers else kind
                    lines.append([*about, said, student, regularized, *bits])
                    print(*lines[-1], sep=",", flush=True)
    show(
        "students",
        ["set", "asked", "share", "drawn", "lead", "answers", "student", "regularized", "bits",
         "bits with a log", "bits before a judge"],
        lines,
    )  # fmt: skip
    parts = {}
    for regularized, kind in itertools.product((False, True), ("labels", "scores", "numbers")):
        bits = np.array([x[8:] for x in lines if x[7] == regularized and x[5] == kind])
        if len(bits):
            parts[f"{'regularized' if regularized else 'defaults'}, {kind}"] = {
                "students": len(bits),
                "with 64 bits": int((bits[:, 0] >= 64).sum()),
                "with 64 bits and a log": int((bits[:, 1] >= 64).sum()),
                "with 64 bits before a judge": int((bits[:, 2] >= 64).sum()),
            }
    return {"parts": parts, "lines": lines}


def _without_alternatives(mark):
    return replace(mark, leaves=replace(mark.leaves, alternatives=NO_ALTERNATIVES))


def _suspect(student, numbers):
    if numbers or not hasattr(student, "predict_proba"):
        return lambda X: student.predict(np.nan_to_num(X, nan=-1.0))

    class Suspect:
        classes_ = np.asarray(student.classes_)

        def predict_proba(self, X):
            return student.predict_proba(np.nan_to_num(np.asarray(X, float), nan=-1.0))

        def predict(self, X):
            return student.predict(np.nan_to_num(np.asarray(X, float), nan=-1.0))

    return Suspect()


def run_cost():
    lines, facts = [], {}
    for name in ASKED:
        _, mine, (X, y) = owner_of(name)
        with tempfile.TemporaryDirectory() as folder:
            guard = guard_of(name, 0.01, folder)
            cost = guard.cost(X[len(mine) :], y[len(mine) :])
            guard.close()
        facts[name] = cost.to_dict()
        lines.append(
            [name, cost.rows, cost.drawn, cost.points, cost.auc, cost.mean_score, cost.lead]
        )
    show("cost at share 0.01", ["set", "rows", "drawn", "points", "AUC", "mean", "lead"], lines)
    return facts


def run_innocents():
    """Models that never asked, students of other clients, and 2,000 draws of other symbols."""
    rng, worst, lines = np.random.default_rng(0), {}, []
    for name in [n for n in ASKED if n != "diamonds"]:
        model, _, (X, y) = owner_of(name)
        n = min(8000, len(X) // 2)
        with tempfile.TemporaryDirectory() as folder:
            guard = guard_of(name, max(0.01, 80 / n), folder)
            guard.predict(X[:n], client="acme")
            theirs = guard.predict(X[n : 2 * n], client="other")
            mark = guard.mark("acme")
            guard.close()
        F = np.nan_to_num(X, nan=-1.0)
        truth = students(False, False, False)
        found = {"the unguarded model": tm.verify(model, mark).bits}
        for kind, student in truth.items():
            student.fit(F[:n], y[:n])
            found[f"{kind}, true labels"] = tm.verify(_suspect(student, False), mark).bits
        for kind, student in students(False, False, False).items():
            student.fit(F[n : 2 * n], theirs)
            found[f"{kind}, another client's"] = tm.verify(_suspect(student, False), mark).bits
        answers = Answers("scores", np.asarray(model.predict_proba(mark.rows()), float))
        drawn = [_redrawn(mark, answers, rng) for _ in range(TRIALS)]
        found[f"{TRIALS} other keys, highest"] = max(drawn)
        worst[name] = max(found.values())
        lines += [[name, kind, bits] for kind, bits in found.items()]
    show("innocents", ["set", "model", "bits"], lines)
    return {"highest": worst}


def _redrawn(mark, answers, rng):
    """Return the bits of answers for other symbols, as another key would have drawn them."""
    other = mark.with_draws(mark.draws)
    symbols = rng.integers(2, size=mark.n_triggers).astype(np.uint8)
    other._derived.update(symbols=symbols, order_numbers=mark.order_numbers)
    return weigh(other, answers)[0].bits


def run_attacks():
    """The attacks of the lab: students of all kinds, and thieves who know of guards."""
    lines, facts = [], {}
    for name in ASKED:
        _, _, (X, y) = owner_of(name)
        n = min(8000, int(0.6 * len(X)))
        with tempfile.TemporaryDirectory() as folder:
            guard = guard_of(name, max(SHARE, 80 / n), folder)
            thief, tested = (X[:n], y[:n]), (X[n : 2 * n], y[n : 2 * n])
            found = tm.attack(guard, None, *thief, attacks="all", evaluation=tested)
            guard.close()
        facts[name] = found.to_dict()
        lines += [
            [name, row.name, row.score_bits, row.label_bits, row.quality, row.theft_kept]
            for row in (found.untouched, *found.rows)
        ]
    show("attacks", ["set", "attack", "scores", "labels", "quality", "theft kept"], lines)
    return facts


def run_noise():
    """The same questions with noise inside their cells: are answers ever other ones?"""
    facts = {}
    for name in ASKED:
        _, _, (X, _) = owner_of(name)
        rng = np.random.default_rng(0)
        with tempfile.TemporaryDirectory() as folder:
            guard = guard_of(name, 0.05, folder)
            ask = guard.predict if name == "diamonds" else guard.predict_proba
            rows = X[:2000]
            first, own = ask(rows), guard._answer(rows)
            same = other = 0
            for _ in range(20):
                near = rows * (1.0 + 1e-9 * rng.normal(size=rows.shape))
                inside = np.atleast_2d(own.T == guard._answer(near).T).all(axis=0)
                equal = np.atleast_2d(first.T == ask(near).T).all(axis=0)
                same, other = (
                    same + int((inside & equal).sum()),
                    other + int((inside & ~equal).sum()),
                )
            guard.close()
        facts[name] = {"same": same, "other": other}
    show(
        "noise inside cells",
        ["set", "same answers", "others"],
        [[n, *f.values()] for n, f in facts.items()],
    )
    return facts


def _ask_all(ask, blocks):
    for block in blocks:
        ask(block)


def run_time():
    facts, lines = {}, []
    for name in ASKED:
        model, _, (X, _) = owner_of(name)
        with tempfile.TemporaryDirectory() as folder:
            guard = guard_of(name, 0.01, folder)
            for size, rounds in ((1, 60), (1000, 5)):
                # More rows than there are: every part asks other ones, as servers are asked.
                many = X[np.arange(5 * size) % len(X)]
                blocks = [many[i : i + size] for i in range(0, 5 * size, size)]
                method = "predict" if name == "diamonds" else "predict_proba"
                asked = {"model": getattr(model, method), "guard": getattr(guard, method)}
                best = alternate(
                    {who: partial(_ask_all, ask, blocks) for who, ask in asked.items()}, rounds
                )
                ratio = best["guard"] / best["model"]
                facts[f"{name}, {size}"] = ratio
                lines.append([name, size, 2e5 * best["model"], 2e5 * best["guard"], ratio])
            guard.close()
    show(
        "time per answer (microseconds a batch)", ["set", "batch", "model", "guard", "ratio"], lines
    )
    return facts


def _serve(name, folder, seed, log):
    guard = guard_of(name, 0.05, folder)
    _, _, (X, _) = owner_of(name)
    rng = np.random.default_rng(seed)
    with open(log, "a", buffering=1) as said:
        while True:
            rows = rng.integers(len(X), size=50)
            answers = guard.predict(X[rows], client=f"client {seed}")
            drawn = np.flatnonzero(answers != guard._answer(X[rows]).argmax(axis=1))
            for i in drawn:
                said.write(f"{time.time():.3f} {rows[i]} {answers[i]}\n")


def run_kill():
    """Eight processes under load, one of which is killed every five seconds."""
    name = "pendigits"
    owner_of(name)
    with tempfile.TemporaryDirectory() as folder:
        guard_of(name, 0.05, folder).close()
        made, logs, killed = [], [], {}

        def start():
            log = Path(folder) / f"log-{len(logs)}"
            log.touch()
            logs.append(log)
            one = multiprocessing.get_context("fork").Process(
                target=_serve, args=(name, folder, len(logs) - 1, log)
            )
            one.start()
            made.append((one, log))

        for _ in range(8):
            start()
        until = time.time() + SECONDS
        while time.time() < until:
            time.sleep(5.0)
            one, log = made.pop(0)
            os.kill(one.pid, signal.SIGKILL)
            one.join()
            killed[log] = time.time()
            start()
        time.sleep(1.0)
        for one, log in made:
            os.kill(one.pid, signal.SIGKILL)
            one.join()
            killed[log] = time.time()
        path = Path(folder) / f"{name}.db"
        chains, found = read_chains(path), read_summary(path)
        guard = guard_of(name, 0.05, folder)
        _, _, (X, _) = owner_of(name)
        kept = set()
        import sqlite3

        with sqlite3.connect(path) as file:
            cells = file.execute("SELECT client, cell FROM entries WHERE kind = 0").fetchall()
        kept = set(cells)
        missing = late = total = differing = 0
        said = {}
        for number, log in enumerate(logs):
            for line in log.read_text().splitlines():
                if line.count(" ") != 2:
                    continue
                at, row, answer = line.split()
                total += 1
                differing += said.setdefault(row, answer) != answer
                drawn = guard._drawer.draw_scores(
                    X[[int(row)]], guard._answer(X[[int(row)]]), guard.settings
                )
                if (f"client {number}", drawn.cells[0]) not in kept:
                    missing += 1
                    late += killed[log] - float(at) < 1.0
        guard.close()
    facts = {
        "processes": len(logs), "seconds": SECONDS, "drawn answers": total, "missing": missing,
        "missing, of a last batch": late, "answers that differ": differing,
        "entries": sum(len(c.entries) for c in chains),
        "sessions without an end": found.open_sessions,
    }  # fmt: skip
    show("processes that are killed", list(facts), [list(facts.values())])
    return facts


if __name__ == "__main__":
    run_parts(
        {
            "students": run_students,
            "cost": run_cost,
            "innocents": run_innocents,
            "attacks": run_attacks,
            "noise": run_noise,
            "time": run_time,
            "kill": run_kill,
        }
    )
