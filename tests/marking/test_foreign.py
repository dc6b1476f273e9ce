"""Marking models of other libraries: the same type back, every symbol set, margins bit for bit."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

import timbermark as tm
from timbermark.boosting.views import make_view, restore, view_rows
from timbermark.cli import main
from timbermark.errors import InputError
from timbermark.libraries.registry import module_of
from timbermark.marking import embedding
from timbermark.marking.foreign import Foreign
from timbermark.trees import reference
from timbermark.trees.ensemble import digest, equal

KEY = tm.OwnerKey.generate()
N = 30


def xgboost():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=N, n_jobs=1)


def lightgbm():
    kind = pytest.importorskip("lightgbm").LGBMClassifier
    return kind(n_estimators=N, n_jobs=1, verbose=-1)


def catboost():
    kind = pytest.importorskip("catboost").CatBoostClassifier
    return kind(iterations=N, thread_count=1, verbose=False, allow_writing_files=False)


MAKERS = {
    "xgboost": xgboost,
    "lightgbm": lightgbm,
    "catboost": catboost,
    "histogram": lambda: HistGradientBoostingClassifier(max_iter=N, early_stopping=False),
    "gradient": lambda: GradientBoostingClassifier(n_estimators=N, random_state=0),
}
NO_MISSING = ("gradient",)


def rows_of(kind, missing):
    X, y = (load_digits if kind == "many" else load_breast_cancer)(return_X_y=True)
    X = X[:900, :20].copy()
    if missing:
        X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    return X, y[:900]


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("kind", ["two", "many"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_model_comes_back_marked_in_its_own_type(library, kind, missing, tmp_path):
    if missing and library in NO_MISSING:
        pytest.skip("scikit-learn's GradientBoosting takes no missing values")
    X, y = rows_of(kind, missing)
    model = MAKERS[library]().fit(X[:400], y[:400])
    module = module_of(model)
    before = digest(module.read(model).ensemble)
    made = tm.embed(
        model, X[:400], y[:400], key=KEY, candidates=(X[400:], y[400:]), n_triggers=20,
        max_accuracy_loss=0.3,
    )  # fmt: skip
    assert type(made.model) is type(model)
    verdict = tm.verify(made.model, made.mark)
    assert verdict.matched == verdict.trials == 20
    assert tm.verify(model, made.mark).level == "none"
    assert digest(module.read(model).ensemble) == before

    reading = module.read(made.model)
    ours = reference.margins(reading.ensemble, module.rows(reading, X))
    assert np.array_equal(ours, module.margins(made.model, X))
    for i in range(5):
        assert np.array_equal(ours[i : i + 1], module.margins(made.model, X[i : i + 1]))
    if library in ("xgboost", "lightgbm", "catboost"):
        path = tmp_path / {"xgboost": "m.json", "lightgbm": "m.txt", "catboost": "m.cbm"}[library]
        tm.save(made.model, path)
        assert tm.verify(path, made.mark).matched == 20
        with pytest.raises(InputError, match="exists"):
            tm.save(made.model, path)


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("kind", ["two", "many"])
def test_a_view_and_back_is_the_same_model(library, kind):
    X, y = rows_of(kind, library not in NO_MISSING)
    model = MAKERS[library]().fit(X, y)
    module = module_of(model)
    reading = module.read(model)
    view = make_view(reading.ensemble, reading.library == "CatBoost")
    rows = module.rows(reading, X)
    ours = reference.margins(reading.ensemble, rows)
    seen = reference.margins(view.numeric, view_rows(view, rows))
    # The order of summation and the types differ, the leaves do not.
    assert seen == pytest.approx(ours, rel=1e-4, abs=1e-4)
    assert equal(restore(view, view.numeric), reading.ensemble)


@pytest.mark.parametrize("library", ["lightgbm", "histogram", "xgboost"])
def test_category_splits_are_kept_and_routed_through(library):
    X, y = rows_of("many", False)
    rng = np.random.default_rng(1)
    X[:, 0] = (y + rng.integers(0, 3, len(y))) % 10
    if library == "lightgbm":
        model = lightgbm().fit(X, y, categorical_feature=[0])
    elif library == "histogram":
        model = HistGradientBoostingClassifier(
            max_iter=N, categorical_features=[0], early_stopping=False
        ).fit(X, y)
    else:
        model = pytest.importorskip("xgboost").XGBClassifier(
            n_estimators=N, n_jobs=1, enable_categorical=True,
            feature_types=["c"] + ["q"] * 19, tree_method="hist",
        ).fit(X, y)  # fmt: skip
    module = module_of(model)
    reading = module.read(model)
    assert (reading.ensemble.category_set >= 0).any()
    view = make_view(reading.ensemble)
    assert equal(restore(view, view.numeric), reading.ensemble)
    made = tm.embed(model, X, y, key=KEY, n_triggers=16, max_accuracy_loss=0.3)
    assert tm.verify(made.model, made.mark).matched == 16
    assert (module.read(made.model).ensemble.category_set >= 0).any()


def test_labels_of_any_kind(tmp_path):
    X, y = rows_of("many", False)
    names = np.array([f"digit {d}" for d in range(10)])
    model = lightgbm().fit(X, names[y])
    made = tm.embed(model, X, names[y], key=KEY, n_triggers=16, max_accuracy_loss=0.3)
    assert tm.verify(made.model, made.mark).matched == 16
    with pytest.raises(InputError, match="'a cat' is not one of the model's"):
        tm.embed(model, X, np.where(y == 3, "a cat", names[y]), key=KEY)


@pytest.mark.parametrize("rows", ["training rows", "no training rows"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
@pytest.mark.parametrize("kind", ["two", "many"])
def test_shap_and_importances_still_work(library, kind, rows):
    X, y = rows_of(kind, False)
    model = MAKERS[library]().fit(X[:400], y[:400])
    train = (X[:400], y[:400]) if rows == "training rows" else (None, None)
    made = tm.embed(
        model, *train, key=KEY, candidates=(X[400:], y[400:]), n_triggers=16, max_accuracy_loss=0.3
    ).model
    assert made.feature_importances_.sum() > 0
    shares = contributions(made, library, X[:20])
    assert np.isfinite(shares).all()
    margins = module_of(made).margins(made, X[:20])
    assert shares.sum(axis=-1).reshape(margins.shape) == pytest.approx(margins, abs=1e-3)


def contributions(model, library, X):
    """The library's own SHAP values, the last one of each row being what is expected."""
    if library == "xgboost":
        booster = model.get_booster()
        return booster.predict(pytest.importorskip("xgboost").DMatrix(X), pred_contribs=True)
    if library == "lightgbm":
        shares = model.booster_.predict(X, pred_contrib=True)
        return shares.reshape(len(X), -1, X.shape[1] + 1)
    pool = pytest.importorskip("catboost").Pool(X)
    return model.get_feature_importance(pool, type="ShapValues")


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("kind", ["two", "many"])
def test_an_onnx_export_answers_every_trigger(library, kind):
    onnxmltools = pytest.importorskip("onnxmltools")
    runtime = pytest.importorskip("onnxruntime")
    types = pytest.importorskip("onnxmltools.convert.common.data_types")
    X, y = rows_of(kind, False)
    model = MAKERS[library]().fit(X[:400], y[:400])
    made = tm.embed(
        model, X[:400], y[:400], key=KEY, candidates=(X[400:], y[400:]), n_triggers=16,
        max_accuracy_loss=0.3,
    )  # fmt: skip
    convert = getattr(onnxmltools, f"convert_{library}")
    kinds = [("x", types.FloatTensorType([None, X.shape[1]]))]
    session = runtime.InferenceSession(
        convert(made.model, initial_types=kinds).SerializeToString(),
        providers=["CPUExecutionProvider"],
    )

    def ask(rows):
        return session.run(None, {"x": np.asarray(rows, np.float32)})[0]

    assert tm.verify(ask, made.mark).matched == 16
    # Thresholds are rounded to float32 there, so a row on the brink may fall to the other side.
    assert np.mean(ask(X) == made.model.predict(X)) > 0.99


