import os
import pickle
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from timbermark import libraries
from timbermark.errors import FileFormatError, InputError, StateError
from timbermark.files import write_container
from timbermark.libraries import Adapter, registry
from timbermark.trees import reference
from timbermark.trees.construction import constant_ensemble
from timbermark.trees.ensemble_file import save_ensemble

pytest.importorskip("sklearn")
joblib = pytest.importorskip("joblib")

import sklearn.ensemble  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.multioutput import MultiOutputClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, np.digitize(X[:, 0] + rng.normal(size=200), [-0.5, 0.5])


def histogram():
    return sklearn.ensemble.HistGradientBoostingClassifier(max_iter=4).fit(*data())


def classic():
    return sklearn.ensemble.GradientBoostingClassifier(n_estimators=4).fit(*data())


def xgboost_wrapper():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=4, n_jobs=1).fit(*data())


def xgboost_booster():
    return xgboost_wrapper().get_booster()


def lightgbm_wrapper():
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.LGBMClassifier(n_estimators=4, n_jobs=1, verbose=-1).fit(*data())


def lightgbm_booster():
    return lightgbm_wrapper().booster_


def catboost():
    return (
        pytest.importorskip("catboost")
        .CatBoostClassifier(
            iterations=4, thread_count=1, logging_level="Silent", allow_writing_files=False
        )
        .fit(*data())
    )


# How to make a model, its module, and the endings of its files.
MODELS = {
    "histogram": (histogram, "histogram_boosting", [".skops"]),
    "classic": (classic, "gradient_boosting", [".skops"]),
    "XGBClassifier": (xgboost_wrapper, "xgboost.models", [".json", ".ubj"]),
    "xgboost.Booster": (xgboost_booster, "xgboost.models", [".json", ".ubj"]),
    "LGBMClassifier": (lightgbm_wrapper, "lightgbm.models", [".txt"]),
    "lightgbm.Booster": (lightgbm_booster, "lightgbm.models", [".txt"]),
    "CatBoostClassifier": (catboost, "catboost.models", [".cbm"]),
}
FILES = [(name, ending) for name, (_, _, endings) in MODELS.items() for ending in endings]


@cache
def made(name):
    return MODELS[name][0]()


def needs(ending):
    if ending == ".skops":
        pytest.importorskip("skops")


