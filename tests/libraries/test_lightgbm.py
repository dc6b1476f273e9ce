import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.leaf_changes import other_leaves
from timbermark.errors import FileFormatError, InputError, MissingLibraryError, TimbermarkError
from timbermark.libraries.closing import probe_rows
from timbermark.libraries.lightgbm import models
from timbermark.libraries.lightgbm import models as library
from timbermark.libraries.lightgbm.text import parse_text, print_text, starts
from timbermark.libraries.lightgbm.trees import (
    MOST_DEPTH,
    edit_trees,
    find_steps,
    follows_gains,
    keep_best_first,
)
from timbermark.trees import reference
from timbermark.trees.ensemble import MISSING_ZERO

lgb = pytest.importorskip("lightgbm")

from tests.libraries.lightgbm_models import (  # noqa: E402
    MAKERS,
    SMALL,
    booster,
    classes_of,
    classifier,
    table,
)

every_model = pytest.mark.parametrize("name", MAKERS)


@cache
def made(name):
    model, X = MAKERS[name]()
    return model, X, library.open(model)


def booster_of(model):
    return model if isinstance(model, lgb.Booster) else model.booster_


def text_of(model):
    return booster_of(model).model_to_string(num_iteration=-1)


def with_splits(model, **changes):
    """A model with other arrays in its text, and what it is opened as."""
    frame, blocks = parse_text(text_of(model))
    changed = {name: np.full_like(getattr(blocks, name), value) for name, value in changes.items()}
    found = models._rebuilt(model, print_text(frame, replace(blocks, **changed)))
    return found, library.open(found)


