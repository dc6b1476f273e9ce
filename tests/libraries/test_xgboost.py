import copy
import json
import os
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.libraries import xgboost_models as models
from tests.trees.strategies import THRESHOLDS, rows_for, shapes
from timbermark.errors import FileFormatError, InputError, TimbermarkError
from timbermark.libraries import xgboost as library
from timbermark.libraries.probing import probe_rows
from timbermark.libraries.reading import Training
from timbermark.libraries.xgboost import document, ubjson
from timbermark.trees import reference
from timbermark.trees.ensemble import equal
from timbermark.trees.making import constant_ensemble, make_ensemble

xgb = pytest.importorskip("xgboost")
pytest.importorskip("pandas")

VERSION = tuple(int(part) for part in xgb.__version__.split(".")[:2])
EVERY = pytest.mark.parametrize("name", models.MAKERS)


def take(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def assert_agrees(model, reading, ensemble, X, singly=10):
    """XGBoost's margins are the reference predictor's: of all rows, and of single ones."""
    expected = reference.margins(ensemble, library.rows(replace(reading, ensemble=ensemble), X))
    found = library.margins(model, X)
    assert found.dtype == np.float64
    assert found.shape == (len(X), ensemble.n_outputs)
    np.testing.assert_array_equal(found, expected)
    for row in range(0, len(X), max(1, len(X) // singly)):
        one = library.margins(model, take(X, slice(row, row + 1)))
        np.testing.assert_array_equal(one, expected[row : row + 1])


def probes(reading, n_rows=120):
    """Rows on and next to thresholds, as the model takes them."""
    X = probe_rows(reading.ensemble, n_rows)
    missing = reading.extra["missing"]
    return X if np.isnan(missing) else np.where(np.isnan(X), missing, X)


def edited(name, edit, seed=0):
    model, X = models.made(name)
    reading = library.read(model)
    ensemble = models.EDITS[edit](reading.ensemble, np.random.default_rng(seed))
    return reading, ensemble, library.write(reading, ensemble), X


def loaded(path):
    model = library.load(path)
    booster_of(model).set_param({"nthread": 1})  # threads take long to start
    return model


def booster_of(model):
    return model if isinstance(model, xgb.Booster) else model.get_booster()


def state(model):
    """Everything of a model that could be changed by mistake."""
    booster = booster_of(model)
    own = {} if model is booster else {k: str(v) for k, v in vars(model).items() if k != "_Booster"}
    return bytes(booster.save_raw("ubj")), booster.save_config(), own


# What is read is what XGBoost predicts with.


@EVERY
def test_margins_are_those_of_the_library_bit_for_bit(name):
    model, X = models.made(name)
    reading = library.read(model)
    assert reading.library == library.NAME
    assert reading.kind == type(model).__name__
    assert_agrees(model, reading, reading.ensemble, X)
    assert_agrees(model, reading, reading.ensemble, probes(reading))
    assert_agrees(reading.native, reading, reading.ensemble, X, singly=1)


@EVERY
def test_labels_are_those_of_the_library(name):
    model, X = models.made(name)
    reading = library.read(model)
    assert len(reading.classes) == reading.ensemble.n_classes
    if isinstance(model, xgb.Booster):
        return
    scores = library.margins(model, X)
    found = reading.classes[reference.labels(scores, reading.ensemble)]
    np.testing.assert_array_equal(found, model.predict(X))


def test_objectives_and_outputs():
    for name, objective, outputs in (
        ("two classes", "logistic", 1),
        ("booster, raw", "logistic", 1),
        ("four classes", "softmax", 4),
        ("booster, softprob of two", "softmax", 2),
    ):
        ensemble = library.read(models.made(name)[0]).ensemble
        assert (ensemble.objective, ensemble.n_outputs) == (objective, outputs)


def test_the_models_are_as_queer_as_their_names():
    ensembles = {name: library.read(models.made(name)[0]).ensemble for name in models.MAKERS}
    raw = json.loads(models.made("pruned")[0].get_booster().save_raw("json"))
    trees = raw["learner"]["gradient_booster"]["model"]["trees"]
    assert any(tree["tree_param"]["num_deleted"] != "0" for tree in trees)
    assert sum(len(tree["parents"]) for tree in trees) > ensembles["pruned"].n_nodes
    for name in ("dart", "dart, many", "booster, dart", "categories, many"):
        assert len(np.unique(ensembles[name].tree_weight)) > 1
    for name in ("categories", "categories, many", "booster, category numbers"):
        assert (ensembles[name].category_set >= 0).any()
    assert ensembles["single leaves"].n_leaves == ensembles["single leaves"].n_trees
    assert len(np.unique(ensembles["parallel trees"].tree_output[:6])) == 3


# What is written predicts what the ensemble says.


@EVERY
def test_writing_the_same_changes_nothing(name):
    model, X = models.made(name)
    reading = library.read(model)
    written = library.write(reading, reading.ensemble)
    assert type(written) is type(model)
    assert_agrees(written, reading, reading.ensemble, X, singly=5)
    assert equal(library.read(written).ensemble, reading.ensemble)
    if name not in ("stopped early", "pruned"):
        assert booster_of(written).save_config() == booster_of(model).save_config()


@EVERY
@pytest.mark.parametrize("edit", models.EDITS)
def test_edited_trees_predict_what_the_reference_does(name, edit, tmp_path):
    before = state(models.made(name)[0])
    reading, ensemble, written, X = edited(name, edit)
    assert_agrees(written, reading, ensemble, X)
    rows = probes(replace(reading, ensemble=ensemble))
    assert_agrees(written, reading, ensemble, rows, singly=6)
    assert state(models.made(name)[0]) == before
    assert state(reading.native) == before
    path = tmp_path / ("model.json" if edit == "leaves" else "model.ubj")
    library.save(written, path)
    again = loaded(path)
    if isinstance(written, xgb.XGBClassifier):
        again.missing = written.missing  # no file holds it
    assert_agrees(again, reading, ensemble, X, singly=2)


@EVERY
def test_shap_values_and_importances_of_a_written_model(name):
    reading, _, written, X = edited(name, "shape")
    booster = booster_of(written)
    matrix = X
    if not isinstance(X, np.ndarray):
        matrix = xgb.DMatrix(X, enable_categorical=True)
    else:
        matrix = xgb.DMatrix(
            X, feature_names=booster.feature_names, missing=reading.extra["missing"]
        )
    contributions = booster.predict(matrix, pred_contribs=True)
    assert np.isfinite(contributions).all()
    total = contributions.sum(axis=-1).reshape(len(X), -1)
    np.testing.assert_allclose(total, library.margins(written, X), atol=1e-4)
    if isinstance(written, xgb.XGBClassifier) and name != "single leaves":
        importances = written.feature_importances_
        assert np.isfinite(importances).all()
        assert importances.shape == (reading.ensemble.n_features,)
    document = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    trees = document.get("gbtree", document)["model"]["trees"]
    assert min(min(tree["sum_hessian"]) for tree in trees) > 0


def test_statistics_of_trees_that_were_not_edited_stay():
    for name in ("two classes", "booster, dart", "deep"):
        model, _ = models.made(name)
        reading = library.read(model)
        written = library.write(reading, reading.ensemble)
        assert bytes(booster_of(written).save_raw("ubj")) == bytes(
            booster_of(model).save_raw("ubj")
        )


def test_siblings_are_written_side_by_side_and_without_gaps():
    for name in ("leaf-wise", "pruned"):
        _, _, written, _ = edited(name, "shape")
        model = json.loads(booster_of(written).save_raw("json"))["learner"]["gradient_booster"]
        for tree in model["model"]["trees"]:
            left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
            inner = left >= 0
            assert (right[inner] == left[inner] + 1).all()
            assert (np.sort(np.append(left[inner], right[inner])) == np.arange(1, len(left))).all()
            assert (np.array(tree["parents"])[left[inner]] == np.flatnonzero(inner)).all()


@st.composite
def ensembles_like(draw, e, n_trees):
    """Any trees that fit where these were; the last feature has categories."""
    trees = [draw(shapes()) for _ in range(n_trees)]
    left = np.array([child for tree in trees for child in tree[0]])
    right = np.array([child for tree in trees for child in tree[1]])
    inner, size = left >= 0, len(left)

    def column(inside, outside):
        drawn = draw(st.lists(inside, min_size=size, max_size=size))
        return np.where(inner, np.array(drawn), outside)

    sets = draw(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=3))
    feature = column(st.integers(0, e.n_features - 1), -1)
    chosen = column(st.integers(0, len(sets) - 1), -1)
    values = draw(st.lists(st.floats(-9, 9) | st.just(-0.0), min_size=size, max_size=size))
    weight = st.sampled_from([1.0, 0.5, 0.1, float(np.float32(0.3)), -2.0])
    return make_ensemble(
        n_features=e.n_features,
        n_outputs=e.n_outputs,
        tree_start=np.cumsum([0, *(len(tree[0]) for tree in trees)]),
        tree_output=draw(st.permutations(list(np.arange(n_trees) % e.n_outputs))),
        tree_weight=draw(st.lists(weight, min_size=n_trees, max_size=n_trees)),
        feature=feature,
        threshold=column(st.sampled_from(THRESHOLDS), 0.0),
        left=left,
        right=right,
        value=values,
        missing_left=column(st.booleans(), False),
        category_set=np.where(feature == e.n_features - 1, chosen, -1),
        category_offsets=np.cumsum([0, *map(len, sets)]),
        category_values=np.array([c for one in sets for c in sorted(one)], dtype=int),
        categories_go="right",
        count=draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)),
        init=e.init,
        strict=True,
        input_dtype="f4",
        sum_dtype="f4",
    )


