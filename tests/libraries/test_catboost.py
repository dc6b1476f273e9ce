import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.libraries.leaf_changes import other_leaves
from timbermark import libraries
from timbermark.errors import FileFormatError, InputError, TimbermarkError
from timbermark.libraries.catboost import cbm
from timbermark.libraries.catboost import models as library
from timbermark.libraries.catboost.models import revive, serialize
from timbermark.libraries.catboost.soundness import check_contents
from timbermark.libraries.catboost.trees import count_derived
from timbermark.libraries.closing import probe_rows
from timbermark.trees import reference

catboost = pytest.importorskip("catboost")

from tests.libraries.catboost_models import (  # noqa: E402
    MAKERS,
    SMALL,
    N,
    classes_of,
    mixed,
    numeric,
    table,
)

every_model = pytest.mark.parametrize("name", MAKERS)


@cache
def made(name):
    model, X = MAKERS[name]()
    return model, X, library.open(model)


def part_of(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def assert_predicts(model, foreign, ensemble, X, singles=5):
    """The model's margins are the ensemble's, bit for bit, together and one by one."""
    with np.errstate(over="ignore"):  # CatBoost parts missing values at the largest number
        probes = library.native_rows(foreign, probe_rows(ensemble, 60))
    first = foreign.extra.contents.trees["FloatFeatures"][0]["FlatIndex"]
    probes[:4, first] = [np.inf, -np.inf, 3.4e38, -3.4e38]
    for asked in (part_of(X, slice(0, 140)), probes):
        expected = reference.margins(ensemble, library.rows(foreign, asked))
        found = library.margins(model, asked)
        assert found.dtype == np.float64
        assert found.shape == (len(asked), ensemble.n_outputs)
        np.testing.assert_array_equal(found, expected)
        one_by_one = [
            library.margins(model, part_of(asked, slice(i, i + 1))) for i in range(singles)
        ]
        np.testing.assert_array_equal(np.vstack(one_by_one), expected[:singles])


@every_model
def test_saved_and_loaded(name, tmp_path):
    _, X, foreign = made(name)
    ensemble = other_leaves(foreign, seed=4)
    written = library.close(foreign, ensemble)
    path = tmp_path / "model.cbm"
    library.save(written, path)
    assert library.is_file(path.read_bytes()[:100])
    loaded = library.open_file(path).native
    assert type(loaded) is catboost.CatBoostClassifier
    assert_predicts(loaded, foreign, ensemble, X)
    # The library reads the file itself, with the same result.
    itself = catboost.CatBoostClassifier().load_model(str(path))
    np.testing.assert_array_equal(library.margins(itself, X), library.margins(loaded, X))
    assert loaded.get_params() == itself.get_params()
    np.testing.assert_array_equal(loaded.classes_, foreign.classes)
    assert library.open(loaded).feature_names == foreign.feature_names


@pytest.mark.parametrize("name", ["two", "three", "weighted"])
def test_unchanged_trees_are_explained_alike(name):
    model, X, foreign = made(name)
    written = library.close(foreign, foreign.ensemble)
    pool = catboost.Pool(X[:20])
    for kind in ("ShapValues", "ShapInteractionValues", "PredictionValuesChange"):
        data = None if kind == "PredictionValuesChange" else pool
        np.testing.assert_array_equal(
            written.get_feature_importance(data, type=kind),
            model.get_feature_importance(data, type=kind),
        )
    np.testing.assert_array_equal(written.feature_importances_, model.feature_importances_)
    assert written.n_features_in_ == model.n_features_in_ == 4


def test_names_of_columns():
    _, X, foreign = made("statistics, combined")
    assert foreign.feature_names == tuple(X.columns)
    assert foreign.extra.n_columns == 5
    trees = foreign.extra.contents.trees
    assert trees["OneHotFeatures"]
    assert trees["CtrFeatures"]
    assert foreign.ensemble.n_features == 5 + count_derived(trees)
    assert made("two")[2].feature_names is None


def test_trees_that_hold_every_kind_of_statistic():
    """The models above do have what they are made for."""
    parts = combinations_of("statistics, combined")
    assert any(len(each["FloatSplits"]) for each in parts)
    assert any(len(each["OneHotSplits"]) for each in parts)
    assert any(len(each["CatFeatures"]) > 1 for each in combinations_of("statistics, pairs"))
    trees = made("one-hot")[2].extra.contents.trees
    assert sum(len(feature["Values"]) for feature in trees["OneHotFeatures"]) > 3
    means = made("statistics, means")[2].extra.contents.trees["CtrFeatures"]
    assert {feature["Ctr"]["Base"]["CtrType"] for feature in means} & {2}
    assert any(step["left"] == 0 != step["right"] for step in steps_of("two, lossguide"))


def combinations_of(name):
    features = made(name)[2].extra.contents.trees["CtrFeatures"]
    return [feature["Ctr"]["Base"]["FeatureCombination"] for feature in features]


def steps_of(name):
    return made(name)[2].extra.contents.trees["NonSymmetricStepNodes"]


def test_categories_never_seen():
    for name in ("one-hot", "statistics, combined"):
        model, X, foreign = made(name)
        other = X.head(30).copy()
        other["town"] = [f"nowhere {i}" for i in range(30)]
        other.loc[:9, "kind"] = "?"
        rows = library.rows(foreign, other)
        assert set(np.unique(rows[:, 5:])) == {0.0, 1.0}
        assert not rows[:, [0, 2, 4]].any()
        np.testing.assert_array_equal(
            reference.margins(foreign.ensemble, rows), library.margins(model, other)
        )


@settings(max_examples=25)
@given(
    X=hnp.arrays(
        np.float64,
        st.tuples(st.integers(12, 30), st.integers(1, 3)),
        elements=st.sampled_from([0.0, -0.0, 1.0, 0.1, 2.0, np.inf, -np.inf, 1e-40, 1e30, np.nan]),
    ),
    n_classes=st.sampled_from([2, 3]),
    policy=st.sampled_from(["SymmetricTree", "Depthwise", "Lossguide"]),
    nan_mode=st.sampled_from(["Min", "Max"]),
    seed=st.integers(0, 99),
)
def test_on_any_table(X, n_classes, policy, nan_mode, seed):
    y = np.arange(len(X)) % n_classes
    # CatBoost itself fails on a column of nothing but both infinities.
    known = np.clip(X, -1e30, 1e30)
    model = catboost.CatBoostClassifier(
        **(SMALL | {"iterations": 3}), grow_policy=policy, nan_mode=nan_mode, random_seed=seed
    )
    try:
        model.fit(known, y)
    except catboost.CatBoostError as error:
        assert "constant" in str(error)  # noqa: PT017 - the table has nothing to learn from
        return
    foreign = library.open(model)
    rows = library.rows(foreign, X)
    np.testing.assert_array_equal(
        reference.margins(foreign.ensemble, rows), library.margins(model, X)
    )
    ensemble = other_leaves(foreign, seed)
    written = library.close(foreign, ensemble)
    np.testing.assert_array_equal(reference.margins(ensemble, rows), library.margins(written, X))


def test_tables_of_every_type():
    model, X, foreign = made("two")
    pd = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    whole = np.random.default_rng(0).integers(-3, 3, X.shape)
    for asked in (
        X.astype(np.float32),
        np.asfortranarray(X),
        X.tolist(),
        X.astype(object),
        pd.DataFrame(X),
        pd.DataFrame(X).astype("Float64"),
        pd.DataFrame(whole),
        whole,
        whole > 0,
        sparse.csr_matrix(np.nan_to_num(X)),
        catboost.Pool(X),
    ):
        rows = library.rows(foreign, asked)
        assert rows.dtype == np.float64
        assert rows.shape == X.shape
        np.testing.assert_array_equal(
            reference.margins(foreign.ensemble, rows), library.margins(model, asked)
        )


@pytest.mark.parametrize("as_list", [False, True])
def test_large_whole_numbers_are_rounded_as_by_the_library(as_list):
    # Between two float32; rounded to float64 first it would be a tie.
    X = np.array([[2**60 + 2**36 + 1], [0], [2**59], [2**61]] * 10)
    model = catboost.CatBoostClassifier(**SMALL).fit(X, np.arange(40) % 2)
    foreign = library.open(model)
    # The border below it is moved to the float32 next to it.
    trees = foreign.extra.contents.trees
    (feature,) = trees["FloatFeatures"]
    low, _, high = feature["Borders"]
    borders = np.array([low, 2.0**60, high], dtype=np.float32)
    trees = {**trees, "FloatFeatures": [{**feature, "Borders": borders}]}
    moved = revive(model, replace(foreign.extra.contents, trees=trees))
    foreign = library.open(moved)
    asked = X.tolist() if as_list else X
    np.testing.assert_array_equal(
        reference.margins(foreign.ensemble, library.rows(foreign, asked)),
        library.margins(moved, asked),
    )


@pytest.mark.parametrize("asked", [np.zeros(4), np.zeros((3, 3)), [["a"] * 4]])
def test_bad_tables_are_refused(asked):
    _, _, foreign = made("two")
    with pytest.raises(InputError, match="X"):
        library.rows(foreign, asked)


def test_what_the_library_refuses_is_an_input_error():
    model, _, foreign = made("statistics")
    with pytest.raises(InputError, match="CatBoost does not take X"):
        library.margins(model, np.zeros((2, 5)))
    with pytest.raises(InputError, match="CatBoost does not take X"):
        library.rows(foreign, np.zeros((2, 5)))


# --- What is refused ---


def uncertain():
    X = table()
    model = catboost.CatBoostRegressor(**SMALL, loss_function="RMSEWithUncertainty")
    return model.fit(X, np.nan_to_num(X[:, 0]))


def many_labels():
    X = table()
    y = np.stack([classes_of(X[:, 0], 2), classes_of(X[:, 1], 2)], axis=1)
    return catboost.CatBoostClassifier(**SMALL, loss_function="MultiLogloss").fit(X, y)


def at_another_probability():
    model, _ = numeric()
    model.set_probability_threshold(0.7)
    return model


def with_text():
    pd = pytest.importorskip("pandas")
    words = ["red wine", "white wine", "beer", "red beer"]
    X = pd.DataFrame({"text": [words[i % 4] for i in range(N)], "x": np.arange(N)})
    return catboost.CatBoostClassifier(**SMALL, text_features=["text"]).fit(X, np.arange(N) % 2)


def with_embedding():
    rng = np.random.default_rng(0)
    data = [[rng.normal(size=3).tolist(), float(i)] for i in range(N)]
    pool = catboost.Pool(data, np.arange(N) % 2, embedding_features=[0])
    return catboost.CatBoostClassifier(**SMALL).fit(pool)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: catboost.CatBoostClassifier(), "not fitted"),
        (uncertain, "several numbers at once"),
        (many_labels, "several numbers at once"),
        (lambda: numeric(loss_function="Focal:focal_alpha=0.5;focal_gamma=1")[0], "loss Focal"),
        (at_another_probability, "probability 0.7"),
        (lambda: numeric(3, class_names=[0, 1, 2, 7])[0], "4 classes but outputs for 3"),
        (with_text, "text features"),
        (with_embedding, "embedding features"),
    ],
)
def test_models_that_are_refused(make, reason):
    with pytest.raises(InputError, match=reason) as caught:
        library.open(make())
    assert caught.value.hint


