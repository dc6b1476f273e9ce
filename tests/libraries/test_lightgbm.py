import copy
import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timbermark.errors import FileFormatError, InputError, MissingLibraryError, TimbermarkError
from timbermark.libraries import lightgbm as library
from timbermark.libraries.lightgbm.text import Frame, parse_text, print_text
from timbermark.libraries.lightgbm.trees import MOST_DEPTH, from_ensemble
from timbermark.libraries.probing import probe_rows
from timbermark.trees import reference
from timbermark.trees.making import make_ensemble

lgb = pytest.importorskip("lightgbm")
threadpoolctl = pytest.importorskip("threadpoolctl")

from tests.libraries.lightgbm_models import (  # noqa: E402
    EDITS,
    MAKERS,
    SMALL,
    booster,
    classes_of,
    classifier,
    table,
)
from tests.trees.strategies import VALUES, ensembles  # noqa: E402

every_model = pytest.mark.parametrize("name", MAKERS)
every_edit = pytest.mark.parametrize("edit", EDITS)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """OpenMP's threads wait for each other in a loop, which is slow where others work as well."""
    with threadpoolctl.threadpool_limits(1):
        yield


@cache
def made(name):
    model, X = MAKERS[name]()
    return model, X, library.read(model)


def booster_of(model):
    return model if isinstance(model, lgb.Booster) else model.booster_


def text_of(model):
    return booster_of(model).model_to_string(num_iteration=-1)


