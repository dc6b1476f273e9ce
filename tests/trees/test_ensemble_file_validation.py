from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trees.oracle import naive_is_tree
from tests.trees.strategies import ensembles
from timbermark.errors import InputError
from timbermark.trees.construction import constant_ensemble, make_ensemble
from timbermark.trees.ensemble_file import validate_ensemble

SOUND = make_ensemble(
    n_features=2,
    n_outputs=2,
    tree_start=[0, 5, 8],
    feature=[0, 1, -1, -1, -1, 1, -1, -1],
    threshold=[0.5, np.inf, 0, 0, 0, 0, 0, 0],
    left=[1, 3, -1, -1, -1, 1, -1, -1],
    right=[2, 4, -1, -1, -1, 2, -1, -1],
    category_set=[-1, -1, -1, -1, -1, 0, -1, -1],
    category_offsets=[0, 2, 2, 3],
    category_values=[1, 4, 0],
    value=np.arange(8.0),
)


def changed(name, index, entry):
    array = getattr(SOUND, name).copy()
    array[index] = entry
    return {name: array}


BROKEN = {
    "no features": ({"n_features": 0}, "n_features=0"),
    "features not whole": ({"n_features": 2.0}, r"n_features=2\.0"),
    "features a bool": ({"n_features": True}, "n_features=True"),
    "logistic with two outputs": (
        {"objective": "logistic"},
        "have a single output",
    ),
    "regression with two outputs": ({"objective": "identity"}, "n_outputs=2 does not go with"),
    "unknown objective": ({"objective": "rank"}, "objective='rank' is none of"),
    "unknown side": ({"categories_go": "up"}, "categories_go='up'"),
    "unknown input type": ({"input_dtype": "f2"}, "input_dtype='f2'"),
    "unknown sum type": ({"sum_dtype": "f16"}, "sum_dtype='f16'"),
    "strict no bool": ({"strict": 1}, "strict=1 must be a bool"),
    "scale infinite": ({"scale": np.inf, "init_last": True}, "scale=inf"),
    "scale without init_last": ({"scale": 2.0}, r"scale=2\.0 must be 1\.0"),
    "short array": ({"left": SOUND.left[:-1]}, r"left has the shape \(7,\), not \(8,\)"),
    "matrix": ({"threshold": np.zeros((8, 1))}, "threshold has the shape"),
    "wide value": ({"value": np.zeros((8, 3))}, r"value has the shape \(8, 3\)"),
    "flat value": ({"value": np.zeros(8)}, r"value has the shape \(8,\)"),
    "init for one": ({"init": np.zeros(1)}, r"init has the shape \(1,\), not \(2,\)"),
    "no tree_start": ({"tree_start": np.zeros(0, int)}, "tree_start is empty"),
    "tree_start from 1": (changed("tree_start", 0, 1), "tree_start must rise"),
    "tree_start too far": (changed("tree_start", 2, 9), "tree_start must rise"),
    "empty tree": (changed("tree_start", 1, 8), "tree_start must rise"),
    "tree_start that overflows": (
        {
            "tree_start": np.array([0, 2**63 - 1, -2, 8]),
            "tree_output": np.zeros(3, int),
            "tree_weight": np.ones(3),
        },
        "tree_start must rise",
    ),
    "one child": (changed("right", 0, -1), "Tree 0, node 0: only one of its two children"),
    "child is the root": (changed("left", 1, 0), "Tree 0, node 1: its left child 0"),
    "child in the next tree": (changed("right", 1, 5), "Tree 0, node 1: its right child 5"),
    "child outside": (changed("right", 5, 3), "Tree 1, node 0: its right child 3"),
    "child below -1": (
        {**changed("left", 7, -2), **changed("right", 7, -2)},
        "Tree 1, node 2: its left child -2",
    ),
    "twins": (changed("right", 5, 1), "Tree 1, node 1: it is reached 2 times"),
    "shared child": (changed("right", 1, 2), "Tree 0, node 2: it is reached 2 times"),
    "feature of a leaf": (changed("feature", 2, 1), "node 2: a leaf has feature 1"),
    "feature too large": (changed("feature", 1, 2), "node 1: feature 2 is not among the 2"),
    "feature of a split": (changed("feature", 1, -1), "node 1: feature -1"),
    "threshold": (changed("threshold", 1, np.nan), "node 1: its threshold is nan"),
    "missing kind": (changed("missing_kind", 6, 3), "Tree 1, node 1: missing_kind 3"),
    "set too large": (changed("category_set", 5, 3), "Tree 1, node 0: category set 3"),
    "set below -1": (changed("category_set", 5, -2), "category set -2"),
    "set of a leaf": (changed("category_set", 6, 0), "Tree 1, node 1: category set 0"),
    "set offsets": (changed("category_offsets", 1, 4), "category_offsets must rise"),
    "no set offsets": ({"category_offsets": np.zeros(0, int)}, "no category_offsets"),
    "negative category": (changed("category_values", 2, -1), "a category is negative"),
    "unsorted categories": (changed("category_values", 0, 5), "must rise"),
    "category twice": (changed("category_values", 1, 1), "must rise"),
    "output too large": (changed("tree_output", 0, 2), "tree_output must be from 0 to 1"),
    "output -1 without vectors": (changed("tree_output", 0, -1), "tree_output must be from 0"),
    "output with vectors": ({"value": np.zeros((8, 2))}, "tree_output must be from -1 to -1"),
    "weight": (changed("tree_weight", 1, np.nan), "tree_weight is not finite"),
    "init": (changed("init", 1, np.inf), "init is not finite"),
    "value": (changed("value", 6, np.inf), "Tree 1, node 1: its value"),
    "count": (changed("count", 6, -1.0), "Tree 1, node 1: its count"),
    "hessian": (changed("hessian", 6, np.nan), "Tree 1, node 1: its hessian"),
    "gain": (changed("gain", 6, np.nan), "Tree 1, node 1: its gain"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_ensembles_are_refused_by_name(case):
    changes, message = BROKEN[case]
    with pytest.raises(InputError, match=message):
        validate_ensemble(replace(SOUND, **changes))


def test_the_base_of_the_broken_ones_is_sound():
    validate_ensemble(SOUND)


def test_a_loop_apart_from_the_root_is_refused():
    # Nodes 1 to 4: each has one parent, but the root is a leaf and never leads there.
    with pytest.raises(InputError, match="Tree 0, node 1: it is not reached"):
        make_ensemble(
            n_features=1, tree_start=[0, 5], feature=[-1, 0, 0, -1, -1], threshold=[0.0] * 5,
            left=[-1, 2, 1, -1, -1], right=[-1, 3, 4, -1, -1], value=[0.0] * 5,
        )  # fmt: skip


@st.composite
def child_numbers(draw):
    n = draw(st.integers(1, 5))
    child = st.lists(st.integers(-1, n), min_size=n, max_size=n)
    return draw(child), draw(child)


@given(child_numbers() | ensembles().filter(lambda e: e.n_trees == 1))
def test_trees_are_told_from_other_graphs(drawn):
    left, right = drawn if isinstance(drawn, tuple) else (drawn.left.tolist(), drawn.right.tolist())

    def make():
        return make_ensemble(
            n_features=1,
            tree_start=[0, len(left)],
            feature=[-1 if child == -1 else 0 for child in left],
            threshold=np.zeros(len(left)),
            left=left,
            right=right,
            value=np.zeros(len(left)),
        )

    if naive_is_tree(left, right):
        make()
    else:
        with pytest.raises(InputError):
            make()


def test_no_trees_at_all_is_sound():
    empty = make_ensemble(
        n_features=1, tree_start=[0], feature=[], threshold=[], left=[], right=[],
        value=np.zeros((0, 1)), init=[0.5],
    )  # fmt: skip
    assert empty.n_trees == 0


def test_a_deep_chain_is_sound():
    splits = 3000
    left = np.full(2 * splits + 1, -1)
    left[: 2 * splits : 2] = np.arange(1, 2 * splits, 2)
    right = np.where(left < 0, -1, left + 1)
    make_ensemble(
        n_features=1, tree_start=[0, left.size], feature=np.where(left < 0, -1, 0),
        threshold=np.zeros(left.size), left=left, right=right, value=np.zeros(left.size),
    )  # fmt: skip


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_constant_must_be_finite(value):
    with pytest.raises(InputError, match="its value"):
        constant_ensemble(n_features=1, value=value)
