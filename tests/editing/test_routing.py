"""Routes and margins of every kind of ensemble, against the two reference predictors."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trees.oracle import naive_leaves, naive_margins
from tests.trees.strategies import ensembles, ensembles_and_rows, rows_for
from timbermark.editing.routing import Router
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.trees import reference
from timbermark.trees.construction import constant_ensemble, make_ensemble


def route(router, X, n_threads=1):
    with Workers(n_threads) as workers:
        return router.route(X, workers)


def margins(router, routes, n_threads=1):
    with Workers(n_threads) as workers:
        return router.margins(routes, workers)


def chain(n_leaves, leaning="right"):
    """One tree of splits on one feature at 0.5, 1.5, … with a leaf for every range."""
    n_nodes = 2 * n_leaves - 1
    inner = np.arange(n_nodes) % 2 == 0
    inner[-1] = False
    number = np.arange(n_nodes)
    at = number if leaning == "right" else n_nodes - 3 - number
    leaf, rest = np.where(inner, number + 1, -1), np.where(inner, number + 2, -1)
    return make_ensemble(
        n_features=1,
        tree_start=[0, n_nodes],
        feature=np.where(inner, 0, -1),
        threshold=np.where(inner, at / 2 + 0.5, 0.0),
        left=leaf if leaning == "right" else rest,
        right=rest if leaning == "right" else leaf,
        value=number.astype(float),
    )


@given(ensembles_and_rows())
def test_routes_are_the_leaves_of_the_naive_predictor(case):
    e, X = case
    router = Router(e)
    routes = route(router, X)
    assert routes.n_rows == len(X)
    assert len(routes.leaf) == e.n_outputs
    expected = np.array(naive_leaves(e, X)).reshape(len(X), e.n_trees)
    for c in range(e.n_outputs):
        trees, first = router.trees[c], router.first[c]
        assert [t for t in range(e.n_trees) if e.tree_output[t] in (c, -1)] == trees.tolist()
        for p, t in enumerate(trees):
            nodes = router.nodes[c][first[p] : first[p + 1]]
            assert (e.left[nodes] < 0).all()
            found = nodes[routes.leaf[c][p]] - e.tree_start[t]
            assert found.tolist() == expected[:, t].tolist()


@given(ensembles_and_rows())
def test_margins_are_those_of_both_predictors(case):
    e, X = case
    router = Router(e)
    found = margins(router, route(router, X))
    assert found.dtype == np.float64
    assert found.shape == (len(X), e.n_outputs)
    # The router adds up in float64 whatever the library does.
    rounding = 2e-5 if e.sum_dtype == "f4" else 1e-12
    for expected in (naive_margins(e, X), reference.margins(e, X)):
        np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)


@given(ensembles_and_rows())
def test_sums_in_float64_from_init_are_exact(case):
    e, X = case
    e = replace(e, sum_dtype="f8", init_last=False, scale=1.0)
    router = Router(e)
    found = margins(router, route(router, X))
    np.testing.assert_array_equal(found, reference.margins(e, X))


@given(ensembles_and_rows())
def test_a_factor_says_how_far_a_margin_moves(case):
    e, X = case
    router = Router(e)
    routes = route(router, X)
    before = margins(router, routes)
    for c in range(e.n_outputs):
        if not len(router.nodes[c]):
            continue
        column = c if e.value.shape[1] > 1 else 0
        value = e.value.copy()
        value[router.nodes[c], column] += 1.0
        moved = margins(router.around(replace(e, value=value)), routes) - before
        weight = e.tree_weight[router.trees[c]].sum() * (e.scale if e.init_last else 1.0)
        expected = np.zeros(moved.shape)
        expected[:, c] = weight
        np.testing.assert_allclose(moved, expected, atol=1e-12)


@given(ensembles(), st.data())
def test_taken_rows_are_the_rows_routed_alone(e, data):
    X = data.draw(rows_for(e))
    rows = data.draw(st.lists(st.integers(0, len(X) - 1), max_size=5)) if len(X) else []
    router = Router(e)
    routes = route(router, X)
    places = np.array(rows, np.int64)
    taken, alone = routes.take(places), route(router, X[places])
    mask = np.isin(np.arange(len(X)), places)
    masked, chosen = routes.take(mask), route(router, X[mask])
    for first, second in ((taken, alone), (masked, chosen)):
        assert first.n_rows == second.n_rows
        for a, b in zip(first.leaf, second.leaf, strict=True):
            assert a.flags.c_contiguous
            np.testing.assert_array_equal(a, b)


@given(ensembles(), st.data())
def test_same_compares_rows_by_all_their_leaves(e, data):
    X, Z = data.draw(rows_for(e)), data.draw(rows_for(e))
    n = min(len(X), len(Z))
    router = Router(e)
    found = route(router, X[:n]).same(route(router, Z[:n]))
    one, other = naive_leaves(e, X[:n]), naive_leaves(e, Z[:n])
    assert found.tolist() == [a == b for a, b in zip(one, other, strict=True)]


def test_leaf_vectors_are_routed_once():
    e = make_ensemble(
        n_features=1, n_outputs=3, tree_start=[0, 1, 2], feature=[-1, -1], threshold=[0, 0],
        left=[-1, -1], right=[-1, -1], value=np.arange(6.0).reshape(2, 3),
    )  # fmt: skip
    routes = route(Router(e), np.zeros((4, 1)))
    assert routes.leaf[0] is routes.leaf[1] is routes.leaf[2]
    taken = routes.take(np.array([1]))
    assert taken.leaf[0] is taken.leaf[2]
    assert margins(Router(e), routes).tolist() == [[3.0, 5.0, 7.0]] * 4


@pytest.mark.parametrize(
    ("n_leaves", "kind"),
    [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65_536, np.uint16), (65_537, np.int32)],
)
def test_leaf_numbers_have_the_smallest_type_that_holds_them(n_leaves, kind):
    e = chain(n_leaves)
    X = np.array([[0.0], [n_leaves - 1.0]])
    routes = route(Router(e), X)
    assert routes.leaf[0].dtype == kind
    assert routes.leaf[0].tolist() == [[0, n_leaves - 1]]
    np.testing.assert_array_equal(margins(Router(e), routes), reference.margins(e, X))


@given(ensembles(), st.integers(0, 2**32 - 1))
def test_the_number_of_threads_changes_nothing(e, seed):
    # More rows than one task takes.
    X = np.random.default_rng(seed).choice([-1.0, 0.0, 0.1, 1.0, np.nan], (9000, e.n_features))
    router = Router(e)
    routes = route(router, X)
    found = margins(router, routes)
    for n_threads in (2, 3):
        others = route(router, X, n_threads)
        assert all((a == b).all() for a, b in zip(routes.leaf, others.leaf, strict=True))
        assert found.tobytes() == margins(router, others, n_threads).tobytes()


@given(ensembles_and_rows(), st.floats(-5, 5))
def test_around_predicts_with_other_leaf_values(case, added):
    e, X = case
    router = Router(e)
    other = replace(e, value=e.value + added)
    around = router.around(other)
    routes = route(router, X)
    expected = margins(Router(other), route(Router(other), X))
    assert margins(around, routes).tobytes() == expected.tobytes()
    assert router.ensemble is e
    np.testing.assert_array_equal(margins(router, routes), margins(Router(e), routes))


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 3), (1, 2, 1)])
def test_rows_of_another_shape_are_refused(shape):
    router = Router(constant_ensemble(n_features=2, value=1.0))
    with pytest.raises(InputError, match="the model takes 2 features") as caught:
        route(router, np.zeros(shape))
    assert caught.value.hint


def test_rows_of_any_layout_and_type_are_taken():
    e = chain(4)
    wide = np.arange(8.0).reshape(4, 2)
    expected = reference.leaf_indices(e, wide[:, :1])
    for X in (wide[:, :1], np.asfortranarray(wide)[:, :1], wide[:, :1].astype(np.int64)):
        routes = route(Router(e), X)
        assert Router(e).nodes[0][routes.leaf[0][0]].tolist() == expected[:, 0].tolist()


@given(ensembles_and_rows(), st.booleans())
def test_masks_send_rows_the_same_way_as_walks(case, missing):
    e, X = case
    X = X if missing else np.where(np.isnan(X), 0.25, X)
    masked, walked = Router(e), Router(e)
    walked._masks = None
    assert route(masked, X).same(route(walked, X)).all()


@pytest.mark.parametrize("leaning", ["left", "right"])
@pytest.mark.parametrize(
    ("n_leaves", "masked"),
    [(1, True), (8, True), (9, True), (32, True), (33, True), (300, True), (1025, False)],
)
def test_trees_of_all_sizes(n_leaves, masked, leaning):
    e = chain(n_leaves, leaning)
    router = Router(e)
    assert (router._masks is not None) == masked
    X = np.linspace(-1.0, n_leaves + 9.0, 1997)[:, None]
    leaf = np.clip(np.ceil(X[:, 0] - 0.5), 0, n_leaves - 1)
    np.testing.assert_array_equal(
        route(router, X).leaf[0][0], leaf if leaning == "right" else n_leaves - 1 - leaf
    )
