"""The naive twin of the edit: one row, one tree, one Python float at a time.

Sums over rows are rounded where the kernel rounds them; sums over triggers are plain.
"""

import numpy as np

UNIT = 2.0**32
WEIGHT_UNIT = 2.0**-20
CLOSE, PULL, STEP = 0.15, 2.0, 0.5
STALLED, PATIENCE = 0.98, 4


def naive_masses(leaf, first, weight):
    masses = [0.0] * int(first[-1])
    for t in range(len(first) - 1):
        for i in range(len(weight)):
            masses[first[t] + leaf[t, i]] += float(weight[i])
    return masses


def naive_round(
    leaf, first, order, weight, mass, ridge, trigger_leaf, pull, target, drift, shift, change
):
    for t in order:
        for j in range(first[t + 1] - first[t]):
            if ridge[first[t] + j] == np.inf:
                continue
            rows = [i for i in range(len(weight)) if leaf[t, i] == j]
            triggers = [i for i in range(len(pull)) if trigger_leaf[t, i] == j and pull[i] > 0]
            place = first[t] + j
            above = -sum(float(np.rint(UNIT * weight[i] * drift[i])) for i in rows) / UNIT
            above -= ridge[place] * change[place]
            above += sum(pull[i] * (target[i] - shift[i]) for i in triggers)
            below = mass[place] + ridge[place] + sum(pull[i] for i in triggers)
            moved = above / below if below > 0 else 0.0
            change[place] += moved
            for i in rows:
                drift[i] += moved
            for i in range(len(pull)):
                if trigger_leaf[t, i] == j:
                    shift[i] += moved


def naive_edit(e, leaves, weight, trigger_leaves, wanted, *, ridge=1.0, max_rounds=60):
    """Return the leaf values [N, width], drift [n, K] and shift [k, K] of the edited ensemble.

    ``leaves`` and ``trigger_leaves`` are node numbers within each tree, as of the naive predictor.
    """
    value = e.value.copy()
    drift, shift = np.zeros(weight.shape), np.zeros(wanted.shape)
    for c in range(e.n_outputs):
        trees = [t for t in range(e.n_trees) if e.tree_output[t] in (c, -1)]
        if not wanted[:, c].any() or not trees:
            continue
        nodes = [np.arange(e.tree_start[t], e.tree_start[t + 1]) for t in trees]
        leaf_nodes = [numbers[e.left[numbers] < 0] for numbers in nodes]
        first = np.cumsum([0, *map(len, leaf_nodes)])
        scale = e.scale if e.init_last else 1.0
        factor = np.concatenate(
            [[e.tree_weight[t] * scale] * len(n) for t, n in zip(trees, leaf_nodes, strict=True)]
        )

        def counted(ends, trees=trees, leaf_nodes=leaf_nodes):
            # From nodes within a tree to leaves within a tree.
            found = [
                [int(np.searchsorted(leaf_nodes[p], e.tree_start[t] + row[t])) for row in ends]
                for p, t in enumerate(trees)
            ]
            return np.array(found, int).reshape(len(trees), len(ends))

        leaf, trigger_leaf = counted(leaves), counted(trigger_leaves)
        held = np.rint(weight[:, c] / WEIGHT_UNIT) * WEIGHT_UNIT
        mass = np.array(naive_masses(leaf, first, held))
        hold = np.where(factor != 0, ridge, np.inf)
        room = [
            sum(
                1 / (mass[first[t] + trigger_leaf[t, i]] + ridge)
                for t in range(len(trees))
                if factor[first[t]] != 0
            )
            for i in range(len(wanted))
        ]
        pull = np.array([PULL / r if r > 0 else 0.0 for r in room])
        size = np.abs(wanted[:, c])
        close = CLOSE * np.maximum(size, size[size > 0].mean())
        change, lacking = np.zeros(first[-1]), np.zeros(len(wanted))
        order = list(range(len(trees)))
        stalled, due = 0, np.inf
        for _ in range(max_rounds):
            if stalled == PATIENCE:
                break
            naive_round(
                leaf, first, order, held, mass, hold, trigger_leaf, pull, wanted[:, c] + lacking,
                drift[:, c], shift[:, c], change,
            )  # fmt: skip
            rest = wanted[:, c] - shift[:, c]
            if (np.abs(rest) <= close).all():
                break
            before, due = due, np.abs(rest).sum()
            stalled = stalled + 1 if due > STALLED * before else 0
            lacking += STEP * rest
            order.reverse()
        column = c if value.shape[1] > 1 else 0
        for place, node in enumerate(np.concatenate(leaf_nodes)):
            if factor[place] != 0:
                value[node, column] += change[place] / factor[place]
    return value, drift, shift
