import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.naive import naive_candidate
from tests.kernels.making import SHIFT, make_binned, make_rule, tinies
from tests.kernels.test_splitting_histogram import filled
from timbermark.kernels.layout import NODE
from timbermark.kernels.splitting import (
    best_candidate,
    candidate,
    collect_candidates,
    partition,
    score,
    split_score,
)


@given(st.integers(0, 2**64 - 1), st.integers(0, 1000), st.integers(1, 70_000), st.data())
def test_candidates_are_drawn_from_their_stratum(key, feature, n_thresholds, data):
    n_strata = data.draw(st.integers(1, n_thresholds))
    stratum = data.draw(st.integers(0, n_strata - 1))
    found = candidate(np.uint64(key), feature, stratum, n_thresholds, n_strata)
    assert found == naive_candidate(key, feature, stratum, n_thresholds, n_strata)
    assert stratum * n_thresholds // n_strata <= found < (stratum + 1) * n_thresholds // n_strata


def test_candidates_of_a_stratum_are_equally_likely():
    drawn = [candidate(np.uint64(key), 3, 1, 30, 3) for key in range(3000)]
    counts = np.bincount(drawn, minlength=30)
    assert counts[:10].sum() == counts[20:].sum() == 0
    # 300 each; five standard deviations.
    assert np.abs(counts[10:20] - 300).max() < 83


def test_candidates_of_features_and_strata_are_drawn_apart():
    key = np.uint64(5)
    by_feature = [candidate(key, f, 0, 1000, 1) for f in range(200)]
    by_stratum = [candidate(key, 0, s, 200_000, 200) - 1000 * s for s in range(200)]
    assert len(set(by_feature)) > 150
    assert len(set(by_stratum)) > 150
    assert by_feature[1:] != by_stratum[1:]


@pytest.mark.parametrize(
    ("g", "h", "l2", "expected"),
    [(6, 4, 0.0, 9.0), (-6, 4, 5.0, 4.0), (6, 0, 0.0, 0.0), (6, 0, 1.0, 0.0), (0, 4, 0.0, 0.0)],
)
def test_score(g, h, l2, expected):
    assert score(np.int64(g), np.int64(h), l2) == expected


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ((3, 4, 5), 9 / 4 + 49 / 6),
        ((3, 4, 2), 9 / 4 + 49 / 6),  # as few rows as may be
        ((3, 4, 1), -1.0),
        ((3, 4, 19), -1.0),
        ((3, 2, 5), 9 / 2 + 49 / 8),
        ((3, 1, 5), -1.0),  # too little hessian
        ((3, 9, 5), -1.0),
    ],
)
def test_children_must_not_be_too_small(left, expected):
    rule = make_rule(least_hessian=2.0, least_rows=2.0)
    assert split_score(*map(np.int64, (*left, 10, 10, 20)), rule) == expected


@pytest.mark.parametrize("left_c", [0, 20])
def test_no_child_is_empty(left_c):
    rule = make_rule(least_rows=0.0, least_gain=0.0)
    assert split_score(*map(np.int64, (0, 0, left_c, 10, 10, 20)), rule) == -1.0


def collected(tiny):
    """The kernel's sums at the root, and the root itself from the naive grower."""
    binned, grower = tiny.binned, tiny.grower()
    node = grower.new_node(np.arange(tiny.n_rows), int(tiny.key))
    out = np.zeros(2 * int(binned.firsts[-1]), np.int64)
    histogram = filled(tiny, range(tiny.n_rows), 0, tiny.n_rows)
    collect_candidates(histogram, binned, tiny.key, out)
    return out, grower, node


@given(tinies())
def test_sums_at_the_candidates_are_those_of_the_naive_grower(tiny):
    found, grower, node = collected(tiny)
    _, recorded = grower.candidates(node)
    assert found.tolist() == [x for sums in recorded for x in sums.packed(SHIFT)]


def sums_record(g, h, c):
    """A node of which only the sums are known."""
    nodes = np.zeros(1, NODE)
    nodes["g"], nodes["h"], nodes["c"] = g, h, c
    return nodes[0]


def as_record(node):
    return sums_record(node.sums.g, node.sums.h, node.sums.c)


@given(tinies(min_rows=2))
def test_the_best_candidate_is_that_of_the_naive_grower(tiny):
    sums, grower, node = collected(tiny)
    grower.search(node)
    gain = np.zeros(1 + len(sums) // 2)
    found = best_candidate(as_record(node), sums, tiny.binned, tiny.rule, gain)
    assert found == node.choice
    if found >= 0:
        assert gain[0] == node.gain


def test_of_equal_candidates_the_first_wins():
    # Two candidates of one feature, then another feature, all with the same sums.
    binned = make_binned(np.zeros((1, 2)), [2, 1], [2, 1], [1])
    left = [-40, (50 << SHIFT) + 5]
    nothing = [0, 0]
    sums = np.array([*left, *left, *nothing, *left, *nothing])
    gain = np.zeros(1 + len(sums) // 2)
    assert best_candidate(sums_record(0, 100, 10), sums, binned, make_rule(), gain) == 0
    assert gain[0] == 2 * 40 * 40 / 50


def test_a_gain_of_one_unit_is_not_enough():
    binned = make_binned(np.zeros((1, 1)), [1], [1], [1])
    gain = np.zeros(3)
    for g, expected in ((5, -1), (6, 0)):  # 2 * 25 / 50 is one unit
        sums = np.array([g, (50 << SHIFT) + 5, 0, 0])
        assert best_candidate(sums_record(0, 100, 10), sums, binned, make_rule(), gain) == expected


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 4), st.booleans(), st.data())
def test_partition_keeps_the_order_of_both_sides(column, threshold, missing_left, data):
    n = len(column)
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    given = data.draw(st.permutations(range(n)))
    rows = np.array(given, np.uint32)
    middle = partition(
        np.array(column, np.uint8), threshold, 5, int(missing_left), rows, start, stop,
        np.zeros(n, np.uint32),
    )  # fmt: skip

    def to_left(row):
        return missing_left if column[row] == 5 else column[row] <= threshold

    inside = given[start:stop]
    left = [row for row in inside if to_left(row)]
    right = [row for row in inside if not to_left(row)]
    assert rows.tolist() == [*given[:start], *left, *right, *given[stop:]]
    assert middle == start + len(left)


def test_missing_values_against_all_others():
    rows = np.arange(4, dtype=np.uint32)
    column = np.array([3, 4, 0, 4], np.uint16)
    # The threshold is the last bin, the one before that of missing values.
    assert partition(column, 3, 4, 0, rows, 0, 4, np.zeros(4, np.uint32)) == 2
    assert rows.tolist() == [0, 2, 1, 3]