def part_of(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def questions(X, foreign):
    """Rows of the table, and awkward ones for a table of plain numbers."""
    asked = [part_of(X, slice(0, 25))]
    probes = probe_rows(foreign.ensemble, 60)
    probes[:4] = [[0.0], [1e-36], [-1e-40], [np.inf]] * np.ones(probes.shape[1])
    return [*asked, probes]


def assert_predicts(model, foreign, ensemble, X):
    """The model's margins are the ensemble's, bit for bit, together and one by one."""
    for asked in questions(X, foreign):
        expected = reference.margins(ensemble, library.rows(foreign, asked))
        found = library.margins(model, asked)
        assert found.dtype == np.float64
        assert found.shape == (len(asked), ensemble.n_outputs)
        np.testing.assert_array_equal(found, expected)
        singly = [library.margins(model, part_of(asked, slice(i, i + 1))) for i in range(6)]
        np.testing.assert_array_equal(np.vstack(singly), expected[:6])


@every_model
def test_saved_and_loaded(name, tmp_path):
    _, X, foreign = made(name)
    ensemble = other_leaves(foreign, seed=7)
    written = library.close(foreign, ensemble)
    library.save(written, tmp_path / "model.txt")
    assert library.is_file((tmp_path / "model.txt").read_bytes()[:100])
    loaded = library.open_file(tmp_path / "model.txt").native
    assert type(loaded) is lgb.Booster
    assert_predicts(loaded, foreign, ensemble, X)
    assert loaded.pandas_categorical == booster_of(written).pandas_categorical
    # The library reads the file itself, and wrote what it would have written.
    itself = lgb.Booster(model_file=tmp_path / "model.txt")
    assert loaded.params == itself.params
    assert loaded.model_to_string() == itself.model_to_string()
    booster_of(written).save_model(tmp_path / "its own.txt")
    assert (tmp_path / "model.txt").read_bytes() == (tmp_path / "its own.txt").read_bytes()


@every_model
def test_what_was_printed_before_is_taken_from_there(name):
    frame, known = parse_text(text_of(made(name)[0]))
    threshold = np.where(np.arange(len(known.threshold)) % 7 == 0, 0.25, known.threshold)
    value = known.leaf_value[::-1].copy()
    for changes in ({}, {"threshold": threshold}, {"threshold": threshold, "leaf_value": value}):
        blocks = replace(known, **changes)
        assert print_text(frame, blocks, known) == print_text(frame, blocks)


def test_a_classifier_stays_as_it_was():
    model, X, foreign = made("frame, three")
    written = library.close(foreign, other_leaves(foreign))
    assert written.get_params() == model.get_params()
    assert written.classes_.tolist() == model.classes_.tolist() == ["maybe", "no", "yes"]
    assert written.n_features_in_ == model.n_features_in_
    assert written.feature_name_ == model.feature_name_
    assert written.feature_name_[1] == "größe"
    assert foreign.feature_names == tuple(model.feature_name_)
    assert written.booster_.pandas_categorical == model.booster_.pandas_categorical
    assert written.booster_.params == model.booster_.params
    assert set(written.predict(X)) <= set(model.classes_)
    assert written._le is not model._le
    # It can be trained again.
    assert written.fit(X, written.predict(X)).predict(X).shape == (len(X),)


def chain(depth):
    """A model's text with splits one below the other."""
    frame, blocks = parse_text(text_of(made("two")[0]))
    place = np.arange(depth)
    zeros = np.zeros(depth)
    blocks = replace(
        blocks,
        **{name: np.zeros(0, dtype=np.int64) for name in ("cat_boundaries", "cat_threshold")},
        **{name: np.array([n]) for name, n in (("num_cat", 0), ("shrinkage", 1.0), ("n_words", 0))},
        **dict.fromkeys(("split_gain", "internal_value", "internal_weight"), zeros),
        **{name: zeros.astype(int) for name in ("split_feature", "decision_type")},
        num_leaves=np.array([depth + 1]),
        threshold=place.astype(float),
        left_child=~place,
        right_child=np.append(place[1:], ~depth),
        internal_count=place[::-1] + 2,
        leaf_value=np.arange(depth + 1.0),
        leaf_weight=np.ones(depth + 1),
        leaf_count=np.ones(depth + 1, dtype=int),
    )
    return print_text(frame, blocks)


def test_depth_is_limited(tmp_path):
    (tmp_path / "model.txt").write_text(chain(MOST_DEPTH), encoding="utf-8")
    deepest = library.open_file(tmp_path / "model.txt").native
    assert np.isfinite(deepest.predict(np.full((1, 4), 1e9), pred_contrib=True)).all()
    (tmp_path / "model.txt").write_text(chain(MOST_DEPTH + 1), encoding="utf-8")
    with pytest.raises(FileFormatError, match=f"more than {MOST_DEPTH} splits"):
        library.open_file(tmp_path / "model.txt")


# Statistics.

# Where other rules make the leaves as well, or leaves of 0 hide what they were made from.
UNEXPLAINED = ("monotone", "smooth", "regularized, both")


def explained(foreign):
    """Each split's stated mean and gain, and what the formula says of them."""
    e, blocks = foreign.ensemble, foreign.extra.blocks
    inner = e.left >= 0
    steps = find_steps(foreign.extra.frame, blocks, e)
    found = steps.statistics(e)
    tree = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))[inner]
    mean = found.weight[inner] * steps.rate[tree] + steps.bias[tree]
    if not steps.roots_follow:
        root = np.isin(np.flatnonzero(inner), e.tree_start[:-1])
        mean = np.where(root, steps.bias[tree], mean)
    count = int(inner.sum())
    return (
        (blocks.internal_value[:count], mean),
        (blocks.split_gain[:count], found.gain[inner]),
    )


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in UNEXPLAINED])
def test_statistics_follow_by_the_librarys_own_formula(name):
    foreign = made(name)[2]
    marked = library.open(library.close(foreign, other_leaves(foreign, size=0.1)))
    least = foreign.extra.blocks.split_gain.min(initial=np.inf)
    for opened in (foreign, marked):
        (mean, mean_found), (gain, gain_found) = explained(opened)
        spread = np.abs(mean).mean() if len(mean) else 1.0
        np.testing.assert_allclose(mean_found, mean, rtol=3e-5, atol=3e-5 * spread)
        free = (gain != least) | (gain_found > 1e-3)  # not set to the least gain
        np.testing.assert_allclose(gain_found[free], gain[free], rtol=1e-4, atol=1e-4)
        assert (gain > 0).all()


