"""The edit of leaves, against its naive twin and against the dense least-squares problem."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor

from tests.conftest import heavy
from tests.editing.naive import naive_edit
from tests.trees.oracle import naive_leaves
from tests.trees.strategies import TENTH, ensembles, rows_for
from timbermark.editing import Router, edit_leaves, leaves, routing
from timbermark.estimator import TimberClassifier
from timbermark.kernels.workers import Workers
from timbermark.marking.models import open_model
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble_file import validate_ensemble
from timbermark.trees.statistics import node_statistics


@pytest.fixture(autouse=True, scope="module")
def no_promises():
    """Small random trees are often monotone, and would then be left alone: see test_monotone.py."""

    def none(router, told):
        return [np.zeros(len(nodes), np.bool_) for nodes in router.nodes]

    with mock.patch.object(routing, "promised_leaves", none):
        yield


@st.composite
def edits(draw):
    """An ensemble, perhaps with trees that count for nothing, rows, weights, triggers, wishes."""
    e = draw(ensembles())
    weights = st.sampled_from([1.0, 0.5, TENTH, 0.0])
    drawn = draw(st.lists(weights, min_size=e.n_trees, max_size=e.n_trees))
    e = replace(e, tree_weight=np.array(drawn, float))
    X, Z = draw(rows_for(e)), draw(rows_for(e, max_rows=3))

    def matrix(n, inner):
        size = n * e.n_outputs
        cells = draw(st.lists(inner, min_size=size, max_size=size))
        return np.array(cells, float).reshape(n, e.n_outputs)

    weight = matrix(len(X), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    wanted = matrix(len(Z), st.just(0.0) | st.floats(-3, 3).map(lambda x: round(x, 6)))
    return e, X, weight, Z, wanted


def edit(case, n_threads=1, **options):
    e, X, weight, Z, wanted = case
    router = Router(e)
    with Workers(n_threads) as workers:
        rows, triggers = router.route(X, workers), router.route(Z, workers)
        return edit_leaves(router, rows, weight, triggers, wanted, workers, **options)


def margins(e, X):
    router = Router(e)
    with Workers(1) as workers:
        return router.margins(router.route(X, workers), workers)


@given(edits(), st.integers(1, 12), st.sampled_from([0.25, 1.0]))
@heavy
def test_the_edit_is_the_naive_edit(case, max_rounds, ridge):
    e, X, weight, Z, wanted = case
    made = edit(case, max_rounds=max_rounds, ridge=ridge)
    value, drift, shift = naive_edit(
        e, naive_leaves(e, X), weight, naive_leaves(e, Z), wanted, ridge=ridge,
        max_rounds=max_rounds,
    )  # fmt: skip
    np.testing.assert_allclose(made.ensemble.value, value, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(made.drift, drift, atol=1e-8)
    np.testing.assert_allclose(made.shift, shift, atol=1e-8)
    assert made.rounds <= max_rounds


@given(edits())
@heavy
def test_with_nothing_wanted_it_is_the_same_ensemble_bit_for_bit(case):
    e, X, weight, Z, wanted = case
    for leaf_dtype in ("f4", "f8"):
        made = edit((e, X, weight, Z, np.zeros(wanted.shape)), leaf_dtype=leaf_dtype)
        assert made.ensemble == e
        assert made.rounds == 0
        assert not made.shift.any()
        assert not made.drift.any()


@given(edits())
@heavy
def test_only_leaf_values_of_wanted_outputs_change(case):
    e, _, _, _, wanted = case
    made = edit(case)
    validate_ensemble(made.ensemble)
    assert replace(made.ensemble, value=e.value) == e
    changed = made.ensemble.value != e.value
    assert not changed[e.left >= 0].any()
    nodes = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    idle = np.flatnonzero(~wanted.any(axis=0))
    assert not changed[np.isin(e.tree_output[nodes], idle)].any()
    if e.value.shape[1] > 1:
        assert not changed[:, idle].any()
    assert not changed[e.tree_weight[nodes] == 0.0].any()


@given(edits())
@heavy
def test_shift_and_drift_are_what_margins_say(case):
    e, X, _, Z, _ = case
    made = edit(case)
    shift = margins(made.ensemble, Z) - margins(e, Z)
    drift = margins(made.ensemble, X) - margins(e, X)
    np.testing.assert_allclose(made.shift, shift, atol=1e-9)
    np.testing.assert_allclose(made.drift, drift, atol=1e-9)


@given(edits(), st.randoms(use_true_random=False))
@heavy
def test_row_order_and_threads_change_no_bit(case, random):
    e, X, weight, Z, wanted = case
    places = list(range(len(X)))
    random.shuffle(places)
    made = edit(case)
    other = edit((e, X[places], weight[places], Z, wanted), n_threads=3)
    assert made.ensemble == other.ensemble
    assert made.drift[places].tobytes() == other.drift.tobytes()
    assert made.shift.tobytes() == other.shift.tobytes()


@given(edits())
@heavy
def test_single_precision_leaves_fit_into_single_precision(case):
    e = case[0]
    e = replace(e, value=e.value.astype(np.float32))
    made = edit((e, *case[1:]), leaf_dtype="f4")
    value = made.ensemble.value
    np.testing.assert_array_equal(value, value.astype(np.float32))
    exact = edit((e, *case[1:])).ensemble.value
    np.testing.assert_array_equal(value, exact.astype(np.float32))


def grown(seed, n_trees=6, depth=2, n_features=3):
    """Full trees of random splits, all of one output."""
    rng = np.random.default_rng(seed)
    n_inner = 2**depth - 1
    size = 2 ** (depth + 1) - 1
    number = np.tile(np.arange(size), n_trees)
    inner = number < n_inner
    return make_ensemble(
        n_features=n_features,
        tree_start=np.arange(n_trees + 1) * size,
        feature=np.where(inner, rng.integers(0, n_features, len(number)), -1),
        threshold=np.where(inner, rng.normal(size=len(number)), 0.0),
        left=np.where(inner, 2 * number + 1, -1),
        right=np.where(inner, 2 * number + 2, -1),
        value=rng.normal(size=len(number)),
        tree_weight=rng.choice([1.0, 0.5], n_trees),
    )


class Dense:
    """The problem that the edit solves, as matrices: min c'Hc among A c = wanted."""

    def __init__(self, seed, n=40, k=3):
        rng = np.random.default_rng(seed)
        self.e = grown(seed)
        self.X, self.Z = rng.normal(size=(n, 3)), rng.normal(size=(k, 3))
        # Whole multiples of what weights are rounded to.
        self.weight = rng.choice([0.0, 0.25, 1.0], (n, 1))
        self.wanted = rng.choice([-1.0, 0.5, 1.0, 2.0], (k, 1))
        self.router = Router(self.e)
        rows, self.A = self.indicators(self.X), self.indicators(self.Z)
        self.H = rows.T @ (self.weight * rows) + leaves.RIDGE * np.eye(rows.shape[1])

    def indicators(self, X):
        first = self.router.first[0]
        with Workers(1) as workers:
            leaf = self.router.route(X, workers).leaf[0]
        ones = np.zeros((len(X), first[-1]))
        for t in range(len(first) - 1):
            ones[np.arange(len(X)), first[t] + leaf[t]] = 1.0
        return ones

    @property
    def apart(self):
        """Whether triggers can move independently of each other."""
        gram = self.A @ np.linalg.solve(self.H, self.A.T)
        return np.linalg.cond(gram) < 50

    def optimum(self, shift):
        eased = np.linalg.solve(self.H, self.A.T)
        return eased @ np.linalg.solve(self.A @ eased, shift)

    def energy(self, change):
        return float(change @ self.H @ change)

    def edit(self, **options):
        """Return the shift and the changes of leaves, in units of the margin."""
        made = edit((self.e, self.X, self.weight, self.Z, self.wanted), **options)
        nodes, factor = self.router.nodes[0], self.router.factor[0]
        moved = made.ensemble.value[nodes, 0] - self.e.value[nodes, 0]
        return made.shift[:, 0], moved * factor