@pytest.mark.parametrize("model", ["a text", None, object(), catboost])
def test_other_things_are_not_models(model):
    assert not library.is_model(model)


def test_nothing_is_imported_to_look():
    code = (
        "import sys; from timbermark.libraries.catboost import models as c; "
        "c.is_model(object()); c.is_file(b'CBM1'); assert 'catboost' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Files ---


@pytest.mark.parametrize(
    "head", [b"", b"CBM", b"{}", b'{"learner": {', b"tree\nversion=v4", b'{"a": {"trees": [']
)
def test_other_files_are_not_its_own(head):
    assert not library.is_file(head)


@cache
def file_of(name):
    with tempfile.TemporaryDirectory() as folder:
        library.save(made(name)[0], Path(folder) / "model.cbm")
        return (Path(folder) / "model.cbm").read_bytes()


FILES = ("two", "three, lossguide", "statistics, three", "statistics, lossguide")


@pytest.mark.parametrize("name", FILES)
def test_truncated_files_are_refused(name, tmp_path):
    data = file_of(name)
    path = tmp_path / "model"
    for size in [5, 8, 9, 40, *np.linspace(50, len(data) - 1, 12).astype(int)]:
        path.write_bytes(data[:size])
        with pytest.raises(FileFormatError, match=str(path)):
            library.open_file(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(FileFormatError):
        library.open_file(path)


@pytest.mark.parametrize("name", FILES)
def test_files_edited_at_random_do_no_harm(name, tmp_path, capfd):
    """Each is refused with our error, or is a sound model that predicts."""
    _, X, _ = made(name)
    path, rng = tmp_path / "model", np.random.default_rng(0)
    awkward, said = [0, 1, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1], []
    for _ in range(40):
        data = bytearray(file_of(name))
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(4, len(data)))
            if rng.random() < 0.5:
                data[at] = rng.integers(0, 256)
            else:
                data[at : at + 4] = int(rng.choice(awkward)).to_bytes(4, "little")
        path.write_bytes(data)
        try:
            model = library.open_file(path).native
            foreign = library.open(model)
            ours = reference.margins(foreign.ensemble, library.rows(foreign, X))
            np.testing.assert_array_equal(ours, library.margins(model, X))
        except TimbermarkError as error:
            said.append(str(error))
    assert len(said) > 5
    assert not any("\n" in each for each in said)
    capfd.readouterr()


def damage_trees(**changes):
    return lambda c: cbm.Contents({**c.trees, **changes}, c.info, c.tables)


def damage_features(kind, number, **changes):
    def damage(c):
        features = list(c.trees[kind])
        features[number] = {**features[number], **changes}
        return cbm.Contents({**c.trees, kind: features}, c.info, c.tables)

    return damage


def damage_table(**changes):
    return lambda c: cbm.Contents(c.trees, c.info, ({**c.tables[0], **changes}, *c.tables[1:]))


def damage_labels(old, new):
    def damage(c):
        assert old in c.info[b"class_params"]
        info = {**c.info, b"class_params": c.info[b"class_params"].replace(old, new)}
        return cbm.Contents(c.trees, info, c.tables)

    return damage


def fill_buckets(c):
    """No bucket is empty: a search for what is not there would never end."""
    buckets = np.frombuffer(c.tables[0]["IndexHashRaw"].tobytes(), cbm.BUCKET).copy()
    buckets["hash"], buckets["index"] = 5, 0
    return damage_table(IndexHashRaw=np.frombuffer(buckets.tobytes(), "u1"))(c)


def lead_outside(c):
    buckets = np.frombuffer(c.tables[0]["IndexHashRaw"].tobytes(), cbm.BUCKET).copy()
    buckets["index"][buckets["hash"] != 2**64 - 1] = 10**6
    return damage_table(IndexHashRaw=np.frombuffer(buckets.tobytes(), "u1"))(c)


DAMAGE = {
    "split": ("two", damage_trees(TreeSplits=np.full(18, 9999)), "none of"),
    "size": ("two", damage_trees(TreeSizes=np.array([-1])), "size"),
    "few nodes": ("two", damage_trees(TreeSizes=np.array([1, 1])), "add up"),
    "starts": ("two", damage_trees(TreeStartOffsets=np.arange(6)), "begin"),
    "values": ("two", damage_trees(LeafValues=np.zeros(3)), "values"),
    "weights": ("two", damage_trees(LeafWeights=np.zeros(3)), "weights"),
    "outputs": ("two", damage_trees(ApproxDimension=0), "0 outputs"),
    "bias": ("two", damage_trees(MultiBias=np.zeros(5)), "starting points"),
    "both forms": ("two", damage_trees(NonSymmetricNodeIdToLeafId=np.zeros(18)), "no nodes"),
    "step": (
        "two, lossguide",
        damage_trees(NonSymmetricStepNodes=np.full(1, 60000, cbm.STEP)),
        "different length",
    ),
    "borders": ("two", damage_features("FloatFeatures", 0, Borders=[2.0, 1.0]), "do not rise"),
    "nan": ("two", damage_features("FloatFeatures", 0, Borders=[np.nan]), "not a number"),
    "column": ("two", damage_features("FloatFeatures", 0, FlatIndex=3), "in order"),
    "treatment": ("two", damage_features("FloatFeatures", 0, NanValueTreatment=9), "unknown way"),
    "category": ("one-hot", damage_features("OneHotFeatures", 0, Index=77), "does not exist"),
    "no buckets": ("statistics", damage_table(IndexHashRaw=[]), "bytes of buckets"),
    "full": ("statistics", fill_buckets, "no empty bucket"),
    "outside": ("statistics", lead_outside, "outside its table"),
    "classes": ("statistics", damage_table(TargetClassesCount=0), "0 classes"),
    "no tables": ("statistics", lambda c: cbm.Contents(c.trees, c.info, ()), "missing"),
    "no ctr": ("statistics", damage_features("CtrFeatures", 0, Ctr=None), "is missing"),
    "labels": (
        "three",
        damage_labels(b'"class_to_label":[0,1,2]', b'"class_to_label":[0,-1,2]'),
        "classes",
    ),
    "few labels": (
        "three",
        damage_labels(b'"class_to_label":[0,1,2]', b'"class_to_label":[0]'),
        "classes",
    ),
    "no labels": (
        "three",
        damage_labels(b'"class_to_label":[0,1,2]', b'"class_to_label":5'),
        "read",
    ),
    "deep": ("two", lambda c: cbm.Contents(c.trees, {b"params": b"[" * 10**6}, None), "deeply"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_contents_that_would_lead_the_library_astray(case, tmp_path):
    name, damage, reason = DAMAGE[case]
    contents = cbm.unpack(serialize(made(name)[0]))
    check_contents(contents)
    path = tmp_path / "model.cbm"
    path.write_bytes(cbm.pack(damage(contents)))
    with pytest.raises(FileFormatError, match=reason):
        library.open_file(path)


@pytest.mark.parametrize("change", ["left", "twice", "leaf"])
def test_nested_trees_that_are_none(change):
    contents = cbm.unpack(serialize(made("three, lossguide")[0]))
    steps = contents.trees["NonSymmetricStepNodes"].copy()
    leaves = contents.trees["NonSymmetricNodeIdToLeafId"].copy()
    if change == "left":
        steps["left"][0] = 5000
    elif change == "twice":
        both = np.flatnonzero((steps["left"] > 0) & (steps["right"] > 0))[0]
        steps["left"][both] = steps["right"][both]
    else:
        leaves[:] = 0
    damaged = damage_trees(NonSymmetricStepNodes=steps, NonSymmetricNodeIdToLeafId=leaves)
    with pytest.raises(FileFormatError, match=r"leads out|reached|numbered"):
        check_contents(damaged(contents))


def test_json_is_refused_with_the_lines_that_convert_it(tmp_path):
    model, X, foreign = made("three")
    model.save_model(str(tmp_path / "m.json"), format="json")
    for read in (library.open_file, libraries.open):
        with pytest.raises(FileFormatError) as caught:
            read(tmp_path / "m.json")
        assert caught.value.code == "catboost.json"
    _, *lines = caught.value.hint.split("\n")
    assert len(lines) == 2
    exec("\n".join(line.strip() for line in lines), {"catboost": catboost})
    again = library.open_file(tmp_path / "m.cbm")
    # As exact as CatBoost's own reader of JSON is.
    np.testing.assert_allclose(again.margins(X), foreign.margins(X), rtol=1e-14)
    with pytest.raises(InputError) as caught:
        library.save(model, tmp_path / "other.json")
    assert caught.value.code == "catboost.json"


def test_files_of_models_that_are_not_supported(tmp_path):
    for model, reason in ((uncertain(), "several"), (with_text(), "text features")):
        library.save(model, tmp_path / "model.cbm")
        with pytest.raises(FileFormatError, match=reason):
            library.open_file(tmp_path / "model.cbm")


def test_infinite_borders(tmp_path):
    model, _, foreign = made("two")
    trees = foreign.extra.contents.trees
    floats = [
        {**each, "Borders": np.append(each["Borders"][:-1], np.float32(np.inf))}
        for each in trees["FloatFeatures"]
    ]
    contents = replace(foreign.extra.contents, trees={**trees, "FloatFeatures": floats})
    infinite = revive(model, contents)
    library.save(infinite, tmp_path / "model.cbm")
    foreign = library.open_file(tmp_path / "model.cbm")
    X = np.array([[np.inf] * 4, [-np.inf] * 4, [np.nan] * 4, [3.4e38] * 4])
    np.testing.assert_array_equal(
        reference.margins(foreign.ensemble, foreign.rows(X)), library.margins(infinite, X)
    )


# --- The format itself ---


@pytest.mark.parametrize("name", ["two", "statistics, three", "statistics, lossguide", "one-hot"])
def test_a_binary_file_taken_apart_and_put_together_is_the_same(name):
    model, X, _ = made(name)
    data = serialize(model)
    contents = cbm.unpack(data)
    again = catboost.CatBoostClassifier().load_model(blob=cbm.pack(contents))
    assert same(cbm.unpack(serialize(again)), contents)
    assert same(cbm.unpack(cbm.pack(contents)), contents)
    np.testing.assert_array_equal(library.margins(again, X), library.margins(model, X))


def same(first, second):
    if isinstance(first, cbm.Contents):
        order = sorted if first.tables is None else lambda tables: sorted(tables, key=repr)
        tables = [order(each.tables or ()) for each in (first, second)]
        return same(first.trees, second.trees) and first.info == second.info and same(*tables)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.tobytes() == second.tobytes()
    return first == second


def test_mixed_categories_in_an_array_of_objects():
    model, X = mixed(as_array=True)
    foreign = library.open(model)
    assert_predicts(model, foreign, foreign.ensemble, X)