def test_statistics_with_l1_follow_where_no_leaf_is_zero():
    (mean, mean_found), (gain, gain_found) = explained(made("regularized, both")[2])
    assert np.mean(np.isclose(mean_found, mean, rtol=3e-5, atol=3e-5)) > 0.95
    assert np.mean(np.isclose(gain_found, gain, rtol=1e-4, atol=1e-4)) > 0.95


def test_statistics_have_the_digits_that_lightgbm_prints():
    foreign = made("regularized, three")[2]
    blocks = library.open(library.close(foreign, other_leaves(foreign))).extra.blocks
    for numbers in (blocks.internal_value, blocks.split_gain):
        assert all(number == float(f"{number:g}") for number in numbers.tolist())


def in_order(blocks):
    """Whether each tree is numbered from its best split down."""
    split = starts(blocks.num_leaves - 1)
    return np.array(
        [
            follows_gains(blocks.left_child[a:b], blocks.right_child[a:b], blocks.split_gain[a:b])
            for a, b in pairwise(split)
        ]
    )


@every_model
def test_splits_stay_numbered_from_the_best_one_down(name):
    _, X, foreign = made(name)
    assert in_order(foreign.extra.blocks).all()
    ensemble = other_leaves(foreign, size=2.0)
    written = library.close(foreign, ensemble)
    blocks = library.open(written).extra.blocks
    assert in_order(blocks).all()
    assert_predicts(written, foreign, ensemble, X)
    old = edit_trees(foreign.extra.frame, foreign.extra.blocks, foreign.ensemble, ensemble)
    if name in ("two", "two, categories", "booster, categories", "frame, three"):
        assert not in_order(old).all()
        asked = [blocks.threshold[blocks.decision_type & 1 == 1] for blocks in (old, blocks)]
        np.testing.assert_array_equal(asked[0], asked[1])


def test_trees_that_were_not_in_order_are_left_alone():
    foreign = made("two")[2]
    blocks = foreign.extra.blocks
    gain = blocks.split_gain.copy()
    first = slice(0, int(blocks.num_leaves[0]) - 1)
    gain[first] = gain[first][::-1]
    odd = replace(blocks, split_gain=gain)
    assert not in_order(odd)[0]
    new = replace(odd, split_gain=gain * 2)
    kept = keep_best_first(odd, new)
    np.testing.assert_array_equal(kept.left_child, blocks.left_child)


# Tables.


def test_rows_of_a_frame():
    pd = pytest.importorskip("pandas")
    model, X, foreign = made("frame")
    found = library.rows(foreign, X)
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
    rows = library.rows(foreign, other)
    assert np.isnan(rows[:6, 3]).all()
    np.testing.assert_array_equal(rows[8:, 3:5], found[8:, 3:5])
    np.testing.assert_array_equal(reference.margins(foreign.ensemble, rows), expected)
    with pytest.raises(InputError, match="1 columns of categories, the model 2"):
        library.rows(foreign, X.assign(place=1.0))
    with pytest.raises(InputError, match="not a table of numbers"):
        library.rows(foreign, X.assign(a="text"))


def test_rows_of_a_frame_for_a_model_without_categories():
    pd = pytest.importorskip("pandas")
    for name in ("two", "booster"):
        model, _, foreign = made(name)
        X = table(np.random.default_rng(1), 50)
        ints = pd.DataFrame(
            {"a": X[:, 0], "b": X[:, 1].astype(np.float32), "c": (X[:, 2] * 1e9).astype(np.int64),
             "b again": pd.array(X[:, 3].astype(int), dtype="Int64")}
        ).set_axis(["a", "b", "c", "b"], axis=1)  # fmt: skip
        expected = library.margins(model, ints)
        rows = library.rows(foreign, ints)
        np.testing.assert_array_equal(rows[:, 2], ints["c"])
        np.testing.assert_array_equal(reference.margins(foreign.ensemble, rows), expected)


