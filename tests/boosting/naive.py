"""The naive twin of training: one node, one split candidate and one Python integer at a time.

Written from the documentation, for clarity: every candidate's sums are added up from the node's
rows, nothing is carried over from one node to the next. Only the quantised gradients are taken
from the kernel (which has an oracle of its own), because a unit more or less there is rounding.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from timbermark.boosting.data import TrainParams
from timbermark.boosting.objective import make_objective
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.layout import NONE, UNKNOWN

_64_BITS = 2**64 - 1


def naive_mix(key, counter):
    """The hash of the pair: the ``counter``-th number of SplitMix64 started at ``key``."""
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & _64_BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return z ^ (z >> 31)


def naive_strata(n_thresholds, split_sampling):
    """How many candidates a feature has: its share of the thresholds, rounded up."""
    share = Fraction(str(split_sampling))
    return max(1, math.ceil(n_thresholds * share)) if n_thresholds > 0 else 0


def naive_candidate(key, feature, stratum, n_thresholds, n_strata):
    """The threshold drawn for a stratum."""
    low = stratum * n_thresholds // n_strata
    high = (stratum + 1) * n_thresholds // n_strata
    return low + (naive_mix(key, (feature << 20) + stratum) >> 33) % (high - low)


@dataclass(frozen=True)
class Rule:
    """What makes a split allowed and good, in units of the fixed point."""

    l2: float
    least_hessian: float
    least_rows: float
    least_gain: float = 1.0


@dataclass(frozen=True)
class Sums:
    g: int
    h: int
    c: int

    def __add__(self, other):
        return Sums(self.g + other.g, self.h + other.h, self.c + other.c)

    def __sub__(self, other):
        return Sums(self.g - other.g, self.h - other.h, self.c - other.c)

    def score(self, l2):
        return float(self.g) * float(self.g) / (float(self.h) + l2) if self.h > 0 else 0.0

    def packed(self, shift):
        """As histograms and records hold them."""
        return [self.g, (self.h << shift) + self.c]


@dataclass(frozen=True)
class Candidate:
    """A possible split. ``name`` is what the engine calls it; ``left`` are the left child's sums.

    ``code`` and ``missing_left`` say which rows go left.
    """

    name: int
    feature: int
    code: int
    missing_left: bool
    left: Sums


@dataclass
class Node:
    rows: np.ndarray
    key: int
    sums: Sums
    searched: bool = False
    candidate_sums: list = field(default_factory=list)
    best: Candidate | None = None
    gain: float = -1.0
    split: int = -1
    left: int = -1
    feature: int = -1
    code: int = 0
    missing_left: int = 0
    value: float = 0.0

    @property
    def choice(self):
        if self.best is not None:
            return self.best.name
        return NONE if self.searched else UNKNOWN


class Grower:
    """Grows one tree, best first, from integer gradients.

    ``codes`` [n, d]; a code of ``n_thresholds + 1`` is a missing value.
    """

    def __init__(self, codes, n_thresholds, n_strata, grad, hess, count, rule):
        self.codes = np.asarray(codes).astype(np.int64)
        self.n_thresholds = [int(t) for t in n_thresholds]
        self.n_strata = [int(s) for s in n_strata]
        self.grad = np.asarray(grad).astype(np.int64)
        self.hess = np.asarray(hess).astype(np.int64)
        self.count = np.asarray(count).astype(np.int64)
        self.rule = rule

    def grow(self, key, max_leaves):
        """The nodes, in the order in which they came to be."""
        nodes = [self.new_node(np.arange(len(self.codes)), key)]
        self.search(nodes[0])
        for number in range(max_leaves - 1):
            open_leaves = [node for node in nodes if node.split < 0 and node.best is not None]
            if not open_leaves:
                break
            # Of equals max() takes the first, and so does the engine.
            chosen = max(open_leaves, key=lambda node: node.gain)
            children = self.divide(chosen, number, len(nodes))
            nodes += children
            for child in children:
                # Nobody will ask for a split beyond the last one, nor for one of too few rows.
                if number < max_leaves - 2 and child.sums.c >= 2 * self.rule.least_rows:
                    self.search(child)
        return nodes

    def new_node(self, rows, key):
        return Node(rows, key, self.sum(rows))

    def sum(self, rows):
        return Sums(*(int(x[rows].sum()) for x in (self.grad, self.hess, self.count)))

    def search(self, node):
        """Find the best candidate of a node, if any is good enough."""
        offered, node.candidate_sums = self.candidates(node)
        node.searched = True
        parent = node.sums.score(self.rule.l2)
        best = parent + self.rule.least_gain
        for candidate in offered:
            value = self.value_of(candidate.left, node.sums)
            if value is not None and value > best:
                best = value
                node.best = candidate
                node.gain = value - parent

    def value_of(self, left, whole):
        """Both children's scores, or None where one of them would be too small."""
        rule, right = self.rule, whole - left
        for child in (left, right):
            if child.c < max(rule.least_rows, 1) or child.h < rule.least_hessian:
                return None
        return left.score(rule.l2) + right.score(rule.l2)

    def candidates(self, node):
        """All candidates in the order of preference, and the sums that are put on record."""
        offered, recorded = [], []
        for f, (thresholds, strata) in enumerate(
            zip(self.n_thresholds, self.n_strata, strict=True)
        ):
            codes = self.codes[node.rows, f]
            missing = self.sum(node.rows[codes == thresholds + 1])
            for stratum in range(strata):
                code = naive_candidate(node.key, f, stratum, thresholds, strata)
                left = self.sum(node.rows[codes <= code])
                place = len(recorded)
                recorded.append(left)
                if missing.c > 0:
                    offered.append(Candidate(2 * place, f, code, False, left))
                    offered.append(Candidate(2 * place + 1, f, code, True, left + missing))
                else:
                    # Nothing is known of missing values: they follow the larger child.
                    to_left = 2 * left.c >= node.sums.c
                    offered.append(Candidate(2 * place, f, code, to_left, left))
            if missing.c > 0:
                others = node.sums - missing
                offered.append(Candidate(2 * len(recorded), f, thresholds, False, others))
            recorded.append(missing)
        return offered, recorded

    def divide(self, node, number, n_nodes):
        """Make a node a split; returns its two children."""
        best = node.best
        node.split, node.left = number, n_nodes
        node.feature, node.code = best.feature, best.code
        node.missing_left = int(best.missing_left)
        codes = self.codes[node.rows, best.feature]
        goes_left = codes <= best.code
        goes_left[codes == self.n_thresholds[best.feature] + 1] = best.missing_left
        return [
            self.new_node(node.rows[goes_left], naive_mix(node.key, 0)),
            self.new_node(node.rows[~goes_left], naive_mix(node.key, 1)),
        ]


