"""Attacks on thresholds keep to the gaps of the thief's rows, and files stay consistent."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification

from tests.attacks.models import LIBRARIES, accuracy, data, stolen, thief
from tests.marking.models import new_model
from timbermark.attacks import trees, tuning
from timbermark.attacks.stolen import NotOfferedError, Thief, steal
from timbermark.trees.construction import constant_ensemble


def splits(model):
    """Return features and thresholds of all splits."""
    e = model.trees().ensemble
    inner = e.left >= 0
    return e.feature[inner], e.threshold[inner]


def sides(feature, threshold, rows, strict):
    """Return for each split how many of the thief's values go left."""
    goes = rows[:, feature] < threshold if strict else rows[:, feature] <= threshold
    return goes.sum(axis=0)


def typed(model):
    """Return the thief's rows as the model compares them."""
    kind = np.float32 if model.trees().ensemble.input_dtype == "f4" else np.float64
    return thief().X.astype(kind).astype(np.float64)


@pytest.mark.parametrize("library", LIBRARIES)
def test_snapped_thresholds_are_in_the_middle_of_gaps_and_no_row_of_the_thief_notices(library):
    model = stolen(library)
    left = trees.snap_thresholds(model, thief(), 1.0)
    np.testing.assert_array_equal(left.answer(thief().X), model.answer(thief().X))
    feature, threshold = splits(left)
    old = splits(model)[1]
    rows = typed(model)
    moved = 0
    for j, t, was in zip(feature.tolist(), threshold.tolist(), old.tolist(), strict=True):
        below, above = rows[rows[:, j] <= t, j], rows[rows[:, j] > t, j]
        if len(below) and len(above):
            middle = (below.max() + above.min()) / 2.0
            assert t == pytest.approx(middle, rel=1e-6, abs=1e-6)
            moved += t != was
    assert moved > 0.5 * len(threshold)
    half = splits(trees.snap_thresholds(model, thief(), 0.5))[1]
    np.testing.assert_allclose(half, (threshold + old) / 2.0, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_jittered_thresholds_cross_at_most_as_many_values_as_they_may(library):
    model = stolen(library)
    strict, rows = model.trees().ensemble.strict, typed(model)
    feature, old = splits(model)
    before = sides(feature, old, rows, strict)
    for gaps in (0.0, 1.0, 3.0):
        left = trees.jitter_thresholds(model, thief(), gaps)
        new = splits(left)[1]
        crossed = np.abs(sides(feature, new, rows, strict) - before)
        assert crossed.max() <= gaps
        assert (crossed.max() == 0) == (gaps == 0)
        assert (new != old).mean() > 0.5
        assert accuracy(left) > accuracy(model) - 0.02


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_values_that_many_rows_have_are_not_crossed(library):
    X, y = data()
    X = np.maximum(X, 0.0)
    model = steal(new_model(library, 10).fit(X[:600], y[:600]))
    left = trees.jitter_thresholds(model, Thief(X[600:1200], y[600:1200]), 3.0)
    (_, old), (_, new) = splits(model), splits(left)
    assert (new != old).mean() > 0.5
    # Zeros go left before and after.
    np.testing.assert_array_equal(new > 0.0, old > 0.0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_merged_thresholds_are_fewer_and_cross_few_rows(library):
    model = stolen(library)
    strict, rows = model.trees().ensemble.strict, typed(model)
    feature, old = splits(model)
    before = sides(feature, old, rows, strict)
    counts = [len(set(zip(feature.tolist(), old.tolist(), strict=True)))]
    for share in (0.0, 0.01, 0.05):
        left = trees.merge_thresholds(model, thief(), share)
        new = splits(left)[1]
        crossed = np.abs(sides(feature, new, rows, strict) - before)
        assert crossed.max() <= share * len(rows)
        counts.append(len(set(zip(feature.tolist(), new.tolist(), strict=True))))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]


@pytest.mark.parametrize("library", LIBRARIES)
def test_equal_thresholds_stay_equal(library):
    model = stolen(library)
    feature, old = splits(model)
    for attack, strength in (
        (trees.snap_thresholds, 1.0),
        (trees.jitter_thresholds, 3.0),
        (trees.merge_thresholds, 0.01),
        (trees.move_thresholds, 0.03),
    ):
        new = splits(attack(model, thief(), strength))[1]
        seen = {}
        for j, was, now in zip(feature.tolist(), old.tolist(), new.tolist(), strict=True):
            assert seen.setdefault((j, was), now) == now


@pytest.mark.parametrize("library", LIBRARIES)
def test_leaves_are_refitted_in_snapped_trees(library):
    model = stolen(library)
    snapped = trees.snap_thresholds(model, thief(), 1.0)
    both = trees.refit(snapped, thief(), 0.2)
    alone = trees.refit(model, thief(), 0.2)
    # No row of the thief's goes elsewhere, so that they give the same leaves.
    np.testing.assert_array_equal(both.trees().ensemble.value, alone.trees().ensemble.value)
    np.testing.assert_array_equal(splits(both)[1], splits(snapped)[1])
    assert accuracy(both) > accuracy(model) - 0.06


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("attack", ["snap", "jitter", "merge"])
def test_the_library_takes_moved_thresholds(library, attack):
    run, strength = {
        "snap": (trees.snap_thresholds, 1.0),
        "jitter": (trees.jitter_thresholds, 1.0),
        "merge": (trees.merge_thresholds, 0.005),
    }[attack]
    left = run(stolen(library), thief(), strength)
    X, _ = data()
    native = left.file().native
    np.testing.assert_allclose(left.answer(X), native.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost", "histogram", "gradient"])
def test_training_goes_on_after_thresholds_were_moved(library):
    model = stolen(library)
    snapped = trees.snap_thresholds(model, thief(), 1.0)
    longer = tuning.add_trees(snapped, thief(), 5.0)
    n = len(splits(snapped)[1])
    assert len(splits(longer)[1]) > n
    np.testing.assert_allclose(splits(longer)[1][:n], splits(snapped)[1], rtol=1e-6)
    assert accuracy(longer) > accuracy(model) - 0.05


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_the_library_refits_leaves_of_snapped_trees(library):
    snapped = trees.snap_thresholds(stolen(library), thief(), 1.0)
    left = trees.refit_by_library(snapped, thief(), 0.2)
    np.testing.assert_allclose(splits(left)[1], splits(snapped)[1], rtol=1e-6)
    assert (left.trees().ensemble.value != snapped.trees().ensemble.value).any()


def test_splits_of_categories_have_no_thresholds():
    from lightgbm import LGBMClassifier

    X, y = make_classification(400, 4, n_informative=3, n_redundant=0, random_state=0)
    codes = np.clip(np.rint(3 * X[:, :1]), -6, 6) + 6
    model = LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1, min_child_samples=2)
    model.fit(codes, y, categorical_feature=[0])
    have = Thief(codes, y)
    with pytest.raises(NotOfferedError) as reason:
        trees.snap_thresholds(steal(model), have, 1.0)
    assert reason.value.code == "no-thresholds"


finite = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(finite, min_size=1, max_size=12),
    st.lists(finite, min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from(["f4", "f8"]),
)
def test_moves_within_gaps_send_every_value_the_same_way(values, cuts, strict, dtype):
    """Whatever the values, the cuts and the types: numbers that are next to each other included."""
    values, cuts = np.array(values, np.float32).astype(float), np.unique(np.float32(cuts))
    made = chain_of_splits(cuts.astype(float), strict, dtype)
    for move in (
        lambda t, n, v: trees._snapped(t, v, strict, 1.0),
        lambda t, n, v: t + 1e-3,
    ):
        left = trees._moved(made, np.array(values)[:, None], move, within=True)
        inner = made.left >= 0
        before = sides(np.zeros(inner.sum(), int), made.threshold[inner], values[:, None], strict)
        after = sides(np.zeros(inner.sum(), int), left[inner], values[:, None], strict)
        np.testing.assert_array_equal(before, after)


def chain_of_splits(cuts, strict, dtype):
    """Return one tree that splits one feature at every cut."""
    n = len(cuts)
    base = constant_ensemble(n_features=1, value=0.0)
    left = np.full(2 * n + 1, -1)
    right = left.copy()
    for i in range(n):
        left[2 * i], right[2 * i] = 2 * i + 1, 2 * i + 2
    inner = left >= 0
    threshold = np.zeros(2 * n + 1)
    threshold[inner] = cuts
    nodes = {
        name: np.resize(getattr(base, name)[:1], 2 * n + 1)
        for name in ("missing_left", "missing_kind", "category_set", "count", "hessian", "gain")
    }
    return replace(
        base, tree_start=[0, 2 * n + 1], feature=np.where(inner, 0, -1), threshold=threshold,
        left=left, right=right, value=np.zeros((2 * n + 1, 1)), strict=strict, input_dtype=dtype,
        **nodes,
    )  # fmt: skip