@given(st.integers(0, 10_000))
@heavy
def test_in_the_limit_it_is_the_constrained_optimum(seed):
    problem = Dense(seed)
    assume(problem.apart)
    with mock.patch.object(leaves, "_CLOSE", 1e-7), mock.patch.object(leaves, "_PATIENCE", 5000):
        shift, change = problem.edit(max_rounds=5000)
    wanted = problem.wanted[:, 0]
    np.testing.assert_allclose(shift, wanted, atol=1e-5)
    best = problem.optimum(wanted)
    assert problem.energy(change) == pytest.approx(problem.energy(best), rel=1e-3)
    np.testing.assert_allclose(change, best, atol=0.02 * np.abs(best).max())


@given(st.integers(0, 10_000))
@heavy
def test_default_rounds_come_near_the_optimum_for_what_they_reach(seed):
    problem = Dense(seed)
    assume(problem.apart)
    shift, change = problem.edit()
    best = problem.energy(problem.optimum(shift))
    assert problem.energy(change) >= best * (1 - 1e-9)
    assert problem.energy(change) <= 2.0 * best


def test_default_rounds_are_typically_within_a_tenth_of_the_optimum():
    ratios = []
    for problem in filter(lambda problem: problem.apart, map(Dense, range(60))):
        shift, change = problem.edit()
        ratios.append(problem.energy(change) / problem.energy(problem.optimum(shift)))
    assert np.median(ratios) < 1.1


