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
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from timbermark.errors import FileFormatError, InputError, MissingLibraryError, StateError
from timbermark.libraries import gradient_boosting as library
from timbermark.libraries.probing import probe_rows
from timbermark.trees import reference
from timbermark.trees.making import constant_ensemble, make_ensemble

pytest.importorskip("sklearn")
joblib = pytest.importorskip("joblib")
pd = pytest.importorskip("pandas")

import sklearn.base  # noqa: E402
from sklearn.dummy import DummyClassifier  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.inspection import partial_dependence  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor  # noqa: E402

N = 300


def numbers(rng, n=N):
    return rng.normal(size=(n, 4))


def whole(rng, n=N):
    return rng.integers(-3, 4, size=(n, 4))


def tenths(rng, n=N):
    """Numbers that float32 does not hold, so that a comparison in float64 would differ."""
    return rng.integers(-3, 4, size=(n, 4)) * 0.1


def sparse(rng, n=N):
    X = numbers(rng, n)
    X[rng.random(X.shape) < 0.6] = 0.0
    return scipy.sparse.csr_matrix(X)


def frame(rng, n=N):
    return pd.DataFrame(numbers(rng, n), columns=list("wxyz"))


def dense(X):
    return X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)


def labels_of(rng, X, n_classes):
    score = dense(X)[:, 0] + dense(X)[:, 1] ** 2 + rng.normal(size=X.shape[0])
    edges = np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1])
    return np.digitize(score, edges)


def fitted(n_classes, make=numbers, names=None, weighted=False, **parameters):
    rng = np.random.default_rng(0)
    X, asked = make(rng), make(rng, n=100)
    y = labels_of(rng, X, n_classes)
    if names:
        y = np.array(names)[y]
    parameters = {"n_estimators": 6, "random_state": 0} | parameters
    weight = rng.random(N) if weighted else None
    return GradientBoostingClassifier(**parameters).fit(X, y, sample_weight=weight), asked


MAKERS = {
    "two classes": lambda: fitted(2),
    "three classes": lambda: fitted(3),
    "nine classes": lambda: fitted(9, n_estimators=2, names=list("abcdefghi")),
    "whole numbers": lambda: fitted(3, whole),
    "tenths": lambda: fitted(2, tenths, learning_rate=0.07),
    "sparse": lambda: fitted(3, sparse),
    "frame": lambda: fitted(2, frame, names=["no", "yes"]),
    "two, zero": lambda: fitted(2, init="zero", learning_rate=1 / 3),
    "three, zero": lambda: fitted(3, init="zero", names=["p", "q", "r"]),
    "given prior": lambda: fitted(3, init=DummyClassifier(strategy="prior")),
    "early stopping": lambda: fitted(
        3, n_iter_no_change=2, n_estimators=60, learning_rate=0.9, validation_fraction=0.3),
    "early, zero": lambda: fitted(
        2, n_iter_no_change=2, n_estimators=60, learning_rate=0.9, init="zero"),
    "subsample": lambda: fitted(2, subsample=0.5, max_features=2),
    "subsample, three": lambda: fitted(3, subsample=0.3, learning_rate=0.05),
    "weighted": lambda: fitted(2, weighted=True, min_samples_leaf=0.05),
    "best first": lambda: fitted(3, max_leaf_nodes=7, max_depth=None),
    "deep": lambda: fitted(2, max_depth=None, n_estimators=2),
    "stumps": lambda: fitted(2, max_depth=1, ccp_alpha=1e-4),
    "single leaves": lambda: fitted(3, min_impurity_decrease=1e9),
}  # fmt: skip


@cache
def made(name):
    model, asked = MAKERS[name]()
    return model, asked, library.read(model)


@pytest.fixture(params=MAKERS)
def case(request):
    return made(request.param)


