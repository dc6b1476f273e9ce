"""Moved thresholds in every library: what is written, what is predicted, what is refused."""

import copy
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.libraries import number_models
from tests.libraries.leaf_changes import other_leaves
from tests.libraries.test_contract import ENDINGS, every, inner, made, typical
from tests.libraries.test_wrappers import CASES as DEPLOYED
from tests.libraries.test_wrappers import made as deployed
from tests.libraries.test_wrappers import table
from tests.libraries.threshold_changes import (
    borders_of,
    moved_in_gaps,
    other_thresholds,
    rows_around,
    with_borders,
)
from timbermark import TimberClassifier, TimberRegressor, libraries
from timbermark.errors import InputError
from timbermark.libraries.catboost.cbm import unpack
from timbermark.marking.models import close_model, load, open_model, save
from timbermark.trees import reference
from timbermark.trees.ensemble import equal


@cache
def moved(case):
    """Other thresholds, and the model closed around them."""
    foreign = made(case)[2]
    ensemble = other_thresholds(foreign)
    return ensemble, libraries.close(foreign, ensemble)


def assert_predicts(foreign, ensemble, model, X):
    """Rows at, below and above every old and new threshold get the reference's margins."""
    asked = foreign.native_rows(rows_around([foreign.ensemble, ensemble], foreign.rows(X)))
    for rows in (X, asked):
        if len(rows) if isinstance(rows, list) else rows.shape[0]:
            np.testing.assert_array_equal(
                foreign.adapter.margins(model, rows),
                reference.margins(ensemble, foreign.rows(rows)),
            )


# What is written and predicted


@every
def test_a_closed_model_has_the_new_thresholds_and_nothing_else_new(case):
    model, X, foreign = made(case)
    ensemble, marked = moved(case)
    assert type(marked) is type(model)
    if foreign.movable.any():
        assert (ensemble.threshold != foreign.ensemble.threshold).any()
    # Counts, hessians, gains and values of inner nodes included, bit for bit.
    assert equal(libraries.open(marked).ensemble, ensemble)
    assert_predicts(foreign, ensemble, marked, X)


@every
def test_files_hold_the_thresholds(case, tmp_path):
    _, X, foreign = made(case)
    ensemble, marked = moved(case)
    for ending in ENDINGS[case[0]]:
        if ending == ".skops":
            pytest.importorskip("skops")
        path = tmp_path / f"model{ending}"
        libraries.save(marked, path)
        again = libraries.open(path)
        n_nodes = ensemble.n_nodes
        np.testing.assert_array_equal(again.ensemble.threshold[:n_nodes], ensemble.threshold)
        loaded = again.native
        if hasattr(marked, "missing"):
            loaded.missing = marked.missing  # no file of XGBoost holds it
        assert_predicts(foreign, ensemble, loaded, X)


@pytest.mark.parametrize("case", number_models.CASES, ids=", ".join)
def test_regressors_and_rankers(case):
    pytest.importorskip(
        case[0].split()[0].replace("histogram", "sklearn").replace("gradient", "sklearn")
    )
    X = number_models.data()[0]
    foreign = libraries.open(number_models.fitted(*case))
    ensemble = other_thresholds(foreign)
    marked = libraries.close(foreign, ensemble)
    assert equal(libraries.open(marked).ensemble, ensemble)
    assert_predicts(foreign, ensemble, marked, X)


@typical
def test_leaves_and_thresholds_change_together(case):
    _, X, foreign = made(case)
    ensemble = replace(other_leaves(foreign), threshold=other_thresholds(foreign).threshold)
    marked = libraries.close(foreign, ensemble)
    assert_predicts(foreign, ensemble, marked, X)
    # Statistics are those of the same leaves over the old thresholds.
    leaves_alone = libraries.open(libraries.close(foreign, other_leaves(foreign))).ensemble
    again = libraries.open(marked).ensemble
    assert equal(replace(again, threshold=leaves_alone.threshold), leaves_alone)
    assert sorted(again.threshold) == sorted(ensemble.threshold)


