"""What every adapter keeps, with every kind of model of every library."""

import copy
import importlib
import json
import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.libraries.leaf_changes import other_leaves
from timbermark import libraries
from timbermark.errors import InputError, StateError
from timbermark.libraries.catboost.cbm import unpack
from timbermark.libraries.closing import probe_rows
from timbermark.trees import reference
from timbermark.trees.ensemble import ARRAY_TYPES, equal, scalars

pytest.importorskip("pandas")

MODELS = {
    "xgboost": "xgboost_models",
    "lightgbm": "lightgbm_models",
    "catboost": "catboost_models",
    "histogram": "histogram_models",
    "gradient": "gradient_models",
}
PACKAGES = {"histogram": "sklearn", "gradient": "sklearn"}
# Which files hold a model exactly, and whether writing it twice gives the same bytes.
ENDINGS = {
    "xgboost": (".json", ".ubj"),
    "lightgbm": (".txt",),
    "catboost": (".cbm",),
    "histogram": (".skops",),
    "gradient": (".skops",),
}


def cases():
    for library, module in MODELS.items():
        if importlib.util.find_spec(PACKAGES.get(library, library)):
            makers = importlib.import_module(f"tests.libraries.{module}").MAKERS
            yield from ((library, name) for name in makers)


CASES = list(cases())
TYPICAL = [
    ("xgboost", "two classes"),
    ("xgboost", "categories, many"),
    ("xgboost", "booster, dart"),
    ("xgboost", "stopped early"),
    ("lightgbm", "frame, three"),
    ("lightgbm", "regularized, three"),
    ("lightgbm", "booster"),
    ("catboost", "two"),
    ("catboost", "three, lossguide"),
    ("catboost", "statistics, three"),
    ("histogram", "three, categories"),
    ("histogram", "frame"),
    ("gradient", "three classes"),
    ("gradient", "frame"),
]
every = pytest.mark.parametrize("case", CASES, ids=", ".join)
typical = pytest.mark.parametrize("case", TYPICAL, ids=", ".join)


@cache
def made(case):
    """The model, rows for it, and what was opened; none to be changed."""
    library, name = case
    module = importlib.import_module(f"tests.libraries.{MODELS[library]}")
    model, X = module.MAKERS[name]()[:2]
    return model, X, libraries.open(model)


@cache
def closed(case):
    """Other leaf values, and the model closed around them."""
    foreign = made(case)[2]
    ensemble = other_leaves(foreign)
    return ensemble, libraries.close(foreign, ensemble)


