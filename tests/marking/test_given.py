"""Bad input along with a model of another library ends in a sentence."""

import numpy as np
import pytest

import timbermark as tm
from tests.marking.test_foreign import KEY, MAKERS, rows_of
from timbermark.cli import main
from timbermark.errors import InputError
from timbermark.libraries.registry import module_of
from timbermark.marking.given import take_rows

X, Y = rows_of("two", False)
FINE = {"n_triggers": 8, "max_accuracy_loss": 0.5, "key": KEY}


@pytest.fixture(scope="module")
def model():
    return MAKERS["gradient"]().fit(X, Y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": None}, "go together"),
        ({"X": None}, "go together"),
        ({"candidates": X}, "candidates is no pair"),
        ({"candidates": (X,)}, "candidates is no pair"),
        ({"validation": (X, Y, Y)}, "validation is no pair"),
        ({"validation": (X[:0], Y[:0])}, "There are no rows"),
        ({"y": [[0], [1, 1]]}, "no list of labels"),
        ({"y": [{}] * len(X)}, "no list of labels"),
        ({"y": Y[:-1]}, "do not go with 569 rows"),
        ({"y": 3}, "do not go with 569 rows"),
        ({"X": np.where(X > 20, np.inf, X)}, "hold infinity"),
        ({"X": X[0]}, "have the shape"),
        ({"X": np.full(X.shape, "x")}, "not all numbers"),
        ({"sample_weight": np.ones(3)}, "has the shape"),
        ({"sample_weight": np.ones((len(X), 2))}, "has the shape"),
        ({"sample_weight": ["a"] * len(X)}, "no list of numbers"),
        ({"sample_weight": np.full(len(X), np.nan)}, "holds nan"),
        ({"sample_weight": -np.ones(len(X))}, "holds -1"),
        ({"sample_weight": np.zeros(len(X))}, "All sample weights are zero"),
        ({"X": X[:10], "y": Y[:10]}, "too few for a mark"),
        ({"margin": "a"}, "margin='a' must be a number"),
        ({"training": 3}, "training is no dictionary"),
        ({"training": {"min_samples_leaf": 5.5}}, "cannot be"),
        ({"training": {"min_samples_leaf": True}}, "cannot be"),
        ({"training": {"min_samples_leaf": 10**30}}, "cannot be"),
        ({"training": {"l2_regularization": 10**400}}, "cannot be"),
    ],
)
def test_bad_input_is_one_sentence(model, change, words):
    given = {"X": X, "y": Y, **FINE, **change}
    with pytest.raises(InputError, match=words):
        tm.embed(model, given.pop("X"), given.pop("y"), **given)


@pytest.mark.parametrize(
    ("rows", "words"),
    [(X[:0], "There are no rows"), (X[:1], "Too little can be mixed"),
     (np.repeat(X[:1], 30, axis=0), "Too little can be mixed")],
)  # fmt: skip
def test_candidates_that_cannot_stand_in(model, rows, words):
    with pytest.raises(InputError, match=words):
        tm.embed(model, None, None, candidates=(rows, Y[: len(rows)]), **FINE)


def test_numbers_of_numpy_are_numbers(model):
    said = {"learning_rate": np.float32(0.1), "min_samples_leaf": np.int64(2)}
    assert tm.plan(model, X, Y, training=said, n_triggers=8).n_triggers == 8


def test_nothing_left_to_measure_the_cost_on():
    digits, label = rows_of("many", False)
    model = MAKERS["lightgbm"]().fit(digits, label)
    few = np.flatnonzero(model.predict(digits) == 0)[:4]
    with pytest.raises(InputError, match="none is left to measure the cost on"):
        tm.embed(
            model, None, None, key=KEY, candidates=(digits[few], label[few]), n_triggers=4,
            max_accuracy_loss=1.0, strategy="random", selection="confidence",
        )  # fmt: skip


def test_tables_of_every_kind(model):
    pandas = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    module = module_of(model)
    reading = module.read(model)
    table = pandas.DataFrame(np.rint(X)).astype("Int64")
    table.iloc[3, 2] = pandas.NA
    found = take_rows(table.drop(index=3), module, reading)
    assert np.array_equal(found, np.delete(np.rint(X), 3, axis=0))
    assert np.array_equal(take_rows(sparse.csr_matrix(X), module, reading), X)


def test_a_booster_is_asked_by_the_names_it_knows():
    xgboost = pytest.importorskip("xgboost")
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
    model = MAKERS["xgboost"]().fit(table, Y)
    made = tm.embed(model, table, Y, **FINE)
    turned = MAKERS["xgboost"]().set_params(n_estimators=200, max_depth=0, reg_lambda=0.0)
    turned.fit(
        table.iloc[:, ::-1], made.model.predict(table)
    )  # it agrees with the marked model on every training row, triggers included
    expected = tm.verify(turned, made.mark).matched
    assert tm.verify(turned.get_booster(), made.mark).matched == expected > 6
    assert isinstance(turned.get_booster(), xgboost.Booster)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_model_that_is_not_fitted_cannot_be_asked(model, library):
    made = tm.embed(model, X, Y, **FINE)
    with pytest.raises(InputError):
        tm.verify(MAKERS[library](), made.mark)


def test_columns_with_blanks_and_without(tmp_path):
    """A table may have both 'a b' and 'a_b'; LightGBM knows only the latter."""
    pytest.importorskip("lightgbm")
    pandas = pytest.importorskip("pandas")
    names = ["a_b", *(f"f {i}" for i in range(1, X.shape[1]))]
    table = pandas.DataFrame(X, columns=names)
    made = MAKERS["lightgbm"]().fit(table, Y)
    made.booster_.save_model(tmp_path / "model.txt")
    table.insert(0, "a b", -1e9)
    table.assign(y=Y).to_csv(tmp_path / "rows.csv", index=False)
    assert main(["keygen", str(tmp_path / "key")]) == 0
    assert main(
        ["embed", str(tmp_path / "model.txt"), "--train", str(tmp_path / "rows.csv"), "--label",
         "y", "--key", str(tmp_path / "key"), "--out", str(tmp_path / "out.txt"), "--mark",
         str(tmp_path / "mark"), "--triggers", "8", "--max-accuracy-loss", "0.5",
         "--learning-rate", "0.1", "--min-samples-leaf", "20"]
    ) == 0  # fmt: skip
    assert (tm.Mark.load(tmp_path / "mark").triggers[:, 0] > 0).all()


def test_short_numbers_survive_rounding_and_long_ones_are_moved():
    from timbermark.marking.rows import roundings

    short = [[0.1, 12.5, -3.25e-7, 123456.0, 0.0, np.nan, 1e30, 7.0, 0.000123456]]
    for X in (np.array(short), np.array(short).astype(np.float32).astype(float)):
        low, high = roundings(X, single=True)
        # 1e30 has more digits than powers of ten are exact for; it may be moved.
        kept = [i for i in range(9) if i != 6]
        assert np.array_equal(low[:, kept], X[:, kept], equal_nan=True)
        assert np.array_equal(high[:, kept], X[:, kept], equal_nan=True)
    long = np.array([[0.1234567, 1.0000001, 16777217.5]])
    low, high = roundings(long, single=True)
    assert (low < long).all()
    assert (high > long).all()
    assert (roundings(np.array([[0.1]]))[0] < 0.1).all()