def part_of(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def questions(X, reading):
    """Rows of the table, and awkward ones for a table of plain numbers."""
    asked = [part_of(X, slice(0, 25))]
    probes = probe_rows(reading.ensemble, 60)
    probes[:4] = [[0.0], [1e-36], [-1e-40], [np.inf]] * np.ones(probes.shape[1])
    return [*asked, probes]


def assert_predicts(model, reading, ensemble, X):
    """The model's margins are the ensemble's, bit for bit, together and one by one."""
    for asked in questions(X, reading):
        expected = reference.margins(ensemble, library.rows(reading, asked))
        found = library.margins(model, asked)
        assert found.dtype == np.float64
        assert found.shape == (len(asked), ensemble.n_outputs)
        np.testing.assert_array_equal(found, expected)
        singly = [library.margins(model, part_of(asked, slice(i, i + 1))) for i in range(6)]
        np.testing.assert_array_equal(np.vstack(singly), expected[:6])


@every_model
def test_the_ensemble_predicts_what_the_model_does(name):
    model, X, reading = made(name)
    assert_predicts(model, reading, reading.ensemble, X)
    assert reading.library == library.NAME == "LightGBM"
    assert reading.kind == type(model).__name__


@every_model
def test_labels_are_those_of_the_model(name):
    model, X, reading = made(name)
    margins = reference.margins(reading.ensemble, library.rows(reading, X))
    found = reading.classes[reference.labels(margins, reading.ensemble)]
    if isinstance(model, lgb.Booster):
        shares = model.predict(X)
        expected = shares.argmax(axis=1) if shares.ndim == 2 else (shares > 0.5).astype(int)
    else:
        expected = model.predict(X)
    np.testing.assert_array_equal(found, expected)


@every_model
def test_probabilities_are_those_of_the_scaled_margins(name):
    model, X, reading = made(name)
    margins = reference.margins(reading.ensemble, library.rows(reading, X))
    scaled = margins * reading.extra["probability_scale"]
    found = reference.probabilities(scaled, reading.ensemble.objective)
    expected = booster_of(model).predict(X)
    if reading.ensemble.objective == "logistic":
        found = found[:, 1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert bool(reading.notes) >= (reading.extra["probability_scale"] != 1)


@every_model
def test_written_unchanged_it_is_the_same(name):
    model, X, reading = made(name)
    before = text_of(model)
    written = library.write(reading, reading.ensemble)
    assert type(written) is type(model)
    assert_predicts(written, reading, reading.ensemble, X)
    again = library.read(written)
    assert again.training == reading.training
    assert again.feature_names == reading.feature_names
    for field in ("tree_start", "left", "right", "feature", "threshold", "value", "gain"):
        np.testing.assert_array_equal(
            getattr(again.ensemble, field), getattr(reading.ensemble, field)
        )
    # Only single leaves get statistics that they did not have.
    if reading.ensemble.count.all() and reading.ensemble.hessian.all():
        assert again.ensemble == reading.ensemble
    assert text_of(model) == before


@every_model
@every_edit
def test_written_with_other_trees(name, edit):
    model, X, reading = made(name)
    before = text_of(model), text_of(reading.native)
    ensemble = EDITS[edit](reading.ensemble, np.random.default_rng(len(name)))
    written = library.write(reading, ensemble)
    assert type(written) is type(model)
    assert_predicts(written, reading, ensemble, X)
    assert_predicts(model, reading, reading.ensemble, X)
    assert (text_of(model), text_of(reading.native)) == before
    # What a pickle or a copy of it predicts is the same.
    assert_predicts(pickle.loads(pickle.dumps(written)), reading, ensemble, X)


@every_model
@every_edit
def test_saved_and_loaded(name, edit, tmp_path):
    _, X, reading = made(name)
    ensemble = EDITS[edit](reading.ensemble, np.random.default_rng(7))
    written = library.write(reading, ensemble)
    library.save(written, tmp_path / "model.txt")
    assert library.is_file((tmp_path / "model.txt").read_bytes()[:100])
    loaded = library.load(tmp_path / "model.txt")
    assert type(loaded) is lgb.Booster
    assert_predicts(loaded, reading, ensemble, X)
    assert loaded.pandas_categorical == booster_of(written).pandas_categorical
    # The library reads the file itself, and wrote what it would have written.
    itself = lgb.Booster(model_file=tmp_path / "model.txt")
    assert loaded.params == itself.params
    assert loaded.model_to_string() == itself.model_to_string()
    booster_of(written).save_model(tmp_path / "its own.txt")
    assert (tmp_path / "model.txt").read_bytes() == (tmp_path / "its own.txt").read_bytes()


@every_model
@pytest.mark.parametrize("edit", ["leaves", "shapes"])
def test_explanations_and_importances(name, edit):
    _, X, reading = made(name)
    ensemble = EDITS[edit](reading.ensemble, np.random.default_rng(3))
    written = library.write(reading, ensemble)
    asked = part_of(X, slice(0, 20))
    found = booster_of(written).predict(asked, pred_contrib=True)
    parts = np.asarray(found).reshape(20, ensemble.n_outputs, ensemble.n_features + 1)
    np.testing.assert_allclose(
        parts.sum(axis=2), library.margins(written, asked), rtol=1e-9, atol=1e-9
    )
    splits = ensemble.left >= 0
    used = np.bincount(ensemble.feature[splits], minlength=ensemble.n_features)
    np.testing.assert_array_equal(booster_of(written).feature_importance("split"), used)
    gained = np.bincount(
        ensemble.feature[splits], ensemble.gain[splits], minlength=ensemble.n_features
    )
    np.testing.assert_allclose(
        booster_of(written).feature_importance("gain"), gained, rtol=1e-4, atol=1e-6
    )
    for tree in booster_of(written).dump_model()["tree_info"]:
        assert_statistics(tree["tree_structure"])


def assert_statistics(node):
    """Every statistic is there, positive, and that of a split the sum of those below."""
    if "left_child" not in node:
        return
    below = [node["left_child"], node["right_child"]]
    for key in ("count", "weight"):
        found = [side.get(f"leaf_{key}", side.get(f"internal_{key}")) for side in below]
        assert min(found) > 0
        assert node[f"internal_{key}"] == pytest.approx(sum(found), rel=1e-4)
    values = [side.get("leaf_value", side.get("internal_value")) for side in below]
    between = min(values) - 1e-4, max(values) + 1e-4
    assert between[0] <= node["internal_value"] <= between[1]
    assert_statistics(below[0])
    assert_statistics(below[1])


def test_statistics_that_are_not_there_do_no_harm():
    _, X, reading = made("two, categories")
    none = np.zeros(reading.ensemble.n_nodes)
    ensemble = replace(reading.ensemble, count=none, hessian=none, gain=none)
    written = library.write(reading, ensemble)
    assert np.isfinite(written.predict(X, pred_contrib=True)).all()
    assert written.feature_importances_.sum() == np.count_nonzero(ensemble.left >= 0)
    assert_predicts(written, reading, ensemble, X)
    huge = np.where(ensemble.left < 0, 1e300, np.inf)
    ensemble = replace(reading.ensemble, count=huge.clip(max=1e308), gain=huge)
    written = library.write(reading, ensemble)
    assert np.isfinite(written.booster_.feature_importance("gain")).all()
    assert_predicts(written, reading, ensemble, X)


def test_a_classifier_stays_as_it_was():
    model, X, reading = made("frame, three")
    written = library.write(reading, EDITS["shapes"](reading.ensemble, np.random.default_rng(1)))
    assert written.get_params() == model.get_params()
    assert written.classes_.tolist() == model.classes_.tolist() == ["maybe", "no", "yes"]
    assert written.n_features_in_ == model.n_features_in_
    assert written.feature_name_ == model.feature_name_
    assert written.feature_name_[1] == "größe"
    assert reading.feature_names == tuple(model.feature_name_)
    assert written.booster_.pandas_categorical == model.booster_.pandas_categorical
    assert written.booster_.params == model.booster_.params
    assert set(written.predict(X)) <= set(model.classes_)
    assert written._le is not model._le
    # It can be trained again.
    assert written.fit(X, written.predict(X)).predict(X).shape == (len(X),)


def test_the_best_iteration_is_kept():
    model, X, reading = made("stopped and kept")
    best = model.best_iteration
    assert reading.ensemble.n_trees == 3 * best
    written = library.write(reading, reading.ensemble)
    assert written.best_iteration == written.current_iteration() == best
    assert written.best_score == model.best_score
    assert f"first {best} of" in reading.notes[0]

    model, X, reading = made("stopped early")
    written = library.write(reading, reading.ensemble)
    assert written.best_iteration_ == model.best_iteration_ == written.booster_.best_iteration
    shorter = cut(reading.ensemble, 3)
    written = library.write(reading, shorter)
    assert written.best_iteration_ == written.booster_.best_iteration == 1
    assert_predicts(written, reading, shorter, X)


def cut(e, n_trees):
    last = e.tree_start[n_trees]
    per_node = ("feature", "threshold", "left", "right", "missing_left", "missing_kind")
    per_node += ("category_set", "value", "count", "hessian", "gain")
    return replace(
        e,
        tree_start=e.tree_start[: n_trees + 1],
        tree_output=e.tree_output[:n_trees],
        tree_weight=e.tree_weight[:n_trees],
        **{name: getattr(e, name)[:last] for name in per_node},
    )


def joined(first, second):
    """The trees of one ensemble after those of another; neither has categories."""
    per_node = ("feature", "threshold", "left", "right", "missing_left", "missing_kind")
    per_node += ("category_set", "value", "count", "hessian", "gain")
    return replace(
        first,
        tree_start=np.concatenate([first.tree_start, first.n_nodes + second.tree_start[1:]]),
        **{
            name: np.concatenate([getattr(first, name), getattr(second, name)])
            for name in ("tree_output", "tree_weight", *per_node)
        },
    )


def test_more_trees_fewer_trees_no_trees():
    _, X, reading = made("three")
    for ensemble in (
        joined(reading.ensemble, reading.ensemble),
        cut(reading.ensemble, 3),
        cut(reading.ensemble, 0),
    ):
        written = library.write(reading, ensemble)
        assert written.booster_.num_trees() == ensemble.n_trees
        assert_predicts(written, reading, ensemble, X)


def test_weights_of_trees_go_into_the_leaves():
    _, X, reading = made("two")
    ensemble = replace(reading.ensemble, tree_weight=np.linspace(0.1, 1.7, 6))
    assert_predicts(library.write(reading, ensemble), reading, ensemble, X)


# Ensembles of every shape.


@cache
def blank(n_features, objective, n_outputs):
    """A model without trees to write any ensemble into."""
    name = {"logistic": "binary", "softmax": "multiclass", "sigmoid": "multiclassova"}[objective]
    line = {
        "logistic": "binary sigmoid:1",
        "softmax": f"multiclass num_class:{n_outputs}",
        "sigmoid": f"multiclassova num_class:{n_outputs} sigmoid:1",
    }[objective]
    kept = {
        "label_index": "0",
        "max_feature_idx": str(n_features - 1),
        "objective": line,
        "feature_infos": " ".join(["none"] * n_features),
    }
    names = tuple(f"f{i}" for i in range(n_features))
    frame = Frame(name, n_outputs, 1.0, False, names, kept, {}, "null")
    empty = make_ensemble(
        n_features=n_features, n_outputs=n_outputs, objective=objective, tree_start=[0],
        feature=[], threshold=[], left=[], right=[], value=np.zeros((0, 1)),
    )  # fmt: skip
    text = print_text(frame, from_ensemble(empty, np.zeros(0)))
    return library.read(lgb.Booster(model_str=text))


@st.composite
def expressible(draw):
    """An ensemble that LightGBM can have, and rows."""
    e = draw(ensembles())
    n_trees = e.n_trees - e.n_trees % e.n_outputs
    e = cut(replace(e, value=e.value[:, :1]), n_trees)
    e = replace(
        e,
        tree_output=np.arange(n_trees) % e.n_outputs,
        missing_left=e.missing_left & (e.category_set < 0),
        categories_go="left",
        init=np.zeros(e.n_outputs),
        init_last=False,
        scale=1.0,
        strict=False,
        input_dtype="f8",
        sum_dtype="f8",
        zero_is_positive=False,
    )
    row = st.lists(st.sampled_from(VALUES), min_size=e.n_features, max_size=e.n_features)
    return e, np.array(draw(st.lists(row, min_size=1, max_size=6)), dtype=np.float64)


@given(expressible())
@settings(max_examples=150)
def test_any_expressible_ensemble_is_written_and_read_back(drawn):
    ensemble, X = drawn
    reading = blank(ensemble.n_features, ensemble.objective, ensemble.n_outputs)
    written = library.write(reading, ensemble)
    expected = reference.margins(ensemble, library.rows(reading, X))
    np.testing.assert_array_equal(library.margins(written, X), expected)
    again = library.read(written)
    np.testing.assert_array_equal(
        reference.margins(again.ensemble, library.rows(again, X)), expected
    )
    twice = library.write(again, again.ensemble)
    assert text_of(twice) == text_of(written)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30))
