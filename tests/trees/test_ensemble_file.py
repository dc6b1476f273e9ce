from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trees.strategies import ensembles, ensembles_and_rows
from timbermark.errors import FileFormatError
from timbermark.files import container_bytes
from timbermark.trees.construction import constant_ensemble
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.ensemble_file import (
    FORMAT_VERSION,
    KIND,
    ensemble_from_arrays,
    ensemble_to_arrays,
    load_ensemble,
    save_ensemble,
)
from timbermark.trees.reference import margins

SMALL = constant_ensemble(n_features=2, value=1.5)


@given(ensembles(), st.sampled_from(["", "trees.", "a_"]))
def test_round_trip_in_memory(ensemble, prefix):
    assert ensemble_from_arrays(*ensemble_to_arrays(ensemble, prefix), prefix) == ensemble


@given(ensembles_and_rows())
def test_round_trip_through_a_container(given):
    ensemble, X = given
    meta, arrays = ensemble_to_arrays(ensemble)
    back = load_ensemble(container_bytes(KIND, FORMAT_VERSION, meta, arrays))
    assert back == ensemble
    assert margins(back, X).tobytes() == margins(ensemble, X).tobytes()


def test_round_trip_through_a_file(tmp_path):
    save_ensemble(tmp_path / "trees", SMALL)
    assert load_ensemble(tmp_path / "trees") == SMALL
    assert load_ensemble((tmp_path / "trees").read_bytes()) == SMALL


def test_every_field_is_in_the_file():
    meta, arrays = ensemble_to_arrays(SMALL)
    assert {*meta, *arrays} == {field.name for field in fields(Ensemble)}


def test_arrays_with_another_prefix_are_somebody_elses():
    meta, arrays = ensemble_to_arrays(SMALL, "trees.")
    assert ensemble_from_arrays(meta, {**arrays, "classes": np.arange(2)}, "trees.") == SMALL


def test_files_of_version_1_are_read():
    old = load_ensemble(Path(__file__).parent / "fixtures" / "ensemble-v1.timber")
    assert (old.objective, old.n_trees, old.n_classes) == ("softmax", 6, 3)
    meta, arrays = ensemble_to_arrays(old)
    assert load_ensemble(container_bytes(KIND, FORMAT_VERSION, meta, arrays)) == old


META_CHANGES = {
    "n_features": (True, "n_features=True is not of the type int"),
    "n_outputs": (2, "n_outputs=2 does not go with the objective logistic"),
    "objective": ("rank", "objective='rank'"),
    "scale": (1, "scale=1 is not of the type float"),
    "strict": (0, "strict=0 is not of the type bool"),
    "sum_dtype": (None, "sum_dtype=None is not of the type str"),
}


@pytest.mark.parametrize("name", META_CHANGES)
def test_wrong_metadata_is_refused(name):
    entry, message = META_CHANGES[name]
    meta, arrays = ensemble_to_arrays(SMALL)
    with pytest.raises(FileFormatError, match=message):
        ensemble_from_arrays({**meta, name: entry}, arrays)


@pytest.mark.parametrize("name", ["value", "tree_start"])
def test_missing_and_foreign_arrays_are_refused(name):
    meta, arrays = ensemble_to_arrays(SMALL)
    with pytest.raises(FileFormatError, match=r"foreign \['extra'\]"):
        ensemble_from_arrays(meta, {**arrays, "extra": np.zeros(1)})
    del arrays[name]
    with pytest.raises(FileFormatError, match=rf"missing \['{name}'\]"):
        ensemble_from_arrays(meta, arrays)


def test_missing_and_foreign_metadata_are_refused():
    meta, arrays = ensemble_to_arrays(SMALL)
    with pytest.raises(FileFormatError, match=r"foreign \['extra'\]"):
        ensemble_from_arrays({**meta, "extra": 1}, arrays)
    del meta["scale"]
    with pytest.raises(FileFormatError, match=r"missing \['scale'\]"):
        ensemble_from_arrays(meta, arrays)


def test_arrays_of_another_type_are_refused():
    meta, arrays = ensemble_to_arrays(SMALL)
    with pytest.raises(FileFormatError, match="left has the type int64, not int32"):
        ensemble_from_arrays(meta, {**arrays, "left": arrays["left"].astype(np.int64)})


def test_unsound_trees_are_refused_as_a_bad_file():
    meta, arrays = ensemble_to_arrays(SMALL)
    loop = {"left": np.array([0], np.int32), "right": np.array([0], np.int32)}
    with pytest.raises(FileFormatError, match=r"no sound ensemble.*Tree 0, node 0"):
        ensemble_from_arrays(meta, {**arrays, **loop})


@given(ensembles(), st.data())
def test_any_changed_entry_is_refused_or_harmless(ensemble, data):
    """Whatever an array is changed to: a sound ensemble that predicts, or a refusal."""
    meta, arrays = ensemble_to_arrays(ensemble)
    name = data.draw(st.sampled_from([name for name in arrays if arrays[name].size]))
    raw = bytearray(arrays[name].tobytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] = (
        data.draw(st.integers(0, 1))
        if arrays[name].dtype == bool
        else data.draw(st.integers(0, 255))
    )
    arrays[name] = np.frombuffer(bytes(raw), arrays[name].dtype).reshape(arrays[name].shape)
    try:
        back = ensemble_from_arrays(meta, arrays)
    except FileFormatError:
        return
    rows = np.zeros((3, ensemble.n_features))
    assert margins(back, rows).shape == (3, ensemble.n_outputs)