@dataclass
class NaiveTrained:
    """``trees``: lists of nodes; ``leaf`` int[T, n]; ``margins`` float64[outputs, n]."""

    trees: list
    leaf: np.ndarray
    margins: np.ndarray


def naive_factor(n_classes):
    """Robust LogitBoost's (K - 1) / K."""
    return (n_classes - 1) / n_classes if n_classes >= 3 else 1.0


def naive_rule(params, n_classes, scale):
    unit = naive_factor(n_classes) * 2.0**scale.bits
    # Of numbers: one squared unit of the residuals in a single row.
    least_gain = 2.0**-scale.bits if n_classes == 0 else 1.0
    return Rule(
        params.l2_regularization * unit,
        params.min_hessian * unit,
        params.min_samples_leaf,
        least_gain,
    )


def naive_value(sums, params, n_classes, scale):
    """The Newton step of a leaf, held within the limit, times the learning rate.

    Of numbers it is the mean residual, in units of its own, and not limited.
    """
    if sums.h <= 0:
        return 0.0
    quotient = sums.g / (sums.h + naive_rule(params, n_classes, scale).l2)
    if n_classes == 0:
        return params.learning_rate * 2.0 ** (scale.bits - scale.residuals.bits) * quotient
    held = min(max(quotient, -params.leaf_limit), params.leaf_limit)
    return params.learning_rate * naive_factor(n_classes) * held


def gradients(margins, data, scale):
    """Quantised gradients and hessians int32[outputs, n], as the engine rounds them."""
    grad, hess = np.empty(margins.shape, np.int32), np.empty(margins.shape, np.int32)
    loss = make_objective(data, TrainParams(), scale).loss
    derive_gradients(margins, loss, 0, data.n_rows, grad, hess)
    return grad, hess


def naive_train(data, params, scale):
    """``train`` for reading."""
    outputs = data.n_classes if data.n_classes >= 3 else 1
    margins = np.full((outputs, data.n_rows), scale.residuals.start if scale.residuals else 0.0)
    strata = [naive_strata(int(t), params.split_sampling) for t in data.bins.n_thresholds]
    count = np.array([math.ceil(w) for w in data.weight], np.int64)
    rule = naive_rule(params, data.n_classes, scale)
    trees, leaves = [], []
    for _ in range(params.max_iter):
        grad, hess = gradients(margins, data, scale)
        for output in range(outputs):
            grower = Grower(
                data.codes, data.bins.n_thresholds, strata, grad[output], hess[output], count, rule
            )
            nodes = grower.grow(naive_mix(params.seed, len(trees)), params.max_leaf_nodes)
            leaf = np.zeros(data.n_rows, np.int64)
            for i, node in enumerate(nodes):
                node.value = naive_value(node.sums, params, data.n_classes, scale)
                if node.split < 0:
                    leaf[node.rows] = i
                    margins[output, node.rows] += node.value
            trees.append(nodes)
            leaves.append(leaf)
    return NaiveTrained(trees, np.array(leaves), margins)


def naive_paths(nodes, codes, n_thresholds):
    """For every row the nodes it comes by, root first; ``nodes`` NODE[m] of one tree."""
    paths = []
    for row in np.asarray(codes).astype(np.int64):
        path = [0]
        while nodes[path[-1]]["left"] >= 0:
            node = nodes[path[-1]]
            code = row[node["feature"]]
            missing = code == n_thresholds[node["feature"]] + 1
            to_left = node["missing_left"] == 1 if missing else code <= node["code"]
            path.append(int(node["left"]) + (0 if to_left else 1))
        paths.append(path)
    return paths