@typical
@given(data=st.data())
@settings(max_examples=8)
def test_moving_inside_gaps_changes_no_row(case, data):
    _, X, foreign = made(case)
    shares = data.draw(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9))
    rows = foreign.rows(X)
    ensemble = moved_in_gaps(foreign, rows, shares)
    marked = libraries.close(foreign, ensemble)
    np.testing.assert_array_equal(foreign.adapter.margins(marked, X), foreign.margins(X))
    np.testing.assert_array_equal(
        reference.leaf_indices(ensemble, rows), reference.leaf_indices(foreign.ensemble, rows)
    )


@typical
@given(data=st.data())
@settings(max_examples=8)
def test_any_finite_threshold(case, data):
    _, X, foreign = made(case)
    width = 32 if foreign.threshold_dtype == "f4" else 64
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    numbers |= st.sampled_from([0.0, -0.0, 2.0**-149, 1.0])
    drawn = data.draw(st.lists(numbers, min_size=1, max_size=9))
    ensemble = with_borders(foreign, np.resize(drawn, len(borders_of(foreign)[0])))
    marked = libraries.close(foreign, ensemble)
    again = libraries.open(marked).ensemble
    np.testing.assert_array_equal(again.threshold, ensemble.threshold)
    assert_predicts(foreign, ensemble, marked, X)


@pytest.mark.parametrize("case", [("lightgbm", "three, categories"), ("lightgbm", "regularized")])
def test_of_lightgbms_text_only_thresholds_change(case):
    before, after = (
        inner(model).model_to_string(num_iteration=-1).split("\n")
        for model in (made(case)[0], moved(case)[1])
    )
    assert len(before) == len(after)
    changed = {a.partition("=")[0] for a, b in zip(before, after, strict=True) if a != b}
    assert changed == {"threshold", "tree_sizes"}