def take(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def inner(model):
    for name in ("get_booster", "booster_"):
        if hasattr(model, name):
            found = getattr(model, name)
            return found() if callable(found) else found
    return model


def state(model):
    """Everything that a library's file says of a model, in a form that can be compared."""
    library = libraries.open(model).library
    if library == "XGBoost":
        return bytes(inner(model).save_raw("ubj")), inner(model).save_config()
    if library == "LightGBM":
        return inner(model).model_to_string(num_iteration=-1)
    if library == "CatBoost":
        contents = unpack(model.__getstate__()["__model"])
        # CatBoost itself rounds the parameters whenever it loads a model.
        info = {key: value for key, value in contents.info.items() if key != b"params"}
        return repr(contents.trees), contents.trees["LeafValues"].tobytes(), info
    if hasattr(model, "_predictors"):
        trees = [tree for iteration in model._predictors for tree in iteration]
        return [tree.nodes.tobytes() for tree in trees], model.get_params()
    trees = [estimator.tree_.__getstate__() for estimator in model.estimators_.ravel()]
    # The bytes between the fields are random.
    nodes = [[t["nodes"][name].tobytes() for name in t["nodes"].dtype.names] for t in trees]
    return nodes, [tree["values"].tobytes() for tree in trees], str(model.get_params())


def assert_predicts(foreign, ensemble, model, X, singles=4):
    """A model's margins are the ensemble's, bit for bit, together and one by one."""
    adapter = foreign.adapter
    for asked in (X, foreign.native_rows(probe_rows(ensemble, 80, seed=1))):
        expected = reference.margins(ensemble, foreign.rows(asked))
        found = adapter.margins(model, asked)
        assert found.dtype == np.float64
        assert found.shape == (asked.shape[0], ensemble.n_outputs)
        np.testing.assert_array_equal(found, expected)
        for row in range(0, singles * 7, 7):
            one = adapter.margins(model, take(asked, slice(row, row + 1)))
            np.testing.assert_array_equal(one, expected[row : row + 1])


# Opening


@every
def test_the_ensemble_predicts_what_the_model_does(case):
    model, X, foreign = made(case)
    assert foreign.kind == type(model).__name__
    assert type(foreign.native) is type(model)
    assert foreign.native is not model
    assert_predicts(foreign, foreign.ensemble, model, X)
    np.testing.assert_array_equal(foreign.margins(X), foreign.adapter.margins(model, X))


@every
def test_labels_and_confidence_are_those_of_the_model(case):
    model, X, foreign = made(case)
    margins = foreign.margins(X)
    confidence = foreign.confidence(margins)
    assert confidence.shape == (X.shape[0], len(foreign.classes))
    if not hasattr(model, "predict_proba"):
        return
    tolerance = 1e-6 if foreign.leaf_dtype == "f4" else 1e-12
    np.testing.assert_allclose(confidence, model.predict_proba(X), rtol=0, atol=tolerance)
    labels = foreign.classes[reference.labels(margins, foreign.ensemble)]
    np.testing.assert_array_equal(labels, np.ravel(model.predict(X)))


@typical
def test_rows_and_native_rows_are_inverse(case):
    _, X, foreign = made(case)
    rows = foreign.rows(X)
    again = foreign.rows(foreign.native_rows(rows))
    if case[1].startswith("statistics"):  # CatBoost knows hashes of categories only
        numbers = slice(0, foreign.extra.n_columns)
        rows, again = rows[:, numbers], again[:, numbers]
    np.testing.assert_array_equal(rows, again)


# Closing


@every
def test_closed_unchanged_it_is_the_same_model(case):
    model, X, foreign = made(case)
    before = state(model)
    same = libraries.close(foreign, foreign.ensemble)
    assert type(same) is type(model)
    assert same is not foreign.native
    assert state(same) == before
    assert_predicts(foreign, foreign.ensemble, same, X, singles=1)
    assert equal(libraries.open(same).ensemble, foreign.ensemble)


@every
def test_closed_with_other_leaves_it_predicts_what_the_reference_does(case):
    model, X, foreign = made(case)
    before = state(model), state(foreign.native)
    ensemble, marked = closed(case)
    assert type(marked) is type(model)
    assert_predicts(foreign, ensemble, marked, X)
    assert (state(model), state(foreign.native)) == before
    twin = pickle.loads(pickle.dumps(marked))
    np.testing.assert_array_equal(
        foreign.adapter.margins(twin, X), foreign.adapter.margins(marked, X)
    )


@every
def test_only_values_and_what_follows_from_them_change(case):
    foreign = made(case)[2]
    old, new = foreign.ensemble, libraries.open(closed(case)[1]).ensemble
    expected = closed(case)[0]
    if case[0] in ("lightgbm", "xgboost"):
        # Splits that are numbered by gain may have been numbered anew.
        expected = in_depth_first_order(expected)
        old, new = in_depth_first_order(old), in_depth_first_order(new)
    assert scalars(new) == scalars(old)
    for name in ARRAY_TYPES.keys() - {"value", "gain"}:
        np.testing.assert_array_equal(getattr(new, name), getattr(old, name), err_msg=name)
    leaf = new.left < 0
    np.testing.assert_array_equal(new.value[leaf], expected.value[leaf])
    assert np.isfinite(new.gain).all()
    assert (new.gain[(old.gain > 0) & ~leaf] >= 0).all()


def in_depth_first_order(e):
    """The ensemble with nodes and category sets in an order that does not depend on numbers."""
    order, left, right = [], [], []
    for first, last in zip(e.tree_start[:-1], e.tree_start[1:], strict=True):
        nodes, walk = [], [0]
        while walk:
            node = walk.pop()
            nodes.append(node)
            if e.left[first + node] >= 0:
                walk += [e.right[first + node], e.left[first + node]]
        place = np.empty(last - first, dtype=int)
        place[nodes] = np.arange(last - first)
        for side, found in ((e.left, left), (e.right, right)):
            child = side[first:last][nodes]
            found.append(np.where(child >= 0, place[child], -1))
        order.append(first + np.array(nodes))
    order = np.concatenate(order)
    sets = e.category_set[order]
    asked = sets[sets >= 0]
    members = [e.category_values[e.category_offsets[s] : e.category_offsets[s + 1]] for s in asked]
    sets[sets >= 0] = np.arange(len(asked))
    per_node = ("feature", "threshold", "missing_left", "missing_kind", "value", "count", "gain")
    return replace(
        e,
        left=np.concatenate(left),
        right=np.concatenate(right),
        category_set=sets,
        category_offsets=np.cumsum([0, *map(len, members)]),
        category_values=np.concatenate([np.empty(0, dtype=np.int32), *members]),
        # Sums depend on the order in the last bit.
        hessian=e.hessian[order].round(9),
        **{name: getattr(e, name)[order] for name in per_node},
    )


@every
def test_files_hold_the_closed_model(case, tmp_path):
    _, X, foreign = made(case)
    ensemble, marked = closed(case)
    for ending in ENDINGS[case[0]]:
        if ending == ".skops":
            pytest.importorskip("skops")
        path = tmp_path / f"model{ending}"
        libraries.save(marked, path)
        again = libraries.open(path)
        assert again.library == foreign.library
        loaded = libraries.load(path)
        if hasattr(marked, "missing"):
            loaded.missing = marked.missing  # no file of XGBoost holds it
        assert_predicts(foreign, ensemble, loaded, X, singles=1)
        first = path.read_bytes()
        libraries.save(marked, path, force=True)
        assert ending == ".skops" or path.read_bytes() == first


@typical
@given(data=st.data())
@settings(max_examples=8)
def test_any_leaf_values(case, data):
    _, X, foreign = made(case)
    e = foreign.ensemble
    width = 32 if foreign.leaf_dtype == "f4" else 64
    numbers = st.floats(-(2.0**99), 2.0**99, width=width) | st.sampled_from([0.0, -0.0, 2.0**-149])
    drawn = data.draw(st.lists(numbers, min_size=1, max_size=9))
    values = np.resize(np.array(drawn), e.value.shape)
    ensemble = replace(e, value=np.where(e.left[:, np.newaxis] < 0, values, e.value))
    marked = libraries.close(foreign, ensemble)
    assert_predicts(foreign, ensemble, marked, X, singles=1)


# What is refused


def broken(e):
    """Every field changed in some way, by its name."""
    yield "left", replace(e, left=e.right, right=e.left)
    for name, dtype in ARRAY_TYPES.items():
        array = getattr(e, name)
        if name in ("value", "left", "threshold") or not array.size:
            continue
        changed = array.copy()
        changed[0] = not changed[0] if dtype == np.bool_ else changed[0] + 1
        yield name, replace(e, **{name: changed})
    yield "strict", replace(e, strict=not e.strict)
    yield "n_features", replace(e, n_features=e.n_features + 1)
    yield "tree_start", replace(e, tree_start=e.tree_start[:-1])


@typical
def test_anything_but_leaf_values_and_thresholds_is_refused(case):
    foreign = made(case)[2]
    for name, wrong in broken(foreign.ensemble):
        with pytest.raises(InputError, match=f"{name} of the ensemble is not that of") as caught:
            libraries.close(foreign, wrong)
        assert "leaf values" in caught.value.hint


@typical
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_leaf_values_that_are_no_numbers_are_refused(case, value):
    foreign = made(case)[2]
    values = foreign.ensemble.value.copy()
    values[-1] = value
    with pytest.raises(InputError, match="not finite"):
        libraries.close(foreign, replace(foreign.ensemble, value=values))


def test_leaf_values_that_the_library_cannot_hold_are_refused():
    foreign = made(("xgboost", "two classes"))[2]
    for value in (0.1, 1e300):
        values = foreign.ensemble.value.copy()
        values[-1] = value
        with pytest.raises(InputError, match=r"not exact in XGBoost's float32.*astype\('f4'\)"):
            libraries.close(foreign, replace(foreign.ensemble, value=values))


def test_values_of_inner_nodes_do_not_matter():
    foreign = made(("xgboost", "two classes"))[2]
    e = foreign.ensemble
    ensemble = replace(e, value=np.where(e.left[:, np.newaxis] < 0, e.value, 7.1))
    assert state(libraries.close(foreign, ensemble)) == state(made(("xgboost", "two classes"))[0])


@typical
def test_a_model_that_predicts_something_else_is_noticed(case, monkeypatch):
    foreign = made(case)[2]
    # The adapter forgets the new leaves.
    monkeypatch.setattr(foreign.adapter, "close", lambda foreign, ensemble: foreign.native)
    with pytest.raises(StateError, match="does not predict what timbermark does"):
        libraries.close(foreign, other_leaves(foreign))


# What else a closed model can do


EXPLAINED = [case for case in CASES if case[0] in ("xgboost", "lightgbm")]


@pytest.mark.parametrize("case", EXPLAINED, ids=", ".join)
def test_shap_values_add_up_to_the_margin(case):
    _, X, foreign = made(case)
    marked = closed(case)[1]
    asked = take(X, slice(0, 20))
    if case[0] == "lightgbm":
        found = marked.predict(asked, pred_contrib=True)
    else:
        import xgboost

        booster = inner(marked)
        best = booster.attr("best_iteration") if marked is not booster else None
        matrix = xgboost.DMatrix(
            asked,
            missing=foreign.extra.missing,
            enable_categorical=True,
            feature_names=booster.feature_names if isinstance(asked, np.ndarray) else None,
        )
        found = booster.predict(
            matrix, pred_contribs=True, iteration_range=(0, 0 if best is None else int(best) + 1)
        )
    parts = np.asarray(found).reshape(20, foreign.ensemble.n_outputs, -1)
    np.testing.assert_allclose(
        parts.sum(axis=2), foreign.adapter.margins(marked, asked), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", ["two", "three", "weighted", "statistics", "three, ova"])
def test_shap_values_of_catboost_add_up(name):
    catboost = pytest.importorskip("catboost")
    _, X, foreign = made(("catboost", name))
    marked = closed(("catboost", name))[1]
    asked = take(X, slice(0, 20))
    categories = [each["FlatIndex"] for each in foreign.extra.contents.trees["CatFeatures"]]
    pool = catboost.Pool(asked, cat_features=categories)
    found = marked.get_feature_importance(pool, type="ShapValues")
    np.testing.assert_allclose(
        found.reshape(20, foreign.ensemble.n_outputs, -1).sum(axis=2),
        foreign.adapter.margins(marked, asked),
        rtol=1e-7,
        atol=1e-9,
    )


@typical
def test_parameters_importances_and_copies(case):
    model, X, foreign = made(case)
    marked = closed(case)[1]
    twin = copy.deepcopy(marked)
    np.testing.assert_array_equal(
        foreign.adapter.margins(twin, X), foreign.adapter.margins(marked, X)
    )
    if not hasattr(model, "get_params"):
        return
    assert str(marked.get_params()) == str(model.get_params())
    np.testing.assert_array_equal(marked.classes_, model.classes_)
    assert marked.n_features_in_ == model.n_features_in_
    if hasattr(model, "feature_importances_"):
        importances = np.asarray(marked.feature_importances_)
        assert importances.shape == np.shape(model.feature_importances_)
        assert np.isfinite(importances).all()
    if case[0] != "catboost" or not case[1].startswith("statistics"):
        from sklearn.base import clone

        assert str(clone(marked).get_params()) == str(clone(model).get_params())


@pytest.mark.parametrize(
    "case",
    [
        ("xgboost", "two classes"),
        ("lightgbm", "two"),
        ("catboost", "two"),
        ("histogram", "two classes"),
        ("gradient", "two classes"),
    ],
    ids=", ".join,
)
def test_training_goes_on_from_a_closed_model(case):
    _, X, foreign = made(case)
    marked = closed(case)[1]
    before = foreign.adapter.margins(marked, X)
    y = np.arange(X.shape[0]) % 2
    if case[0] in ("histogram", "gradient"):
        rounds = "max_iter" if case[0] == "histogram" else "n_estimators"
        more = copy.deepcopy(marked)
        more.set_params(warm_start=True, **{rounds: more.get_params()[rounds] + 2}).fit(X, y)
        *_, stage = list(more.staged_decision_function(X))[:-2]
        np.testing.assert_array_equal(stage.ravel(), before[:, 0])
    else:
        more = type(marked)(**marked.get_params())
        start = {"xgboost": "xgb_model", "catboost": "init_model", "lightgbm": "init_model"}
        given = marked if case[0] == "catboost" else inner(marked)
        more.fit(X, y, **{start[case[0]]: given})
        opened = libraries.open(more)
        assert opened.ensemble.n_trees > foreign.ensemble.n_trees
        np.testing.assert_array_equal(
            opened.ensemble.value[opened.ensemble.left < 0][:5],
            libraries.open(marked).ensemble.value[foreign.ensemble.left < 0][:5],
        )
    np.testing.assert_array_equal(foreign.adapter.margins(marked, X), before)


# Trees after the best iteration


@pytest.mark.parametrize(
    "case",
    [
        ("xgboost", "stopped early"),
        ("lightgbm", "stopped and kept"),
        ("lightgbm", "best by hand"),
    ],
    ids=", ".join,
)
def test_trees_after_the_best_iteration_stay(case):
    model, _, foreign = made(case)
    marked = closed(case)[1]
    old, new = (trees_of(m, case[0]) for m in (model, marked))
    n_trees = foreign.ensemble.n_trees
    assert len(old) > n_trees
    assert old[n_trees:] == new[n_trees:]
    assert old[:n_trees] != new[:n_trees]
    assert any("stay as they are" in note for note in foreign.notes)
    assert inner(marked).best_iteration == inner(model).best_iteration > 0


def trees_of(model, library):
    if library == "lightgbm":
        return inner(model).model_to_string(num_iteration=-1).split("\nTree=")[1:]
    document = json.loads(inner(model).save_raw("json"))["learner"]["gradient_booster"]
    return document["model"]["trees"]


def test_opening_builds_the_ensemble_once(tmp_path, monkeypatch):
    pytest.importorskip("xgboost")
    from timbermark.libraries.xgboost import models

    path = tmp_path / "model.json"
    libraries.save(made(("xgboost", "two classes"))[0], path)
    built = []
    original = models.to_forest
    monkeypatch.setattr(models, "to_forest", lambda known: built.append(1) or original(known))
    libraries.open(path)
    assert len(built) == 1
