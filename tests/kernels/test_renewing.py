from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.boosting.naive import naive_paths
from tests.kernels.making import (
    Tiny,
    grow_tiny,
    integers,
    make_binned,
    new_nodes,
    tinies,
)
from tests.kernels.test_histogram import filled
from timbermark.boosting.updating import make_walk
from timbermark.kernels.layout import N_NODES, NODE, PLACE, OldTree
from timbermark.kernels.renewing import (
    finish_renewal,
    leaves_under,
    renew_tree,
    sort_by_leaf,
)
from timbermark.kernels.split_checks import goes_left, keeps_split, touched_sums
from timbermark.kernels.splitting import collect_candidates
from timbermark.kernels.updating import list_touches

FIELDS = ["g", "h", "c", "gain", "choice", "key", "value", "left", "split", "feature", "code"]


@dataclass(frozen=True)
class Update:
    """All rows with today's gradients; the first ones as they were when the tree was grown."""

    whole: Tiny
    old: Tiny
    max_leaves: int


@st.composite
def updates(draw):
    whole = draw(tinies(min_rows=2, max_rows=14))
    n = whole.n_rows - draw(st.integers(0, min(4, whole.n_rows - 1)))
    first = whole.first(n)
    grad, hess = first.grad, first.hess
    for row in draw(st.sets(st.integers(0, n - 1), max_size=3)):
        grad[row], hess[row] = integers(draw, 0, 2**18, 2)
    return Update(whole, Tiny(first.binned, grad, hess, whole.rule, whole.key), draw(leaves))


leaves = st.integers(2, 6)


def touch_all(update, walk):
    """List what changed; returns how many touches there are."""
    whole, old = update.whole, update.old
    moved = np.ones(old.n_rows, np.bool_)
    return list_touches(whole.fit(0), moved, old.grad, old.hess, walk.touches)


def renew(update, grown, patience):
    """The nodes of the renewed tree, and the margins before and after."""
    whole, old, max_leaves = update.whole, update.old, update.max_leaves
    fit, walk = whole.fit(max_leaves), make_walk(whole.binned, max_leaves, old.n_rows)
    n_touches = touch_all(update, walk)
    was = new_nodes(max_leaves)
    was[: len(grown.nodes)] = grown.nodes
    nodes = new_nodes(max_leaves)
    tree = OldTree(was, grown.record, grown.leaf)
    renew_tree(n_touches, nodes, fit, tree, patience, walk)
    before, after = np.zeros(old.n_rows), np.zeros(whole.n_rows)
    finish_renewal(nodes, fit.rule, tree, walk, before, after, True)
    return nodes[: walk.growth.control[N_NODES]], before, after


@given(updates())
def test_without_patience_it_is_growing_anew(update):
    grown = grow_tiny(update.old, update.max_leaves)
    expected = grow_tiny(update.whole, update.max_leaves)
    nodes, before, after = renew(update, grown, 0.0)
    assert len(nodes) == len(expected.nodes)
    for name in [*FIELDS, "missing_left"]:
        np.testing.assert_array_equal(nodes[name], expected.nodes[name], err_msg=name)
    np.testing.assert_array_equal(before, grown.margin)
    np.testing.assert_array_equal(after, expected.margin)


@given(tinies(min_rows=2, max_rows=14), leaves, st.sampled_from([0.0, 0.1, 1.0]))
def test_without_touches_nothing_changes(tiny, max_leaves, patience):
    grown = grow_tiny(tiny, max_leaves)
    nodes, before, after = renew(Update(tiny, tiny, max_leaves), grown, patience)
    assert nodes.tobytes() == grown.nodes.tobytes()
    np.testing.assert_array_equal(before, grown.margin)
    np.testing.assert_array_equal(after, grown.margin)


@given(updates(), st.sampled_from([0.05, 0.3, 1.0]))
def test_with_patience_rows_and_sums_are_still_those_of_the_nodes(update, patience):
    whole = update.whole
    grown = grow_tiny(update.old, update.max_leaves)
    nodes, before, after = renew(update, grown, patience)
    assert len(nodes) <= 2 * update.max_leaves - 1
    sums = np.zeros((len(nodes), 3), np.int64)
    paths = naive_paths(nodes, whole.binned.codes, whole.binned.n_thresholds)
    for row, path in enumerate(paths):
        sums[path] += [whole.grad[row], whole.hess[row], whole.binned.count[row]]
        assert after[row] == nodes[path[-1]]["value"]
    for i, name in enumerate("ghc"):
        np.testing.assert_array_equal(nodes[name], sums[:, i])
    np.testing.assert_array_equal(before, grown.margin)