@pytest.mark.parametrize("name", ["nothing missing", "softmax", "booster, dart"])
@given(data=st.data())
@settings(max_examples=15)
def test_any_trees_at_all(name, data):
    reading = library.read(models.made(name)[0])
    count = reading.ensemble.n_outputs * data.draw(st.integers(1, 2))
    ensemble = data.draw(ensembles_like(reading.ensemble, count))
    X = data.draw(rows_for(ensemble))
    if isinstance(reading.native, xgb.Booster):
        X[~(np.abs(X) < 1e38)] = np.nan  # a DMatrix takes nothing infinite
    written = library.write(reading, ensemble)
    assert_agrees(written, reading, ensemble, X)
    again = library.read(written)
    assert_agrees(written, again, again.ensemble, X)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 3]),
    st.sampled_from(["hist", "exact", "approx"]),
    st.floats(0, 0.5),
    st.integers(1, 5),
)
@settings(max_examples=15)
def test_any_data(seed, n_classes, method, missing, depth):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (40, 3)) / rng.choice([1, 3, 1e-3, 1e30])
    X[rng.random(X.shape) < missing] = np.nan
    y = rng.permutation(np.arange(40) % n_classes)
    model = models.wrapper(X, y, tree_method=method, max_depth=depth, min_child_weight=0.1)
    reading = library.read(model)
    assert_agrees(model, reading, reading.ensemble, X, singly=5)
    ensemble = models.reshaped(reading.ensemble, rng)
    written = library.write(reading, ensemble)
    assert_agrees(written, reading, ensemble, X, singly=5)


