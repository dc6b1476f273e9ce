import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trees.strategies import ensembles
from timbermark.errors import InputError
from timbermark.trees.construction import constant_ensemble, make_ensemble
from timbermark.trees.ensemble import ARRAY_TYPES, Ensemble, digest, equal, scalars


@given(ensembles())
def test_arrays_are_read_only_and_typed(ensemble):
    for name, dtype in ARRAY_TYPES.items():
        array = getattr(ensemble, name)
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_fields_are_frozen():
    with pytest.raises(FrozenInstanceError):
        constant_ensemble(n_features=1, value=1.0).strict = True


def test_what_the_caller_keeps_cannot_change_it():
    mine = np.array([[2.0]])
    view = mine.view()
    view.flags.writeable = False
    base = constant_ensemble(n_features=1, value=2.0)
    ensembles = [replace(base, value=mine), replace(base, value=view)]
    mine[0, 0] = 3.0
    assert [e.value[0, 0] for e in ensembles] == [2.0, 2.0]
    assert mine.flags.writeable


def test_read_only_arrays_are_shared_not_copied():
    base = constant_ensemble(n_features=1, value=2.0)
    assert replace(base, strict=True).value is base.value


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("left", [0.5]),
        ("left", [2**31]),
        ("left", [np.nan]),
        ("missing_kind", [256]),
        ("missing_left", [2]),
        ("threshold", ["a"]),
        ("threshold", [None]),
        ("category_values", [-(2**31) - 1]),
    ],
)
def test_lossy_conversion_is_refused(name, array):
    with pytest.raises(InputError, match=f"{name} does not fit"):
        replace(constant_ensemble(n_features=1, value=1.0), **{name: np.array(array)})


def test_counts():
    ensemble = make_ensemble(
        n_features=2, n_outputs=3, tree_start=[0, 3, 4], feature=[1, -1, -1, -1],
        threshold=[0.0] * 4, left=[1, -1, -1, -1], right=[2, -1, -1, -1], value=[0, 1, 2, 3],
    )  # fmt: skip
    assert (ensemble.n_trees, ensemble.n_nodes, ensemble.n_leaves) == (2, 4, 3)
    assert ensemble.n_classes == 3
    assert constant_ensemble(n_features=1, value=1.0).n_classes == 2
    assert ensemble.tree_output.tolist() == [0, 1]
    assert ensemble.objective == "softmax"


@given(ensembles())
def test_copies_are_equal_and_as_frozen(ensemble):
    for twin in (replace(ensemble), pickle.loads(pickle.dumps(ensemble)), copy.deepcopy(ensemble)):
        assert equal(ensemble, twin)
        assert ensemble == twin
        assert hash(ensemble) == hash(twin)
        assert digest(ensemble) == digest(twin)
        assert not twin.value.flags.writeable


def flipped(array, data):
    """The array with one bit of one entry changed; a flag is turned."""
    raw = bytearray(array.tobytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= 1 if array.dtype == bool else 1 << data.draw(st.integers(0, 7))
    return np.frombuffer(bytes(raw), dtype=array.dtype).reshape(array.shape)


@given(ensembles(), st.data())
def test_a_single_bit_makes_ensembles_differ(ensemble, data):
    name = data.draw(st.sampled_from([n for n in ARRAY_TYPES if getattr(ensemble, n).size]))
    other = replace(ensemble, **{name: flipped(getattr(ensemble, name), data)})
    assert not equal(ensemble, other)
    assert ensemble != other
    assert digest(ensemble) != digest(other)


OTHER_SCALARS = {
    "n_features": 9, "n_outputs": 9, "objective": "?", "categories_go": "?", "init_last": None,
    "scale": 9.5, "strict": None, "input_dtype": "?", "sum_dtype": "?", "zero_is_positive": None,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_SCALARS)
def test_every_scalar_counts_for_equality(name):
    base = constant_ensemble(n_features=1, value=1.0)
    other = replace(base, **{name: OTHER_SCALARS[name]})
    assert set(scalars(base)) == set(OTHER_SCALARS)
    assert not equal(base, other)
    assert digest(base) != digest(other)


def test_shape_counts_for_equality():
    base = constant_ensemble(n_features=1, value=1.0)
    wide = {"category_values": np.zeros(4, np.int32)}
    assert not equal(replace(base, **wide), base)
    two = replace(base, value=np.zeros((2, 1)))
    assert not equal(two, replace(base, value=np.zeros((1, 2))))


def test_an_ensemble_equals_nothing_else():
    assert constant_ensemble(n_features=1, value=1.0) != "trees"
    assert isinstance(constant_ensemble(n_features=1, value=1.0), Ensemble)
