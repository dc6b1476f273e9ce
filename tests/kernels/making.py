"""Tiny trees made by hand: rows in codes, whole-numbered gradients, and what kernels need."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.boosting import naive
from tests.boosting.naive import Grower
from timbermark.boosting.data import make_draws
from timbermark.boosting.fitting import make_team
from timbermark.kernels.growing import add_values, finish_tree, grow
from timbermark.kernels.layout import N_NODES, NODE, Binned, Fit, Rule

SHIFT = 10


def make_binned(codes, n_thresholds, n_strata, count, dtype=np.uint8):
    codes = np.ascontiguousarray(codes, dtype=dtype)
    n_thresholds = np.asarray(n_thresholds, np.int64)
    n_strata = np.asarray(n_strata, np.int64)
    return Binned(
        codes=codes,
        columns=np.ascontiguousarray(codes.T),
        offsets=np.cumsum([0, *(n_thresholds + 2)])[:-1].astype(np.uint64),
        n_thresholds=n_thresholds,
        n_strata=n_strata,
        firsts=np.cumsum([0, *(n_strata + 1)]).astype(np.int64),
        draws=make_draws(n_thresholds, n_strata),
        count=np.asarray(count, np.int32),
        shift=SHIFT,
        hessian_bits=-1,
    )


@dataclass(frozen=True)
class Tiny:
    """Rows with gradients, and the rule of a split search."""

    binned: Binned
    grad: np.ndarray
    hess: np.ndarray
    rule: Rule
    key: np.uint64

    @property
    def n_rows(self):
        return len(self.grad)

    def grower(self):
        return Grower(
            self.binned.codes,
            self.binned.n_thresholds,
            self.binned.n_strata,
            self.grad,
            self.hess,
            self.binned.count,
            naive.Rule(*self.rule[:4]),
        )

    def fit(self, max_leaves):
        return Fit(self.binned, self.grad, self.hess, self.rule._replace(max_leaves=max_leaves))

    def counted(self):
        """The same rows, each counting once with a hessian of 2^4, for histograms of one word."""
        n = self.n_rows
        binned = self.binned._replace(count=np.ones(n, np.int32), hessian_bits=4)
        hess = np.full(n, 16, np.int32)
        return Tiny(binned, self.grad, hess, self.rule, self.key)

    def first(self, n):
        """The first ``n`` rows alone."""
        binned = self.binned._replace(
            codes=self.binned.codes[:n].copy(),
            columns=np.ascontiguousarray(self.binned.columns[:, :n]),
            count=self.binned.count[:n].copy(),
        )
        return Tiny(binned, self.grad[:n].copy(), self.hess[:n].copy(), self.rule, self.key)


def make_rule(l2=0.0, least_hessian=0.0, least_rows=1.0, least_gain=1.0):
    return Rule(l2, least_hessian, least_rows, least_gain, step=0.5, limit=50.0, max_leaves=0)


def integers(draw, low, high, size):
    return draw(st.lists(st.integers(low, high), min_size=size, max_size=size))


@st.composite
def tinies(draw, min_rows=1, max_rows=10, dtype=np.uint8):
    n = draw(st.integers(min_rows, max_rows))
    n_thresholds = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    # The last code is that of missing values.
    columns = [integers(draw, 0, t + 1, n) for t in n_thresholds]
    binned = make_binned(
        np.array(columns).T.reshape(n, len(n_thresholds)),
        n_thresholds,
        [draw(st.integers(1, t)) if t else 0 for t in n_thresholds],
        integers(draw, 1, 3, n),
        dtype,
    )
    rule = make_rule(
        draw(st.sampled_from([0.0, 1.0, 1e5])),
        draw(st.sampled_from([0.0, 1.0, 1e5])),
        float(draw(st.integers(1, 3))),
    )
    return Tiny(
        binned,
        np.array(integers(draw, -(2**20), 2**20, n), np.int32),
        np.array(integers(draw, 0, 2**18, n), np.int32),
        rule,
        np.uint64(draw(st.integers(0, 2**64 - 1))),
    )


@dataclass(frozen=True)
class Grown:
    nodes: np.ndarray
    record: np.ndarray
    leaf: np.ndarray
    margin: np.ndarray


def new_nodes(max_leaves):
    return np.zeros(2 * max_leaves - 1, NODE)


def grow_tiny(tiny, max_leaves):
    """Grow a whole tree with the kernels."""
    fit = tiny.fit(max_leaves)
    ((growth, team),) = make_team(tiny.binned, max_leaves, 1, np.zeros((1, tiny.n_rows), np.uint8))
    nodes = new_nodes(max_leaves)
    record = np.zeros((max_leaves - 1, 2 * int(tiny.binned.firsts[-1])), np.int64)
    assert grow(team, fit, tiny.key, nodes, growth, record)
    leaf, margin = np.zeros(tiny.n_rows, np.uint8), np.zeros(tiny.n_rows)
    finish_tree(nodes, fit.rule, growth, leaf, team.value)
    add_values(team.value, leaf, 0, tiny.n_rows, margin)
    return Grown(nodes[: growth.control[N_NODES]], record, leaf, margin)
