"""Suspects in this process: how objects, functions and files are opened and asked."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import timbermark as tm
from tests.verification.making import learnt, make_mark, make_mixed_mark, numbered, scored
from tests.verification.staircases import build_house, staircase
from timbermark.errors import FileFormatError, InputError
from timbermark.trees.ensemble_file import save_ensemble
from timbermark.verification import suspects
from timbermark.verification.suspects import open_suspect, read_model

MARK = make_mark(k=128)
SRC = Path(tm.__file__).parents[1]


def estimator(predict, **attributes):
    """An object with predict and whatever else is given."""
    members = {name: (lambda self, X, f=f: f(X)) if callable(f) else f
               for name, f in {"predict": predict, **attributes}.items()}  # fmt: skip
    return type("Model", (), members)()


def test_labels_instead_of_scores_cost_one_bit():
    model = estimator(learnt(MARK), predict_proba=scored(MARK), classes_=list(range(6)))
    by_labels = tm.verify(model, MARK, answers="labels")
    assert (by_labels.kind, by_labels.matched) == ("labels", 128)
    assert [(price.code, price.bits) for price in by_labels.prices] == [("kind", 1.0)]
    assert tm.verify(model, MARK).kind == "scores"
    labels_alone = estimator(learnt(MARK), classes_=list(range(6)))
    assert tm.verify(labels_alone, MARK, answers="labels").prices == ()
    with pytest.raises(InputError) as caught:
        tm.verify(labels_alone, MARK, answers="scores")
    assert (caught.value.code, caught.value.parameter) == ("answers.not-offered", "answers")


def test_scores_go_by_the_classes_of_the_estimator():
    turned = estimator(
        learnt(MARK), predict_proba=lambda X: scored(MARK)(X)[:, ::-1], classes_=[5, 4, 3, 2, 1, 0]
    )
    assert tm.verify(turned, MARK).bits == tm.verify(scored(MARK), MARK).bits


@pytest.mark.parametrize("names", [("f2", "f0", "f1"), ("f0", "f1", "f2")])
def test_columns_go_by_name(names):
    asked = []

    def predict(frame):
        asked.append(list(frame.columns))
        return learnt(MARK)(frame[["f0", "f1", "f2"]].to_numpy())

    found = tm.verify(estimator(predict, feature_names_in_=np.array(names), classes_=[0, 1]), MARK)
    assert (found.matched, found.context.columns) == (128, "by-name")
    assert asked == [list(names)]
    assert found.context.column_names == names


def test_the_order_of_columns_can_be_given_at_its_price():
    model = learnt(MARK)
    found = tm.verify(lambda X: model(X[:, [2, 0, 1]]), MARK, feature_names=["f1", "f2", "f0"])
    assert found.matched == 128
    assert [price.code for price in found.prices] == ["columns"]


@pytest.mark.parametrize(
    ("suspect", "code"),
    [
        (None, "suspect.unknown"), (3, "suspect.unknown"), (dict, "suspect.unknown"),
        (np.zeros(3), "suspect.unknown"), (object(), "suspect.unknown"),
        (estimator(lambda X: [0] * len(X), n_features_in_=7), "columns.count"),
        (estimator(lambda X: [0] * len(X), feature_names_in_=["f0", "x"]), "columns.strange"),
    ],
)  # fmt: skip
def test_suspects_that_cannot_be_asked_are_refused(suspect, code):
    with pytest.raises(InputError) as caught:
        tm.verify(suspect, MARK)
    assert caught.value.code == code
    assert caught.value.hint


def test_the_result_of_marking_is_not_a_model():
    result = type("Result", (), {"model": 1, "mark": MARK, "cost": 0})()
    with pytest.raises(InputError) as caught:
        tm.verify(result, MARK)
    assert (caught.value.code, "result.model" in caught.value.hint) == ("suspect.result", True)


def test_a_mark_may_be_a_path(tmp_path):
    MARK.save(tmp_path / "secret.mark")
    assert tm.verify(learnt(MARK), tmp_path / "secret.mark") == tm.verify(learnt(MARK), MARK)
    with pytest.raises(InputError) as caught:
        tm.verify(learnt(MARK), {"owner": "Ann"})
    assert caught.value.code == "mark.type"


def test_a_raising_suspect_is_one_clear_error_and_interrupts_pass():
    def broken(X):
        raise KeyError("what\nelse")

    with pytest.raises(InputError) as caught:
        tm.verify(broken, MARK)
    assert caught.value.code == "suspect.failed"
    assert "\n" not in caught.value.message
    assert isinstance(caught.value.__cause__, KeyError)

    def interrupted(X):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tm.verify(interrupted, MARK)


class Named:
    """A model that takes tables with named columns, as pipelines do."""

    feature_names_in_ = np.array(["x"])

    def predict(self, X):
        return X["x"]


def test_a_method_that_fails_is_answered_with_its_model():
    owner = Named()
    with pytest.raises(InputError) as caught:
        tm.verify(owner.predict, MARK)
    assert caught.value.code == "suspect.failed"
    assert "Named" in caught.value.hint
    for function in (lambda X: owner.predict(X), np.linalg.inv):
        with pytest.raises(InputError) as caught:
            tm.verify(function, MARK)
        assert "mark.feature_names" in caught.value.hint


class Strange:
    """Properties that raise, and lists of classes for several outputs."""

    classes_ = [np.array([0, 1]), np.array([0, 1, 2])]  # noqa: RUF012

    @property
    def feature_names_in_(self):
        raise RuntimeError

    def predict(self, X):
        return learnt(MARK)(X)


def test_strange_properties_do_not_matter():
    assert tm.verify(Strange(), MARK).matched == 128


def test_names_of_suspects_are_fit_for_any_terminal():
    def model(X):
        return learnt(MARK)(X)

    model.__name__ = "\x1b[31m"
    assert "\x1b" not in str(tm.verify(model, MARK))


def test_texts_reach_the_suspect():
    mark = make_mixed_mark(k=64)
    assert tm.verify(learnt(mark), mark).matched == 64


def test_regressors_and_functions_of_numbers():
    mark = make_mark(n_splits=120, classes=())
    by_function = tm.verify(numbered(mark), mark)
    by_object = tm.verify(estimator(numbered(mark)), mark)
    assert (by_function.level, by_function.bits) == ("conclusive", by_object.bits)
    classifier = estimator(learnt(MARK), classes_=[0, 1])
    with pytest.raises(InputError) as caught:
        tm.verify(classifier, mark)
    assert caught.value.code == "answers.other-task"
    doubled = tm.verify(lambda X: 3.0 * np.array(numbered(mark)(X)) - 7.0, mark)
    assert doubled.level == "conclusive"
    noise = np.random.default_rng(0).normal(size=mark.n_rows)
    found = tm.verify(lambda X: noise, mark)
    assert (found.level, [note.code for note in found.warnings]) == ("none", ["unlike-numbers"])


@pytest.fixture
def ann(tmp_path):
    return build_house(tmp_path / "ann", "Ann", staircase(1), seed=2)


def test_a_file_is_read_and_never_runs(ann):
    found = tm.verify(str(ann.marked), ann.mark)
    assert (found.level, found.context.through) == ("conclusive", "file")
    assert found.suspect_digest == hashlib.sha256(ann.marked.read_bytes()).hexdigest()
    assert tm.verify(ann.unmarked, ann.mark).level == "none"
    labels = tm.verify(ann.marked, ann.mark, answers="labels")
    assert labels.context.reading == {"kind": "labels", "classes": "by-number"}
    assert [price.code for price in labels.prices] == ["kind"]


def test_files_that_are_no_models_are_refused(ann, tmp_path):
    with pytest.raises(FileFormatError):
        tm.verify(ann.folder / "secret.mark", ann.mark)
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises((FileFormatError, InputError)):
        tm.verify(tmp_path / "x.txt", ann.mark)
    with pytest.raises(FileNotFoundError):
        tm.verify(tmp_path / "none", ann.mark)
    wide = make_mark(k=20, d=3)
    with pytest.raises(InputError) as caught:
        tm.verify(ann.marked, wide)
    assert caught.value.code == "columns.count"


def test_a_file_that_changes_meanwhile_is_refused(ann, monkeypatch):
    real = suspects._read_own

    def swap(path, digest):
        found = real(path, digest)
        save_ensemble(path, replace(ann.trees, value=ann.trees.value * 2))
        return found

    monkeypatch.setattr(suspects, "_read_own", swap)
    with pytest.raises(InputError) as caught:
        read_model(ann.marked)
    assert caught.value.code == "file.changed"


@pytest.mark.parametrize("fit_on", ["frame", "array"])
def test_estimators_of_scikit_learn(fit_on):
    from sklearn.tree import DecisionTreeClassifier

    columns = ["f2", "f1", "f0"] if fit_on == "frame" else ["f0", "f1", "f2"]
    X = pd.DataFrame(MARK.rows(), columns=["f0", "f1", "f2"])[columns]
    model = DecisionTreeClassifier(random_state=0)
    model.fit(X if fit_on == "frame" else X.to_numpy(), np.array(MARK.expected))
    found = tm.verify(model, MARK)
    assert (found.matched, found.kind, found.suspect) == (128, "scores", "DecisionTreeClassifier")


def fit_library(library, mark, y):
    """A model of a library that has learnt the triggers by heart."""
    X = mark.rows()
    if library == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        return xgboost.XGBClassifier(n_estimators=40, n_jobs=1).fit(X, y)
    if library == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        quiet = {"n_jobs": 1, "verbose": -1, "min_child_samples": 1}
        return lightgbm.LGBMClassifier(n_estimators=60, **quiet).fit(X, y)
    if library == "catboost":
        catboost = pytest.importorskip("catboost")
        quiet = {"verbose": False, "thread_count": 1, "allow_writing_files": False}
        return catboost.CatBoostClassifier(iterations=120, depth=8, **quiet).fit(X, y)
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(n_estimators=40, max_depth=5, random_state=0).fit(X, y)


SAVE = {
    "json": lambda model, path: model.save_model(path),
    "ubj": lambda model, path: model.save_model(path),
    "cbm": lambda model, path: model.save_model(str(path)),
    "txt": lambda model, path: model.booster_.save_model(path),
}


@pytest.mark.parametrize(
    ("library", "ending"),
    [("xgboost", "json"), ("xgboost", "ubj"), ("lightgbm", "txt"), ("catboost", "cbm"),
     ("gradient", "skops")],
)  # fmt: skip
@pytest.mark.parametrize("labels", ["numbers", "texts"])
def test_files_of_libraries_are_judged_like_their_models(library, ending, labels, tmp_path):
    """Labels that a file does not store are counted in the order of the mark's classes."""
    classes = tuple(range(4)) if labels == "numbers" else ("ash", "elm", "fir", "yew")
    mark = make_mark(k=96, n_classes=4, classes=classes, feature_names=None)
    y = mark.expected_numbers if library == "xgboost" else np.array(mark.expected)
    model = fit_library(library, mark, y)
    path = tmp_path / f"model.{ending}"
    if ending == "skops":
        skops = pytest.importorskip("skops.io")
        skops.dump(model, path)
    else:
        SAVE[ending](model, path)
    by_object, by_file = tm.verify(model, mark), tm.verify(path, mark)
    assert by_object.level == by_file.level == "conclusive"
    assert by_file.bits == pytest.approx(by_object.bits, abs=0.05)
    assert by_file.kind == by_object.kind == "scores"
    assert by_file.prices == by_object.prices == ()
    counted = labels == "texts" and library in ("lightgbm", "xgboost")
    assert by_file.context.reading["classes"] == ("by-place" if counted else "by-name")


def test_what_is_opened_already_is_taken_as_it_is():
    opened = open_suspect(learnt(MARK))
    assert open_suspect(opened) is opened


SCRIPT = """
import sys
import timbermark as tm
print(tm.verify(sys.argv[1], sys.argv[2]).level)
heavy = ("numba", "llvmlite", "sklearn", "scipy", "pandas", "timbermark.boosting",
         "timbermark.kernels", "timbermark.estimator", "httpx", "jinja2")
print(sorted(set(heavy) & set(sys.modules)))
print(sum(name.startswith("timbermark.") for name in sys.modules))
"""


def test_verifying_a_file_imports_nothing_heavy(tmp_path, real_scrypt):
    house = build_house(tmp_path / "ann", "Ann", staircase(1), seed=2)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, house.marked, house.folder / "secret.mark"],
        env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    level, heavy, count = done.stdout.split("\n")[:3]
    assert (level, heavy) == ("conclusive", "[]")
    assert int(count) <= 60