def test_numbers_survive_to_the_last_bit(values):
    n = len(values)
    # A comb: row i goes right i times and then left, at thresholds that are values themselves.
    rising = sorted(set(values))
    leaves, splits = len(rising) + 1, len(rising)
    comb = make_ensemble(
        n_features=1,
        tree_start=[0, 2 * splits + 1],
        feature=[0] * splits + [-1] * leaves,
        threshold=rising + [0.0] * leaves,
        left=[splits + i for i in range(splits)] + [-1] * leaves,
        right=[i + 1 for i in range(splits - 1)] + [2 * splits] + [-1] * leaves,
        value=[0.0] * splits + [values[i % n] for i in range(leaves)],
    )
    reading = blank(1, "logistic", 1)
    written = library.write(reading, comb)
    kept = library.read(written).ensemble
    assert kept.threshold.tobytes() == comb.threshold.tobytes()
    assert kept.value.tobytes() == comb.value.tobytes()
    X = np.array([[x] for v in rising for x in (math.nextafter(v, -math.inf), v)])
    expected = reference.margins(comb, library.rows(reading, X))
    np.testing.assert_array_equal(library.margins(written, X), expected)


def test_an_ensemble_that_lightgbm_cannot_have_is_refused():
    _, _, reading = made("three, categories")
    e = reading.ensemble
    by_category = e.category_set >= 0
    for ensemble, message in (
        (replace(e, strict=True), "strict=True"),
        (replace(e, sum_dtype="f4"), "sum_dtype='f4'"),
        (replace(e, input_dtype="f4"), "input_dtype='f4'"),
        (replace(e, zero_is_positive=True), "zero_is_positive"),
        (replace(e, categories_go="right"), "categories_go"),
        (replace(e, init_last=True), "init_last"),
        (replace(e, init=np.array([0.0, 0.5, 0.0])), "start from 0"),
        (replace(e, tree_output=e.tree_output[::-1].copy()), "take turns"),
        (replace(e, missing_left=by_category), "missing categories"),
        (replace(e, tree_weight=np.full(e.n_trees, 1e308), value=e.value * 1e10), "infinite"),
        (cut(e, 4), "4 trees for 3 classes"),
        (replace(e, n_features=9), "n_features=9"),
        (replace(e, objective="sigmoid"), "objective='sigmoid'"),
        (replace(e, left=np.where(e.left == 1, 2, e.left)), "reached"),
        (replace(e, value=np.full_like(e.value, np.nan)), "not finite"),
        (made("two")[2].ensemble, "n_outputs=1"),
    ):
        with pytest.raises(InputError, match=message):
            library.write(reading, ensemble)