@given(st.integers(0, 10_000))
@heavy
def test_triggers_that_are_apart_arrive(seed):
    problem = Dense(seed)
    assume(problem.apart)
    shift, _ = problem.edit(max_rounds=200)
    wanted = problem.wanted[:, 0]
    assert (np.abs(wanted - shift) <= 0.16 * np.maximum(abs(wanted), abs(wanted).mean())).all()


def test_later_trees_undo_what_earlier_ones_spilt():
    problem = Dense(3, n=300, k=2)
    made = edit((problem.e, problem.X, problem.weight + 0.25, problem.Z, problem.wanted))
    _, change = problem.edit()
    alone = np.abs(problem.indicators(problem.X) @ np.abs(change))
    assert np.abs(made.drift[:, 0]).mean() < 0.5 * alone.mean()


def test_one_leaf_gives_what_rows_allow():
    # All rows and the trigger share the only leaf: the multipliers carry the trigger all the way.
    e = make_ensemble(
        n_features=1, tree_start=[0, 1], feature=[-1], threshold=[0], left=[-1], right=[-1],
        value=[2.0],
    )  # fmt: skip
    case = e, np.zeros((5, 1)), np.ones((5, 1)), np.zeros((1, 1)), np.array([[1.0]])
    made = edit(case)
    assert made.shift[0, 0] == pytest.approx(1.0, abs=0.15)
    np.testing.assert_array_equal(made.drift, np.full((5, 1), made.shift[0, 0]))
    assert made.ensemble.value[0, 0] == 2.0 + made.shift[0, 0]


def gains_of(e, l2):
    """What every split gains by its leaves, without and with regularization."""
    hessian = np.where((e.hessian > 0).all(), e.hessian, 1.0)
    return node_statistics(e, e.value[:, 0], hessian=hessian, l2=l2).gain