@pytest.mark.parametrize("name", ["three", "booster"])
def test_rows_of_other_tables(name):
    sparse = pytest.importorskip("scipy.sparse")
    model, X, foreign = made(name)
    # Whole numbers that float32 does not hold, at a threshold that tells them apart.
    model, foreign = with_splits(model, threshold=2.0**24, decision_type=0)
    ensemble = foreign.ensemble
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
        rows = library.rows(foreign, asked)
        np.testing.assert_array_equal(reference.margins(ensemble, rows), expected)
    assert library.rows(foreign, near)[0, 2] == 2**24  # as the library rounds
    assert library.margins(model, X[:0]).shape == (0, ensemble.n_outputs)
    assert library.rows(foreign, X[:0]).shape == (0, 4)


@pytest.mark.parametrize("name", ["two", "booster"])
def test_rows_of_an_arrow_table(name):
    arrow = pytest.importorskip("pyarrow")
    if not hasattr(lgb.basic, "nw"):
        pytest.skip("before 4.7 these tables need another package")
    # At thresholds of zero it shows whether numbers next to zero stay what they are.
    model, foreign = with_splits(made(name)[0], threshold=0.0)
    ensemble = foreign.ensemble
    asked = arrow.table(
        {
            "a": [1.5, None, 1e-40],
            "b": [1, 2, None],
            "c": [2**53 + 1, 0, -1],
            "d": [1e-40, -1.0, 5.0],
        }
    )
    expected = library.margins(model, asked)
    rows = library.rows(foreign, asked)
    np.testing.assert_array_equal(reference.margins(ensemble, rows), expected)


def test_bad_rows_are_refused():
    _, X, foreign = made("two")
    for asked, message in (
        (X[:, :3], r"\(240, 3\), expected \(n, 4\)"),
        (X[0], r"\(4,\), expected"),
        ([["a", "b", "c", "d"]], "not a table of numbers"),
        ([[1, 2, 3, {}]], "not a table of numbers"),
        (X + 1j, "not a table of numbers"),
    ):
        with pytest.raises(InputError, match=message):
            library.rows(foreign, asked)


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
    "regressor with classes": (
        lambda: of_kind(lgb.LGBMRegressor, of_two, objective="binary"),
        "not what its predict is for",
    ),
    "bare model": (
        lambda: of_kind(lgb.LGBMModel, of_two, objective="binary"),
        "no classifier, regressor or ranker",
    ),
    "not fitted": (lambda: lgb.LGBMClassifier(), "not fitted"),
    "cross entropy": (lambda: booster(objective="cross_entropy_lambda")[0], "entropy_lambda'"),
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
        library.open(model)
    assert caught.value.hint
    if isinstance(model, lgb.Booster):
        model.save_model(tmp_path / "model.txt")
        with pytest.raises(FileFormatError, match=message):
            library.open_file(tmp_path / "model.txt")


def test_what_is_a_model():
    for name in MAKERS:
        assert library.is_model(made(name)[0])
    for other in (None, "Booster", np.zeros(3), lgb.Dataset(np.zeros((2, 2))), lgb.Booster):
        assert not library.is_model(other)


def test_nothing_is_imported_before_it_is_needed():
    code = (
        "import sys\n"
        "from timbermark.libraries.lightgbm import models as lightgbm\n"
        "assert not lightgbm.is_model(3) and not lightgbm.is_file(b'x')\n"
        "assert 'lightgbm' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    assert run(code).returncode == 0


def test_without_the_library(tmp_path, monkeypatch):
    library.save(made("two")[0], tmp_path / "model.txt")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingLibraryError, match="lightgbm"):
        library.open_file(tmp_path / "model.txt")


# Files.


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.txt"
    library.save(made("three, categories")[0], path)
    return path


def assert_refused(path, content, message=None):
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        library.open_file(path)
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
    "objective": ("objective=multiclass", "objective=poems", "objective 'poems'"),
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
    assert (
        library.open_file(saved).native.num_trees() == made("three, categories")[2].ensemble.n_trees
    )