def chain(depth):
    return make_ensemble(
        n_features=1,
        tree_start=[0, 2 * depth + 1],
        feature=[0] * depth + [-1] * (depth + 1),
        threshold=[*range(depth), *[0] * (depth + 1)],
        left=[depth + i for i in range(depth)] + [-1] * (depth + 1),
        right=[*range(1, depth), 2 * depth] + [-1] * (depth + 1),
        value=np.arange(2 * depth + 1.0),
    )


def test_depth_is_limited():
    reading = blank(1, "logistic", 1)
    deepest = library.write(reading, chain(MOST_DEPTH))
    X = np.array([[0.5], [1e9], [np.nan]])
    assert np.isfinite(deepest.predict(X, pred_contrib=True)).all()
    with pytest.raises(InputError, match=f"more than {MOST_DEPTH} splits"):
        library.write(reading, chain(MOST_DEPTH + 1))


# Tables.


def test_rows_of_a_frame():
    pd = pytest.importorskip("pandas")
    model, X, reading = made("frame")
    found = library.rows(reading, X)
    assert found.dtype == np.float64
    assert found.flags.c_contiguous
    other = X.copy()
    # The same categories in another order, an unknown one, and none at all.
    names = ["nowhere", *reversed(X["place"].cat.categories)]
    other["place"] = X["place"].cat.set_categories(names)
    other.loc[:5, "place"] = "nowhere"
    other["size"] = X["size"].astype(str).astype(pd.CategoricalDtype(["L", "S", "M"]))
    other["flag"] = X["flag"].astype("boolean")
    other.loc[7, "flag"] = pd.NA
    other["a"] = X["a"].round(1).astype("Float32")
    expected = library.margins(model, other)
    rows = library.rows(reading, other)
    assert np.isnan(rows[:6, 3]).all()
    np.testing.assert_array_equal(rows[8:, 3:5], found[8:, 3:5])
    np.testing.assert_array_equal(reference.margins(reading.ensemble, rows), expected)
    with pytest.raises(InputError, match="1 columns of categories, the model 2"):
        library.rows(reading, X.assign(place=1.0))
    with pytest.raises(InputError, match="not a table of numbers"):
        library.rows(reading, X.assign(a="text"))


def test_rows_of_a_frame_for_a_model_without_categories():
    pd = pytest.importorskip("pandas")
    for name in ("two", "booster"):
        model, _, reading = made(name)
        X = table(np.random.default_rng(1), 50)
        ints = pd.DataFrame(
            {"a": X[:, 0], "b": X[:, 1].astype(np.float32), "c": (X[:, 2] * 1e9).astype(np.int64),
             "b again": pd.array(X[:, 3].astype(int), dtype="Int64")}
        ).set_axis(["a", "b", "c", "b"], axis=1)  # fmt: skip
        expected = library.margins(model, ints)
        rows = library.rows(reading, ints)
        np.testing.assert_array_equal(rows[:, 2], ints["c"])
        np.testing.assert_array_equal(reference.margins(reading.ensemble, rows), expected)


@pytest.mark.parametrize("name", ["three", "booster"])
def test_rows_of_other_tables(name):
    sparse = pytest.importorskip("scipy.sparse")
    model, X, reading = made(name)
    # Whole numbers that float32 does not hold, at a threshold that tells them apart.
    ensemble = replace(
        reading.ensemble,
        threshold=np.where(reading.ensemble.left >= 0, 2.0**24, 0.0),
        missing_kind=reading.ensemble.missing_kind * 0,
    )
    model, reading = library.write(reading, ensemble), replace(reading, ensemble=ensemble)
    near = np.array([[2**24 - 1, 2**24, 2**24 + 1, 5], [2**24 + 1] * 4, [2**24 + 2] * 4])
    tables = [
        near,
        near.tolist(),
        near.astype(float),
        near.astype(float).tolist(),
        near.astype(np.float32),
        near.astype(object),
        near.astype(np.uint32),
        near > 2**24,
        np.asfortranarray(near.astype(float)),
        sparse.csr_matrix(near.astype(float)),
        sparse.csc_matrix([[1e-40, 0, 0, 2.0**24 + 1], [0, 0, 3, 0]]),
        sparse.csr_matrix([[1e-40, 0, 0, 2.0**24 + 1], [0, 0, 3, 0]]),
    ]
    for asked in tables:
        expected = library.margins(model, asked)
        rows = library.rows(reading, asked)
        np.testing.assert_array_equal(reference.margins(ensemble, rows), expected)
    assert library.rows(reading, near)[0, 2] == 2**24  # as the library rounds
    assert library.margins(model, X[:0]).shape == (0, ensemble.n_outputs)
    assert library.rows(reading, X[:0]).shape == (0, 4)