@pytest.mark.parametrize("case", [("xgboost", "two classes"), ("xgboost", "stopped early")])
def test_of_xgboosts_trees_only_conditions_of_splits_change(case):
    import json

    old, new = (
        json.loads(inner(model).save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
        for model in (made(case)[0], moved(case)[1])
    )
    n_trees = made(case)[2].ensemble.n_trees
    assert old[n_trees:] == new[n_trees:]
    for one, other in zip(old[:n_trees], new[:n_trees], strict=True):
        leaf = np.array(one["left_children"]) < 0
        conditions = [np.array(tree.pop("split_conditions")) for tree in (one, other)]
        np.testing.assert_array_equal(*(each[leaf] for each in conditions))
        assert one == other


# Shared borders of CatBoost


def catboost_borders(model):
    trees = unpack(model.__getstate__()["__model"]).trees
    return [feature["Borders"] for feature in trees["FloatFeatures"]]


@pytest.mark.parametrize("name", ["two", "three, lossguide", "statistics", "two, deep"])
def test_borders_may_pass_and_meet_each_other(name):
    _, X, foreign = made(("catboost", name))
    _, old, *_ = borders_of(foreign)
    for new in (-old, np.round(old), np.full(len(old), 0.25)):
        ensemble = with_borders(foreign, new)
        marked = libraries.close(foreign, ensemble)
        for borders in catboost_borders(marked):
            assert (np.diff(borders) > 0).all()
        np.testing.assert_array_equal(libraries.open(marked).ensemble.threshold, ensemble.threshold)
        assert_predicts(foreign, ensemble, marked, X)


@pytest.mark.parametrize("name", ["two", "two, lossguide", "three"])
def test_a_border_moves_for_all_trees_or_for_none(name):
    foreign = made(("catboost", name))[2]
    assert foreign.shared_thresholds
    *_, nodes, of_node = borders_of(foreign)
    often = np.flatnonzero(np.bincount(of_node) > 1)[0]
    threshold = foreign.ensemble.threshold.copy()
    threshold[nodes[of_node == often][0]] = 0.25
    with pytest.raises(InputError) as caught:
        libraries.close(foreign, replace(foreign.ensemble, threshold=threshold))
    assert caught.value.code == "thresholds.shared"


def test_borders_of_category_statistics_stay():
    foreign = made(("catboost", "statistics, combined"))[2]
    numbers = [c for c, borders in foreign.fixed_thresholds.items() if borders is not None]
    e = foreign.ensemble
    fixed = (e.left >= 0) & np.isin(e.feature, numbers) & ~foreign.movable
    assert fixed.any()
    threshold = e.threshold.copy()
    threshold[fixed] += 0.25
    with pytest.raises(InputError) as caught:
        libraries.close(foreign, replace(e, threshold=threshold))
    assert caught.value.code == "thresholds.fixed"


# The bins of HistGradientBoosting


HISTOGRAM = [("histogram", name) for name in ("two classes", "three, missing", "frame", "few bins")]


def bins_of(model):
    """Thresholds of splits by number, and the edges of their bins."""
    nodes = np.concatenate([tree.nodes for one in model._predictors for tree in one])
    nodes = nodes[(nodes["is_leaf"] == 0) & (nodes["is_categorical"] == 0)]
    nodes = nodes[np.isfinite(nodes["num_threshold"])]
    edges = model._bin_mapper.bin_thresholds_
    edge = [edges[f][b] for f, b in zip(nodes["feature_idx"], nodes["bin_threshold"], strict=True)]
    return nodes["num_threshold"], np.array(edge)


@pytest.mark.parametrize("case", HISTOGRAM, ids=", ".join)
@given(data=st.data())
@settings(max_examples=8)
def test_bins_and_their_edges_follow(case, data):
    model, _, foreign = made(case)
    threshold, edge = bins_of(model)
    np.testing.assert_array_equal(edge, threshold)
    before = model._bin_mapper.bin_thresholds_
    _, old, *_ = borders_of(foreign)
    # Everything within windows that do not overlap moves to one place in each.
    ends = np.unique(data.draw(st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=30)))
    window = np.searchsorted(ends, old)
    share = data.draw(st.floats(0.01, 0.99))
    bounds = np.concatenate([[ends[0] - 3.0], ends, [ends[-1] + 3.0]])
    low, high = bounds[window], bounds[window + 1]
    ensemble = with_borders(foreign, low + share * (high - low))
    marked = libraries.close(foreign, ensemble)
    threshold, edge = bins_of(marked)
    mapper = marked._bin_mapper.bin_thresholds_
    assert [len(edges) for edges in mapper] == [len(edges) for edges in before]
    assert all((np.diff(edges) > 0).all() for edges in mapper)
    np.testing.assert_array_equal(edge, threshold)  # nothing shows where they were


@pytest.mark.parametrize("case", HISTOGRAM, ids=", ".join)
@given(st.integers(0, 99), st.sampled_from([1e-3, 0.05, 2.0]))
@settings(max_examples=8)
def test_whatever_thresholds_do_edges_rise(case, seed, size):
    model, X, foreign = made(case)
    ensemble = other_thresholds(foreign, seed, size)
    marked = libraries.close(foreign, ensemble)
    mapper = marked._bin_mapper.bin_thresholds_
    old = model._bin_mapper.bin_thresholds_
    assert [len(edges) for edges in mapper] == [len(edges) for edges in old]
    assert all((np.diff(edges) > 0).all() for edges in mapper)
    assert_predicts(foreign, ensemble, marked, X)