# What stays as it was.


def test_a_wrapper_keeps_its_parameters_names_and_categories():
    model, X = models.made("categories")
    _, _, written, _ = edited("categories", "shape")
    assert written.get_params() == model.get_params()
    np.testing.assert_array_equal(written.classes_, model.classes_)
    np.testing.assert_array_equal(written.feature_names_in_, model.feature_names_in_)
    assert booster_of(written).feature_types == booster_of(model).feature_types
    assert written.predict(X).dtype == model.predict(X).dtype
    with pytest.raises(ValueError, match="feature_names mismatch"):
        written.predict(X.rename(columns={"size": "weight"}))


def test_a_subclass_stays_one():
    model, X = models.made("two classes")
    again = copy.deepcopy(model)
    again.__class__ = type("Mine", (xgb.XGBClassifier,), {"colour": "green"})
    written = library.write(library.read(again), library.read(again).ensemble)
    assert type(written) is type(again)
    np.testing.assert_array_equal(written.predict(X), model.predict(X))


def test_a_written_model_can_be_trained_on():
    _, _, written, X = edited("two classes", "shape")
    more = copy.deepcopy(written).set_params(n_estimators=2)
    more.fit(X, models.labels(X, 2), xgb_model=written.get_booster())
    assert more.get_booster().num_boosted_rounds() == 6


def test_trees_after_the_best_iteration_do_not_count():
    model, X = models.made("stopped early")
    reading = library.read(model)
    rounds = model.best_iteration + 1
    assert reading.ensemble.n_trees == 3 * rounds
    assert f"best_iteration={model.best_iteration}" in reading.notes[0]
    written = library.write(reading, reading.ensemble)
    assert written.get_booster().num_boosted_rounds() == rounds
    assert written.best_iteration == model.best_iteration
    # All who read the written model agree on its predictions, also without that attribute.
    every = written.get_booster().predict(xgb.DMatrix(X), output_margin=True)
    np.testing.assert_array_equal(every, model.predict(X, output_margin=True))