def test_importing_imports_no_library():
    code = (
        "import sys, timbermark.libraries.registry as r;"
        "found = {m.partition('.')[0] for m in sys.modules};"
        "sys.exit(bool(found & {'sklearn', 'xgboost', 'lightgbm', 'catboost', 'pandas'})"
        "or any(f'timbermark.libraries.{m}' in sys.modules for m in r.LIBRARIES))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Models


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_found(name):
    adapter = registry.adapter_of(made(name))
    assert adapter.__name__ == f"timbermark.libraries.{MODELS[name][1]}"


@pytest.mark.parametrize("name", MODELS)
def test_an_adapter_has_all_of_the_contract(name):
    adapter = registry.adapter_of(made(name))
    members = [member for member in vars(Adapter) if not member.startswith("_")]
    assert len(members) == 8
    assert all(callable(getattr(adapter, member)) for member in members)
    assert isinstance(adapter.name, str)
    assert libraries.is_supported(made(name))
    assert libraries.open(made(name)).adapter is adapter


def test_every_library_has_a_module():
    assert {module for _, module, _ in MODELS.values()} == set(registry.LIBRARIES)


def test_what_is_no_model_is_refused_with_what_is_supported():
    for thing in (
        "text",
        None,
        3,
        object(),
        np.zeros(3),
        sklearn.ensemble.RandomForestClassifier(),
    ):
        with pytest.raises(InputError, match=r"not a supported model.*xgboost.*Hist"):
            libraries.open(thing) if not isinstance(thing, str) else registry.adapter_of(thing)
        assert not libraries.is_supported(thing)
    with pytest.raises(InputError, match="is a class, not a model"):
        registry.adapter_of(sklearn.ensemble.GradientBoostingClassifier)


def test_regressors_and_rankers_have_an_adapter():
    for kind in ("HistGradientBoostingRegressor", "GradientBoostingRegressor"):
        assert libraries.is_supported(getattr(sklearn.ensemble, kind)())


def test_what_has_no_leaf_values_or_answers_with_curves_is_refused():
    with pytest.raises(InputError, match="no leaf values"):
        registry.adapter_of(sklearn.ensemble.IsolationForest())
    survival = type("GradientBoostingSurvivalAnalysis", (), {})()
    with pytest.raises(InputError, match="curves of survival"):
        registry.adapter_of(survival)


def test_models_around_models_are_known_and_those_with_a_rule_of_their_own_refused():
    inner = sklearn.ensemble.GradientBoostingClassifier()
    for wrapper in (make_pipeline(inner), CalibratedClassifierCV(inner)):
        assert libraries.is_supported(wrapper)
        with pytest.raises(InputError, match="not fitted"):
            libraries.open(wrapper)
    voting = sklearn.ensemble.VotingClassifier([("a", inner), ("b", inner)])
    with pytest.raises(InputError, match=r"several models.*pipelines, searches"):
        registry.adapter_of(voting)
    with pytest.raises(InputError, match="several outputs"):
        registry.adapter_of(MultiOutputClassifier(inner))


# Files


@pytest.mark.parametrize(("name", "ending"), FILES)
def test_a_saved_model_is_found_and_loaded(name, ending, tmp_path):
    needs(ending)
    model, path = made(name), tmp_path / f"model{ending}"
    libraries.save(model, path)
    assert os.listdir(tmp_path) == [path.name]
    assert registry.adapter_of_file(path) is registry.adapter_of(model)
    foreign = libraries.open(model)
    X, _ = data()
    expected = reference.margins(foreign.ensemble, foreign.rows(X))
    np.testing.assert_array_equal(foreign.adapter.margins(libraries.load(path), X), expected)
    np.testing.assert_array_equal(libraries.open(str(path)).margins(X), expected)


@pytest.mark.parametrize(("name", "ending"), FILES)
def test_the_name_of_a_file_does_not_matter_for_reading(name, ending, tmp_path):
    needs(ending)
    libraries.save(made(name), tmp_path / f"model{ending}")
    (tmp_path / f"model{ending}").rename(tmp_path / "a file")
    assert registry.adapter_of_file(tmp_path / "a file") is registry.adapter_of(made(name))


@pytest.mark.parametrize("name", MODELS)
def test_a_file_is_only_overwritten_if_asked(name, tmp_path):
    ending = MODELS[name][2][0]
    needs(ending)
    path = tmp_path / f"model{ending}"
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match=r"exists.*overwrite"):
        libraries.save(made(name), path)
    assert path.read_bytes() == b"mine"
    libraries.save(made(name), path, force=True)
    assert registry.adapter_of_file(path) is registry.adapter_of(made(name))
    assert os.listdir(tmp_path) == [path.name]


class Broken:
    """An adapter like the real one but for some functions."""

    def __init__(self, adapter, **functions):
        self._adapter, self._functions = adapter, functions

    def __getattr__(self, name):
        return self._functions.get(name) or getattr(self._adapter, name)

    def open(self, model):
        return replace(self._adapter.open(model), adapter=self)


def stand_in(monkeypatch, name, **functions):
    """Make the registry use a broken adapter, with a file that needs no skops."""
    adapter = registry.adapter_of(made(name))
    stored = {}

    def save(model, path):
        stored[0] = model
        path.write_bytes(b"content")

    usual = {"save": save, "open_file": lambda path: adapter.open(stored[0])}
    broken = Broken(adapter, **(usual | functions))
    monkeypatch.setattr(registry, "_import", lambda library: broken)
    return broken


OWN = ["histogram", "classic"]


@pytest.mark.parametrize("name", OWN)
def test_what_is_read_back_takes_the_place(name, tmp_path, monkeypatch):
    stand_in(monkeypatch, name)
    libraries.save(made(name), tmp_path / "model.bin")
    assert (tmp_path / "model.bin").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["model.bin"]


