"""Models of rare positives: a mark keeps what their users look at, or is not made.

With limits on shares of all rows alone, the strongest mark "fitted" these models: AUC, average
precision, the mean score and the top of the list were damaged, and the budget said "auc 0 %".
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.field_sets import encode_texts, load_field_set
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, roc_auc_score

import timbermark as tm
from timbermark.errors import InputError

lightgbm = pytest.importorskip("lightgbm")
KEY = tm.OwnerKey.generate()


def fit(X, y, trees):
    return lightgbm.LGBMClassifier(
        n_estimators=trees, random_state=0, n_jobs=1, verbose=-1, deterministic=True
    ).fit(X, y)


@cache
def synthetic():
    """Training, validation and test rows with 1 % of positives, and a model."""
    X, y = make_classification(
        50_000, 20, n_informative=8, weights=[0.99], flip_y=0.002, random_state=1
    )
    parts = [(X[a:b], y[a:b]) for a, b in ((0, 15_000), (15_000, 25_000), (25_000, 50_000))]
    return fit(*parts[0], 100), parts


def compare(model, marked, X, y):
    """AUC, average precision and mean score lost, and the share of the top 2 % that is kept."""
    before, after = (m.predict_proba(X)[:, 1] for m in (model, marked))
    tops = [set(np.argsort(-p, kind="stable")[: len(X) // 50].tolist()) for p in (before, after)]
    precise = [average_precision_score(y, p) for p in (before, after)]
    return {
        "auc": roc_auc_score(y, before) - roc_auc_score(y, after),
        "precision": 1.0 - precise[1] / precise[0],
        "score": abs(after.mean() / before.mean() - 1.0),
        "top": 1.0 - len(tops[0] & tops[1]) / len(tops[0]),
        "churn": ((before > 0.5) != (after > 0.5)).sum() / y.sum(),
    }


@pytest.mark.parametrize("held", [True, False])
def test_marks_keep_the_rare_class(held):
    model, (train, validation, test) = synthetic()
    given = {"validation": validation} if held else {}
    result = tm.embed(model, *train, key=KEY, owner="Ann Ltd", **given)
    assert tm.verify(result.model, result.mark, answers="labels").level != "none"
    lost = compare(model, result.model, *test)
    assert lost["auc"] < 0.002
    assert lost["precision"] < 0.02
    assert lost["score"] < 0.02
    assert lost["top"] < 0.04
    assert lost["churn"] < 0.1
    for code in ("auc", "precision", "top"):
        assert lost[code] <= result.cost[code].bound
    assert lost["score"] <= result.cost["score", 1].bound


def test_limits_on_all_rows_alone_let_a_mark_damage_it():
    """What the other limits are for, and the warning about figures that are beyond a limit."""
    model, (train, _, test) = synthetic()
    budget = tm.Budget.only(changed=0.01, drift=0.01, accuracy=0.005)
    result = tm.embed(model, *train, key=KEY, owner="Ann Ltd", budget=budget, seals="leaves")
    assert max(result.use.values()) <= 1.0
    lost = compare(model, result.model, *test)
    assert lost["top"] > 0.06
    assert lost["score"] > 0.02 or lost["precision"] > 0.02
    # The default limits would not have let it pass.
    figures = result.cost
    assert figures["top"].change > 0.03


def test_a_limit_on_the_auc_is_kept():
    model, (train, validation, test) = synthetic()
    options = {"validation": validation, "key": KEY, "owner": "Ann Ltd"}
    with pytest.raises(InputError) as caught:
        tm.embed(model, *train, **options, budget=tm.Budget(auc=1e-7), seals="leaves")
    assert caught.value.parameter == "auc"
    result = tm.embed(model, *train, **options, budget=tm.Budget(auc=0.0005))
    assert 0.0 < result.use["auc"] <= 1.0
    told = [note.name for note in result.notes if note.code == "beyond_limit"]
    assert (result.cost["auc"].change > 0.0005) == ("auc" in told)
    assert compare(model, result.model, *test)["auc"] < 0.001


def test_too_few_positives_are_said_and_scores_stand_for_labels():
    model, (train, validation, _) = synthetic()
    X, y = validation
    kept = (y == 0) | (np.cumsum(y) <= 8)
    result = tm.embed(
        model, *train, validation=(X[kept], y[kept]), key=KEY, owner="Ann Ltd", n_triggers=88
    )
    note = next(note for note in result.notes if note.code == "few_of_class")
    assert note.numbers["rows"] < 10
    assert str(result).startswith("Warning: ")
    assert "auc" in result.use


def test_a_limit_that_is_finer_than_the_rows_is_named():
    model, (train, (X, y), _) = synthetic()
    options = {"validation": (X[:4000], y[:4000]), "budget": tm.Budget.only(changed=0.0001)}
    found = tm.plan(model, *train, **options, n_triggers=88)
    note = next(note for note in found.notes if note.code == "limit_too_fine")
    assert (note.numbers["limit"], note.numbers["rows"]) == (0.0001, 2000)
    assert "limit_too_fine" in [told["code"] for told in found.to_dict()["notes"]]


def test_census_thinned_to_one_percent_keeps_its_top(shared):
    table = load_field_set("census_income", shared)
    rng = np.random.default_rng(0)
    some = rng.permutation(len(table.rows))[:45_000]
    y = np.unique(np.array(table.target)[some], return_inverse=True)[1]
    y = y if y.mean() < 0.5 else 1 - y
    kept = (y == 0) | (rng.random(len(y)) < 0.0095 * (y == 0).sum() / (y == 1).sum())
    X, y = encode_texts([table.rows[i] for i in some])[kept], y[kept]
    parts = [(X[a:b], y[a:b]) for a, b in ((0, 15_000), (15_000, 25_000), (25_000, len(X)))]
    model = fit(*parts[0], 60)
    result = tm.embed(model, *parts[0], validation=parts[1], key=KEY, owner="Ann Ltd", weak=True)
    lost = compare(model, result.model, *parts[2])
    assert lost["auc"] < 0.002
    assert lost["score"] < 0.02
    assert lost["top"] < 0.06


def read_results(name):
    """What `./dev bench fidelity` found, as committed for the documentation."""
    path = Path(__file__).parents[2] / "docs" / "fidelity" / name
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_committed_figures_are_within_what_is_promised():
    done = [found for found in read_results("rare.jsonl") if "error" not in found]
    assert len({(found["set"], found["share"], found["library"]) for found in done}) >= 16
    for name, mean, worst in (
        ("auc", 0.0005, 0.002), ("score", 0.01, 0.02), ("score_of_positives", 0.01, 0.02),
        ("precision", 0.005, 0.02), ("top", 0.015, 0.03),
    ):  # fmt: skip
        assert np.mean([found[name] for found in done]) <= mean
        assert max(found[name] for found in done) <= worst


def test_committed_bounds_hold_in_nineteen_of_twenty_runs():
    small = [found for found in read_results("stated.jsonl") if "error" not in found]
    beyond = sum(
        any(unseen > bound for *_, unseen, _, bound in found["figures"]) for found in small
    )
    assert len(small) >= 40
    assert beyond <= 0.05 * len(small)
    rare = [found for found in read_results("rare.jsonl") if "error" not in found]
    beyond = sum(any(r[code] > bound for code, bound in r["stated"].items()) for r in rare)
    assert beyond <= 0.05 * len(rare)
