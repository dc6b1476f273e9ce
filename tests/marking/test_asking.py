"""Verification of foreign models and files, and how little it takes."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

import timbermark as tm
from timbermark.errors import FileFormatError, InputError
from timbermark.marking.labels import alphabets


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600, :10], y[:600]


def mark_of(model, X, classes):
    sure = model.predict_proba(X)
    return tm.Mark.make(
        tm.OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=classes,
        triggers=X, alphabets=alphabets(sure, sure.argmax(axis=1), 4),
    )  # fmt: skip


def test_boosters_and_files_answer_as_the_classifier_does(digits, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    X, y = digits
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(X, y)
    mark = mark_of(model, np.unique(X[:60], axis=0), list(range(10)))
    matched = tm.verify(model, mark).matched
    assert tm.verify(model.booster_, mark).matched == matched
    model.booster_.save_model(tmp_path / "model.txt")
    assert tm.verify(tmp_path / "model.txt", mark).matched == matched
    assert tm.verify(str(tmp_path / "model.txt"), mark).matched == matched


def test_xgboost_boosters_too(digits):
    xgboost = pytest.importorskip("xgboost")
    X, y = digits
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, y)
    mark = mark_of(model, np.unique(X[:60], axis=0), list(range(10)))
    assert tm.verify(model.get_booster(), mark).matched == tm.verify(model, mark).matched


def test_what_is_no_model(digits, tmp_path):
    X, y = digits
    model = tm.TimberClassifier(max_iter=3, random_state=0).fit(X, y)
    mark = mark_of(model, np.unique(X[:60], axis=0), list(range(10)))
    (tmp_path / "note").write_text("no model")
    with pytest.raises(FileFormatError, match="not a model file"):
        tm.verify(tmp_path / "note", mark)
    with pytest.raises(InputError, match="cannot be asked"):
        tm.verify(17, mark)


def test_a_verifier_needs_no_engine(digits, tmp_path):
    X, y = digits
    model = tm.TimberClassifier(max_iter=3, random_state=0).fit(X, y)
    mark_of(model, np.unique(X[:60], axis=0), list(range(10))).save(tmp_path / "mark")
    model.save(tmp_path / "model")
    code = (
        "import sys; from timbermark.cli import main; "
        f"code = main(['verify', {str(tmp_path / 'model')!r}, {str(tmp_path / 'mark')!r}]); "
        "print(code, sorted({'numba', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] in ("0 []", "1 []"), done.stdout + done.stderr
