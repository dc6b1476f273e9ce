"""Asking an endpoint: how many questions it takes, whether decoys hide triggers, what kills do.

./dev bench endpoint [questions] [untouched] [decoys] [kills]
"""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import common
import lightgbm
import numpy as np
import xgboost
from common import run_parts, show
from sklearn.datasets import load_breast_cancer, load_digits, make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict

import timbermark as tm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timbermark.attacks.stolen import Stolen, Thief, steal
from timbermark.attacks.trees import refit
from timbermark.ownership.evidence import label_bits, label_gains
from timbermark.verification.inquiry import Facts, Inquiry, is_hopeless
from timbermark.verification.questions import DECOY, make_questions
from timbermark.verification.transcript import Context

RATES = (1.0, 0.8, 0.5)
N_RUNS = 1000
N_TRIGGERS = 400
KILLS = 50


def count_questions(rate: float, bits: float, q: int, rng: np.random.Generator) -> int:
    """Questions until a suspect that matches at this rate has given so many bits."""
    matched = 0
    for n in range(1, N_TRIGGERS + 1):
        matched += rng.random() < rate
        if label_bits(matched, n, q) >= bits:
            return n
    return N_TRIGGERS


def give_up_after(rate: float, n_triggers: int, rng: np.random.Generator) -> tuple[int, bool]:
    """Questions until a suspect is given up or not, towards 64 bits, and whether it was."""
    gain, loss = (part / np.log(2) for part in label_gains(4))
    matches = rng.random(n_triggers) < rate
    gains = np.where(matches, gain[:, np.newaxis], loss[:, np.newaxis])
    for n in range(1, n_triggers + 1):
        if label_bits(int(matches[:n].sum()), n, 4) >= 64:
            return n, False
        if is_hopeless([(gains[:, :n], n_triggers, 4)], 64.0):
            return n, True
    return n_triggers, False


def questions() -> dict:
    rng = np.random.default_rng(0)
    averages = {
        f"{rate:g}": {
            str(bits): float(np.mean([count_questions(rate, bits, 4, rng) for _ in range(N_RUNS)]))
            for bits in (20, 64)
        }
        for rate in RATES
    }
    rows = [[rate, found["20"], found["64"]] for rate, found in averages.items()]
    show("questions on average, labels one by one, q = 4", ["match rate", "20 bits", "64"], rows)
    given_up = {}
    for rate in (0.25, 0.5, 0.7, 0.8):
        runs = [give_up_after(rate, 128, rng) for _ in range(200)]
        given_up[f"{rate:g}"] = {
            "questions": float(np.mean([n for n, _ in runs])),
            "given_up": float(np.mean([gone for _, gone in runs])),
        }
    rows = [[rate, found["questions"], found["given_up"]] for rate, found in given_up.items()]
    show("towards 64 bits, 128 triggers", ["match rate", "questions", "share given up"], rows)
    return {"averages": averages, "given_up": given_up}


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels to train a small model on."""
    if name == "churn":
        # Two classes, few of one: the harder kind.
        return make_classification(4000, 20, n_informative=8, weights=[0.85], random_state=3)
    if name == "digits":
        return load_digits(return_X_y=True)
    if name == "cancer":
        return load_breast_cancer(return_X_y=True)
    X, y, *_ = common.load(name)
    return X[:4000], np.unique(y[:4000], return_inverse=True)[1]


def rows_to_64(copy: Stolen, mark: tm.Mark, kind: str) -> float:
    """Rows asked until 64 bits, as an endpoint is asked them one by one, decoys not counted."""
    facts = Facts(context=Context("a copy", "http"), offers=(kind,))
    inquiry = Inquiry.begin(SimpleNamespace(facts=facts), mark, limit=64.0)
    while questions := inquiry.following():
        said = copy.answer(np.array([q.values for q in questions], dtype=float))
        if kind != "scores":
            said = copy.classes[said.argmax(axis=1)] if kind == "labels" else said[:, 0]
        inquiry.take({q.row: answer for q, answer in zip(questions, said.tolist(), strict=True)})
    return len(inquiry.answers) if inquiry.ending() == "enough" else float("nan")


def make_models(name: str) -> tuple[np.ndarray, np.ndarray, dict[str, object]]:
    """Rows, labels or numbers, and models of them."""
    if name == "regression":
        X, y = make_regression(4000, 12, n_informative=8, noise=10.0, random_state=1)
        kinds = lightgbm.LGBMRegressor, xgboost.XGBRegressor
    else:
        X, y = rows_of(name)
        kinds = lightgbm.LGBMClassifier, xgboost.XGBClassifier
    light = kinds[0](n_estimators=100, n_jobs=1, verbose=-1, seed=7)
    extreme = kinds[1](n_estimators=100, n_jobs=1, random_state=7)
    return X, y, {"LightGBM": light.fit(X, y), "XGBoost": extreme.fit(X, y)}


def untouched() -> dict:
    """Rows until 64 bits, of an untouched copy and of one with leaves refitted on half the rows."""
    table, found = [], {}
    for name in ("wine", "pendigits", "churn", "digits", "cancer", "regression"):
        X, y, models = make_models(name)
        half = np.random.default_rng(0).permutation(len(X))[: len(X) // 2]
        thief = Thief(np.ascontiguousarray(X[half], np.float64), y[half])
        for library, model in models.items():
            tried, row = {"both": ("labels", "scores"), "splits": ("scores",)}, []
            if name == "regression":  # numbers have no leaf seal
                tried, row = {"splits": ("numbers",)}, [float("nan")] * 3
            for seals, kinds in tried.items():
                try:
                    made = tm.embed(
                        model, X, y, key=tm.OwnerKey.generate(), owner="Ann", seals=seals,
                        random_state=7,
                    )  # fmt: skip
                except tm.errors.TimbermarkError:  # too weak for this model
                    row += [float("nan")] * (3 if seals == "both" else 2)
                    continue
                copy = steal(made.model)
                row += [rows_to_64(copy, made.mark, kind) for kind in kinds]
                row.append(rows_to_64(refit(copy, thief, 0.0), made.mark, kinds[-1]))
            table.append([name, library, *row])
            found[f"{name} {library}"] = row
    columns = ["data", "library", "labels", "scores", "refitted", "splits alone", "refitted"]
    show("rows asked to 64 bits", columns, table)
    return found


def mix_rows(X: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows that take each value from one of two: what decoys could be instead."""
    pairs = rng.integers(len(X), size=(2, n))
    return np.where(rng.random((n, X.shape[1])) < 0.5, X[pairs[0]], X[pairs[1]])


