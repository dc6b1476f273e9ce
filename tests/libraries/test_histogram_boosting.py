import copy
import json
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timbermark.errors import FileFormatError, InputError, MissingLibraryError, StateError
from timbermark.libraries import histogram_boosting as library
from timbermark.libraries.probing import probe_rows
from timbermark.trees import reference
from timbermark.trees.making import constant_ensemble, make_ensemble

pytest.importorskip("sklearn")
joblib = pytest.importorskip("joblib")
threadpoolctl = pytest.importorskip("threadpoolctl")
pd = pytest.importorskip("pandas")

import sklearn.base  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.inspection import partial_dependence  # noqa: E402

N = 400


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """OpenMP's threads wait for each other in a loop, which is slow where others work as well."""
    with threadpoolctl.threadpool_limits(1):
        yield


def numbers(rng, missing=0.0, n=N):
    X = rng.normal(size=(n, 4))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def labels_of(rng, X, n_classes):
    score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1], nan=1.5) + rng.normal(size=len(X))
    return np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


def codes(rng, n=N):
    """Columns 1 and 3 are categories, some negative; column 3 is one category or missing."""
    X = numbers(rng, 0.1, n)
    X[:, 1] = rng.integers(-2, 7, n)
    X[:, 3] = np.where(rng.random(n) < 0.5, 7.0, np.nan)
    return X


def frame(rng, n=N):
    return pd.DataFrame(
        {
            "a": numbers(rng, 0.1, n)[:, 0],
            "text": pd.Categorical(
                rng.choice(["x", "y", "z", None], n), categories=["z", "y", "x"]
            ),
            "b": rng.normal(size=n),
            "number": pd.Categorical(rng.integers(3, 9, n)),
            "flag": pd.Categorical(rng.random(n) < 0.5),
        }
    )


def score_of(table):
    return np.column_stack(
        [table["a"], (table["text"] == "y") + (table["number"] == 4) * 1.0, table["b"]]
    )


def fitted(n_classes, make=numbers, seed=0, names=None, **parameters):
    rng = np.random.default_rng(seed)
    X, asked = make(rng), make(rng, n=100)
    y = labels_of(rng, score_of(X) if make is frame else np.asarray(X), n_classes)
    if names:
        y = np.array(names)[y]
    parameters = {"max_iter": 6, "max_leaf_nodes": 8, "random_state": 0} | parameters
    return HistGradientBoostingClassifier(**parameters).fit(X, y), asked


def gaps(rng, n=N):
    return numbers(rng, 0.3, n)


MAKERS = {
    "two classes": lambda: fitted(2),
    "three classes": lambda: fitted(3),
    "nine classes": lambda: fitted(9, max_iter=2, names=list("abcdefghi")),
    "two, missing": lambda: fitted(2, gaps, names=["no", "yes"]),
    "three, missing": lambda: fitted(3, gaps),
    "two, categories": lambda: fitted(2, codes, categorical_features=[1, 3]),
    "three, categories": lambda: fitted(3, codes, categorical_features=[3, 1], max_iter=12),
    "all are categories": lambda: fitted(2, lambda rng, n=N: codes(rng, n)[:, [1, 3]],
                                         categorical_features=[True, True]),
    "frame": lambda: fitted(3, frame, categorical_features="from_dtype", names=["p", "q", "r"]),
    "frame of numbers": lambda: fitted(
        2, lambda rng, n=N: pd.DataFrame(gaps(rng, n), columns=list("wxyz")),
        categorical_features=None),
    "early stopping": lambda: fitted(
        3, gaps, early_stopping=True, max_iter=60, learning_rate=0.5, n_iter_no_change=2),
    "early, categories": lambda: fitted(
        2, codes, early_stopping=True, max_iter=60, n_iter_no_change=2, validation_fraction=0.4,
        categorical_features=[1, 3], learning_rate=0.7),
    "scorer": lambda: fitted(2, early_stopping=True, scoring="accuracy"),
    "monotonic": lambda: fitted(2, monotonic_cst=[1, 0, -1, 0], class_weight="balanced"),
    "single leaves": lambda: fitted(3, min_samples_leaf=N, max_iter=2),
    "deep": lambda: fitted(2, gaps, max_leaf_nodes=None, min_samples_leaf=1, max_iter=2),
    "few bins": lambda: fitted(2, gaps, max_bins=3, l2_regularization=1.0, max_depth=2),
}  # fmt: skip