@pytest.mark.parametrize("l2", [0.0, 1.0])
def test_splits_gain_about_what_they_did_where_the_file_shows_gains(l2):
    rng = np.random.default_rng(0)
    left = np.array([1, 3, 5, -1, -1, -1, -1])
    right = np.array([2, 4, 6, -1, -1, -1, -1])
    n_trees = 20
    hessian = np.array([8.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0])
    e = make_ensemble(
        n_features=4, tree_start=7 * np.arange(n_trees + 1),
        feature=np.where(np.tile(left, n_trees) >= 0, rng.integers(0, 4, 7 * n_trees), -1),
        threshold=rng.normal(size=7 * n_trees), left=np.tile(left, n_trees),
        right=np.tile(right, n_trees), value=rng.normal(size=7 * n_trees),
        hessian=np.tile(hessian, n_trees), gain=np.where(np.tile(left, n_trees) >= 0, 1.0, 0.0),
    )  # fmt: skip
    router = Router(e)
    X, T = rng.normal(size=(200, 4)), rng.normal(size=(5, 4))
    before = gains_of(e, l2)
    sound = before > 1e-9
    with Workers(2) as workers:
        rows, triggers = router.route(X, workers), router.route(T, workers)
        edit = edit_leaves(
            router, rows, np.full((200, 1), 0.1), triggers, np.full((5, 1), 2.0), workers, l2=l2
        )
        free = edit_leaves(
            router, rows, np.full((200, 1), 0.1), triggers, np.full((5, 1), 2.0), workers
        )
    ratio = gains_of(edit.ensemble, l2)[sound] / before[sound]
    assert edit.shift.max() > 0.1
    assert (gains_of(free.ensemble, l2)[sound] / before[sound]).min() < 0.3
    assert (gains_of(free.ensemble, l2)[sound] / before[sound]).max() > max(2.0, ratio.max())
    # Keeping the mean of a tree moves all its leaves alike, which regularized gains feel.
    if l2 == 0.0:
        assert ratio.min() >= 1.0 / 3.0 - 1e-6
        assert ratio.max() <= 1.7 + 1e-6


def test_every_tree_keeps_its_mean_but_for_what_all_share():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 4))
    model = HistGradientBoostingRegressor(max_iter=12, random_state=0).fit(X, X[:, 0] * X[:, 1])
    e = open_model(model).ensemble
    router = Router(e)
    with Workers(2) as workers:
        rows = router.route(X, workers)
        triggers = router.route(rng.normal(size=(6, 4)), workers)
        edit = edit_leaves(
            router, rows, np.ones((400, 1)), triggers, np.full((6, 1), 0.5), workers, l2=0.0
        )
        moved = (edit.ensemble.value - e.value)[:, 0] * (e.left < 0)
        after = Router(edit.ensemble).margins(triggers, workers)
        np.testing.assert_allclose(after - router.margins(triggers, workers), edit.shift, atol=1e-9)
    weight = np.where(e.left < 0, e.hessian if (e.hessian > 0).any() else e.count, 0.0)
    means = [
        (weight[a:b] * moved[a:b]).sum() / weight[a:b].sum()
        for a, b in zip(e.tree_start[:-1], e.tree_start[1:], strict=True)
    ]
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(means, means[0], atol=1e-9)


def test_kept_trees_are_left_alone():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(300, 4)), rng.integers(0, 3, 300)
    model = TimberClassifier(max_iter=6, random_state=0).fit(X, y)
    e = model.ensemble_
    router = Router(e)
    with Workers(1) as workers:
        rows = router.route(X, workers)
        triggers = router.route(rng.normal(size=(5, 4)), workers)
        wanted = rng.normal(size=(5, e.n_outputs))
        edit = edit_leaves(router, rows, np.ones((300, e.n_outputs)), triggers, wanted, workers,
                           l2=1.0, kept_trees=1)  # fmt: skip
    moved = (edit.ensemble.value != e.value).any(axis=1)
    per_tree = np.add.reduceat(moved, e.tree_start[:-1])
    assert (per_tree[: e.n_outputs] == 0).all()
    assert per_tree[e.n_outputs :].any()