def collected(tiny):
    """Sums at the candidates of the root."""
    binned = tiny.binned
    out = np.zeros(2 * int(binned.firsts[-1]), np.int64)
    histogram = filled(tiny, range(tiny.n_rows), 0, tiny.n_rows)
    collect_candidates(histogram, binned, tiny.key, out)
    return out


@given(updates())
def test_sums_with_touches_are_those_of_all_rows(update):
    """At the root, where all touches are."""
    whole, binned = update.whole, update.whole.binned
    walk = make_walk(binned, update.max_leaves, update.old.n_rows)
    n_touches = touch_all(update, walk)
    walk.order[:n_touches] = np.arange(n_touches)

    place = np.zeros(1, PLACE)
    place["last"] = n_touches
    touched_sums(whole.key, place[0], collected(update.old), binned, walk)
    np.testing.assert_array_equal(walk.sums, collected(whole))


@given(updates(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_a_split_is_kept_while_few_candidates_beat_it(update, patience):
    """At the root, where all touches are."""
    whole, binned = update.whole, update.whole.binned
    was = grow_tiny(update.old, update.max_leaves).nodes
    assume(was[0]["split"] >= 0)
    walk = make_walk(binned, update.max_leaves, update.old.n_rows)
    n_touches = touch_all(update, walk)
    walk.order[:n_touches] = np.arange(n_touches)
    place = np.zeros(1, PLACE)
    place["last"] = n_touches
    old_sums = collected(update.old)
    touched_sums(whole.key, place[0], old_sums, binned, walk)

    grower = whole.grower()
    root = grower.new_node(np.arange(whole.n_rows), int(whole.key))
    node = was[:1].copy()
    node["g"], node["h"], node["c"] = root.sums.g, root.sums.h, root.sums.c
    kept, gain = keeps_split(node[0], place[0], was, whole.fit(0), patience, walk)

    paths = naive_paths(was, binned.codes, binned.n_thresholds)
    left = grower.sum(np.array([row for row, path in enumerate(paths) if path[1] == 1], int))
    value = grower.value_of(left, root.sums)
    if value is None:
        assert not kept
        return
    values = {}
    for each in grower.candidates(root)[0]:
        other = grower.value_of(each.left, root.sums)
        if other is not None:
            values[each.name >> 1] = max(other, values.get(each.name >> 1, 0.0))
    beaten_by = sum(other > value for other in values.values())
    assert kept == (beaten_by <= patience * len(values))
    assert gain == value - root.sums.score(whole.rule.l2)


@given(st.lists(st.integers(0, 8), max_size=12))
def test_rows_are_sorted_by_leaf(leaf):
    n = len(leaf)
    walk = make_walk(make_binned(np.zeros((n, 1)), [0], [0], np.ones(n)), 5, n)
    sort_by_leaf(np.array(leaf, np.uint8), walk)
    for node in range(9):
        rows = walk.by_leaf[walk.leaf_start[node] : walk.leaf_start[node + 1]]
        assert rows.tolist() == [i for i, other in enumerate(leaf) if other == node]


def test_leaves_under_a_node():
    nodes = np.zeros(7, NODE)
    nodes["left"] = [1, 5, 3, -1, -1, -1, -1]
    stack, out = np.zeros(7, np.int64), np.zeros(7, np.int64)
    for top, expected in ((0, [5, 6, 3, 4]), (1, [5, 6]), (2, [3, 4]), (4, [4])):
        found = leaves_under(top, nodes, stack, out)
        assert out[:found].tolist() == expected


def test_which_way_a_code_goes():
    node = np.zeros(1, NODE)
    node["code"] = 2
    for missing_left in (0, 1):
        node["missing_left"] = missing_left
        found = [bool(goes_left(node[0], code, 4)) for code in range(6)]
        assert found == [True, True, True, False, False, bool(missing_left)]
