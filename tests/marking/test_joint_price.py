"""Triggers that are cheap together: the same order as plain linear algebra gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor
from timbermark.marking.joint_price import order_by_joint_price

from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.marking.models import open_model

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(120, 3))
MODEL = HistGradientBoostingRegressor(max_iter=6, max_leaf_nodes=5, random_state=0)
MODEL.fit(ROWS, ROWS[:, 0] * ROWS[:, 1] + 0.1 * RNG.normal(size=120))


def shared_room(routes, router, ease, in_pairs):
    """Return the room that every two candidates share, [n, n], from leaves as 0 and 1."""
    leaf = routes.leaf[0].T.astype(int) + router.first[0][:-1]
    within = np.zeros((len(leaf), len(ease[0])))
    for row, leaves in zip(within, leaf, strict=True):
        row[leaves] = 1.0
    if in_pairs:
        within = within[1::2] - within[::2]
    return (within * ease[0]) @ within.T


def greedy(price, k, room):
    """Choose by what is left of a candidate's room, regressed on those that are chosen."""
    chosen = []
    for _ in range(k):
        inner = room[np.ix_(chosen, chosen)]
        beside = room[:, chosen]
        left = np.diag(room) - np.einsum("ij,jk,ik->i", beside, np.linalg.pinv(inner), beside)
        worth = price / np.maximum(left / np.diag(room), 1e-9)
        worth[chosen] = np.inf
        chosen.append(int(worth.argmin()))
    return chosen


@pytest.mark.parametrize("in_pairs", [False, True])
@given(seed=st.integers(0, 10_000))
def test_the_order_is_that_of_plain_linear_algebra(in_pairs, seed):
    rng = np.random.default_rng(seed)
    foreign = open_model(MODEL)
    router = Router(foreign.ensemble)
    some = rng.permutation(len(ROWS))[:40]
    with Workers(2) as workers:
        routes = router.route(foreign.rows(ROWS[some]), workers)
        ease = [rng.uniform(0.5, 2.0, len(router.nodes[0]))]
        room = shared_room(routes, router, ease, in_pairs)
        # Pairs that no tree tells apart have no room, and are never offered.
        price = np.where(np.diag(room) > 0.0, rng.uniform(1.0, 5.0, len(room)), np.inf)
        order = order_by_joint_price(price, 6, routes, router, ease, workers, in_pairs)
    assert sorted(order.tolist()) == list(range(len(room)))
    np.fill_diagonal(room, np.maximum(np.diag(room), 1e-300))
    assert order[:6].tolist() == greedy(price, 6, room)


def test_a_copy_of_a_chosen_candidate_comes_last():
    foreign = open_model(MODEL)
    router = Router(foreign.ensemble)
    with Workers(1) as workers:
        routes = router.route(foreign.rows(ROWS[[0, 0, 1, 2]]), workers)
        ease = [np.ones(len(router.nodes[0]))]
        order = order_by_joint_price(
            np.array([1.0, 1.0, 3.0, 2.0]), 4, routes, router, ease, workers
        )
    assert order[0] == 0
    assert order[-1] == 1
