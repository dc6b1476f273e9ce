from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.boosting.naive import Sums, naive_paths
from tests.kernels.making import (
    SHIFT,
    Tiny,
    grow_tiny,
    integers,
    make_binned,
    new_nodes,
    tinies,
)
from tests.kernels.test_splitting_histogram import filled
from timbermark.boosting.updating import make_pending, make_walk
from timbermark.kernels.growing import leaf_value
from timbermark.kernels.keeping import goes_left, keeps_split, touched_sums
from timbermark.kernels.layout import N_NODES, NODE, PLACE, Knobs, Loss, OldTree, Source
from timbermark.kernels.regrowing import (
    find_rows,
    finish_renewal,
    leaves_under,
    refresh_leaves,
    renew_tree,
    sort_by_leaf,
)
from timbermark.kernels.splitting import collect_candidates

FIELDS = ["g", "h", "c", "gain", "choice", "key", "value", "left", "split", "feature", "code"]


@dataclass(frozen=True)
class Update:
    """All rows with today's gradients; the first ones as they were when the tree was grown.

    Of forgotten rows there is nothing left today: neither gradients nor a count.
    """

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
    for row in draw(st.sets(st.integers(0, n - 1), max_size=min(4, whole.n_rows - 1))):
        whole.grad[row] = whole.hess[row] = whole.binned.count[row] = 0
    return Update(whole, Tiny(first.binned, grad, hess, whole.rule, whole.key), draw(leaves))


leaves = st.integers(2, 6)


def new_walk(binned, max_leaves, n_old):
    n = len(binned.count)
    return make_walk(
        SimpleNamespace(
            binned=binned,
            margins=np.zeros((1, n)),
            loss=SimpleNamespace(target=np.zeros(0)),
            touching=np.arange(n),
        ),
        max_leaves,
        n_old,
    )


def touch_all(update, walk):
    """List what changed; returns how many touches there are."""
    whole, old = update.whole, update.old
    found = 0
    for row in range(whole.n_rows):
        now = Sums(*(int(x[row]) for x in (whole.grad, whole.hess, whole.binned.count)))
        if row < old.n_rows:
            now -= Sums(*(int(x[row]) for x in (old.grad, old.hess, old.binned.count)))
        if row >= old.n_rows or now != Sums(0, 0, 0):
            walk.touches[found] = (now.g, (now.h << SHIFT) + now.c, row)
            found += 1
    return found


def derived_ahead(n):
    """Nobody asks for gradients."""
    no_loss = Loss(
        np.zeros(n, np.int32), np.zeros(0), np.ones(n, np.float32), np.float32(1), 1.0, 0.0
    )
    nothing = make_pending(1, 1, 2, 0, 0)
    return Source(np.zeros((1, n)), nothing, 0, nothing.leaf[0], no_loss, 0, True)


def renew(update, grown, patience, still=None):
    """The nodes of the renewed tree, and the margins after; leaves that move are refreshed."""
    whole, old, max_leaves = update.whole, update.old, update.max_leaves
    fit, walk = whole.fit(max_leaves), new_walk(whole.binned, max_leaves, old.n_rows)
    n_touches = touch_all(update, walk)
    nodes = new_nodes(max_leaves)
    tree = OldTree(grown.nodes, grown.record, grown.leaf)
    source = derived_ahead(whole.n_rows)
    knobs = Knobs(patience, 1.0, float(np.inf), 1, 0.0, 0.0)
    renew_tree(n_touches, nodes, fit, tree, source, patience, knobs, walk)
    if still is not None:
        refresh_leaves(nodes, fit, tree, still, walk)
    pending = make_pending(1, 1, max_leaves, old.n_rows, whole.n_rows - old.n_rows)
    finish_renewal(nodes, fit.rule, tree, walk, pending, 0, 0)
    leaf = pending.leaf[0, 0] if pending.is_regrown[0, 0] else grown.leaf
    after = np.concatenate([pending.values[0, 0][leaf], pending.added[0]])
    return nodes[: walk.growth.control[N_NODES]], after


