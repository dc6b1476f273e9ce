"""A state that somebody made is checked in full before a kernel sees it."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import ROOT
from timbermark.boosting.data import TrainParams
from timbermark.boosting.state import fit_ensemble
from timbermark.boosting.state_file import FORMAT_VERSION, load_state, save_state
from timbermark.errors import FileFormatError, StateError
from timbermark.files import read_container, write_container
from timbermark.kernels.workers import Workers
from timbermark.trees.construction import constant_ensemble

PARAMS = TrainParams(max_iter=2, max_leaf_nodes=8, min_samples_leaf=3)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(80, 3)), rng.integers(0, 3, 80)
    path = tmp_path_factory.mktemp("state") / "s"
    with Workers(1) as workers:
        ensemble, state = fit_ensemble(X, label, None, 3, PARAMS, workers)
    save_state(path, state)
    return ensemble, state, *read_container(path, "state", FORMAT_VERSION)


def changed(parts, tmp_path, meta=None, **arrays):
    _, _, version, old_meta, old = parts
    path = tmp_path / "t"
    write_container(path, "state", version, {**old_meta, **(meta or {})}, {**old, **arrays})
    return path


def test_random_changes_are_refused_or_harmless():
    """In a process without compilation an index out of bounds is an error, not a write."""
    command = [sys.executable, "-m", "tests.boosting.mutated_states", "120", "7"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    refused, updated = map(int, done.stdout.split())
    assert refused > 60
    assert updated > 10


def twice_the_same_children(arrays):
    """Two nodes of a tree with the same children: rows would be listed twice, beyond the end."""
    left, split = arrays["node_left"].copy(), arrays["node_split"].copy()
    size = int(arrays["n_nodes"][0])
    first, second = np.flatnonzero(left[:size] >= 0)[-2:]
    left[first], split[first] = left[second], split[second]
    return {"node_left": left, "node_split": split}


def a_step_of_five(arrays):
    """A partition moves on by this number for every missing value."""
    return {"node_missing_left": arrays["node_missing_left"] + np.int32(5)}


def one_value(name, value):
    def change(arrays):
        array = arrays[name].copy()
        array.reshape(-1)[0] = value
        return {name: array}

    return change


CHANGES = {
    "two parents": twice_the_same_children,
    "missing values": a_step_of_five,
    "code beyond the thresholds": one_value("node_code", 10_000),
    "count of the root": one_value("node_c", 7),
    "gradient of the root": one_value("node_g", 7),
    "gain": one_value("node_gain", np.inf),
    "heavy row": one_value("data_weight", 1e30),
    "thresholds not in order": one_value("bin_values", 1e300),
    "thresholds not numbers": one_value("bin_values", np.nan),
    "labels in a matrix": lambda arrays: {"data_label": arrays["data_label"][:, None]},
    "weights in a matrix": lambda arrays: {"data_weight": arrays["data_weight"][:, None]},
    "thresholds in a matrix": lambda arrays: {"bin_values": arrays["bin_values"][:, None]},
    "sums of fractions": lambda arrays: {"sum_g": arrays["sum_g"] + 0.5},
    "negative sums": lambda arrays: {"sum_h": -1 - arrays["sum_h"].astype(np.int64)},
    "candidates twice": lambda arrays: {"sum_kept": np.zeros_like(arrays["sum_kept"])},
    "no rows": lambda arrays: {
        "data_codes": arrays["data_codes"][:0],
        "data_label": arrays["data_label"][:0],
        "data_weight": arrays["data_weight"][:0],
        "leaf": arrays["leaf"][:, :0],
    },
    "numbers twice": lambda arrays: {"row_numbers": np.zeros_like(arrays["row_numbers"])},
    "numbers beyond those given": one_value("row_numbers", 200),
    "numbers of fractions": lambda arrays: {"row_numbers": arrays["row_numbers"] + 0.5},
    "forgotten rows beyond the last": lambda arrays: {"gone": np.array([80])},
    "a forgotten row before the first": lambda arrays: {"gone": np.array([-1])},
    "a row forgotten twice": lambda arrays: {"gone": np.array([3, 3])},
    "all rows forgotten": lambda arrays: {"gone": np.arange(80)},
    "leaves exchanged": lambda arrays: {"leaf": arrays["leaf"][::-1]},
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_would_mislead_a_kernel_is_refused(what, parts, tmp_path):
    with pytest.raises(FileFormatError, match="damaged"):
        load_state(changed(parts, tmp_path, **CHANGES[what](parts[4])))


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", -1), ("seed", 2**64), ("seed", True), ("seed", 1.0), ("learning_rate", "0.1"),
     ("learning_rate", 0), ("split_sampling", 1.5), ("split_sampling", 0.0), ("max_iter", 0),
     ("max_leaf_nodes", 65_536), ("min_samples_leaf", 2**40), ("leaf_limit", -1.0)],
)  # fmt: skip
def test_parameters_are_what_the_estimator_would_allow(name, value, parts, tmp_path):
    params = {**parts[3]["params"], name: value}
    with pytest.raises(FileFormatError, match=rf"its {name} cannot be right"):
        load_state(changed(parts, tmp_path, {"params": params}))


@pytest.mark.parametrize(
    "meta",
    [{"params": {}}, {"params": 1}, {"scale": {"bits": 1}}, {"scale": {"bits": True, "shift": 9}},
     {"scale": {"bits": 20, "shift": 54}}, {"n_classes": "3"}, {"n_classes": 10**9},
     {"n_candidates": 1}, {"has_sums": 1}, {"model": 5}, {"n_learnt": 79}, {"n_learnt": "80"},
     {"n_learnt": 2**70}, {"first_scale": None}, {"first_scale": {"bits": 0, "shift": 9}}],
)  # fmt: skip
def test_other_metadata_is_refused(meta, parts, tmp_path):
    with pytest.raises(FileFormatError):
        load_state(changed(parts, tmp_path, meta))


def test_a_small_file_cannot_ask_for_much_memory(parts, tmp_path):
    """1,200 trees of one node, each with room for 32,768 leaves: 7 GB of nodes."""
    arrays = {k: a for k, a in parts[4].items() if k.startswith("node_")}
    roots = np.repeat(np.flatnonzero(np.r_[True, np.zeros(len(arrays["node_c"]) - 1, bool)]), 1200)
    params = {**parts[3]["params"], "max_iter": 400, "max_leaf_nodes": 32_768}
    one = {name: array[roots] for name, array in arrays.items()}
    path = changed(parts, tmp_path, {"params": params}, n_nodes=np.ones(1200, np.int64), **one)
    with pytest.raises(FileFormatError, match="more memory than is allowed"):
        load_state(path)


def test_too_little_memory_is_one_sentence(parts, tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("timbermark.boosting.state_file.empty_forest", fail)
    with pytest.raises(FileFormatError, match="needs more memory than there is"):
        load_state(changed(parts, tmp_path))


def test_a_state_that_names_a_model_of_another_shape_is_refused(parts):
    """Labels of a model with more classes would be written beyond the gradients."""
    state = parts[1]
    other = constant_ensemble(n_features=3, value=0.0)
    with pytest.raises(StateError, match="another model"):
        replace(state, owner=other).check(other)


def test_states_from_before_forgetting_are_read(parts, tmp_path):
    _, state, _, meta, arrays = parts
    meta = {k: v for k, v in meta.items() if k not in ("first_scale", "n_learnt")}
    arrays = {k: v for k, v in arrays.items() if k not in ("row_numbers", "gone")}
    write_container(tmp_path / "old", "state", 2, meta, arrays)
    history = load_state(tmp_path / "old").history
    assert history.numbers.tolist() == list(range(80))
    assert not history.gone.any()
    assert (history.n_learnt, history.scale) == (80, state.scale)
