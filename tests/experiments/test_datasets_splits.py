import numpy as np
import pytest

from tests.experiments.making import made_dataset
from timbermark.errors import InputError
from timbermark.experiments.datasets import SCENARIOS, Dataset, cut, load_dataset

# D_train, D_cand (of the holdout scenario), D_train and D_cand together, all test rows.
PAPER = {
    "avila": (8344, 2086, 10430, 10437),
    "image_segmentation": (125, 32, 157, 53),
    "letter": (12000, 3000, 15000, 5000),
    "optdigits": (3049, 763, 3812, 1796),
    "pendigits": (5986, 1497, 7483, 3497),
    "wine_quality": (3897, 975, 4872, 1625),
}


@pytest.mark.parametrize("name", PAPER)
def test_row_counts_are_those_of_the_paper(name, shared):
    data = load_dataset(name, shared)
    n_train, n_candidates, n_both, n_test = PAPER[name]
    plain, holdout = cut(data, "train", 0), cut(data, "holdout", 0)
    assert plain.candidates is None
    assert len(plain.pool) == len(plain.train) == n_both
    assert (len(holdout.train), len(holdout.pool)) == (n_train, n_candidates)
    for split in (plain, holdout):
        assert len(split.fine) == -(-n_test // 5)
        assert len(split.test) + len(split.fine) == n_test


def numbered(n=100, n_classes=4, n_train=None):
    """A data set whose only feature is the number of the row."""
    y = np.arange(n) % n_classes
    return Dataset("made", np.arange(n, dtype=float)[:, None], y, tuple("abcd"), n_train)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("n_train", [None, 60])
def test_parts_are_disjoint_and_complete(scenario, n_train):
    data = numbered(n_train=n_train)
    split = cut(data, scenario, 3)
    parts = [split.train, split.test, split.fine]
    parts += [] if split.candidates is None else [split.candidates]
    rows = np.concatenate([part.X[:, 0] for part in parts]).astype(int)
    assert sorted(rows) == list(range(100))
    for part in parts:
        assert np.array_equal(part.y, part.X[:, 0].astype(int) % 4)
    if n_train is not None:
        assert {*split.test.X[:, 0], *split.fine.X[:, 0]} == set(range(60, 100))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_seeds_shuffle_and_repeat(scenario):
    data = made_dataset()
    first, again, other = (cut(data, scenario, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.test.X, again.test.X)
    assert np.array_equal(first.pool.X, again.pool.X)
    assert not np.array_equal(first.test.X, other.test.X)
    assert not np.array_equal(first.pool.X, other.pool.X)


@pytest.mark.parametrize("seed", range(40))
def test_training_rows_have_every_class(seed):
    data = numbered()
    rare = np.where(np.isin(np.arange(100), [50, 51]), 3, data.y % 3)
    split = cut(Dataset("made", data.X, rare, tuple("abcd"), None), "holdout", seed)
    assert set(split.train.y) == {0, 1, 2, 3}


def test_a_class_that_is_never_trained_on_is_refused():
    data = numbered(n_train=60)
    only_in_test = np.where(np.arange(100) == 99, 3, data.y % 3)
    with pytest.raises(InputError, match="all 4 classes"):
        cut(Dataset("made", data.X, only_in_test, tuple("abcd"), 60), "train", 0)


def test_unknown_scenario_is_refused():
    with pytest.raises(InputError, match="'both' is not known"):
        cut(numbered(), "both", 0)