def test_what_cannot_be_marked_says_why():
    X, y = rows_of("two", False)
    with pytest.raises(InputError, match="nothing to choose triggers from"):
        tm.embed(lightgbm().fit(X, y), None, None, key=KEY)
    with pytest.raises(InputError, match="not a supported model"):
        tm.embed(object(), X, y, key=KEY)
    with pytest.raises(InputError, match="models of timbermark"):
        tm.embed(lightgbm().fit(X, y), X, y, preset="paper", strategy="random")


def test_the_command_line_marks_a_foreign_file(tmp_path, capsys):
    X, y = rows_of("many", False)
    pytest.importorskip("xgboost")
    xgboost().fit(X, y).save_model(tmp_path / "model.json")
    table = np.column_stack([X, y])
    header = ",".join([*(f"f{i}" for i in range(20)), "digit"])
    np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header=header, comments="", fmt="%g")
    key, mark, out = (str(tmp_path / name) for name in ("key", "mark", "marked.json"))
    assert main(["keygen", key]) == 0
    assert main(
        ["embed", str(tmp_path / "model.json"), "--train", str(tmp_path / "rows.csv"), "--label",
         "digit", "--key", key, "--out", out, "--mark", mark, "--triggers", "20",
         "--max-accuracy-loss", "0.3"]
    ) == 0  # fmt: skip
    assert main(["verify", out, mark]) == 0
    assert main(["verify", str(tmp_path / "model.json"), mark]) == 1
    capsys.readouterr()
    assert main(["inspect", out]) == 0
    assert "XGBoost" in capsys.readouterr().out