@given(updates())
def test_without_patience_it_is_growing_anew(update):
    grown = grow_tiny(update.old, update.max_leaves)
    expected = grow_tiny(update.whole, update.max_leaves)
    nodes, after = renew(update, grown, 0.0)
    assert len(nodes) == len(expected.nodes)
    for name in [*FIELDS, "missing_left"]:
        np.testing.assert_array_equal(nodes[name], expected.nodes[name], err_msg=name)
    left = update.whole.binned.count > 0
    np.testing.assert_array_equal(after[left], expected.margin[left])


@given(tinies(min_rows=2, max_rows=14), leaves, st.sampled_from([0.0, 0.1, 1.0]))
def test_without_touches_nothing_changes(tiny, max_leaves, patience):
    grown = grow_tiny(tiny, max_leaves)
    nodes, after = renew(Update(tiny, tiny, max_leaves), grown, patience, still=0.0)
    assert nodes.tobytes() == grown.nodes.tobytes()
    np.testing.assert_array_equal(after, grown.margin)


@given(updates(), st.sampled_from([0.05, 0.3, 1.0, np.inf]), st.sampled_from([None, 0.0]))
def test_with_patience_rows_and_sums_are_still_those_of_the_nodes(update, patience, still):
    whole = update.whole
    grown = grow_tiny(update.old, update.max_leaves)
    nodes, after = renew(update, grown, patience, still)
    assert len(nodes) <= 2 * update.max_leaves - 1
    sums = np.zeros((len(nodes), 3), np.int64)
    paths = naive_paths(nodes, whole.binned.codes, whole.binned.n_thresholds)
    for row, path in enumerate(paths):
        sums[path] += [whole.grad[row], whole.hess[row], whole.binned.count[row]]
        if whole.binned.count[row] > 0:
            assert after[row] == nodes[path[-1]]["value"]
    for i, name in enumerate("ghc"):
        np.testing.assert_array_equal(nodes[name], sums[:, i])
    # However patient: no child is too small.
    assert (nodes["c"][1:] >= whole.rule.least_rows).all()


@given(updates(), st.data())
def test_leaves_that_touches_move_are_added_up_anew(update, data):
    """Old rows that moved without anybody noticing count in them, and only there."""
    whole, old = update.whole, update.old
    moved = data.draw(st.sets(st.integers(0, old.n_rows - 1), max_size=3))
    grad = whole.grad.copy()
    for row in moved:
        grad[row] += 1000 if whole.binned.count[row] else 0
    grown = grow_tiny(old, update.max_leaves)
    plain, _ = renew(update, grown, np.inf)
    # The touches are those of before; what is added up is what the rows have become.
    unnoticed = Update(whole, old, update.max_leaves)
    nodes, _ = renew_unnoticed(unnoticed, grad, grown)
    paths = naive_paths(nodes, whole.binned.codes, whole.binned.n_thresholds)
    for number, node in enumerate(nodes):
        if node["left"] >= 0:
            both = nodes[node["left"]]["g"] + nodes[node["left"] + 1]["g"]
            assert node["g"] == both
            continue
        was = next((o for o in grown.nodes if o["key"] == node["key"]), None)
        before = leaf_value(was["g"], was["h"], whole.rule)
        is_moved = leaf_value(plain[number]["g"], plain[number]["h"], whole.rule) != before
        here = [row for row, path in enumerate(paths) if path[-1] == number]
        today = grad if is_moved else whole.grad
        assert node["g"] == sum(int(today[row]) for row in here)


