"""Guarded models as folders that servers load; the servers themselves are in tests/servers."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_classification

import timbermark as tm
from timbermark import serving
from timbermark.errors import FileFormatError, InputError
from timbermark.guard.ledger_file import read_summary


@pytest.fixture(scope="module")
def rows():
    return make_classification(900, 6, n_informative=4, class_sep=0.5, random_state=0)


@pytest.fixture(scope="module")
def guard(rows):
    X, y = rows
    model = tm.TimberClassifier(max_iter=10, random_state=0).fit(X[:300], y[:300])
    return tm.Guard(model, X[300:], key=tm.OwnerKey(bytes(32)), owner="Ann", share=0.1, ledger=None)


def test_a_folder_answers_like_its_guard(guard, rows, tmp_path):
    X, _ = rows
    serving.write_folder(guard, tmp_path / "guarded")
    model = serving._load_pyfunc(str(tmp_path / "guarded"))
    assert (model.predict(X, params={"client": "acme"}) == guard.predict(X)).all()
    scores = model.predict(X, params={"client": "acme", "answers": "scores"})
    assert (scores == guard.predict_proba(X)).all()
    model.guard.close()
    (client,) = read_summary(tmp_path / "guarded" / "guard.db").clients
    assert (client.client, client.asked) == ("acme", 2 * len(X))
    about = json.loads((tmp_path / "guarded" / "MLmodel").read_text())
    assert about["flavors"]["python_function"]["loader_module"] == "timbermark.serving"
    assert [p["name"] for p in json.loads(about["signature"]["params"])] == ["client", "answers"]
    # The owner key is not in it.
    assert all(
        bytes(32).hex().encode() not in file.read_bytes()
        for file in (tmp_path / "guarded").iterdir()
    )


def test_the_ledger_may_be_elsewhere(guard, rows, tmp_path, monkeypatch):
    monkeypatch.setenv(serving.LEDGER_VARIABLE, str(tmp_path / "elsewhere.db"))
    serving.write_folder(guard, tmp_path / "guarded", answers="scores")
    model = serving.load_folder(tmp_path / "guarded")
    assert model.predict(rows[0]).shape == (len(rows[0]), 2)
    model.guard.close()
    assert read_summary(tmp_path / "elsewhere.db").clients[0].asked == len(rows[0])


def test_folders_that_are_there_or_are_none(guard, tmp_path):
    serving.write_folder(guard, tmp_path / "guarded")
    with pytest.raises(InputError) as caught:
        serving.write_folder(guard, tmp_path / "guarded")
    assert caught.value.code == "output.exists"
    serving.write_folder(guard, tmp_path / "guarded", force=True)
    (tmp_path / "guarded" / "guard.json").write_text('{"model": "../secret", "answers": "labels"}')
    with pytest.raises(FileFormatError):
        serving.load_folder(tmp_path / "guarded")
    assert not list(tmp_path.glob(".*"))


def test_regressors_have_numbers_only(rows, tmp_path):
    X, _ = rows
    model = tm.TimberRegressor(max_iter=10, random_state=0).fit(X[:300], X[:300, 0])
    guard = tm.Guard(model, X, key=tm.OwnerKey(bytes(32)), owner="Ann", share=0.1, ledger=None)
    serving.write_folder(guard, tmp_path / "guarded")
    served = serving.load_folder(tmp_path / "guarded")
    assert np.array_equal(served.predict(X, {"answers": "scores"}), guard.predict(X))
    served.guard.close()


def test_unknown_names_are_no_attributes():
    with pytest.raises(AttributeError):
        _ = serving.Nothing