@cache
def made(name):
    model, asked = MAKERS[name]()
    return model, asked, library.read(model)


@pytest.fixture(params=MAKERS)
def case(request):
    return made(request.param)


def part(X, i):
    return X.iloc[i : i + 1] if hasattr(X, "iloc") else X[i : i + 1]


def assert_same_margins(reading, ensemble, model, X):
    expected = reference.margins(ensemble, library.rows(reading, X))
    assert expected.shape == (len(X), ensemble.n_outputs)
    np.testing.assert_array_equal(library.margins(model, X), expected)
    for i in range(0, len(X), max(1, len(X) // 4)):
        np.testing.assert_array_equal(library.margins(model, part(X, i)), expected[i : i + 1])


# Reading


def test_margins_are_the_librarys(case):
    model, asked, reading = case
    assert_same_margins(reading, reading.ensemble, model, asked)
    probes = library.native_rows(reading, probe_rows(reading.ensemble))
    assert_same_margins(reading, reading.ensemble, model, probes)


def test_labels_and_probabilities_are_the_librarys(case):
    model, asked, reading = case
    margins = reference.margins(reading.ensemble, library.rows(reading, asked))
    labels = reading.classes[reference.labels(margins, reading.ensemble)]
    np.testing.assert_array_equal(labels, model.predict(asked))
    shares = reference.probabilities(margins, reading.ensemble.objective)
    np.testing.assert_allclose(shares, model.predict_proba(asked), rtol=1e-12, atol=1e-15)


def test_a_margin_of_zero_is_class_0():
    _, asked, reading = made("two classes")
    ensemble = replace(reading.ensemble, value=reading.ensemble.value * 0, init=np.zeros(1))
    written = library.write(reading, ensemble)
    assert (written.predict(asked) == reading.classes[0]).all()
    assert not ensemble.zero_is_positive


def test_what_a_reading_says(case):
    model, _, reading = case
    assert (reading.library, reading.kind) == ("scikit-learn", "HistGradientBoostingClassifier")
    assert reading.ensemble.n_trees == model.n_iter_ * model.n_trees_per_iteration_
    np.testing.assert_array_equal(reading.classes, model.classes_)
    training = reading.training
    assert training.learning_rate == model.learning_rate
    assert training.l2_regularization == model.l2_regularization
    assert training.min_samples_leaf == model.min_samples_leaf
    assert training.max_leaf_nodes == model.max_leaf_nodes
    assert training.max_depth == model.max_depth
    assert training.hessian_factor == 1.0
    roots = reading.ensemble.count[reading.ensemble.tree_start[:-1]]
    assert (roots == roots[0]).all()


def test_names_follow_the_columns():
    reading = made("frame")[2]
    assert reading.feature_names == ("text", "number", "flag", "a", "b")
    assert reading.extra["columns"].tolist() == [1, 3, 4, 0, 2]
    assert made("two classes")[2].feature_names is None


def test_early_stopping_stops():
    assert made("early stopping")[0].n_iter_ < 60


def test_rows_come_back_from_native_rows(case):
    _, asked, reading = case
    rows = library.rows(reading, asked)
    np.testing.assert_array_equal(library.rows(reading, library.native_rows(reading, rows)), rows)


def test_an_unseen_category_is_missing_and_goes_with_missing_values():
    model, asked, reading = made("two, categories")
    asked = asked.copy()
    asked[:, 1] = np.where(np.arange(100) % 2, 55.0, np.nan)
    assert np.isnan(library.rows(reading, asked)[:, 0]).all()
    assert_same_margins(reading, reading.ensemble, model, asked)


def test_a_split_of_the_only_category_is_read_as_it_predicts():
    """It names the set of another split, and has an infinite threshold that nobody looks at."""
    model, _, reading = made("three, categories")
    nodes = np.concatenate([tree.nodes for i in model._predictors for tree in i])
    odd = (nodes["is_categorical"] == 1) & np.isinf(nodes["num_threshold"])
    assert odd.any()
    assert (nodes["bitset_idx"][odd] == 0).all()
    assert (reading.ensemble.category_set[odd] >= 0).all()


DATA = st.floats(-3, 3, width=16) | st.sampled_from([np.nan, 0.0, -0.0, 1e300, -np.inf, np.inf])


@settings(max_examples=25)
@given(st.data(), st.integers(2, 3), st.booleans())
def test_any_data(data, n_classes, by_category):
    width = 1 if by_category else 2
    values = st.integers(0, 3).map(float) | st.just(np.nan) if by_category else DATA
    row = st.lists(values, min_size=width, max_size=width)
    X = np.array(data.draw(st.lists(row, min_size=12, max_size=25)))
    y = data.draw(st.permutations([i % n_classes for i in range(len(X))]))
    model = HistGradientBoostingClassifier(
        max_iter=3, min_samples_leaf=1, max_leaf_nodes=5, learning_rate=0.3, early_stopping=False,
        categorical_features=[0] if by_category else None,
    ).fit(X, y)  # fmt: skip
    reading = library.read(model)
    assert_same_margins(reading, reading.ensemble, model, X)
    fresh = np.array(data.draw(st.lists(row, min_size=1, max_size=5)))
    assert_same_margins(reading, reading.ensemble, model, fresh)


def test_treelite_agrees():
    treelite = pytest.importorskip("treelite")
    for name in ("two classes", "two, missing", "three, missing", "early stopping", "deep"):
        model, asked, reading = made(name)
        oracle = treelite.gtil.predict(
            treelite.sklearn.import_model(model), asked, pred_margin=True
        )
        ours = reference.margins(reading.ensemble, asked)
        np.testing.assert_allclose(ours, oracle.reshape(ours.shape), rtol=1e-12, atol=1e-14)


# Writing


def nested(e, tree, node=0):
    i = int(e.tree_start[tree]) + node
    fields = {name: getattr(e, name)[i] for name in PER_NODE}
    if e.left[i] >= 0:
        fields["children"] = [nested(e, tree, e.left[i]), nested(e, tree, e.right[i])]
    return fields


PER_NODE = (
    "feature", "threshold", "missing_left", "missing_kind", "category_set", "value", "count",
    "hessian", "gain",
)  # fmt: skip


def flattened(e, trees, rng):
    """The ensemble with these trees; nodes but the roots are numbered in any order."""
    arrays = {name: [] for name in (*PER_NODE, "left", "right")}
    start = [0]
    for tree in trees:
        nodes = [tree]
        for node in nodes:
            nodes += node.get("children", [])
        place = [0, *(1 + rng.permutation(len(nodes) - 1)).tolist()]
        number = {id(node): p for node, p in zip(nodes, place, strict=True)}
        for node in sorted(nodes, key=lambda node: number[id(node)]):
            children = [number[id(child)] for child in node.get("children", [])] or [-1, -1]
            for name, value in zip(("left", "right"), children, strict=True):
                arrays[name].append(value)
            for name in PER_NODE:
                arrays[name].append(node[name])
        start.append(start[-1] + len(nodes))
    n_trees = len(trees)
    return replace(
        e, tree_start=np.array(start), tree_weight=np.ones(n_trees),
        tree_output=np.arange(n_trees) % e.n_outputs,
        **{name: np.array(values) for name, values in arrays.items()},
    )  # fmt: skip


def leaf_of(rng):
    return {
        "feature": -1, "threshold": 0.0, "missing_left": False, "missing_kind": 2,
        "category_set": -1, "value": np.array([rng.normal()]), "count": float(rng.integers(0, 9)),
        "hessian": 0.0, "gain": 0.0,
    }  # fmt: skip


def subtree(e, rng, depth):
    fields = leaf_of(rng)
    if depth == 0 or rng.random() < 0.2:
        return fields
    inner = np.flatnonzero(e.left >= 0)
    if not len(inner):
        return fields
    like = rng.choice(inner)
    for name in ("feature", "threshold", "missing_left", "category_set"):
        fields[name] = getattr(e, name)[like]
    if rng.random() < 0.3:
        fields["missing_left"] = not fields["missing_left"]
    fields["gain"] = float(rng.random())
    fields["children"] = [subtree(e, rng, depth - 1), subtree(e, rng, depth - 1)]
    return fields


def other_leaves(e, rng):
    return replace(e, value=np.where(e.left[:, None] < 0, rng.normal(size=e.value.shape), e.value))


def other_thresholds(e, rng):
    plain = (e.left >= 0) & (e.category_set < 0) & (rng.random(e.n_nodes) < 0.5)
    moved = np.where(rng.random(e.n_nodes) < 0.1, np.inf, rng.normal(size=e.n_nodes))
    return replace(e, threshold=np.where(plain, moved, e.threshold))


def other_sides(e, rng):
    return replace(e, missing_left=(e.left >= 0) & (rng.random(e.n_nodes) < 0.5))


def other_sets(e, rng):
    """Every split by categories gets the set of some other split of the same feature."""
    sets = e.category_set.copy()
    for node in np.flatnonzero(sets >= 0):
        same = np.flatnonzero((sets >= 0) & (e.feature == e.feature[node]))
        sets[node] = e.category_set[rng.choice(same)]
    return replace(e, category_set=sets)


def other_subtrees(e, rng):
    trees = [nested(e, t) for t in range(e.n_trees)]
    for tree in trees[:: max(1, len(trees) // 4)]:
        node = tree
        while "children" in node and rng.random() < 0.6:
            node = node["children"][rng.integers(2)]
        fresh = subtree(e, rng, 3)
        node.pop("children", None)
        node.update(fresh)
    return flattened(e, trees, rng)


def pruned(e, rng):
    trees = [nested(e, t) for t in range(e.n_trees)]
    for tree in trees[::2]:
        for child in tree.get("children", []):
            child.pop("children", None)
            child.update(leaf_of(rng))
    return flattened(e, trees, rng)


def other_trees(e, rng):
    return flattened(e, [subtree(e, rng, 4) for _ in range(e.n_trees)], rng)


def fewer_trees(e, rng):
    keep = e.n_outputs * (e.n_trees // e.n_outputs // 2 or 1)
    return flattened(e, [nested(e, t) for t in range(keep)], rng)


def more_trees(e, rng):
    trees = [nested(e, t) for t in range(e.n_trees)]
    return flattened(e, trees + [subtree(e, rng, 3) for _ in range(e.n_outputs)], rng)


def other_start(e, rng):
    return replace(e, init=rng.normal(size=e.n_outputs))


def other_weights(e, rng):
    return replace(e, tree_weight=rng.normal(size=e.n_trees))


def nan_as_zero(e, rng):
    return replace(e, missing_kind=np.zeros(e.n_nodes, dtype=np.uint8))


EDITS = [
    other_leaves, other_thresholds, other_sides, other_sets, other_subtrees, pruned, other_trees,
    fewer_trees, more_trees, other_start, other_weights, nan_as_zero,
]  # fmt: skip


def test_the_same_ensemble_gives_the_same_model(case):
    model, asked, reading = case
    written = library.write(reading, reading.ensemble)
    assert type(written) is type(model)
    assert written is not model
    assert_same_margins(reading, reading.ensemble, written, asked)
    for mine, theirs in zip(written._predictors, model._predictors, strict=True):
        for tree, other in zip(mine, theirs, strict=True):
            assert tree.nodes.tobytes() == other.nodes.tobytes()
            assert not np.shares_memory(tree.nodes, other.nodes)
    assert library.read(written).ensemble == reading.ensemble


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edited_ensemble_is_what_is_written(case, edit):
    model, asked, reading = case
    before = joblib.hash(model), joblib.hash(reading.native)
    ensemble = edit(reading.ensemble, np.random.default_rng(5))
    written = library.write(reading, ensemble)
    assert_same_margins(reading, ensemble, written, asked)
    probes = library.native_rows(reading, probe_rows(ensemble, seed=1))
    assert_same_margins(reading, ensemble, written, probes)
    again = library.read(written)
    np.testing.assert_array_equal(
        reference.margins(again.ensemble, library.rows(again, asked)),
        library.margins(written, asked),
    )
    assert (joblib.hash(model), joblib.hash(reading.native)) == before
    check_statistics(written, ensemble)


def check_statistics(model, ensemble):
    for tree in (tree for iteration in model._predictors for tree in iteration):
        nodes = tree.nodes
        inner = nodes["is_leaf"] == 0
        left, right = nodes["left"][inner], nodes["right"][inner]
        assert (nodes["count"] > 0).all()
        np.testing.assert_array_equal(
            nodes["count"][left] + nodes["count"][right], nodes["count"][inner]
        )
        np.testing.assert_array_equal(nodes["depth"][left], nodes["depth"][inner] + 1)
        for name in ("value", "gain"):
            assert np.isfinite(nodes[name]).all()
    assert model.n_iter_ == ensemble.n_trees // ensemble.n_outputs


def test_a_built_tree_is_what_scikit_learn_builds(case):
    """Statistics that differ by nothing but a gain make every tree be built anew."""
    model, _, reading = case
    gain = np.where(reading.ensemble.left >= 0, reading.ensemble.gain + 1.0, 0.0)
    if not (reading.ensemble.left >= 0).any():
        pytest.skip("single leaves keep their trees")
    written = library.write(reading, replace(reading.ensemble, gain=gain))
    rebuilt = [tree for iteration in written._predictors for tree in iteration]
    natural = [tree for iteration in model._predictors for tree in iteration]
    for tree, other in zip(rebuilt, natural, strict=True):
        odd = (other.nodes["is_categorical"] == 1) & np.isinf(other.nodes["num_threshold"])
        for name in ("count", "depth", "bin_threshold", "left", "right", "feature_idx", "is_leaf"):
            np.testing.assert_array_equal(tree.nodes[name], other.nodes[name])
        np.testing.assert_array_equal(
            tree.nodes["num_threshold"][~odd], other.nodes["num_threshold"][~odd]
        )
        if not odd.any():
            np.testing.assert_array_equal(tree.raw_left_cat_bitsets, other.raw_left_cat_bitsets)


def test_partial_dependence_works_after_writing():
    model, asked, reading = made("three classes")
    for edit in (other_subtrees, other_trees):
        written = library.write(reading, edit(reading.ensemble, np.random.default_rng(2)))
        found = partial_dependence(written, asked, [0], method="recursion", kind="average")
        assert np.isfinite(found["average"]).all()
    same = library.write(reading, reading.ensemble)
    np.testing.assert_array_equal(
        partial_dependence(same, asked, [1], method="recursion", kind="average")["average"],
        partial_dependence(model, asked, [1], method="recursion", kind="average")["average"],
    )


@pytest.mark.parametrize("name", ["two, missing", "three, categories", "frame", "scorer"])
def test_a_written_model_survives_pickle_copies_and_clone(name, tmp_path):
    model, asked, reading = made(name)
    ensemble = other_subtrees(reading.ensemble, np.random.default_rng(1))
    written = library.write(reading, ensemble)
    joblib.dump(written, tmp_path / "model")
    for twin in (
        pickle.loads(pickle.dumps(written)),
        joblib.load(tmp_path / "model"),
        copy.deepcopy(written),
    ):
        assert_same_margins(reading, ensemble, twin, asked)
    clone = sklearn.base.clone(written)
    assert clone.get_params() == sklearn.base.clone(model).get_params()
    assert not hasattr(clone, "classes_")


def test_training_goes_on_after_writing():
    rng = np.random.default_rng(3)
    X = gaps(rng)
    y = labels_of(rng, X, 2)
    model = HistGradientBoostingClassifier(max_iter=3, warm_start=True, random_state=0).fit(X, y)
    written = library.write(library.read(model), library.read(model).ensemble)
    for both in (model, written):
        both.set_params(max_iter=5).fit(X, y)
    np.testing.assert_array_equal(written.decision_function(X), model.decision_function(X))


def test_a_subclass_stays_one():
    class Mine(HistGradientBoostingClassifier):
        pass

    rng = np.random.default_rng(0)
    X = numbers(rng)
    model = Mine(max_iter=2).fit(X, labels_of(rng, X, 2))
    assert library.is_model(model)
    reading = library.read(model)
    assert reading.kind == "Mine"
    assert type(library.write(reading, reading.ensemble)) is Mine


# Refusals


def test_foreign_objects_are_no_models():
    for thing in ("text", 3, HistGradientBoostingRegressor(), HistGradientBoostingClassifier):
        assert not library.is_model(thing)
        with pytest.raises(InputError):
            library.read(thing)
    with pytest.raises(InputError, match="is a regressor"):
        library.read(HistGradientBoostingRegressor())


def test_an_unfitted_model_is_refused():
    with pytest.raises(InputError, match=r"is not fitted.*fit first"):
        library.read(HistGradientBoostingClassifier())


def test_a_single_class_is_refused():
    model = HistGradientBoostingClassifier(max_iter=1).fit([[0.0], [1.0]], ["only", "only"])
    with pytest.raises(InputError, match="knows 1 class"):
        library.read(model)


def test_another_loss_is_refused():
    from sklearn._loss.loss import HalfPoissonLoss

    model = copy.deepcopy(made("two classes")[0])
    model._loss = HalfPoissonLoss()
    with pytest.raises(InputError, match="loss=HalfPoissonLoss"):
        library.read(model)


@pytest.mark.parametrize(
    "name", ["_predictors", "_baseline_prediction", "_bin_mapper", "_preprocessor", "_loss"]
)
def test_a_form_that_is_not_known_is_refused(name):
    model = copy.deepcopy(made("two classes")[0])
    delattr(model, name)
    with pytest.raises(InputError, match=rf"has no {name}.*1\.4 to 1\.9"):
        library.read(model)


def corrupt_nodes(name, value, node=0):
    def corrupt(model):
        model._predictors[0][0].nodes[name][node] = value

    return corrupt


def drop_fields(model):
    tree = model._predictors[0][0]
    tree.nodes = tree.nodes[["value", "count"]]


def short_sets(model):
    for tree in (tree for iteration in model._predictors for tree in iteration):
        tree.raw_left_cat_bitsets = tree.raw_left_cat_bitsets[:0]


def narrow_sets(model):
    tree = model._predictors[0][0]
    tree.raw_left_cat_bitsets = np.zeros((9, 2), dtype=np.uint32)


def uneven(model):
    model._predictors[0].append(model._predictors[0][0])


def no_trees(model):
    model._predictors = []


def wrong_width(model):
    model.n_features_in_ = 3


def wrong_mapper(model):
    model._bin_mapper.is_categorical_ = np.ones(4, dtype=np.uint8)


def wrong_categories(model):
    model._bin_mapper.bin_thresholds_[0] = np.arange(3.0)


def numeric_as_category(model):
    tree = model._predictors[0][0]
    tree.raw_left_cat_bitsets = np.zeros((1, 8), dtype=np.uint32)
    tree.nodes["feature_idx"][0] = 3
    tree.nodes["is_categorical"][0] = 1
    tree.nodes["bitset_idx"][0] = 0


def foreign_preparation(model):
    model._preprocessor.named_transformers_["numerical"].func = np.exp


def float32_baseline(model):
    model._baseline_prediction = model._baseline_prediction.astype(np.float32)


CORRUPTIONS = [
    corrupt_nodes("left", 10**6), corrupt_nodes("left", 0), corrupt_nodes("right", 2**32 - 1),
    corrupt_nodes("feature_idx", 4), corrupt_nodes("feature_idx", -1),
    corrupt_nodes("num_threshold", np.nan), corrupt_nodes("value", np.nan, -1),
    drop_fields, short_sets, narrow_sets, uneven, no_trees, wrong_width, wrong_mapper,
    wrong_categories, numeric_as_category, foreign_preparation, float32_baseline,
]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_what_would_make_scikit_learn_read_foreign_memory_is_refused(corrupt):
    model = copy.deepcopy(made("three, categories")[0])
    root = model._predictors[0][0].nodes
    root["is_categorical"][0], root["feature_idx"][0] = 0, 3
    library.read(model)
    corrupt(model)
    with pytest.raises(InputError):
        library.read(model)


@pytest.mark.parametrize(
    ("field", "value"),
    [("strict", True), ("input_dtype", "f4"), ("sum_dtype", "f4"), ("zero_is_positive", True),
     ("categories_go", "right"), ("init_last", True)],
)  # fmt: skip
def test_what_scikit_learn_cannot_do_is_not_written(field, value):
    _, _, reading = made("two classes")
    with pytest.raises(InputError, match=f"{field}="):
        library.write(reading, replace(reading.ensemble, **{field: value}))


def test_an_ensemble_of_another_model_is_not_written():
    _, _, reading = made("three classes")
    e = reading.ensemble
    with pytest.raises(InputError, match="n_features=1"):
        library.write(reading, constant_ensemble(n_features=1, value=1.0))
    with pytest.raises(InputError, match="whole iterations"):
        library.write(
            reading,
            flattened(e, [nested(e, t) for t in range(e.n_trees - 1)], np.random.default_rng(0)),
        )
    with pytest.raises(InputError, match="take turns"):
        library.write(reading, replace(e, tree_output=e.tree_output[::-1]))
    with pytest.raises(InputError, match="zeros count as missing"):
        library.write(reading, replace(e, missing_kind=np.ones(e.n_nodes, dtype=np.uint8)))
    with pytest.raises(InputError, match=r"not sound|not a node"):
        library.write(reading, replace(e, left=np.where(e.left >= 0, e.left + 10**6, -1)))


@pytest.mark.parametrize(("feature", "category"), [(2, 0), (0, 9)])
def test_a_category_that_does_not_exist_is_not_written(feature, category):
    _, _, reading = made("two, categories")
    stump = make_ensemble(
        n_features=4, tree_start=[0, 3], feature=[feature, -1, -1], threshold=[0.0] * 3,
        left=[1, -1, -1], right=[2, -1, -1], value=[0.0, 1.0, 2.0],
        category_set=[0, -1, -1], category_offsets=[0, 1], category_values=[category],
    )  # fmt: skip
    with pytest.raises(InputError, match="does not have"):
        library.write(reading, stump)


def test_a_model_that_predicts_otherwise_is_noticed():
    class Louder(HistGradientBoostingClassifier):
        def decision_function(self, X):
            return super().decision_function(X) * 2

    rng = np.random.default_rng(0)
    X = numbers(rng)
    with pytest.raises(StateError, match="does not predict what timbermark does"):
        library.read(Louder(max_iter=2).fit(X, labels_of(rng, X, 2)))


def test_rows_of_another_shape_are_refused():
    _, asked, reading = made("two classes")
    with pytest.raises(InputError, match="does not take these rows"):
        library.rows(reading, asked[:, :2])


# Files


def test_importing_the_module_imports_no_library():
    code = (
        "import sys, timbermark.libraries.histogram_boosting as m; m.is_model(3);"
        "sys.exit(any(name in sys.modules for name in ('sklearn', 'pandas', 'skops')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_skops_the_install_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingLibraryError, match=r"timbermark\[skops\]"):
        library.save(made("two classes")[0], tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


def test_an_old_skops_is_refused(tmp_path, monkeypatch):
    path = saved(made("two classes")[0], tmp_path / "model.skops")
    monkeypatch.setattr("skops.__version__", "0.14.0")
    with pytest.raises(MissingLibraryError, match=r"skops 0\.14\.0 is too old"):
        library.load(path)


def test_other_formats_are_refused(tmp_path):
    for name in ("model.pkl", "model.joblib", "model"):
        with pytest.raises(InputError, match=r"does not end in \.skops"):
            library.save(made("two classes")[0], tmp_path / name)
        joblib.dump(made("two classes")[0], tmp_path / name)
        with pytest.raises(FileFormatError, match=r"not a skops archive.*run any code"):
            library.load(tmp_path / name)


def saved(model, path):
    pytest.importorskip("skops")
    library.save(model, path)
    return path


def test_a_file_holds_the_model(case, tmp_path):
    model, asked, reading = case
    before = joblib.hash(model)
    path = saved(model, tmp_path / "model.skops")
    assert library.is_file(path.read_bytes()[:100])
    assert library.holds(path)
    loaded = library.load(path)
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(library.margins(loaded, asked), library.margins(model, asked))
    assert library.read(loaded).ensemble == reading.ensemble
    assert joblib.hash(model) == before
    ensemble = other_subtrees(reading.ensemble, np.random.default_rng(0))
    path = saved(library.write(reading, ensemble), tmp_path / "marked.skops")
    assert_same_margins(reading, ensemble, library.load(path), asked)


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_a_hostile_file_is_refused(corrupt, tmp_path):
    model = copy.deepcopy(made("three, categories")[0])
    root = model._predictors[0][0].nodes
    root["is_categorical"][0], root["feature_idx"][0] = 0, 3
    corrupt(model)
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="does not hold a sound"):
        library.load(path)


def test_a_file_with_foreign_types_is_refused(tmp_path):
    model = copy.deepcopy(made("two classes")[0])
    model.extra_ = json.JSONDecoder
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="JSONDecoder"):
        library.load(path)


def test_a_file_of_another_model_is_refused(tmp_path):
    from sklearn.linear_model import LogisticRegression

    path = saved(LogisticRegression(), tmp_path / "model.skops")
    assert not library.holds(path)
    with pytest.raises(FileFormatError, match="holds a LogisticRegression"):
        library.load(path)


def test_a_damaged_file_is_refused(tmp_path):
    path = saved(made("two classes")[0], tmp_path / "model.skops")
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[: len(whole) // 2], b"PK\x03\x04", b""):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="not a skops archive"):
            library.load(path)


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path):
    path = tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"{}")
        archive.writestr("1.npy", bytes(100 << 20))
    with pytest.raises(FileFormatError, match="would unpack to"):
        library.load(path)