def test_training_goes_on_by_bins_as_it_would_by_numbers():
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)).round(1)
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    model = HistGradientBoostingClassifier(max_iter=5, random_state=0).fit(X, y)
    foreign = libraries.open(model)
    # Within gaps no training row moves, and whoever goes on training finds the same.
    for shares in ([0.1], [0.9], [0.2, 0.8, 0.5]):
        marked = libraries.close(foreign, moved_in_gaps(foreign, X, shares))
        one, other = (
            copy.deepcopy(each).set_params(warm_start=True, max_iter=8).fit(X, y)
            for each in (model, marked)
        )
        np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    # A threshold that passes an edge takes the bin that sends training rows its way.
    edges = model._bin_mapper.bin_thresholds_
    column, old, *_ = borders_of(foreign)
    new = [edges[c][min(np.searchsorted(edges[c], t) + 2, len(edges[c]) - 1)]
           for c, t in zip(column, old, strict=True)]  # fmt: skip
    marked = libraries.close(foreign, with_borders(foreign, new))
    binned = marked._bin_mapper.transform(X)
    for tree, expected in zip((i[0] for i in marked._predictors), staged(marked, X), strict=True):
        found = tree.predict_binned(binned, marked._bin_mapper.missing_values_bin_idx_, 1)
        np.testing.assert_array_equal(found, expected)


def staged(model, X):
    """What each tree adds to rows, by their numbers."""
    bitsets = model._bin_mapper.make_known_categories_bitsets()
    return [tree[0].predict(X, *bitsets, 1) for tree in model._predictors]


# Our own models


