"""Updates from states that somebody changed, in a process whose kernels check every index.

``NUMBA_DISABLE_JIT=1 python -m tests.boosting.mutated_states N SEED``: N times a part of a real
state is changed at random and its checksum repaired. Each must be refused on reading, or lead to a
sound model. Prints how many were refused and how many updated.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from timbermark.boosting import updating
from timbermark.boosting.data import TrainParams
from timbermark.boosting.state import fit_ensemble
from timbermark.boosting.state_file import FORMAT_VERSION, load_state, save_state
from timbermark.boosting.updating import update_ensemble
from timbermark.errors import FileFormatError, StateError
from timbermark.files import read_container, write_container
from timbermark.kernels.workers import Workers

EXTREMES = (-(2**62), -(2**31), -4, -3, -2, -1, 0, 1, 2, 3, 7, 50, 255, 1000, 2**31 - 1, 2**62)
META = (None, True, False, -1, 0, 1, 2, 3, 1.5, -0.5, 1e300, 2**40, 2**70, "1", [], {}, "x" * 64)


def other(label, n_classes):
    """Labels that the rows did not have; numbers where there are no classes."""
    return (label + 1) % n_classes if n_classes else 0.5 * label


def make_state(n_classes, rng, workers):
    X = rng.integers(0, 6, (40, 2)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    label = rng.integers(0, n_classes, 40) if n_classes else rng.normal(size=40)
    params = TrainParams(max_iter=2, max_leaf_nodes=5, min_samples_leaf=2, split_sampling=0.5)
    ensemble, state = fit_ensemble(X, label, None, n_classes, params, workers)
    ensemble, state = update_ensemble(
        ensemble, state, X[:1], other(label[:1], n_classes), None, workers, patience=0.0,
        tolerance=0.0, forget=np.array([5, 9]),
    )  # fmt: skip
    return ensemble, state, X, label


def mutate(meta, arrays, rng):
    """A copy with one or two changes somewhere, most of them small."""
    meta, arrays = json.loads(json.dumps(meta)), {k: a.copy() for k, a in arrays.items()}
    for _ in range(rng.integers(1, 3)):
        if rng.random() < 0.15:
            place = meta
            name = rng.choice(sorted(place))
            if isinstance(place[name], dict) and place[name] and rng.random() < 0.8:
                place, name = place[name], rng.choice(sorted(place[name]))
            place[name] = META[rng.integers(len(META))]
            continue
        name = rng.choice(sorted(arrays))
        array = arrays[name]
        kind = rng.integers(7)
        if kind == 0 or not array.size:
            shape = [(0,), (1,), (*array.shape, 1), array.shape[::-1], (3, 3)][rng.integers(5)]
            arrays[name] = np.resize(array, shape).astype(array.dtype) if array.size else array
        elif kind == 1:
            other = [np.int64, np.float64, np.uint8, np.int32, np.float32][rng.integers(5)]
            with np.errstate(all="ignore"):
                arrays[name] = array.astype(other)
        elif kind == 2:
            arrays[name] = rng.permuted(array, axis=0)
        else:
            flat = array.reshape(-1)
            for place in rng.integers(0, flat.size, rng.integers(1, 4)):
                value = EXTREMES[rng.integers(len(EXTREMES))]
                if kind == 3:
                    value = int(flat[rng.integers(flat.size)]) if flat.dtype.kind != "f" else value
                with np.errstate(all="ignore"):
                    step = np.array(value).astype(array.dtype)
                    flat[place] = flat[place] + step if kind == 4 else step
    return meta, arrays


def update(ensemble, path, X, label, n_classes, workers):
    """Load the state and update from it in both modes; None where it was refused."""
    try:
        state = load_state(path)
        state.check(ensemble)
    except (FileFormatError, StateError):
        return False
    fresh = X[2:4], other(label[2:4], n_classes), None
    for patience, tolerance in ((0.0, 0.0), (0.1, float("inf")), (0.1, 0.5)):
        some = state.history.numbers[state.left][:3]
        updated, after = update_ensemble(
            ensemble, state, *fresh, workers, patience=patience, tolerance=tolerance, forget=some
        )
        assert np.isfinite(updated.value).all()
        assert updated.n_trees == ensemble.n_trees
        save_state(path, after)
        load_state(path)
    return True


def main(n, seed):
    warnings.simplefilter("ignore")
    updating._LARGE_SHARE = 1.0
    rng = np.random.default_rng(seed)
    refused, updated = 0, 0
    with Workers(1) as workers, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        for n_classes in (0, 2, 3):
            ensemble, state, X, label = make_state(n_classes, rng, workers)
            save_state(path, state)
            version, meta, arrays = read_container(path, "state", FORMAT_VERSION)
            assert update(ensemble, path, X, label, n_classes, workers)
            for number in range(n // 3):
                write_container(path, "state", version, *mutate(meta, arrays, rng))
                try:
                    done = update(ensemble, path, X, label, n_classes, workers)
                except Exception as error:
                    raise AssertionError(f"mutant {number} of seed {seed}") from error
                refused, updated = refused + (not done), updated + done
    print(refused, updated)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