def test_all_trees_of_a_booster_count():
    model, _ = models.made("booster, stopped early")
    reading = library.read(model)
    assert reading.ensemble.n_trees == 6
    assert "best_iteration=2" in reading.notes[0]
    assert library.write(reading, reading.ensemble).best_iteration == 2


def test_whole_rounds_can_be_left_out():
    model, X = models.made("four classes")
    reading = library.read(model)
    e = reading.ensemble

    def first(n):
        end = e.tree_start[n]
        names = ["feature", "threshold", "left", "right", "missing_left", "missing_kind"]
        names += ["category_set", "value", "count", "hessian", "gain"]
        cut = {name: getattr(e, name)[:end] for name in names}
        trees = {name: getattr(e, name)[:n] for name in ("tree_output", "tree_weight")}
        return replace(e, tree_start=e.tree_start[: n + 1], **cut, **trees)

    written = library.write(reading, first(8))
    assert written.get_booster().num_boosted_rounds() == 2
    assert_agrees(written, reading, first(8), X)
    for count in (7, 0):
        with pytest.raises(InputError, match=f"{count} trees are no whole number of rounds of 4"):
            library.write(reading, first(count))


# How it was trained.


@pytest.mark.parametrize("n_classes", [2, 3])
def test_training_as_it_was(n_classes):
    options = {"learning_rate": 0.07, "reg_lambda": 2.5, "min_child_weight": 0.5, "max_depth": 4}
    model, _ = models.plain(n_classes, **options, n_estimators=6)
    factor = 1.0 if n_classes == 2 else 2.0
    assert library.read(model).training == Training(
        learning_rate=0.07,
        l2_regularization=2.5,
        min_hessian=0.5,
        max_depth=4,
        hessian_factor=factor,
    )
    # The file has no configuration, and a loaded model states the defaults. The trees tell.
    again = xgb.XGBClassifier()
    again.load_model(model.get_booster().save_raw())
    found = library.read(again).training
    assert found.learning_rate == pytest.approx(0.07, rel=1e-3)
    assert found.l2_regularization == pytest.approx(2.5, rel=1e-2)
    assert (found.min_hessian, found.max_depth) == (None, None)


def test_training_that_the_trees_do_not_tell():
    model, _ = models.made("weighted")
    assert library.read(model).training.learning_rate == 0.3
    again = xgb.XGBClassifier()
    again.load_model(model.get_booster().save_raw())
    assert library.read(again).training == Training()
    model, _ = models.made("leaf-wise")
    assert library.read(model).training.max_leaf_nodes == 12


@pytest.mark.parametrize("n_classes", [2, 3])
def test_hessians_are_in_the_stated_units(n_classes):
    X = models.numbers()
    y = models.labels(X, n_classes)
    score = 0.5 if n_classes == 2 else 0.0
    model = models.wrapper(X, y, n_estimators=1, base_score=score)
    reading = library.read(model)
    p = 1 / n_classes
    expected = len(X) * p * (1 - p) * reading.training.hessian_factor
    np.testing.assert_allclose(reading.ensemble.hessian[0], expected, rtol=1e-5)


# Rows.


def test_categories_of_a_frame_are_those_of_the_model():
    model, X = models.made("categories")
    reading = library.read(model)
    expected = models.codes(X)
    np.testing.assert_array_equal(
        library.rows(reading, X)[:, 1:3], expected[:, 1:3].astype(np.float32)
    )
    other = X.assign(
        colour=X.colour.cat.reorder_categories(["pink", "black", "green", "red", "blue"]),
        year=X.year.cat.remove_categories([1993, 1999]),
    )
    assert_agrees(model, reading, reading.ensemble, other)
    if VERSION >= (3, 1):
        found = library.rows(reading, other)
        np.testing.assert_array_equal(found[:, 1], expected[:, 1])
        assert_agrees(model, reading, reading.ensemble, expected)


def test_names_of_categories_that_the_model_does_not_know():
    """Versions differ: some refuse, some count them as no category, some as the next number."""
    model, X = models.made("categories")
    reading = library.read(model)
    other = X.assign(colour=X.colour.cat.add_categories(["blå"]))
    other.loc[::7, "colour"] = "blå"
    try:
        library.margins(model, other)
    except InputError:
        with pytest.raises(InputError, match="does not take these rows"):
            library.rows(reading, other)
    else:
        assert_agrees(model, reading, reading.ensemble, other)