def test_what_a_model_does_not_say_of_its_training_can_be_given():
    X, y = rows_of("two", False)
    module = pytest.importorskip("xgboost")
    booster = module.train(
        {"objective": "binary:logistic", "eta": 0.1, "lambda": 7.0}, module.DMatrix(X, y), 20
    )
    said = {"learning_rate": 0.1, "l2_regularization": 7.0, "min_hessian": 1.0}
    states = [Foreign(booster, X, y, None, training=given).state.params for given in (None, said)]
    assert states[1].l2_regularization == pytest.approx(7.0)
    assert states[1].learning_rate == pytest.approx(0.1)
    other = Foreign(booster, X, y, None, training={"l2_regularization": 3.0}).state.params
    assert other.l2_regularization == pytest.approx(3.0)
    made = tm.embed(booster, X, y, key=KEY, n_triggers=8, max_accuracy_loss=0.3, training=said)
    assert tm.verify(made.model, made.mark).matched == 8


@pytest.mark.parametrize(
    ("given", "words"),
    [({"eta": 0.1}, "no 'eta'"), ({"learning_rate": 0.0}, "cannot be"),
     ({"l2_regularization": -1.0}, "cannot be"), ({"min_hessian": np.inf}, "cannot be")],
)  # fmt: skip
def test_training_that_cannot_be_is_refused(given, words):
    X, y = rows_of("two", False)
    with pytest.raises(InputError, match=words):
        tm.embed(MAKERS["gradient"]().fit(X, y), X, y, key=KEY, training=given)
    with pytest.raises(InputError, match="knows how it was trained"):
        tm.embed(tm.TimberClassifier(max_iter=2).fit(X, y), X, y, key=KEY, training=given)


def depth_of(ensemble):
    depth = np.zeros(ensemble.n_nodes, np.int64)
    for start, stop in zip(ensemble.tree_start[:-1], ensemble.tree_start[1:], strict=True):
        pending = [0]
        while pending:
            node = pending.pop()
            for child in (ensemble.left[start + node], ensemble.right[start + node]):
                if child >= 0:
                    depth[start + child] = depth[start + node] + 1
                    pending.append(int(child))
        assert stop > start
    return int(depth.max())