@pytest.mark.parametrize("name", ["two", "booster"])
def test_rows_of_an_arrow_table(name):
    arrow = pytest.importorskip("pyarrow")
    if not hasattr(lgb.basic, "nw"):
        pytest.skip("before 4.7 these tables need another package")
    _, _, reading = made(name)
    # At thresholds of zero it shows whether numbers next to zero stay what they are.
    ensemble = replace(reading.ensemble, threshold=np.zeros(reading.ensemble.n_nodes))
    model = library.write(reading, ensemble)
    asked = arrow.table(
        {
            "a": [1.5, None, 1e-40],
            "b": [1, 2, None],
            "c": [2**53 + 1, 0, -1],
            "d": [1e-40, -1.0, 5.0],
        }
    )
    expected = library.margins(model, asked)
    rows = library.rows(reading, asked)
    np.testing.assert_array_equal(reference.margins(ensemble, rows), expected)


def test_bad_rows_are_refused():
    _, X, reading = made("two")
    for asked, message in (
        (X[:, :3], r"\(240, 3\), expected \(n, 4\)"),
        (X[0], r"\(4,\), expected"),
        ([["a", "b", "c", "d"]], "not a table of numbers"),
        ([[1, 2, 3, {}]], "not a table of numbers"),
        (X + 1j, "not a table of numbers"),
    ):
        with pytest.raises(InputError, match=message):
            library.rows(reading, asked)


# What is refused.


def of_kind(kind, y, **parameters):
    X = table(np.random.default_rng(0), 60)
    return kind(n_estimators=2, **SMALL, **parameters).fit(X, y(X))


def own_objective(y, margins):
    share = 1 / (1 + np.exp(-margins))
    return share - y, share * (1 - share)


def of_two(X):
    return classes_of(X, 2)


