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
from tests.libraries.leaf_changes import other_leaves
from timbermark.errors import FileFormatError, InputError, TimbermarkError
from timbermark.libraries.closing import probe_rows
from timbermark.libraries.xgboost import document
from timbermark.libraries.xgboost import models as library
from timbermark.libraries.xgboost.forest import follows_gains
from timbermark.trees import reference

xgb = pytest.importorskip("xgboost")
pd = pytest.importorskip("pandas")

VERSION = tuple(int(part) for part in xgb.__version__.split(".")[:2])


def take(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def assert_agrees(model, foreign, ensemble, X, singly=10):
    """XGBoost's margins are the reference predictor's: of all rows, and of single ones."""
    expected = reference.margins(ensemble, library.rows(replace(foreign, ensemble=ensemble), X))
    found = library.margins(model, X)
    assert found.dtype == np.float64
    assert found.shape == (len(X), ensemble.n_outputs)
    np.testing.assert_array_equal(found, expected)
    for row in range(0, len(X), max(1, len(X) // singly)):
        one = library.margins(model, take(X, slice(row, row + 1)))
        np.testing.assert_array_equal(one, expected[row : row + 1])


def probes(foreign, n_rows=120):
    """Rows on and next to thresholds, as the model takes them."""
    X = probe_rows(foreign.ensemble, n_rows)
    missing = foreign.extra.missing
    return X if np.isnan(missing) else np.where(np.isnan(X), missing, X)


def loaded(path):
    model = library.open_file(path).native
    booster_of(model).set_param({"nthread": 1})  # threads take long to start
    return model


def booster_of(model):
    return model if isinstance(model, xgb.Booster) else model.get_booster()


# What is read is what XGBoost predicts with.


def test_objectives_and_outputs():
    for name, objective, outputs in (
        ("two classes", "logistic", 1),
        ("booster, raw", "logistic", 1),
        ("four classes", "softmax", 4),
        ("booster, softprob of two", "softmax", 2),
    ):
        ensemble = library.open(models.made(name)[0]).ensemble
        assert (ensemble.objective, ensemble.n_outputs) == (objective, outputs)


def test_the_models_are_as_queer_as_their_names():
    ensembles = {name: library.open(models.made(name)[0]).ensemble for name in models.MAKERS}
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
    foreign = library.open(model)
    assert_agrees(model, foreign, foreign.ensemble, X, singly=5)
    ensemble = other_leaves(foreign, seed % 100)
    written = library.close(foreign, ensemble)
    assert_agrees(written, foreign, ensemble, X, singly=5)


# What stays as it was.


def test_a_subclass_stays_one():
    model, X = models.made("two classes")
    again = copy.deepcopy(model)
    again.__class__ = type("Mine", (xgb.XGBClassifier,), {"colour": "green"})
    written = library.close(library.open(again), library.open(again).ensemble)
    assert type(written) is type(again)
    np.testing.assert_array_equal(written.predict(X), model.predict(X))


def test_all_trees_of_a_booster_count():
    model, _ = models.made("booster, stopped early")
    foreign = library.open(model)
    assert foreign.ensemble.n_trees == 6
    assert "best_iteration=2" in foreign.notes[0]
    assert library.close(foreign, foreign.ensemble).best_iteration == 2


# Statistics.


def explained(foreign, steps):
    """Each split's stated weight and gain, and what the formula says of them."""
    e = foreign.ensemble
    inner = e.left >= 0
    found = steps.statistics(e)
    return (e.value[inner, 0], found.weight[inner]), (e.gain[inner], found.gain[inner])


@pytest.mark.parametrize("name", [name for name in models.MAKERS if name not in ("weighted", "l1")])
def test_statistics_follow_by_the_librarys_own_formula(name):
    foreign = library.open(models.made(name)[0])
    marked = library.open(library.close(foreign, other_leaves(foreign, size=0.1)))
    least = foreign.ensemble.gain[foreign.ensemble.gain > 0].min(initial=np.inf)
    for opened in (foreign, marked):
        (weight, weight_found), (gain, gain_found) = explained(opened, foreign.extra.steps)
        np.testing.assert_allclose(weight_found, weight, rtol=1e-4, atol=1e-5)
        free = (gain != np.float32(least)) | (gain_found > 1e-3)  # not set to the least gain
        np.testing.assert_allclose(gain_found[free], gain[free], rtol=1e-4, atol=1e-4)
        assert (gain > 0).all()


def trees_of(model):
    raw = booster_of(model).save_raw("ubj")
    return document.outline(document.parse(bytes(raw))).model["trees"]


@pytest.mark.parametrize("name", ["leaf-wise", "leaf-wise, categories"])
def test_nodes_of_trees_grown_by_loss_stay_in_the_order_of_gains(name):
    model, X = models.made(name)
    foreign = library.open(model)
    ensemble = other_leaves(foreign, size=1.0)
    written = library.close(foreign, ensemble)
    old, new = trees_of(model), trees_of(written)
    assert all(follows_gains(tree) for tree in [*old, *new])
    changed = [
        i for i, (a, b) in enumerate(zip(old, new, strict=True))
        if not np.array_equal(a["parents"], b["parents"])
    ]  # fmt: skip
    assert changed
    assert_agrees(written, foreign, ensemble, X)
    for tree in new:
        left, parents = tree["left_children"], tree["parents"]
        inner = np.flatnonzero(left >= 0)
        np.testing.assert_array_equal(parents[left[inner]], inner)
        np.testing.assert_array_equal(parents[tree["right_children"][inner]], inner)


def test_nodes_of_trees_grown_by_level_stay_where_they_are():
    for name in ("two classes", "stumps", "pruned", "exact", "categories"):
        model, _ = models.made(name)
        foreign = library.open(model)
        written = library.close(foreign, other_leaves(foreign, size=1.0))
        for old, new in zip(trees_of(model), trees_of(written), strict=True):
            for part in ("left_children", "right_children", "parents", "split_indices"):
                np.testing.assert_array_equal(old[part], new[part])


def test_statistics_with_l1_follow_where_no_leaf_is_zero():
    foreign = library.open(models.made("l1")[0])
    (weight, weight_found), (gain, gain_found) = explained(foreign, foreign.extra.steps)
    assert foreign.extra.steps.l1 == pytest.approx(0.2)
    assert np.mean(np.isclose(weight_found, weight, rtol=1e-4, atol=1e-4)) > 0.8
    assert np.mean(np.isclose(gain_found, gain, rtol=1e-3, atol=1e-3)) > 0.8


def test_leaves_have_their_values_as_weights_or_those_before_the_learning_rate():
    for name, rate in (("two classes", 1.0), ("exact", 0.1), ("pruned", 0.3)):
        foreign = library.open(models.made(name)[0])
        marked = library.open(library.close(foreign, other_leaves(foreign)))
        for opened in (foreign, marked):
            e = opened.ensemble
            leaf = e.left < 0
            weight = opened.extra.forest.weight[leaf]
            np.testing.assert_allclose(weight * rate, e.value[leaf, 0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_learning_rate_and_regularization_are_found(n_classes):
    options = {"learning_rate": 0.07, "reg_lambda": 2.5, "max_depth": 4, "num_parallel_tree": 2}
    model, _ = models.plain(n_classes, **options, n_estimators=6)
    # The file has no configuration, and a loaded model states the defaults. The trees tell.
    again = xgb.XGBClassifier()
    again.load_model(model.get_booster().save_raw())
    for each in (model, again):
        steps = library.open(each).extra.steps
        np.testing.assert_allclose(steps.rate, 0.035, rtol=1e-3)
        assert steps.l2 == pytest.approx(2.5, rel=1e-2)


def test_a_learning_rate_that_changes_is_found_tree_by_tree():
    X = models.numbers()
    data = xgb.DMatrix(X, models.labels(X, 2), nthread=1)
    rates = [0.5, 0.3, 0.2, 0.1]
    change = xgb.callback.LearningRateScheduler(rates)
    model = xgb.train(
        {"objective": "binary:logistic", "nthread": 1}, data, len(rates), callbacks=[change]
    )
    again = xgb.Booster()
    again.load_model(model.save_raw())
    # The callback sets the rate of the next round.
    np.testing.assert_allclose(library.open(again).extra.steps.rate, [0.3, *rates[:3]], rtol=1e-3)


def test_what_the_trees_do_not_tell_is_taken_from_the_configuration():
    model, _ = models.made("weighted")
    steps = library.open(model).extra.steps
    np.testing.assert_allclose(steps.rate, 0.3)
    assert steps.l2 == 1.0


# Rows.


def test_categories_of_a_frame_are_those_of_the_model():
    model, X = models.made("categories")
    foreign = library.open(model)
    expected = models.codes(X)
    np.testing.assert_array_equal(
        library.rows(foreign, X)[:, 1:3], expected[:, 1:3].astype(np.float32)
    )
    other = X.assign(
        colour=X.colour.cat.reorder_categories(["pink", "black", "green", "red", "blue"]),
        year=X.year.cat.remove_categories([1993, 1999]),
    )
    assert_agrees(model, foreign, foreign.ensemble, other)
    if VERSION >= (3, 1):
        found = library.rows(foreign, other)
        np.testing.assert_array_equal(found[:, 1], expected[:, 1])
        assert_agrees(model, foreign, foreign.ensemble, expected)


def test_names_of_categories_that_the_model_does_not_know():
    """Versions differ: some refuse, some count them as no category, some as the next number."""
    model, X = models.made("categories")
    foreign = library.open(model)
    other = X.assign(colour=X.colour.cat.add_categories(["blå"]))
    other.loc[::7, "colour"] = "blå"
    try:
        library.margins(model, other)
    except InputError:
        with pytest.raises(InputError, match="does not take these rows"):
            library.rows(foreign, other)
    else:
        assert_agrees(model, foreign, foreign.ensemble, other)


@pytest.mark.skipif(VERSION < (3, 1), reason="models know no names of categories")
@pytest.mark.parametrize("names", [["Bonn", "Köln", "New York"], ["Bonn", "né", "zz"]])
def test_names_of_categories_that_are_not_ascii_are_right_or_refused_with_the_reason(names):
    """XGBoost 3.2 counts letters where it must count octets."""
    rng = np.random.default_rng(0)
    town = pd.Categorical.from_codes(rng.integers(0, 3, 200), names)
    X = pd.DataFrame({"size": rng.normal(size=200), "town": town})
    model = xgb.XGBClassifier(n_estimators=3, enable_categorical=True)
    model.fit(X, (town.codes == 1) | (X["size"] > 1.0))
    plain = X.assign(town=X.town.astype(object))
    code = ""
    try:
        found = library.rows(library.open(model), plain)
    except (InputError, FileFormatError) as error:
        code = error.code
    assert code == "categories.cut" or found[:, 1].tolist() == town.codes.tolist()


def test_strange_categories():
    model, X = models.made("booster, category numbers")
    foreign = library.open(model)
    odd = np.array([-0.5, -1.0, -3.0, 0.5, 2.7, 12.9, 13.0, 500.0, 1e8, 2.0**31, np.nan])
    strange = np.repeat(X[:20], len(odd), axis=0)
    strange[:, 1] = np.tile(odd, 20)
    strange[:, 2] = np.tile(odd[::-1], 20)
    assert_agrees(model, foreign, foreign.ensemble, strange, singly=220)


def test_other_forms_of_rows():
    sparse = pytest.importorskip("scipy.sparse")
    import pandas as pd

    model, X = models.made("two classes")
    foreign = library.open(model)
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
        expected = reference.margins(foreign.ensemble, library.rows(foreign, form))
        np.testing.assert_array_equal(library.margins(model, form), expected)
    # What a sparse matrix leaves out is missing, not zero.
    assert np.isnan(library.rows(foreign, sparse.csr_matrix(zeros))[zeros == 0]).all()
    matrix = xgb.DMatrix(X)
    expected = reference.margins(foreign.ensemble, library.rows(foreign, matrix))
    np.testing.assert_array_equal(library.margins(booster_of(model), matrix), expected)
    np.testing.assert_array_equal(library.margins(model, matrix), expected)


def test_rows_far_out():
    model, X = models.made("two classes")
    foreign = library.open(model)
    far = np.where(X > 1, np.inf, np.where(X < -1, -1e300, X * 1e-45))
    assert_agrees(model, foreign, foreign.ensemble, far)


def test_rows_that_do_not_fit():
    model, X = models.made("two classes")
    foreign = library.open(model)
    with pytest.raises(InputError, match=r"shape \(240, 4\), expected \(n, 5\)"):
        library.rows(foreign, X[:, :4])
    with pytest.raises(InputError, match="not a matrix of numbers"):
        library.rows(foreign, [["a"] * 5])
    with pytest.raises(InputError, match=r"does not take these rows: .*4"):
        library.margins(model, X[:, :4])
    core, _ = models.made("booster")
    with pytest.raises(InputError, match="inf"):
        library.margins(core, np.full((1, 5), np.inf))
    _, table = models.made("categories")
    foreign = library.open(models.made("categories")[0])
    with pytest.raises(InputError, match="The columns are"):
        library.rows(foreign, table[["colour", "size", "year", "length"]])
    texts = table.assign(colour=table.colour.astype(object))
    if foreign.text_columns:  # from XGBoost 3.1 on the model knows its categories by name
        np.testing.assert_array_equal(library.rows(foreign, texts), library.rows(foreign, table))
        with pytest.raises(InputError, match="category 'mauve', which the model has never seen"):
            library.rows(foreign, texts.assign(colour="mauve"))
    else:
        with pytest.raises(InputError, match="does not take these rows"):
            library.rows(foreign, texts)


# What is refused.


def unfit_models():
    X = models.numbers()
    y, y3 = models.labels(X, 2), models.labels(X, 3)
    trees = {"multi_strategy": "multi_output_tree", "tree_method": "hist"}
    yield "not fitted", lambda: xgb.XGBClassifier()
    yield "cannot be saved", lambda: xgb.Booster()
    yield "of XGBoost that can be read", lambda: xgb.XGBModel(n_estimators=1).fit(X, y)
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
    yield "str is not a model of XGBoost", lambda: "a text"


@pytest.mark.parametrize(("reason", "make"), list(unfit_models()))
def test_models_that_are_refused(reason, make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
        with pytest.raises(InputError, match=reason) as caught:
            library.open(model)
    assert caught.value.hint


def test_what_is_a_model():
    for name in ("two classes", "booster"):
        assert library.is_model(models.made(name)[0])
    assert library.is_model(xgb.XGBRegressor())
    assert not library.is_model(xgb.XGBClassifier)
    assert not library.is_model(np.zeros(3))


# Files.


@pytest.mark.parametrize("name", models.MAKERS)
@pytest.mark.parametrize("ending", ["json", "ubj"])
def test_files(name, ending, tmp_path):
    model, X = models.made(name)
    path = tmp_path / f"model.{ending}"
    before = bytes(booster_of(model).save_raw())
    library.save(model, path)
    assert bytes(booster_of(model).save_raw()) == before
    assert library.is_file(path.read_bytes()[:64])
    found = loaded(os.fspath(path))
    again, foreign = library.open(found), library.open(model)
    plain = name in ("booster, raw", "booster, softprob of two", "booster, stopped early")
    assert again.kind == ("Booster" if plain else "XGBClassifier")
    assert again.ensemble == foreign.ensemble
    np.testing.assert_array_equal(again.classes, foreign.classes)
    assert again.feature_names == foreign.feature_names
    if isinstance(model, xgb.XGBClassifier):
        found.missing = model.missing
        np.testing.assert_array_equal(found.predict(X), model.predict(X))


def test_save_refuses(tmp_path):
    model, _ = models.made("two classes")
    with pytest.raises(InputError, match=r"model.bin does not end in .json or .ubj"):
        library.save(model, tmp_path / "model.bin")
    with pytest.raises(InputError, match="not fitted"):
        library.save(xgb.XGBClassifier(), tmp_path / "model.ubj")
    with pytest.raises(FileNotFoundError):
        library.open_file(tmp_path / "none.ubj")


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
    raw = json.dumps(content).encode() if form == "json" else document.encode(content)
    path = tmp_path / "model"
    path.write_bytes(raw)
    with pytest.raises(FileFormatError, match=said) as caught:
        library.open_file(path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_files_of_other_kinds(tmp_path):
    for raw in (b"", b"{", b"[1]", b'{"a": 1}', b"{}", b"PK\3\4", b"binf\0", b"[" * 10**5):
        (tmp_path / "model").write_bytes(raw)
        assert not library.is_file(raw)
        with pytest.raises(FileFormatError):
            library.open_file(tmp_path / "model")
    nested = b'{"learner":' * 10**5
    (tmp_path / "model").write_bytes(nested)
    with pytest.raises(FileFormatError):
        library.open_file(tmp_path / "model")


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
            foreign = library.open(found)
        except TimbermarkError as error:
            messages.append(error.message)
        else:
            rows = probe_rows(foreign.ensemble, 20)
            assert_agrees(found, foreign, foreign.ensemble, rows, singly=1)
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
    assert document.decode(document.encode(value)) == value


@given(st.binary(max_size=40))
def test_ubj_of_any_bytes(raw):
    with suppress(FileFormatError):
        document.decode(raw)


@pytest.mark.parametrize("name", ["booster, dart", "categories", "four classes"])
def test_our_ubj_is_the_library_s(name):
    model, _ = models.made(name)
    raw = bytes(booster_of(model).save_raw("ubj"))
    ours = document.decode(raw)
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
    model, X = models.made(name)
    foreign = library.open(model)
    ensemble = other_leaves(foreign)
    written = library.close(foreign, ensemble)
    other = treelite.frontend.from_xgboost(booster_of(written))
    rows = library.rows(foreign, X).astype(np.float32)
    found = treelite.gtil.predict(other, rows, pred_margin=True).reshape(len(rows), -1)
    np.testing.assert_allclose(found, reference.margins(ensemble, rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["two classes", "four classes", "pruned"])
def test_onnx_gives_the_same_labels(name):
    onnxmltools = pytest.importorskip("onnxmltools")
    runtime = pytest.importorskip("onnxruntime")
    types = pytest.importorskip("onnxmltools.convert.common.data_types")
    model, X = models.made(name)
    foreign = library.open(model)
    written = library.close(foreign, other_leaves(foreign))
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