def test_strange_categories():
    model, X = models.made("booster, category numbers")
    reading = library.read(model)
    odd = np.array([-0.5, -1.0, -3.0, 0.5, 2.7, 12.9, 13.0, 500.0, 1e8, 2.0**31, np.nan])
    strange = np.repeat(X[:20], len(odd), axis=0)
    strange[:, 1] = np.tile(odd, 20)
    strange[:, 2] = np.tile(odd[::-1], 20)
    assert_agrees(model, reading, reading.ensemble, strange, singly=220)


def test_other_forms_of_rows():
    sparse = pytest.importorskip("scipy.sparse")
    import pandas as pd

    model, X = models.made("two classes")
    reading = library.read(model)
    zeros = np.where(np.abs(X) < 0.3, 0.0, X)
    for form in (
        sparse.csr_matrix(zeros),
        pd.DataFrame(X),
        X.astype(np.float32),
        np.nan_to_num(X * 10).astype(np.int64),
        X[:, 0:1] > [0, 0, 0, 0, 0],
        np.asfortranarray(X),
        X.astype(object),
    ):
        expected = reference.margins(reading.ensemble, library.rows(reading, form))
        np.testing.assert_array_equal(library.margins(model, form), expected)
    # What a sparse matrix leaves out is missing, not zero.
    assert np.isnan(library.rows(reading, sparse.csr_matrix(zeros))[zeros == 0]).all()
    matrix = xgb.DMatrix(X)
    expected = reference.margins(reading.ensemble, library.rows(reading, matrix))
    np.testing.assert_array_equal(library.margins(booster_of(model), matrix), expected)
    np.testing.assert_array_equal(library.margins(model, matrix), expected)


def test_rows_far_out():
    model, X = models.made("two classes")
    reading = library.read(model)
    far = np.where(X > 1, np.inf, np.where(X < -1, -1e300, X * 1e-45))
    assert_agrees(model, reading, reading.ensemble, far)


def test_rows_that_do_not_fit():
    model, X = models.made("two classes")
    reading = library.read(model)
    with pytest.raises(InputError, match=r"shape \(240, 4\), expected \(n, 5\)"):
        library.rows(reading, X[:, :4])
    with pytest.raises(InputError, match="not a matrix of numbers"):
        library.rows(reading, [["a"] * 5])
    with pytest.raises(InputError, match=r"does not take these rows: .*4"):
        library.margins(model, X[:, :4])
    core, _ = models.made("booster")
    with pytest.raises(InputError, match="inf"):
        library.margins(core, np.full((1, 5), np.inf))
    _, table = models.made("categories")
    reading = library.read(models.made("categories")[0])
    with pytest.raises(InputError, match="The columns are"):
        library.rows(reading, table[["colour", "size", "year", "length"]])
    with pytest.raises(InputError, match="does not take these rows"):
        library.rows(reading, table.assign(colour=table.colour.astype(object)))


# What is refused.


def unfit_models():
    X = models.numbers()
    y, y3 = models.labels(X, 2), models.labels(X, 3)
    trees = {"multi_strategy": "multi_output_tree", "tree_method": "hist"}
    yield "not fitted", lambda: xgb.XGBClassifier()
    yield "cannot be saved", lambda: xgb.Booster()
    yield "XGBRegressor", lambda: xgb.XGBRegressor(n_estimators=1).fit(X, y)
    yield "reg:squarederror", lambda: models.booster(X, y, objective="reg:squarederror")
    yield "rank:", lambda: xgb.XGBRanker(n_estimators=1).fit(X, y, qid=y * 0).get_booster()
    yield "binary:hinge", lambda: models.wrapper(X, y, objective="binary:hinge")
    yield "gblinear", lambda: models.wrapper(X, y, booster="gblinear", max_depth=None)
    yield "multi_output_tree", lambda: models.wrapper(X, y3, **trees)
    yield "multi-label", lambda: models.wrapper(X, np.column_stack([y, 1 - y]))
    yield "num_class", lambda: models.booster(X, y * 0, objective="multi:softmax", num_class=1)
    yield "no labels for binary:logitraw", lambda: models.wrapper(X, y, objective="binary:logitraw")
    yield (
        "no labels for multi:softprob",
        lambda: models.wrapper(X, y, objective="multi:softprob", num_class=2),
    )
    yield "has no trees", lambda: models.booster(X, y, rounds=0, objective="binary:logistic")
    yield "str is not a classifier", lambda: "a text"