def assert_same_margins(reading, ensemble, model, X):
    expected = reference.margins(ensemble, library.rows(reading, X))
    assert expected.shape == (X.shape[0], ensemble.n_outputs)
    np.testing.assert_array_equal(library.margins(model, X), expected)
    for i in range(0, X.shape[0], max(1, X.shape[0] // 4)):
        np.testing.assert_array_equal(library.margins(model, X[i : i + 1]), expected[i : i + 1])


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


def test_a_margin_of_zero_is_class_1():
    _, asked, reading = made("two, zero")
    written = library.write(reading, replace(reading.ensemble, value=reading.ensemble.value * 0))
    margins = reference.margins(reading.ensemble, asked) * 0
    assert (written.predict(asked) == reading.classes[1]).all()
    assert (reference.labels(margins, reading.ensemble) == 1).all()


def test_what_a_reading_says(case):
    model, _, reading = case
    assert (reading.library, reading.kind) == ("scikit-learn", "GradientBoostingClassifier")
    assert reading.ensemble.n_trees == model.n_estimators_ * model.n_trees_per_iteration_
    assert (reading.ensemble.tree_weight == model.learning_rate).all()
    np.testing.assert_array_equal(reading.classes, model.classes_)
    training = reading.training
    assert training.learning_rate == model.learning_rate
    assert training.l2_regularization == 0.0
    assert training.max_leaf_nodes == model.max_leaf_nodes
    assert training.max_depth == model.max_depth
    if isinstance(model.min_samples_leaf, int):
        assert training.min_samples_leaf == model.min_samples_leaf
    else:
        assert training.min_samples_leaf is None


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_hessian_factor_gives_the_leaves(n_classes):
    """A first leaf is the sum of gradients over the factor times the sum of p (1 - p)."""
    rng = np.random.default_rng(1)
    X = numbers(rng)
    y = labels_of(rng, X, n_classes)
    model = GradientBoostingClassifier(n_estimators=1, max_depth=2).fit(X, y)
    reading = library.read(model)
    e = reading.ensemble
    start = np.tile(e.init, (N, 1))
    shares = reference.probabilities(start, e.objective)
    leaves = reference.leaf_indices(e, X)
    for tree in range(e.n_trees):
        label = 1 if n_classes == 2 else tree
        p = shares[:, label]
        for leaf in np.unique(leaves[:, tree]):
            here = leaves[:, tree] == leaf
            step = ((y == label) - p)[here].sum() / (p * (1 - p))[here].sum()
            found = e.value[e.tree_start[tree] + leaf, 0]
            np.testing.assert_allclose(found, step / reading.training.hessian_factor, rtol=1e-9)


def test_gains_are_what_importances_add_up(case):
    model, _, reading = case
    e = reading.ensemble
    roots = np.concatenate([t.tree_.weighted_n_node_samples[:1] for t in model.estimators_.ravel()])
    shares = e.gain / np.repeat(roots, np.diff(e.tree_start))
    inner = e.left >= 0
    total = np.bincount(e.feature[inner], shares[inner], minlength=4)
    np.testing.assert_allclose(
        total / (total.sum() or 1.0), model.feature_importances_, rtol=1e-6, atol=1e-12
    )


def test_early_stopping_stops():
    assert made("early stopping")[0].n_estimators_ < 60


def test_names_are_kept():
    assert made("frame")[2].feature_names == tuple("wxyz")
    assert made("two classes")[2].feature_names is None


def test_sparse_rows_are_dense_rows():
    model, asked, reading = made("sparse")
    np.testing.assert_array_equal(
        library.margins(model, asked), library.margins(model, asked.toarray())
    )
    np.testing.assert_array_equal(
        library.rows(reading, asked), asked.toarray().astype(np.float32).astype(float)
    )


DATA = st.floats(-3, 3, width=16) | st.sampled_from([0.1, 1e-40, -0.0, 1e30, -1e30, 2.0**24 + 1])


@settings(max_examples=25)
@given(st.data(), st.integers(2, 3), st.sampled_from([None, "zero"]))
def test_any_data(data, n_classes, init):
    row = st.lists(DATA, min_size=2, max_size=2)
    X = np.array(data.draw(st.lists(row, min_size=9, max_size=20)))
    y = data.draw(st.permutations([i % n_classes for i in range(len(X))]))
    rate = data.draw(st.sampled_from([0.1, 1.0, 1 / 3]))
    model = GradientBoostingClassifier(n_estimators=3, init=init, learning_rate=rate).fit(X, y)
    reading = library.read(model)
    assert_same_margins(reading, reading.ensemble, model, X)
    fresh = np.array(data.draw(st.lists(row, min_size=1, max_size=5)))
    assert_same_margins(reading, reading.ensemble, model, fresh)


def test_treelite_agrees():
    treelite = pytest.importorskip("treelite")
    for name in ("two classes", "three classes", "two, zero", "early stopping", "tenths", "deep"):
        model, asked, reading = made(name)
        # treelite compares in the type of the rows, scikit-learn in float32 whatever they are.
        rows = asked.astype(np.float32).astype(float)
        # It looks for as many trees as were wished for, and crashes after early stopping.
        whole = copy.deepcopy(model).set_params(n_estimators=model.n_estimators_)
        oracle = treelite.gtil.predict(treelite.sklearn.import_model(whole), rows, pred_margin=True)
        ours = reference.margins(reading.ensemble, rows)
        np.testing.assert_allclose(ours, oracle.reshape(ours.shape), rtol=1e-12, atol=1e-14)


# Writing


PER_NODE = (
    "feature", "threshold", "missing_left", "missing_kind", "category_set", "value", "count",
    "hessian", "gain",
)  # fmt: skip


def nested(e, tree, node=0):
    i = int(e.tree_start[tree]) + node
    fields = {name: getattr(e, name)[i] for name in PER_NODE}
    if e.left[i] >= 0:
        fields["children"] = [nested(e, tree, e.left[i]), nested(e, tree, e.right[i])]
    return fields


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
    return replace(
        e,
        tree_start=np.array(start),
        tree_weight=np.full(len(trees), e.tree_weight[0]),
        tree_output=np.arange(len(trees)) % e.n_outputs,
        **{name: np.array(values) for name, values in arrays.items()},
    )


def subtree(rng, depth):
    leaf = depth == 0 or rng.random() < 0.2
    fields = {
        "feature": -1 if leaf else int(rng.integers(4)),
        "threshold": 0.0 if leaf else float(rng.choice([rng.normal(), 0.1, -0.2])),
        "missing_left": False, "missing_kind": 2, "category_set": -1, "hessian": 0.0,
        "value": np.array([rng.normal()]), "count": float(rng.integers(0, 9)),
        "gain": 0.0 if leaf else float(rng.random()),
    }  # fmt: skip
    if not leaf:
        fields["children"] = [subtree(rng, depth - 1), subtree(rng, depth - 1)]
    return fields


def other_leaves(e, rng):
    return replace(e, value=np.where(e.left[:, None] < 0, rng.normal(size=e.value.shape), e.value))


def other_thresholds(e, rng):
    moved = np.where(rng.random(e.n_nodes) < 0.1, np.inf, rng.normal(size=e.n_nodes))
    return replace(
        e, threshold=np.where((e.left >= 0) & (rng.random(e.n_nodes) < 0.5), moved, e.threshold)
    )


def other_subtrees(e, rng):
    trees = [nested(e, t) for t in range(e.n_trees)]
    for tree in trees[:: max(1, len(trees) // 4)]:
        node = tree
        while "children" in node and rng.random() < 0.6:
            node = node["children"][rng.integers(2)]
        node.pop("children", None)
        node.update(subtree(rng, 3))
    return flattened(e, trees, rng)


def pruned(e, rng):
    trees = [nested(e, t) for t in range(e.n_trees)]
    for tree in trees[::2]:
        for child in tree.get("children", []):
            child.pop("children", None)
            child.update(subtree(rng, 0))
    return flattened(e, trees, rng)


def other_trees(e, rng):
    return flattened(e, [subtree(rng, 4) for _ in range(e.n_trees)], rng)


def fewer_trees(e, rng):
    keep = e.n_outputs * (e.n_trees // e.n_outputs // 2 or 1)
    return flattened(e, [nested(e, t) for t in range(keep)], rng)


def more_trees(e, rng):
    trees = [nested(e, t) for t in range(e.n_trees)]
    return flattened(e, trees + [subtree(rng, 3) for _ in range(e.n_outputs)], rng)


EDITS = [
    other_leaves, other_thresholds, other_subtrees, pruned, other_trees, fewer_trees, more_trees,
]  # fmt: skip


def test_the_same_ensemble_gives_the_same_model(case):
    model, asked, reading = case
    written = library.write(reading, reading.ensemble)
    assert type(written) is type(model)
    assert written is not model
    assert_same_margins(reading, reading.ensemble, written, asked)
    for mine, theirs in zip(written.estimators_.ravel(), model.estimators_.ravel(), strict=True):
        state, other = mine.tree_.__getstate__(), theirs.tree_.__getstate__()
        for name in state["nodes"].dtype.names:  # the bytes between them are random
            assert state["nodes"][name].tobytes() == other["nodes"][name].tobytes()
        assert state["values"].tobytes() == other["values"].tobytes()
        assert not np.shares_memory(state["nodes"], other["nodes"])
    np.testing.assert_array_equal(written.feature_importances_, model.feature_importances_)
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
    for estimator in model.estimators_.ravel():
        tree = estimator.tree_
        inner = tree.children_left >= 0
        left, right = tree.children_left[inner], tree.children_right[inner]
        for counts in (tree.n_node_samples, tree.weighted_n_node_samples):
            assert (counts > 0).all()
            np.testing.assert_allclose(counts[left] + counts[right], counts[inner])
        assert (tree.feature[~inner] == -2).all()
        assert np.isfinite(tree.impurity).all()
        assert np.isfinite(tree.value).all()
        assert (left > np.flatnonzero(inner)).all()
        assert (right > np.flatnonzero(inner)).all()
        depths = tree.compute_node_depths()  # the root's is 1
        assert depths.max() - 1 == tree.max_depth == estimator.get_depth()
        assert (depths[left] == depths[inner] + 1).all()
    importances = model.feature_importances_
    assert (importances >= -1e-12).all()
    total = importances.sum()
    assert total == pytest.approx(1.0) or not (ensemble.left >= 0).any()
    n_iterations = ensemble.n_trees // ensemble.n_outputs
    assert model.n_estimators_ == len(model.estimators_) == len(model.train_score_) == n_iterations


def test_partial_dependence_works_after_writing():
    model, asked, reading = made("two classes")
    for edit in (other_subtrees, other_trees):
        written = library.write(reading, edit(reading.ensemble, np.random.default_rng(2)))
        found = partial_dependence(written, asked, [0], method="recursion", kind="average")
        assert np.isfinite(found["average"]).all()
    same = library.write(reading, reading.ensemble)
    np.testing.assert_array_equal(
        partial_dependence(same, asked, [1], method="recursion", kind="average")["average"],
        partial_dependence(model, asked, [1], method="recursion", kind="average")["average"],
    )


def test_stages_and_leaves_of_a_written_model():
    _, asked, reading = made("three classes")
    ensemble = other_subtrees(reading.ensemble, np.random.default_rng(0))
    written = library.write(reading, ensemble)
    *_, last = written.staged_decision_function(asked)
    np.testing.assert_array_equal(last, library.margins(written, asked))
    leaves = written.apply(asked).astype(int)
    assert leaves.shape == (len(asked), written.n_estimators_, 3)
    values = written.estimators_[0, 0].tree_.value[leaves[:, 0, 0], 0, 0]
    mine = reference.leaf_indices(ensemble, asked.astype(np.float32))[:, 0]
    np.testing.assert_array_equal(values, ensemble.value[mine, 0])


@pytest.mark.parametrize("name", ["two classes", "three, zero", "frame", "subsample"])
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
    X = numbers(rng)
    y = labels_of(rng, X, 2)
    model = GradientBoostingClassifier(n_estimators=3, warm_start=True, random_state=0).fit(X, y)
    written = library.write(library.read(model), library.read(model).ensemble)
    for both in (model, written):
        both.set_params(n_estimators=5).fit(X, y)
    np.testing.assert_array_equal(written.decision_function(X), model.decision_function(X))


# Refusals


def test_foreign_objects_are_no_models():
    for thing in ("text", 3, GradientBoostingRegressor(), HistGradientBoostingClassifier()):
        assert not library.is_model(thing)
        with pytest.raises(InputError):
            library.read(thing)
    with pytest.raises(InputError, match="is a regressor"):
        library.read(GradientBoostingRegressor())


def test_an_unfitted_model_is_refused():
    with pytest.raises(InputError, match=r"is not fitted.*fit first"):
        library.read(GradientBoostingClassifier())


def test_exponential_loss_is_refused():
    with pytest.raises(InputError, match=r"loss='exponential'.*log_loss"):
        library.read(fitted(2, loss="exponential")[0])


@pytest.mark.parametrize(
    "init", [DecisionTreeClassifier(), DummyClassifier(strategy="stratified", random_state=0)]
)
def test_a_start_of_ones_own_is_refused(init):
    with pytest.raises(InputError, match="a start of its own"):
        library.read(fitted(2, init=init)[0])


@pytest.mark.parametrize("name", ["estimators_", "init_", "_loss", "n_trees_per_iteration_"])
def test_a_form_that_is_not_known_is_refused(name):
    model = copy.deepcopy(made("two classes")[0])
    delattr(model, name)
    with pytest.raises(InputError, match=rf"has no {name}.*1\.4 to 1\.9"):
        library.read(model)


def corrupt_nodes(name, value, node=0):
    def corrupt(model):
        getattr(model.estimators_[0, 0].tree_, name)[node] = value

    return corrupt


def with_state(**changes):
    def corrupt(model):
        old = model.estimators_[0, 0].tree_
        kind, arguments, state = old.__reduce__()
        tree = kind(*arguments)
        if changes:
            tree.__setstate__(state | changes)
        model.estimators_[0, 0].tree_ = tree

    return corrupt


def other_features(model):
    model.estimators_[0, 0] = DecisionTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0])


def many_outputs(model):
    X = np.zeros((2, 4))
    model.estimators_[0, 0] = DecisionTreeRegressor().fit(X, [[0.0, 1.0], [1.0, 0.0]])


def other_kind(model):
    model.estimators_[0, 0] = LogisticRegression()


def uneven(model):
    model.estimators_ = model.estimators_[:, :2]


def no_trees(model):
    model.estimators_ = model.estimators_[:0]


def wrong_width(model):
    model.n_features_in_ = 3


def wrong_start(model):
    model.init_.class_prior_ = np.array([0.5, 0.5])
    model.init_.n_classes_ = 2
    model.init_.classes_ = np.arange(2)


CORRUPTIONS = [
    corrupt_nodes("children_left", 10**6), corrupt_nodes("children_left", 0),
    corrupt_nodes("children_right", -5), corrupt_nodes("feature", 4), corrupt_nodes("feature", -2),
    corrupt_nodes("threshold", np.nan), corrupt_nodes("value", np.inf, -1),
    with_state(node_count=1), with_state(node_count=0), with_state(), other_features,
    many_outputs, other_kind, uneven, no_trees, wrong_width, wrong_start,
]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_what_would_make_scikit_learn_read_foreign_memory_is_refused(corrupt):
    model = copy.deepcopy(made("three classes")[0])
    corrupt(model)
    with pytest.raises(InputError):
        library.read(model)


@pytest.mark.parametrize(
    ("field", "value"),
    [("strict", True), ("input_dtype", "f8"), ("sum_dtype", "f4"), ("zero_is_positive", False),
     ("init_last", True)],
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
    trees = [nested(e, t) for t in range(e.n_trees - 1)]
    with pytest.raises(InputError, match="whole iterations"):
        library.write(reading, flattened(e, trees, np.random.default_rng(0)))
    with pytest.raises(InputError, match="take turns"):
        library.write(reading, replace(e, tree_output=e.tree_output[::-1]))
    with pytest.raises(InputError, match="zeros count as missing"):
        library.write(reading, replace(e, missing_kind=np.ones(e.n_nodes, dtype=np.uint8)))
    with pytest.raises(InputError, match="other margins"):
        library.write(reading, replace(e, init=e.init + 1))
    with pytest.raises(InputError, match=r"weigh other than 0\.1"):
        library.write(reading, replace(e, tree_weight=np.ones(e.n_trees)))
    with pytest.raises(InputError, match=r"not sound|not a node"):
        library.write(reading, replace(e, left=np.where(e.left >= 0, e.left + 10**6, -1)))


def test_categories_are_not_written():
    _, _, reading = made("two, zero")
    stump = make_ensemble(
        n_features=4, tree_start=[0, 3], feature=[1, -1, -1], threshold=[0.0] * 3,
        left=[1, -1, -1], right=[2, -1, -1], value=[0.0, 1.0, 2.0], input_dtype="f4",
        category_set=[0, -1, -1], category_offsets=[0, 1], category_values=[1],
        tree_weight=[1 / 3], zero_is_positive=True,
    )  # fmt: skip
    with pytest.raises(InputError, match="by categories"):
        library.write(reading, stump)


def test_a_model_that_predicts_otherwise_is_noticed():
    class Louder(GradientBoostingClassifier):
        def decision_function(self, X):
            return super().decision_function(X) * 2

    rng = np.random.default_rng(0)
    X = numbers(rng)
    with pytest.raises(StateError, match="does not predict what timbermark does"):
        library.read(Louder(n_estimators=2).fit(X, labels_of(rng, X, 2)))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rows_that_the_library_refuses_are_refused(value):
    _, asked, reading = made("two classes")
    asked = asked.copy()
    asked[3, 2] = value
    with pytest.raises(InputError, match="does not take these rows"):
        library.rows(reading, asked)
    library.rows(reading, library.native_rows(reading, asked))


# Files


def test_importing_the_module_imports_no_library():
    code = (
        "import sys, timbermark.libraries.gradient_boosting as m; m.is_model(3);"
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
    path = saved(model, tmp_path / "model.skops")
    assert library.is_file(path.read_bytes()[:100])
    assert library.holds(path)
    loaded = library.load(path)
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(library.margins(loaded, asked), library.margins(model, asked))
    assert library.read(loaded).ensemble == reading.ensemble
    ensemble = other_subtrees(reading.ensemble, np.random.default_rng(0))
    path = saved(library.write(reading, ensemble), tmp_path / "marked.skops")
    assert_same_margins(reading, ensemble, library.load(path), asked)


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_a_hostile_file_is_refused(corrupt, tmp_path):
    model = copy.deepcopy(made("three classes")[0])
    corrupt(model)
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="does not hold a sound"):
        library.load(path)


@pytest.mark.parametrize("count", ["0", "1", "-1"])
def test_a_file_whose_tree_lies_about_its_size_is_refused(count, tmp_path):
    path = saved(made("three classes")[0], tmp_path / "model.skops")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])

    def lie(part):
        if isinstance(part, dict):
            if "node_count" in part:
                part["node_count"]["content"] = count
            for value in part.values():
                lie(value)
        elif isinstance(part, list):
            for value in part:
                lie(value)

    lie(schema)
    members["schema.json"] = json.dumps(schema)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(FileFormatError, match="does not hold a sound"):
        library.load(path)


def test_a_file_with_foreign_types_is_refused(tmp_path):
    model = copy.deepcopy(made("two classes")[0])
    model.extra_ = json.JSONDecoder
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="JSONDecoder"):
        library.load(path)


def test_a_file_of_another_model_is_refused(tmp_path):
    path = saved(LogisticRegression(), tmp_path / "model.skops")
    assert not library.holds(path)
    with pytest.raises(FileFormatError, match="holds a LogisticRegression"):
        library.load(path)


def test_a_damaged_file_is_refused(tmp_path):
    path = saved(made("two classes")[0], tmp_path / "model.skops")
    content = path.read_bytes()
    for damaged in (content[:-30], content[: len(content) // 2], b"PK\x03\x04", b""):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="not a skops archive"):
            library.load(path)