@pytest.mark.parametrize("kind", [TimberClassifier, TimberRegressor])
def test_our_own_models(kind, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    score = np.nan_to_num(X[:, 0] + X[:, 1])
    y = np.digitize(score, [-0.5, 0.5]) if kind is TimberClassifier else score
    model = kind(max_iter=10, random_state=0).fit(X, y)
    foreign = open_model(model)
    before = model.predict(X)
    inside = moved_in_gaps(foreign, X, [0.1, 0.6])
    assert (inside.threshold != foreign.ensemble.threshold).any()
    np.testing.assert_array_equal(close_model(foreign, inside).predict(X), before)
    for ensemble in (inside, other_thresholds(foreign)):
        marked = close_model(foreign, ensemble)
        assert equal(marked.ensemble_, ensemble)
        # The fast predictor compares codes, which are made of the new thresholds.
        asked = rows_around([foreign.ensemble, ensemble], X)
        np.testing.assert_array_equal(marked._margins(asked), reference.margins(ensemble, asked))
        save(marked, tmp_path / "model.timber", force=True)
        again = load(tmp_path / "model.timber")
        assert equal(again.ensemble_, ensemble)
        np.testing.assert_array_equal(again._margins(asked), marked._margins(asked))
        marked.rebuild_state(X, y).update(X[:50], y[:50])
        assert np.isfinite(marked._margins(X)).all()
    np.testing.assert_array_equal(model.predict(X), before)
    infinite = np.where(foreign.movable, np.inf, foreign.ensemble.threshold)
    with pytest.raises(InputError) as caught:
        close_model(foreign, replace(foreign.ensemble, threshold=infinite))
    assert caught.value.code == "values.not-finite"


# Deployed models


@pytest.mark.parametrize(("wrapper", "library", "n_classes"), DEPLOYED)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_deployed_models(wrapper, library, n_classes):
    model = deployed(wrapper, library, n_classes)
    X, _ = table(n_classes)
    foreign = libraries.open(model)
    rows = foreign.rows(X)
    inside = moved_in_gaps(foreign, rows, [0.1, 0.8])
    assert (inside.threshold != foreign.ensemble.threshold).any()
    adapter = foreign.adapter
    same = libraries.close(foreign, inside)
    np.testing.assert_array_equal(adapter.margins(same, X), adapter.margins(model, X))
    ensemble = other_thresholds(foreign)
    marked = libraries.close(foreign, ensemble)
    np.testing.assert_array_equal(adapter.margins(marked, X), reference.margins(ensemble, rows))
    again = libraries.open(marked).ensemble
    assert equal(again, ensemble)


# Other programs


def in_float32(foreign, size=0.05):
    """Moved thresholds that float32 holds, as exports do, with rows around all of them."""
    _, old, *_ = borders_of(foreign)
    new = old + size * np.random.default_rng(3).normal(size=len(old))
    ensemble = with_borders(foreign, new.astype(np.float32))
    single = replace(ensemble, input_dtype="f4")
    base = np.random.default_rng(4).normal(size=(50, ensemble.n_features))
    old_one = replace(
        foreign.ensemble,
        input_dtype="f4",
        threshold=np.where(np.isfinite(foreign.ensemble.threshold), foreign.ensemble.threshold, 0),
    )
    rows = rows_around([old_one, single], base.astype(np.float32).astype(float))
    return ensemble, rows.astype(np.float32)


TREELITE = [
    *(("xgboost", name) for name in ("two classes", "four classes", "deep")),
    *(("lightgbm", name) for name in ("two", "three", "regularized, three")),
    *(("histogram", name) for name in ("two classes", "three classes", "deep")),
    *(("gradient", name) for name in ("two classes", "three classes", "deep")),
]


@pytest.mark.parametrize("case", TREELITE, ids=", ".join)
def test_treelite_keeps_the_thresholds(case, tmp_path):
    treelite = pytest.importorskip("treelite")
    foreign = made(case)[2]
    ensemble, rows = in_float32(foreign)
    marked = libraries.close(foreign, ensemble)
    if case[0] == "xgboost":
        other = treelite.frontend.from_xgboost(inner(marked))
    elif case[0] == "lightgbm":
        libraries.save(marked, tmp_path / "model.txt")
        other = treelite.frontend.load_lightgbm_model(tmp_path / "model.txt")
    else:
        other = treelite.sklearn.import_model(marked)
    asked = rows if case[0] == "xgboost" else rows.astype(float)
    found = treelite.gtil.predict(other, asked, pred_margin=True).reshape(len(rows), -1)
    expected = reference.margins(ensemble, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert (np.abs(expected - reference.margins(foreign.ensemble, rows)) > 1e-4).any()


ONNX = [
    *(("xgboost", name) for name in ("two classes", "four classes")),
    *(("lightgbm", name) for name in ("two", "three")),
    *(("catboost", name) for name in ("two", "three")),
    *(("gradient", name) for name in ("two classes", "three classes")),
]


@pytest.mark.parametrize("case", ONNX, ids=", ".join)
def test_onnx_keeps_the_thresholds(case, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    _, X, foreign = made(case)
    ensemble, rows = in_float32(foreign)
    marked = libraries.close(foreign, ensemble)
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path.write_bytes(export(case[0], marked, X.shape[1], path))
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: rows})[1]
    if not isinstance(found, np.ndarray):
        found = np.array([[one[key] for key in sorted(one)] for one in found])
    expected = foreign.confidence(reference.margins(ensemble, rows).astype(float))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    before = foreign.confidence(reference.margins(foreign.ensemble, rows).astype(float))
    assert (np.abs(expected - before) > 1e-3).any()


def export(library, model, width, path):
    if library == "catboost":
        model.save_model(str(path), format="onnx")
        return path.read_bytes()
    if library == "gradient":
        skl2onnx = pytest.importorskip("skl2onnx")
        types = pytest.importorskip("skl2onnx.common.data_types")
        kind = [("rows", types.FloatTensorType([None, width]))]
        return skl2onnx.to_onnx(model, initial_types=kind).SerializeToString()
    onnxmltools = pytest.importorskip("onnxmltools")
    types = pytest.importorskip("onnxmltools.convert.common.data_types")
    kind = [("rows", types.FloatTensorType([None, width]))]
    if library == "xgboost":
        return onnxmltools.convert_xgboost(model, initial_types=kind).SerializeToString()
    made = onnxmltools.convert_lightgbm(model, initial_types=kind, target_opset=15, zipmap=False)
    return made.SerializeToString()


# What is refused


@typical
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_thresholds_that_are_not_finite_are_refused(case, value):
    foreign = made(case)[2]
    threshold = foreign.ensemble.threshold.copy()
    threshold[np.flatnonzero(foreign.movable)[0]] = value
    with pytest.raises(InputError) as caught:
        libraries.close(foreign, replace(foreign.ensemble, threshold=threshold))
    assert caught.value.code == "values.not-finite"


@pytest.mark.parametrize("case", [("xgboost", "two classes"), ("catboost", "two")], ids=", ".join)
@pytest.mark.parametrize("value", [0.1, 1e300])
def test_thresholds_that_the_library_cannot_hold_are_refused(case, value):
    foreign = made(case)[2]
    threshold = np.where(foreign.movable, value, foreign.ensemble.threshold)
    with pytest.raises(InputError) as caught:
        libraries.close(foreign, replace(foreign.ensemble, threshold=threshold))
    assert caught.value.code == "values.not-exact"


@typical
def test_leaves_and_splits_by_category_have_no_threshold(case):
    foreign = made(case)[2]
    e = foreign.ensemble
    stuck = np.flatnonzero(~foreign.movable)
    kinds = {
        (e.left[node] < 0, e.category_set[node] < 0, np.isfinite(e.threshold[node])): node
        for node in stuck
    }
    for node in kinds.values():
        threshold = e.threshold.copy()
        threshold[node] = 0.75
        with pytest.raises(InputError) as caught:
            libraries.close(foreign, replace(e, threshold=threshold))
        assert caught.value.code == "thresholds.fixed"


def test_splits_of_missing_values_stay():
    from sklearn.ensemble import HistGradientBoostingClassifier

    X = np.random.default_rng(0).normal(size=(200, 2))
    X[::2, 0] = np.nan
    model = HistGradientBoostingClassifier(max_iter=2).fit(X, np.arange(200) % 2)
    foreign = libraries.open(model)
    e = foreign.ensemble
    missing = (e.left >= 0) & np.isinf(e.threshold)
    assert missing.any()
    threshold = np.where(missing, 0.5, e.threshold)
    with pytest.raises(InputError) as caught:
        libraries.close(foreign, replace(e, threshold=threshold))
    assert caught.value.code == "thresholds.fixed"


# What an adapter says


@every
def test_columns_of_the_ensemble_are_those_of_the_table(case):
    _, X, foreign = made(case)
    columns = foreign.input_columns
    assert len(columns) == foreign.ensemble.n_features
    assert not np.isin(foreign.ensemble.feature[foreign.movable], np.flatnonzero(columns < 0)).any()
    rows = foreign.rows(X)
    for place, column in enumerate(columns):
        if column < 0:
            continue
        given = X.iloc[:, column] if hasattr(X, "iloc") else X[:, column]
        given = given.toarray().ravel() if hasattr(given, "toarray") else np.asarray(given)
        if given.dtype.kind in "OUSb" and not all(isinstance(v, float | int) for v in given):
            continue
        kept = given.astype(float).astype(foreign.ensemble.input_dtype).astype(float)
        found = rows[:, place].astype(foreign.ensemble.input_dtype).astype(float)
        same = (found == kept) | np.isnan(found)
        assert same.all()


def test_which_libraries_store_labels():
    said = {
        case[0]: foreign.stores_labels
        for case in [
            ("xgboost", "two classes"),
            ("lightgbm", "two"),
            ("catboost", "two"),
            ("histogram", "two classes"),
            ("gradient", "two classes"),
        ]
        if (foreign := made(case)[2])
    }
    assert said == {
        "xgboost": False,
        "lightgbm": True,
        "catboost": True,
        "histogram": True,
        "gradient": True,
    }
    assert not made(("lightgbm", "booster"))[2].stores_labels