@pytest.mark.parametrize(("reason", "make"), list(unfit_models()))
def test_models_that_are_refused(reason, make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
        with pytest.raises(InputError, match=reason) as caught:
            library.read(model)
    assert caught.value.hint


def test_ensembles_that_are_refused():
    model, _ = models.made("two classes")
    reading = library.read(model)
    e = reading.ensemble
    for changes, reason in (
        ({"strict": False}, "strict cannot be changed"),
        ({"sum_dtype": "f8"}, "sum_dtype"),
        ({"init": e.init + 1}, "init"),
        ({"missing_kind": np.zeros(e.n_nodes)}, "missing_kind"),
        ({"value": e.value + 1e300}, "too large"),
        ({"left": e.left * 0}, "node"),
        ({"threshold": e.threshold * np.nan}, "threshold"),
    ):
        with pytest.raises(InputError, match=reason):
            library.write(reading, replace(e, **changes))
    with pytest.raises(InputError, match="n_features"):
        library.write(reading, constant_ensemble(n_features=4, value=1.0))


def test_what_is_a_model():
    for name in ("two classes", "booster"):
        assert library.is_model(models.made(name)[0])
    assert library.is_model(xgb.XGBRegressor())
    assert not library.is_model(xgb.XGBClassifier)
    assert not library.is_model(np.zeros(3))


# Files.


@EVERY
@pytest.mark.parametrize("ending", ["json", "ubj"])
def test_files(name, ending, tmp_path):
    model, X = models.made(name)
    path = tmp_path / f"model.{ending}"
    before = state(model)
    library.save(model, path)
    assert state(model) == before
    assert library.is_file(path.read_bytes()[:64])
    found = loaded(os.fspath(path))
    again, reading = library.read(found), library.read(model)
    plain = name in ("booster, raw", "booster, softprob of two", "booster, stopped early")
    assert again.kind == ("Booster" if plain else "XGBClassifier")
    assert equal(again.ensemble, reading.ensemble)
    np.testing.assert_array_equal(again.classes, reading.classes)
    assert again.feature_names == reading.feature_names
    if isinstance(model, xgb.XGBClassifier):
        found.missing = model.missing
        np.testing.assert_array_equal(found.predict(X), model.predict(X))


def test_save_refuses(tmp_path):
    model, _ = models.made("two classes")
    with pytest.raises(InputError, match=r"model.bin does not end in .json or .ubj"):
        library.save(model, tmp_path / "model.bin")
    with pytest.raises(InputError, match="does not exist"):
        library.save(model, tmp_path / "none" / "model.ubj")
    with pytest.raises(InputError, match="not fitted"):
        library.save(xgb.XGBClassifier(), tmp_path / "model.ubj")
    with pytest.raises(FileNotFoundError):
        library.load(tmp_path / "none.ubj")


def parts_of(content):
    learner = content["learner"]
    booster = learner["gradient_booster"]
    model = booster.get("gbtree", booster)["model"]
    return learner, model, model["trees"][1]


def damages():
    """Ways to spoil a document: what is said of it, and the function that does it."""

    def tree(name, place, value):
        def damage(content):
            parts_of(content)[2][name][place] = value

        return damage

    def param(name, value):
        def damage(content):
            parts_of(content)[0]["learner_model_param"][name] = value

        return damage

    def without(part, name):
        return lambda content: parts_of(content)[part].pop(name)

    def change(part, name, value):
        return lambda content: parts_of(content)[part].update({name: value})

    yield "do not form a tree", tree("left_children", 0, 99)
    yield "do not form a tree", tree("left_children", 0, 0)
    yield "do not form a tree", tree("right_children", 0, -1)
    yield "do not form a tree", tree("right_children", 1, 2)
    yield "feature 77", tree("split_indices", 0, 77)
    yield "feature -1", tree("split_indices", 0, -1)
    yield "not finite", tree("split_conditions", -1, float("nan"))
    yield "not finite", tree("split_conditions", -1, float("inf"))
    yield "unknown type", tree("split_type", 0, 2)
    yield "left_children", tree("left_children", 0, 1.5)
    yield "left_children", tree("left_children", 0, None)
    yield "sum_hessian", tree("sum_hessian", 0, "1")
    yield "sum_hessian", tree("sum_hessian", 0, [1.0])
    yield "categories", tree("categories_segments", 0, 1)
    yield "categories", tree("categories_sizes", 0, 10**6)
    yield "categories", tree("categories_nodes", 0, -1)
    yield "categories", tree("categories", 0, 2**24)
    yield "categories", tree("categories", 0, -1)
    yield (
        "unknown type",
        lambda content: parts_of(content)[2].update(
            {name: [] for name in parts_of(content)[2] if name.startswith("categories")}
        ),
    )
    yield "nodes but", lambda content: parts_of(content)[2]["loss_changes"].pop()
    yield "id 7", change(2, "id", 7)
    yield "layout", without(2, "base_weights")
    yield "layout", change(2, "leaf_colours", [1.0])
    yield "no list", change(2, "parents_", {}) and change(2, "default_left", "1111")
    yield "feature_names=4", param("num_feature", "99")
    yield "num_feature", param("num_feature", "-1")
    yield "num_feature", param("num_feature", "9999999999")
    yield "num_feature", param("num_feature", 4)
    yield "num_class", param("num_class", "4")
    yield "base_score", param("base_score", "[1E-1,2E-1]")
    yield "base_score", param("base_score", "nan")
    yield "base_score", param("base_score", "x")
    yield "multi-label", param("num_target", "2")
    yield "no 'objective'", without(0, "objective")
    yield "no 'attributes'", without(0, "attributes")
    yield "attributes", change(0, "attributes", {"a": 1})
    yield "best_iteration=30", change(0, "attributes", {"best_iteration": "30"})
    yield "best_iteration", change(0, "attributes", {"best_iteration": "-1"})
    yield "feature_names", change(0, "feature_names", ["a"])
    yield "feature_types", change(0, "feature_types", ["q", "q", "q", "z"])
    yield "objective 'a'", change(0, "objective", {"name": "a"})
    yield "booster='b'", lambda content: parts_of(content)[0]["gradient_booster"].update(name="b")
    yield "tree_info", lambda content: parts_of(content)[1]["tree_info"].__setitem__(0, 3)
    yield "num_trees", lambda content: parts_of(content)[1]["trees"].pop()
    yield "iteration_indptr", change(1, "iteration_indptr", [0, 3, 2, 12])
    yield "layout", change(1, "leaf_colours", [1.0])
    yield "version", lambda content: content.update(version=["3", "2", "0"])
    yield "no 'version'", lambda content: content.pop("version")
    yield "written by XGBoost 99.0.0", lambda content: content.update(version=[99, 0, 0])
    if VERSION >= (3, 1):
        yield "feature_segments", lambda c: parts_of(c)[1]["cats"]["feature_segments"].pop()
        yield "sorted_idx", lambda c: parts_of(c)[1]["cats"]["sorted_idx"].__setitem__(0, 3)
        yield "offsets", lambda c: parts_of(c)[1]["cats"]["enc"][1]["offsets"].__setitem__(1, 99)
        yield "values", lambda c: parts_of(c)[1]["cats"]["enc"][1]["values"].__setitem__(1, 0.5)


@pytest.fixture(scope="module")
def category_document():
    model, _ = models.with_categories(3, n_estimators=4)
    return bytes(model.get_booster().save_raw("json"))


@pytest.mark.parametrize(("said", "damage"), list(damages()))
@pytest.mark.parametrize("form", ["json", "ubj"])
def test_damaged_documents(said, damage, form, category_document, tmp_path):
    content = json.loads(category_document)
    damage(content)
    raw = json.dumps(content).encode() if form == "json" else ubjson.encode(content)
    path = tmp_path / "model"
    path.write_bytes(raw)
    with pytest.raises(FileFormatError, match=said) as caught:
        library.load(path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_files_of_other_kinds(tmp_path):
    for raw in (b"", b"{", b"[1]", b'{"a": 1}', b"{}", b"PK\3\4", b"binf\0", b"[" * 10**5):
        (tmp_path / "model").write_bytes(raw)
        assert not library.is_file(raw)
        with pytest.raises(FileFormatError):
            library.load(tmp_path / "model")
    nested = b'{"learner":' * 10**5
    (tmp_path / "model").write_bytes(nested)
    with pytest.raises(FileFormatError):
        library.load(tmp_path / "model")


def test_old_files(tmp_path):
    """Before 2.0 there was no list of rounds, and flags were written as true and false."""
    model, X = models.made("parallel trees")
    content = json.loads(model.get_booster().save_raw("json"))
    learner, forest, _ = parts_of(content)
    forest.pop("iteration_indptr")
    forest.pop("cats", None)
    learner["learner_model_param"].pop("num_target")
    content["version"] = [1, 7, 0]
    for tree in forest["trees"]:
        tree["default_left"] = [bool(flag) for flag in tree["default_left"]]
        tree["tree_param"]["size_leaf_vector"] = "0"
    (tmp_path / "old.json").write_text(json.dumps(content))
    if VERSION >= (3, 1):
        with_vector = learner["learner_model_param"]["base_score"]
        assert with_vector.startswith("[")
    found = loaded(tmp_path / "old.json")
    np.testing.assert_array_equal(library.margins(found, X), library.margins(model, X))


@pytest.mark.parametrize("form", ["json", "ubj"])
@pytest.mark.parametrize("name", ["categories", "booster, dart"])
def test_spoilt_files_are_refused_or_still_sound(name, form, tmp_path):
    model, _ = models.made(name)
    raw = bytes(booster_of(model).save_raw(form))
    rng = np.random.default_rng(len(raw))
    path = tmp_path / "model"
    messages = []
    for trial in range(60):
        spoilt = bytearray(raw)
        if trial % 3 == 0:
            spoilt = spoilt[: rng.integers(len(raw))]
        else:
            for _ in range(rng.choice([1, 1, 2, 8])):
                # Digits and signs make other numbers of numbers, bytes make nonsense.
                new = rng.choice(list(b'0123456789-.,[]{}"e')) if trial % 3 == 1 else None
                spoilt[rng.integers(len(spoilt))] = rng.integers(256) if new is None else new
        path.write_bytes(bytes(spoilt))
        try:
            found = loaded(path)
            reading = library.read(found)
        except TimbermarkError as error:
            messages.append(error.message)
        else:
            rows = probe_rows(reading.ensemble, 20)
            assert_agrees(found, reading, reading.ensemble, rows, singly=1)
    assert len(messages) > 20
    assert not any("\n" in message for message in messages)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
        | st.floats(width=32, allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)  # fmt: skip
def test_ubj_goes_back_as_it_came(value):
    assert ubjson.decode(ubjson.encode(value)) == value


@given(st.binary(max_size=40))
def test_ubj_of_any_bytes(raw):
    with suppress(FileFormatError):
        ubjson.decode(raw)


@pytest.mark.parametrize("name", ["booster, dart", "categories", "four classes"])
def test_our_ubj_is_the_library_s(name):
    model, _ = models.made(name)
    raw = bytes(booster_of(model).save_raw("ubj"))
    ours = ubjson.decode(raw)
    theirs = json.loads(booster_of(model).save_raw("json"))
    assert (
        document.outline(ours).tree_output.tolist() == document.outline(theirs).tree_output.tolist()
    )

    def same(a, b):
        if isinstance(b, dict):
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in b)
        if isinstance(b, list) and b and not isinstance(b[0], dict | str):
            return np.array_equal(np.float32(a), np.float32(b), equal_nan=True)
        if isinstance(b, list):
            return len(a) == len(b) and all(map(same, a, b))
        return a == b

    assert same(ours, theirs)


# Independent readers of a written model.


@pytest.mark.parametrize(
    "name", ["two classes", "four classes", "deep", "booster, category numbers"]
)
def test_treelite_agrees(name):
    treelite = pytest.importorskip("treelite")
    reading, ensemble, written, X = edited(name, "shape")
    other = treelite.frontend.from_xgboost(booster_of(written))
    rows = library.rows(reading, X).astype(np.float32)
    found = treelite.gtil.predict(other, rows, pred_margin=True).reshape(len(rows), -1)
    np.testing.assert_allclose(found, reference.margins(ensemble, rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["two classes", "four classes", "pruned"])
def test_onnx_gives_the_same_labels(name):
    onnxmltools = pytest.importorskip("onnxmltools")
    runtime = pytest.importorskip("onnxruntime")
    types = pytest.importorskip("onnxmltools.convert.common.data_types")
    _, _, written, X = edited(name, "shape")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = onnxmltools.convert_xgboost(
            written, initial_types=[("rows", types.FloatTensorType([None, X.shape[1]]))]
        )
    session = runtime.InferenceSession(
        converted.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = session.run(None, {"rows": X.astype(np.float32)})[0]
    np.testing.assert_array_equal(found, written.predict(X))