@pytest.mark.parametrize("name", OWN)
def test_an_ulp_of_difference_leaves_nothing_behind(name, tmp_path, monkeypatch):
    adapter = registry.adapter_of(made(name))
    (tmp_path / "model.bin").write_bytes(b"old")

    def margins(model, X):
        return np.nextafter(adapter.margins(model, X), np.inf)

    stand_in(monkeypatch, name, margins=margins)
    with pytest.raises(StateError, match="does not predict what timbermark does"):
        libraries.save(made(name), tmp_path / "model.bin", force=True)
    assert (tmp_path / "model.bin").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.bin"]


@pytest.mark.parametrize("name", OWN)
def test_single_rows_are_asked_as_well(name, tmp_path, monkeypatch):
    adapter = registry.adapter_of(made(name))

    def margins(model, X):
        found = adapter.margins(model, X)
        return found + 1 if len(found) == 1 else found

    stand_in(monkeypatch, name, margins=margins)
    with pytest.raises(StateError, match="1 of 1 rows"):
        libraries.save(made(name), tmp_path / "model.bin")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("function", ["save", "open_file"])
def test_a_failure_leaves_nothing_behind(name, function, error, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    stand_in(monkeypatch, name, **{function: fail})
    with pytest.raises(type(error)):
        libraries.save(made(name), tmp_path / "model.bin")
    assert os.listdir(tmp_path) == []


def test_the_draft_has_the_name_of_the_file(tmp_path, monkeypatch):
    seen = []

    def save(model, path):
        seen.append(path)
        path.write_bytes(b"content")

    own = libraries.open(made("classic"))
    stand_in(monkeypatch, "classic", save=save, open_file=lambda path: own)
    libraries.save(made("classic"), str(tmp_path / "model.bin"))
    assert seen[0].name == "model.bin"
    assert seen[0] != tmp_path / "model.bin"
    assert tmp_path in seen[0].parents


def test_a_missing_folder_is_refused(tmp_path):
    for path in (tmp_path / "none" / "model.skops", tmp_path):
        with pytest.raises(InputError, match=r"does not exist|is a folder"):
            libraries.save(made("classic"), path)
    assert os.listdir(tmp_path) == []


def test_a_foreign_object_is_not_saved(tmp_path):
    with pytest.raises(InputError, match="not a supported model"):
        libraries.save("text", tmp_path / "model.skops")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_never_read(protocol, tmp_path, monkeypatch):
    path = tmp_path / "model.skops"
    path.write_bytes(pickle.dumps(made("classic"), protocol=protocol))
    monkeypatch.setattr(pickle, "load", None)
    monkeypatch.setattr(joblib, "load", None)
    with pytest.raises(FileFormatError, match=r"is a pickle.*can run any code.*load the model"):
        libraries.load(path)


@pytest.mark.parametrize("compress", [0, ("zlib", 1), ("zlib", 9), "gzip", "bz2", "lzma", "xz"])
def test_joblibs_files_are_never_read(compress, tmp_path):
    path = tmp_path / "model"
    joblib.dump(made("classic"), path, compress=compress)
    with pytest.raises(FileFormatError, match="can run any code"):
        libraries.load(path)


@pytest.mark.parametrize(
    "content", [b"a text", b"{}", b'{"a": 1}', b"PK\x03\x04", b"\x93NUMPY\x01\x00", bytes(100)]
)
def test_other_files_are_refused_with_what_is_supported(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"not a model file.*XGBoost's JSON.*skops"):
        libraries.load(tmp_path / "file")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileFormatError, match="is empty"):
        libraries.load(tmp_path / "file")


def test_timbermarks_own_file_is_named_as_such(tmp_path):
    save_ensemble(tmp_path / "ensemble", constant_ensemble(n_features=1, value=1.0))
    write_container(tmp_path / "note", "note", 1, {}, {})
    for name in ("ensemble", "note"):
        with pytest.raises(FileFormatError, match="timbermark's own"):
            libraries.load(tmp_path / name)


def test_an_absent_file_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        libraries.load(tmp_path / "none")


def test_a_skops_file_of_another_model_is_refused(tmp_path):
    skops_io = pytest.importorskip("skops.io")
    skops_io.dump(sklearn.ensemble.RandomForestClassifier(), tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="not a model file"):
        libraries.load(tmp_path / "model.skops")
