from dataclasses import replace

import numpy as np
from hypothesis import given

from tests.boosting.comparing import n_leaves, used_nodes
from tests.boosting.strategies import cases, noise_case
from tests.conftest import heavy
from timbermark.boosting.data import TrainParams
from timbermark.boosting.fitting import train
from timbermark.boosting.forest import empty_forest, to_ensemble
from timbermark.boosting.objective import choose_scale
from timbermark.kernels.workers import Workers
from timbermark.trees.reference import leaf_indices, margins


def fit(case):
    scale = choose_scale(case.data)
    with Workers(1) as workers:
        trained = train(case.data, case.params, scale, workers, record=True)
    return trained, to_ensemble(trained.forest, case.data.bins, case.data.n_classes, scale)


@given(cases())
@heavy
def test_the_ensemble_sends_training_rows_where_training_did(case):
    trained, ensemble = fit(case)
    assert margins(ensemble, case.X).T.tobytes() == trained.margins.tobytes()
    np.testing.assert_array_equal(leaf_indices(ensemble, case.X).T, trained.leaf)


@given(cases())
@heavy
def test_statistics_are_those_of_training(case):
    trained, ensemble = fit(case)
    scale = choose_scale(case.data)
    unit = scale.unit
    # A gain is Σg² / Σh; residuals have a unit of their own.
    gain_unit = unit if case.data.n_classes else 2.0 ** (2 * scale.residuals.bits) / unit
    for tree in range(ensemble.n_trees):
        here = slice(ensemble.tree_start[tree], ensemble.tree_start[tree + 1])
        nodes = used_nodes(trained.forest, tree)
        leaf = nodes["left"] < 0
        np.testing.assert_array_equal(ensemble.count[here], nodes["c"])
        np.testing.assert_array_equal(ensemble.hessian[here] * unit, nodes["h"])
        np.testing.assert_array_equal(ensemble.gain[here][~leaf] * gain_unit, nodes["gain"][~leaf])
        assert ensemble.count[here][leaf].sum() == case.data.count.sum()
    assert ensemble.n_leaves == n_leaves(trained.forest).sum()


def test_shape_of_the_ensemble():
    params = TrainParams(max_iter=2, max_leaf_nodes=6, min_samples_leaf=4, max_bins=16)
    for n_classes, objective in ((0, "identity"), (2, "logistic"), (3, "softmax")):
        case = noise_case(1, 100, 2, n_classes, params)
        _, ensemble = fit(case)
        outputs = 3 if n_classes == 3 else 1
        assert ensemble.objective == objective
        assert ensemble.n_outputs == outputs
        assert ensemble.n_classes == n_classes
        assert ensemble.n_features == 2
        assert ensemble.tree_output.tolist() == list(range(outputs)) * 2
        assert (ensemble.count[ensemble.tree_start[:-1]] == case.data.count.sum()).all()
        leaf = ensemble.left < 0
        assert (ensemble.count[leaf] >= params.min_samples_leaf).all()
        assert set(ensemble.threshold[~leaf]) <= {*case.data.bins.values, np.finfo(float).max}


def test_missing_values_against_all_others():
    params = TrainParams(max_iter=1, max_leaf_nodes=2, min_samples_leaf=1, max_bins=16)
    case = noise_case(2, 40, 1, 2, params, weighted=False)
    missing = np.isnan(case.X[:, 0])
    case = replace(case, data=replace(case.data, label=missing.astype(np.int32)))
    trained, ensemble = fit(case)
    np.testing.assert_array_equal(trained.margins[0] > 0, missing)
    # Numbers beyond all that were seen are still numbers.
    far = np.array([[np.nan], [-np.finfo(float).max], [np.finfo(float).max]])
    assert (margins(ensemble, far)[:, 0] > 0).tolist() == [True, False, False]


def test_empty_forest_has_room():
    forest = empty_forest(6, 5, 3)
    assert forest.nodes.shape == (6, 9)
    assert forest.n_trees == 6
    assert forest.n_outputs == 3
    assert not forest.n_nodes.any()