def tell_apart(model, rows: np.ndarray, is_trigger: np.ndarray, family: np.ndarray) -> dict:
    """How well triggers are told from decoys, as AUC: by their values, and by the confidence."""
    forest = RandomForestClassifier(300, random_state=0)
    by_values = cross_val_predict(
        forest, rows, is_trigger, groups=family, cv=GroupKFold(5), method="predict_proba"
    )
    sure = np.sort(model.predict_proba(rows), axis=1)
    return {
        "values": float(roc_auc_score(is_trigger, by_values[:, 1])),
        "confidence": float(roc_auc_score(is_trigger, sure[:, -2] - sure[:, -1])),
    }


def decoys() -> dict:
    results = {}
    for name, load in (("digits", load_digits), ("cancer", load_breast_cancer)):
        X, y = load(return_X_y=True)
        model = lightgbm.LGBMClassifier(n_estimators=60, n_jobs=1, verbose=-1).fit(X, y)
        marked = tm.embed(model, X, y, key=tm.OwnerKey.generate(), owner="Ann Ltd")
        rng = np.random.default_rng(0)
        for seal in marked.mark.seals:
            for kind, source in (("families", None), ("families, values of a table", X)):
                blocks = make_questions(marked.mark, 3, source)[seal.name].blocks
                asked = [(q, n) for n, block in enumerate(blocks) for q in block]
                rows = np.array([q.values for q, _ in asked], float)
                is_trigger = np.array([q.row != DECOY for q, _ in asked]).astype(int)
                block = np.array([n for _, n in asked])
                found = tell_apart(marked.model, rows, is_trigger, block)
                results[f"{name}, {seal.name}, {kind}"] = found
            triggers = rows[is_trigger == 1]
            mixed = mix_rows(X, 3 * len(triggers), rng)
            found = tell_apart(
                marked.model, np.concatenate([triggers, mixed]),
                np.repeat([1, 0], [len(triggers), len(mixed)]), np.arange(4 * len(triggers)) % 50,
            )  # fmt: skip
            results[f"{name}, {seal.name}, mixtures of two rows"] = found
    lines = [[name, *found.values()] for name, found in results.items()]
    show("triggers told from decoys, AUC", ["decoys", "by values", "by confidence"], lines)
    return results


def kills() -> dict:
    from tests.verification.killing import run_with_kills

    with tempfile.TemporaryDirectory() as folder:
        found = run_with_kills(Path(folder), KILLS)
    show("a run killed again and again", list(found), [list(found.values())])
    return found


if __name__ == "__main__":
    run_parts({"questions": questions, "untouched": untouched, "decoys": decoys, "kills": kills})