def test_other_files_are_refused(tmp_path):
    for content in (b"", b"\n", b"tree", b"{}", b"PK\x03\x04", bytes(range(256)), b"tree\n" * 99):
        assert not library.is_file(content)
        assert_refused(tmp_path / "model.txt", content)
    with pytest.raises(OSError, match="absent"):
        library.open_file(tmp_path / "absent.txt")


def test_lines_may_end_as_on_windows(saved):
    expected = library.open_file(saved).native.model_to_string()
    saved.write_bytes(saved.read_bytes().replace(b"\n", b"\r\n"))
    assert library.is_file(saved.read_bytes())
    assert library.open_file(saved).native.model_to_string() == expected


def test_a_parameter_that_the_library_cannot_read_again_is_left_out(saved):
    text = saved.read_text(encoding="utf-8")
    path = r"[forcedsplits_filename: C:\new\"splits\".json]"
    saved.write_text(text.replace("[forcedsplits_filename: ]", path), encoding="utf-8")
    assert "forcedsplits_filename" not in library.open_file(saved).native.params


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
    code = "import sys; from timbermark.libraries import load; load(sys.argv[1])"
    found = run(code, saved)
    assert found.returncode == 0
    assert not found.stdout
    assert "flavour" in found.stderr


FUZZ = """
import random, sys
from pathlib import Path
import numpy as np
from timbermark.errors import TimbermarkError
from timbermark.libraries.lightgbm import models as library
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
        model = library.open_file(path).native
    except TimbermarkError:
        outcomes[0] += 1
        continue
    outcomes[1] += 1
    foreign = library.open(model)
    X = np.random.default_rng(0).normal(size=(5, foreign.ensemble.n_features)) * 9
    expected = reference.margins(foreign.ensemble, library.rows(foreign, X))
    assert (library.margins(model, X) == expected).all()
    model.predict(X, pred_contrib=True)
    model.dump_model()
    written = library.close(foreign, foreign.ensemble)
    assert (library.margins(written, X) == expected).all()
    written.predict(X, pred_contrib=True)
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
    model = library.open_file(tmp_path / "model.txt").native
    foreign = library.open(model)
    X = np.array([[-1, 0, 0], [0, 0, 9], [0, 0, 8], [1, 0, 34.5], [np.nan, 0, np.nan]], dtype=float)
    expected = [
        [-0.10691057178608679],
        [-0.11405628726351918],
        [0.1470127112795831],
        [0.23608377113066742],
        [0.1470127112795831],
    ]
    np.testing.assert_array_equal(library.margins(model, X), expected)
    np.testing.assert_array_equal(reference.margins(foreign.ensemble, X), expected)
    assert foreign.ensemble.hessian[0] == pytest.approx(49.98)


# Other programs.


@every_model
def test_treelite_predicts_the_same(name, tmp_path):
    treelite = pytest.importorskip("treelite")
    _, X, foreign = made(name)
    ensemble = other_leaves(foreign)
    inner = ensemble.left >= 0
    if (ensemble.missing_kind[inner & (ensemble.category_set < 0)] == MISSING_ZERO).any():
        pytest.skip("treelite does not take zeros for missing values")
    library.save(library.close(foreign, ensemble), tmp_path / "model.txt")
    other = treelite.frontend.load_lightgbm_model(tmp_path / "model.txt")
    asked = library.rows(foreign, X)
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
    _, X, foreign = made(name)
    written = library.close(foreign, other_leaves(foreign))
    exported = onnxmltools.convert_lightgbm(
        written, initial_types=[("X", types.FloatTensorType([None, X.shape[1]]))], target_opset=15
    )
    session = runtime.InferenceSession(
        exported.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    asked = np.random.default_rng(4).normal(size=(300, X.shape[1])).astype(np.float32)
    found = session.run(None, {"X": asked})[0]
    np.testing.assert_array_equal(found, written.predict(asked))
