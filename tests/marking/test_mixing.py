"""Keys of rows, and mixtures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.marking.mixing import mix_rows, row_keys

VALUES = [0.0, -0.0, 1.0, 2.5, -3.0, np.nan, 1e30, np.inf]


@st.composite
def tables(draw, least=0, values=VALUES):
    n, d = draw(st.integers(least, 12)), draw(st.integers(1, 4))
    cells = draw(st.lists(st.sampled_from(values), min_size=n * d, max_size=n * d))
    return np.array(cells).reshape(n, d)


def plain(X):
    """Rows as tuples in which -0.0 is 0.0 and NaN equals itself."""
    return [tuple("nan" if x != x else x + 0.0 for x in row) for row in X.tolist()]


@given(tables(), st.integers(-(2**70), 2**70), st.randoms(use_true_random=False))
def test_keys_follow_rows_and_tell_them_apart(X, seed, random):
    keys = row_keys(X, seed)
    assert keys.dtype == np.uint64
    places = list(range(len(X)))
    random.shuffle(places)
    assert row_keys(X[places], seed).tolist() == keys[places].tolist()
    rows = plain(X)
    for i in range(len(X)):
        for j in range(len(X)):
            assert (keys[i] == keys[j]) == (rows[i] == rows[j])


def test_keys_do_not_depend_on_the_layout_or_on_the_kind_of_nan():
    X = np.random.default_rng(0).normal(size=(20, 3))
    X[3, 1] = np.nan
    expected = row_keys(X, 5).tolist()
    assert row_keys(np.asfortranarray(X), 5).tolist() == expected
    assert row_keys(np.repeat(X, 2, axis=0)[::2], 5).tolist() == expected
    strange = X.copy()
    strange[3, 1:2].view(np.uint64)[:] = 0xFFF8000000000123
    assert np.isnan(strange[3, 1])
    assert row_keys(strange, 5).tolist() == expected
    assert row_keys(X, 6).tolist() != expected


@given(tables(), st.integers(0, 60), st.integers(0, 5))
def test_mixtures_are_new_rows_of_known_values(X, n, seed):
    mixed = mix_rows(X, n, np.random.default_rng(seed))
    again = mix_rows(X, n, np.random.default_rng(seed))
    np.testing.assert_array_equal(mixed.X, again.X)
    assert len(mixed.X) == len(mixed.base) <= n
    rows = plain(mixed.X)
    assert len(set(rows)) == len(rows)
    assert not set(rows) & set(plain(X))
    known = plain(X)
    for j in range(X.shape[1]):
        assert {row[j] for row in rows} <= {row[j] for row in known}


def test_most_of_a_mixture_comes_from_its_base():
    X = np.random.default_rng(0).normal(size=(300, 20))
    mixed = mix_rows(X, 900, np.random.default_rng(1))
    from_base = (X[mixed.base] == mixed.X).mean(axis=1)
    assert 0.7 < from_base.mean() < 0.85
    assert len(np.unique(mixed.base)) == 300


@pytest.mark.parametrize("X", [np.zeros((0, 3)), np.ones((1, 3)), np.ones((9, 3))])
def test_nothing_new_can_be_mixed_from_one_row(X):
    assert len(mix_rows(X, 50, np.random.default_rng(0)).X) == 0
    assert len(mix_rows(X, 0, np.random.default_rng(0)).base) == 0