REFUSED = {
    "regressor": (lambda: of_kind(lgb.LGBMRegressor, of_two), "not a classifier"),
    "bare model": (
        lambda: of_kind(lgb.LGBMModel, of_two, objective="binary"),
        "not a classifier",
    ),
    "not fitted": (lambda: lgb.LGBMClassifier(), "not fitted"),
    "regression": (lambda: booster(objective="regression")[0], "objective 'regression'"),
    "cross entropy": (lambda: booster(objective="cross_entropy")[0], "'cross_entropy'"),
    "own objective": (
        lambda: of_kind(lgb.LGBMClassifier, of_two, objective=own_objective),
        "the user's own",
    ),
    "linear": (lambda: booster(linear_tree=True)[0], "linear_tree"),
    "one class": (
        lambda: of_kind(lgb.LGBMClassifier, lambda X: np.zeros(len(X), dtype=int)),
        "1 labels for 2 classes",
    ),
    "prediction stops": (lambda: classifier(pred_early_stop=True)[0], "pred_early_stop"),
    "several": (lambda: lgb.CVBooster(), "several boosters"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refused_models(kind, tmp_path):
    make, message = REFUSED[kind]
    model = make()
    assert library.is_model(model)
    with pytest.raises(InputError, match=message) as caught:
        library.read(model)
    assert caught.value.hint
    if isinstance(model, lgb.Booster):
        model.save_model(tmp_path / "model.txt")
        with pytest.raises(FileFormatError, match=message):
            library.load(tmp_path / "model.txt")


def test_what_is_a_model():
    for name in MAKERS:
        assert library.is_model(made(name)[0])
    for other in (None, "Booster", np.zeros(3), lgb.Dataset(np.zeros((2, 2))), lgb.Booster):
        assert not library.is_model(other)


def test_nothing_is_imported_before_it_is_needed():
    code = (
        "import sys\n"
        "from timbermark.libraries import lightgbm\n"
        "assert not lightgbm.is_model(3) and not lightgbm.is_file(b'x')\n"
        "assert 'lightgbm' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    assert run(code).returncode == 0


def test_without_the_library(tmp_path, monkeypatch):
    library.save(made("two")[0], tmp_path / "model.txt")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingLibraryError, match="lightgbm"):
        library.load(tmp_path / "model.txt")


# Files.


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.txt"
    library.save(made("three, categories")[0], path)
    return path


def assert_refused(path, content, message=None):
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        library.load(path)
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message
    assert caught.value.hint


def without_sizes(text):
    """Nothing but the lengths of trees would find some of the damage."""
    lines = [line for line in text.split("\n") if not line.startswith("tree_sizes=")]
    return "\n".join(lines)


DAMAGES = {
    "size of a tree": ("tree_sizes=", "tree_sizes=9", "as long as its header says"),
    "more leaves": ("num_leaves=7", "num_leaves=8", "numbers in"),
    "most leaves": ("num_leaves=7", "num_leaves=2147483647", "numbers in"),
    "no leaves": ("num_leaves=7", "num_leaves=0", "no leaves"),
    "fewer leaves": ("num_leaves=7", "num_leaves=1", "numbers in"),
    "no number": ("num_leaves=7", "num_leaves=x", "else than numbers"),
    "a long number": ("num_leaves=7", "num_leaves=" + "9" * 5000, "else than numbers"),
    "a separator": ("num_leaves=7", "num_leaves=0_7", "else than numbers"),
    "child out of range": ("left_child=1", "left_child=6", "child that does not exist"),
    "leaf out of range": ("left_child=1", "left_child=-8", "child that does not exist"),
    "a loop": ("left_child=1", "left_child=0", "not a node"),
    "two parents": ("left_child=1", "left_child=2", "times from the root|not reached"),
    "unknown feature": ("split_feature=", "split_feature=7", "feature"),
    "negative feature": ("split_feature=", "split_feature=-", "feature"),
    "more sets": ("num_cat=1", "num_cat=2", "numbers in cat_boundaries"),
    "many sets": ("num_cat=1", "num_cat=-1", "less than no categories"),
    "boundaries": ("cat_boundaries=0 ", "cat_boundaries=1 ", "category sets"),
    "large boundary": ("cat_boundaries=0 ", "cat_boundaries=0 9", "category sets"),
    "sets of nothing": ("cat_threshold=", "cat_threshold=-", "category sets"),
    "words too large": ("cat_threshold=", "cat_threshold=9999999999 ", "category sets"),
    "infinite leaf": ("leaf_value=", "leaf_value=-inf ", "numbers in leaf_value"),
    "decision": ("decision_type=", "decision_type=99", "decision_type"),
    "infinite shrinkage": ("shrinkage=1\n", "shrinkage=inf\n", "shrinkage"),
    "line twice": ("num_cat=1\n", "num_cat=1\nnum_cat=1\n", "two lines num_cat"),
    "line gone": ("num_cat=1\n", "", "0 numbers in num_cat"),
    "new line": ("num_cat=1\n", "num_cat=1\nflavour=3\n", "another layout"),
    "linear": ("is_linear=0", "is_linear=1", "linear_tree"),
    "linear line": ("is_linear=0", "leaf_const=0", "linear_tree"),
    "tree's name": ("Tree=4", "Tree=5", "tree 4 is called"),
    "tree gone": ("Tree=4", "Trea=4", "17 trees for 3 classes"),
    "classes": ("num_class=3", "num_class=4", "does not go with the objective"),
    "trees": ("num_tree_per_iteration=3", "num_tree_per_iteration=1", "does not go with"),
    "objective's classes": ("multiclass num_class:3", "multiclass num_class:1", "1 classes"),
    "objective's option": ("multiclass num_class:3", "multiclass", "not a whole number"),
    "objective": ("objective=multiclass", "objective=lambdarank", "objective 'lambdarank'"),
    "no objective": ("objective=multiclass num_class:3\n", "", "user's own"),
    "features": ("max_feature_idx=3", "max_feature_idx=4", "for 5 features"),
    "negative features": ("max_feature_idx=3", "max_feature_idx=-1", "for 0 features"),
    "names": ("feature_names=Column_0", "feature_names=", "a feature cannot be called"),
    "name": ("feature_names=Column_0", 'feature_names=a"b', "a feature cannot be called"),
    "name gone": ("feature_names=Column_0 ", "feature_names=", "3 names"),
    "range": ("feature_infos=[", "feature_infos=[:", "range"),
    "half a range": ("feature_infos=[", "feature_infos=", "range"),
    "version": ("version=v4", "version=v9", "another layout"),
    "header's line": ("label_index=0", "label_indox=0", "another layout"),
    "header's line gone": ("label_index=0\n", "", "no line label_index"),
    "constraints": ("feature_infos=", "monotone_constraints=1\nfeature_infos=", "monotone"),
    "parameter": ("[boosting: gbdt]", "[boosting gbdt]", "parameter"),
    "empty parameter": ("[boosting: gbdt]", ":", "parameter"),
    "value of a parameter": ("[learning_rate: 0.3]", "[learning_rate: x]", "does not accept"),
    "parser": ("end of parameters", "end of parameters\n\nparser:\n{}", "parser of its own"),
    "categories": ("pandas_categorical:null", "pandas_categorical:[", "pandas_categorical"),
    "nested": ("pandas_categorical:null", "pandas_categorical:" + "[" * 9999, "pandas_cat"),
    "other categories": ("pandas_categorical:null", "pandas_categorical:3", "pandas_categorical"),
    "line at the end": ("pandas_categorical:null", "pandas:null", "not understood"),
    "foreign digits": ("num_leaves=7", "num_leaves=\u0667", "else than numbers"),
    "zero byte": ("num_leaves=7", "num_leaves=7\0", "control character"),
    "linear parameter": ("[linear_tree: 0]", "[linear_tree: 1]", "linear_tree"),
    "no text": ("tree\nversion", "\udcff\nversion", "not text"),
    "other text": ("tree\nversion", "tree!\nversion", "not a LightGBM text"),
    "windows lines, then a size": ("\nlabel", "\r\n\rlabel", "control character"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_has_its_own_sentence(saved, kind):
    old, new, message = DAMAGES[kind]
    text = saved.read_text(encoding="utf-8")
    assert old in text
    if kind != "size of a tree":
        text = without_sizes(text)
    assert_refused(saved, text.replace(old, new, 1).encode("utf-8", "surrogateescape"), message)


def test_truncated_files_are_refused(saved):
    content = saved.read_bytes()
    whole = content.index(b"\nend of parameters\n") + len("\nend of parameters\n")
    rng = np.random.default_rng(0)
    for length in [0, 1, 5, whole - 1 - len("\n"), *rng.integers(0, whole - 2, 150)]:
        assert_refused(saved, content[:length])
    # The lines of the header and of the first tree, each without what follows it.
    for length in (i for i, byte in enumerate(content[:2500]) if byte == ord("\n")):
        assert_refused(saved, content[: length + 1])
    saved.write_bytes(content[:whole])  # as the library's own command writes it
    assert library.load(saved).num_trees() == made("three, categories")[2].ensemble.n_trees


def test_other_files_are_refused(tmp_path):
    for content in (b"", b"\n", b"tree", b"{}", b"PK\x03\x04", bytes(range(256)), b"tree\n" * 99):
        assert not library.is_file(content)
        assert_refused(tmp_path / "model.txt", content)
    with pytest.raises(OSError, match="absent"):
        library.load(tmp_path / "absent.txt")


def test_lines_may_end_as_on_windows(saved):
    expected = library.load(saved).model_to_string()
    saved.write_bytes(saved.read_bytes().replace(b"\n", b"\r\n"))
    assert library.is_file(saved.read_bytes())
    assert library.load(saved).model_to_string() == expected


def test_a_parameter_that_the_library_cannot_read_again_is_left_out(saved):
    text = saved.read_text(encoding="utf-8")
    path = r"[forcedsplits_filename: C:\new\"splits\".json]"
    saved.write_text(text.replace("[forcedsplits_filename: ]", path), encoding="utf-8")
    assert "forcedsplits_filename" not in library.load(saved).params


def run(code, *arguments):
    """Run code in a process of its own, where the library has not been told to be quiet."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_standard_output_is_left_alone(saved):
    text = saved.read_text(encoding="utf-8")
    text = text.replace("[boosting: gbdt]", "[boosting: gbdt]\n[flavour: sweet]")
    saved.write_text(text, encoding="utf-8")
    code = "import sys; from timbermark.libraries import lightgbm; lightgbm.load(sys.argv[1])"
    found = run(code, saved)
    assert found.returncode == 0
    assert not found.stdout
    assert "flavour" in found.stderr


FUZZ = """
import random, sys
from pathlib import Path
import numpy as np
from timbermark.errors import TimbermarkError
from timbermark.libraries import lightgbm as library
from timbermark.trees import reference

folder = Path(sys.argv[1])
rng = random.Random(int(sys.argv[2]))
texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
WORDS = "-1 0 1 2 5 -9 99 999999999 2147483648 -2147483649 4294967296 nan inf -inf".split()
WORDS += ["1e400", "0.5", "x", "", " ", "=", ":", "[", "]", "\\n", "1_0"]
STRUCTURE = ("left_child", "right_child", "cat_", "threshold", "num_", "split_f", "decision")


def mutate(text):
    lines = text.split("\\n")
    if rng.random() < 0.7:
        lines = [line for line in lines if not line.startswith("tree_sizes=")]
    how = rng.randrange(7)
    number = rng.randrange(len(lines))
    if how == 0:
        del lines[number]
    elif how == 1:
        lines.insert(rng.randrange(len(lines)), lines[number])
    elif how < 5:
        if how > 2:
            number = rng.choice([i for i, l in enumerate(lines) if l.startswith(STRUCTURE)])
        key, mark, value = lines[number].partition("=")
        words = value.split(" ")
        word = str(rng.randrange(-7, 8)) if how > 2 else rng.choice(WORDS)
        words[rng.randrange(len(words))] = word
        lines[number] = key + mark + " ".join(words)
    text = "\\n".join(lines)
    place = rng.randrange(len(text))
    if how == 5:
        return text[:place].encode()
    content = bytearray(text.encode())
    if how == 6:
        for _ in range(rng.randrange(1, 4)):
            byte = rng.choice([rng.randrange(256), *b"0123456789 -=.\\n:[]e"])
            content[rng.randrange(len(content))] = byte
    return bytes(content)


outcomes = [0, 0]
for _ in range(int(sys.argv[3])):
    path = folder / "damaged"
    path.write_bytes(mutate(rng.choice(texts)))
    try:
        model = library.load(path)
    except TimbermarkError:
        outcomes[0] += 1
        continue
    outcomes[1] += 1
    reading = library.read(model)
    X = np.random.default_rng(0).normal(size=(5, reading.ensemble.n_features)) * 9
    expected = reference.margins(reading.ensemble, library.rows(reading, X))
    assert (library.margins(model, X) == expected).all()
    model.predict(X, pred_contrib=True)
    model.dump_model()
    written = library.write(reading, reading.ensemble)
    assert (library.margins(written, X) == expected).all()
    assert np.isfinite(written.predict(X, pred_contrib=True)).all()
print(*outcomes)
"""


def test_a_damaged_file_never_ends_the_process(tmp_path):
    for name in ("three, categories", "two", "frame", "forest"):
        library.save(made(name)[0], tmp_path / f"{name}.txt")
    found = run(FUZZ, tmp_path, 1, 600)
    assert found.returncode == 0, found.stderr[-2000:]
    refused, accepted = map(int, found.stdout.split("\n")[-2].split())
    assert refused > 150
    assert accepted > 30


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(content):
    for text in (content, b"tree\nversion=v4\n" + content):
        with pytest.raises(TimbermarkError):
            parse_text(text.decode("utf-8", "replace"))


def test_formats_that_lightgbm_does_not_have_are_refused(tmp_path):
    for name in ("model.json", "model.PKL", "model.joblib", "model.onnx"):
        with pytest.raises(InputError, match=r"has no \.\w+ files"):
            library.save(made("two")[0], tmp_path / name)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="absent"):
        library.save(made("two")[0], tmp_path / "absent" / "model.txt")


# A file of LightGBM 3.3.5, trained on 200 rows; some parameters left out.
OF_VERSION_3 = """tree
version=v3
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=2
objective=binary sigmoid:1
feature_names=Column_0 Column_1 Column_2
feature_infos=[-3.77:2.7599999999999998] [-3.8999999999999999:2.5499999999999998] -1:18:9:16:29
tree_sizes=576

Tree=0
num_leaves=4
num_cat=1
split_feature=0 2 0
split_gain=58.0883 22.7932 13.2485
threshold=-0.45999999999999991 0 0.83000000000000018
decision_type=8 9 10
left_child=-1 2 -2
right_child=1 -3 -4
leaf_value=-0.10691057178608679 -0.11405628726351918 0.1470127112795831 0.23608377113066742
leaf_weight=17.492999881505966 7.9967999458312971 23.240699842572212 1.2494999915361402
leaf_count=70 32 93 5
internal_value=0.0400053 0.119114 -0.0112772
internal_weight=0 32.487 9.2463
internal_count=200 130 37
cat_boundaries=0 2
cat_threshold=1344537089 38
is_linear=0
shrinkage=1


end of trees

feature_importances:
Column_0=2
Column_2=1

parameters:
[boosting: gbdt]
[learning_rate: 0.1]
[num_leaves: 4]
[max_depth: 5]

end of parameters

pandas_categorical:null
"""


def test_a_file_of_version_3(tmp_path):
    (tmp_path / "model.txt").write_text(OF_VERSION_3, encoding="utf-8")
    model = library.load(tmp_path / "model.txt")
    reading = library.read(model)
    X = np.array([[-1, 0, 0], [0, 0, 9], [0, 0, 8], [1, 0, 34.5], [np.nan, 0, np.nan]], dtype=float)
    expected = [
        [-0.10691057178608679],
        [-0.11405628726351918],
        [0.1470127112795831],
        [0.23608377113066742],
        [0.1470127112795831],
    ]
    np.testing.assert_array_equal(library.margins(model, X), expected)
    np.testing.assert_array_equal(reference.margins(reading.ensemble, X), expected)
    assert reading.training.max_depth == 5
    assert reading.training.max_leaf_nodes == 4
    assert reading.training.min_samples_leaf is None
    assert reading.ensemble.hessian[0] == pytest.approx(49.98)


# How it was trained.


def test_training():
    model, _ = classifier(3, reg_lambda=0.5, max_depth=4, min_child_weight=0.01)
    found = library.read(model).training
    assert found.learning_rate == 0.3
    assert found.l2_regularization == 0.5
    assert found.min_hessian == 0.01
    assert found.min_samples_leaf == 5
    assert found.max_leaf_nodes == 7
    assert found.max_depth == 4
    assert found.hessian_factor == 1.5
    assert made("two")[2].training.max_depth is None
    assert made("forest")[2].training.learning_rate == 1.0


@pytest.mark.parametrize(
    ("n_classes", "parameters"),
    [
        (2, {}),
        (2, {"sigmoid": 0.7}),
        (3, {}),
        (5, {}),
        (3, {"objective": "multiclassova", "sigmoid": 1.3}),
    ],
)
def test_the_hessian_of_a_row(n_classes, parameters):
    # Before the first tree all margins are 0.
    model, X = booster(n_classes, boost_from_average=False, rounds=1, **parameters)
    reading = library.read(model)
    one_by_one = reading.ensemble.objective != "softmax"
    share = 1 / 2 if one_by_one else 1 / n_classes
    expected = len(X) * reading.training.hessian_factor * share * (1 - share)
    np.testing.assert_allclose(reading.ensemble.hessian[reading.ensemble.tree_start[:-1]], expected)
    np.testing.assert_array_equal(reading.ensemble.count[reading.ensemble.tree_start[:-1]], len(X))


def test_the_learning_rate_of_a_text_without_parameters():
    model, _ = booster()
    frame, blocks = parse_text(model.model_to_string())
    bare = lgb.Booster(model_str=print_text(replace(frame, parameters={}), blocks))
    found = library.read(bare).training
    assert found.learning_rate == 0.3
    assert found.l2_regularization is None


# Other programs.


@every_model
@pytest.mark.parametrize("edit", ["leaves", "shapes"])
def test_treelite_predicts_the_same(name, edit, tmp_path):
    treelite = pytest.importorskip("treelite")
    _, X, reading = made(name)
    ensemble = EDITS[edit](reading.ensemble, np.random.default_rng(7))
    # Treelite knows no other missing values than NaN.
    ensemble = replace(ensemble, missing_kind=np.full(ensemble.n_nodes, 2, dtype=np.uint8))
    library.save(library.write(reading, ensemble), tmp_path / "model.txt")
    other = treelite.frontend.load_lightgbm_model(tmp_path / "model.txt")
    asked = library.rows(reading, X)
    found = treelite.gtil.predict(other, asked, pred_margin=True).reshape(len(asked), -1)
    expected = reference.margins(ensemble, asked)
    if "forest" in name:
        expected /= ensemble.n_trees / ensemble.n_outputs
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["two", "three", "three, nan missing", "dart, three"])
@pytest.mark.filterwarnings("ignore")
def test_an_onnx_export_gives_the_same_labels(name):
    onnxmltools = pytest.importorskip("onnxmltools")
    runtime = pytest.importorskip("onnxruntime")
    types = pytest.importorskip("onnxmltools.convert.common.data_types")
    _, X, reading = made(name)
    ensemble = EDITS["shapes"](reading.ensemble, np.random.default_rng(2))
    ensemble = replace(ensemble, category_set=np.full(ensemble.n_nodes, -1))
    written = library.write(reading, ensemble)
    exported = onnxmltools.convert_lightgbm(
        written, initial_types=[("X", types.FloatTensorType([None, X.shape[1]]))], target_opset=15
    )
    session = runtime.InferenceSession(
        exported.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    asked = np.random.default_rng(4).normal(size=(300, X.shape[1])).astype(np.float32)
    found = session.run(None, {"X": asked})[0]
    np.testing.assert_array_equal(found, written.predict(asked))


def test_copies_of_a_reading_do_not_share_the_model():
    model, X, _ = made("two")
    mine = copy.deepcopy(model)
    reading = library.read(mine)
    expected = library.margins(mine, X)
    mine.booster_.set_leaf_output(0, 0, 99.0)
    np.testing.assert_array_equal(library.margins(reading.native, X), expected)
    written = library.write(reading, reading.ensemble)
    np.testing.assert_array_equal(library.margins(written, X), expected)
    assert json.loads(reading.extra["frame"].pandas_categorical) is None