def renew_unnoticed(update, grad, grown):
    """As `renew` with infinite patience, but leaves are added up from ``grad``."""
    whole, old, max_leaves = update.whole, update.old, update.max_leaves
    assume((grown.nodes["left"] < 0).any())
    fit, walk = whole.fit(max_leaves), new_walk(whole.binned, max_leaves, old.n_rows)
    n_touches = touch_all(update, walk)
    nodes = new_nodes(max_leaves)
    tree = OldTree(grown.nodes, grown.record, grown.leaf)
    source = derived_ahead(whole.n_rows)
    knobs = Knobs(np.inf, 1.0, float(np.inf), 1, 0.0, 0.0)
    renew_tree(n_touches, nodes, fit, tree, source, np.inf, knobs, walk)
    # What had to be regrown has no twin.
    assume((walk.growth.places["twin"][: walk.growth.control[N_NODES]] >= 0).all())
    refresh_leaves(nodes, fit._replace(grad=grad), tree, 0.0, walk)
    return nodes[: walk.growth.control[N_NODES]], walk


def collected(tiny):
    """Sums at the candidates of the root."""
    binned = tiny.binned
    out = np.zeros(2 * int(binned.firsts[-1]), np.int64)
    histogram = filled(tiny, range(tiny.n_rows), 0, tiny.n_rows)
    collect_candidates(histogram, binned, tiny.key, out)
    return out


def at_root(update):
    """A walk with all touches at the root, and their place."""
    walk = new_walk(update.whole.binned, update.max_leaves, update.old.n_rows)
    n_touches = touch_all(update, walk)
    walk.order[:n_touches] = np.arange(n_touches)
    place = np.zeros(1, PLACE)
    place["last"] = n_touches
    return walk, place[0]


@given(updates())
def test_sums_with_touches_are_those_of_all_rows(update):
    whole = update.whole
    walk, place = at_root(update)
    touched_sums(whole.key, place, collected(update.old), whole.binned, walk)
    np.testing.assert_array_equal(walk.sums, collected(whole))


@given(updates(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_a_split_is_kept_while_few_candidates_beat_it(update, patience):
    whole, binned = update.whole, update.whole.binned
    was = grow_tiny(update.old, update.max_leaves).nodes
    assume(was[0]["split"] >= 0)
    walk, place = at_root(update)
    grower = whole.grower()
    root = grower.new_node(np.arange(whole.n_rows), int(whole.key))
    node = was[:1].copy()
    node["g"], node["h"], node["c"] = root.sums.g, root.sums.h, root.sums.c
    paths = naive_paths(was, binned.codes, binned.n_thresholds)
    left = grower.sum(np.array([row for row, path in enumerate(paths) if path[1] == 1], int))
    value = grower.value_of(left, root.sums)
    assume(value is not None)
    values = {}
    for each in grower.candidates(root)[0]:
        other = grower.value_of(each.left, root.sums)
        if other is not None:
            values[each.name >> 1] = max(other, values.get(each.name >> 1, 0.0))
    # Without a division scores are the same to a few units in the last place only.
    near = [other for other in values.values() if other != value]
    assume(all(abs(other - value) > 1e-9 * abs(value) for other in near))
    beaten_by = sum(other > value for other in values.values())
    kept = keeps_split(
        node[0], place, collected(update.old), whole.fit(0), value * (1 + 1e-12), patience, walk
    )
    assert kept == (beaten_by <= patience * len(values))


@given(st.lists(st.integers(0, 8), max_size=12), st.sets(st.integers(0, 8)))
def test_rows_of_the_wanted_leaves_are_sorted_by_leaf(leaf, wanted):
    n = len(leaf)
    walk = new_walk(make_binned(np.zeros((n, 1)), [0], [0], np.ones(n)), 5, n)
    walk.wanted[list(wanted)] = True
    leaf = np.array(leaf, np.uint8)
    n_found = find_rows(leaf, walk)
    assert walk.found[:n_found].tolist() == [i for i in range(n) if leaf[i] in wanted]
    sort_by_leaf(leaf, n_found, walk)
    for node in wanted:
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