@pytest.mark.parametrize("library", ["xgboost", "gradient", "lightgbm"])
def test_trees_become_no_deeper_and_hardly_larger(library):
    X, y = rows_of("many", False)
    model = MAKERS[library]().fit(X[:500], y[:500])
    made = tm.embed(
        model, X[:500], y[:500], key=KEY, candidates=(X[500:], y[500:]), n_triggers=20,
        max_accuracy_loss=0.3,
    )  # fmt: skip
    before, after = (module_of(m).read(m).ensemble for m in (model, made.model))
    assert depth_of(after) <= depth_of(before)
    assert after.n_nodes <= 1.05 * before.n_nodes
    assert not np.array_equal(before.threshold, after.threshold)


@pytest.mark.parametrize("kind", ["two", "many"])
def test_symmetric_trees_stay_symmetric_within_the_budget(kind):
    X, y = rows_of(kind, False)
    model = catboost().fit(X[:400], y[:400])
    given = {"key": KEY, "candidates": (X[400:], y[400:]), "n_triggers": 12}
    made = tm.embed(model, X[:400], y[:400], **given, max_accuracy_loss=0.5)
    before, after = (module_of(m).read(m).ensemble for m in (model, made.model))
    assert made.notes == ()
    for name in ("feature", "threshold", "left", "right"):
        assert np.array_equal(getattr(before, name), getattr(after, name))
    assert not np.array_equal(before.value, after.value)


def test_symmetric_trees_become_nested_where_leaves_alone_cost_too_much(monkeypatch):
    X, y = rows_of("many", False)
    model = catboost().fit(X[:400], y[:400])
    monkeypatch.setattr(embedding, "_LEAVES_ALONE", ())
    made = tm.embed(
        model, X[:400], y[:400], key=KEY, candidates=(X[400:], y[400:]), n_triggers=12,
        max_accuracy_loss=0.3,
    )  # fmt: skip
    assert "predicts batches more slowly" in made.notes[0]
    assert tm.verify(made.model, made.mark).matched == 12


def table_with_categories(kind):
    pandas = pytest.importorskip("pandas")
    X, y = rows_of("many", False)
    # Not whole numbers: some libraries round them.
    table = pandas.DataFrame(X / 10, columns=[f"pixel {i}" for i in range(X.shape[1])])
    code = (y + np.random.default_rng(1).integers(0, 3, len(y))) % 10
    names = np.array(list("zyxwvutsrq")) if kind == "texts" else np.arange(100, 0, -10)
    table.insert(3, "kind", pandas.Categorical(names[code]))
    table.loc[::50, "kind"] = None
    return table, y


@pytest.mark.parametrize("kind", ["texts", "numbers"])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_tables_with_categories_become_the_models_codes(library, kind):
    table, y = table_with_categories(kind)
    model = MAKERS[library]()
    if library == "xgboost":
        model.set_params(enable_categorical=True, tree_method="hist")
    model.fit(table[:500], y[:500])
    made = tm.embed(
        model, table[:500], y[:500], key=KEY, candidates=(table[500:], y[500:]), n_triggers=16,
        max_accuracy_loss=0.3,
    )  # fmt: skip
    codes = made.mark.triggers[:, 3]
    assert set(codes[~np.isnan(codes)]) <= set(range(10))
    assert tm.verify(made.model, made.mark).matched == 16
    # The rows that became triggers are answered alike as they stand in the table.
    rows = np.delete(table.to_numpy(object), 3, axis=1).astype(float)
    trigger, place = np.delete(made.mark.triggers, 3, axis=1), []
    for row in trigger:
        place.append(int(np.flatnonzero((rows == row).all(axis=1))[0]))
    assert made.model.predict(table.iloc[place]).tolist() == list(made.mark.expected)


def test_categories_that_a_model_takes_as_texts_only_are_refused():
    table, y = table_with_categories("texts")
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype")
    with pytest.raises(InputError, match="as texts only"):
        tm.embed(model.fit(table, y), table, y, key=KEY)
    with pytest.raises(InputError, match="not all numbers"):
        tm.embed(model, table.assign(kind="a"), y, key=KEY)
