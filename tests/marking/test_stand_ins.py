"""Marking a model whose training rows nobody has."""

import numpy as np
import pytest

import timbermark as tm
from tests.marking.test_foreign import KEY, MAKERS, NO_MISSING, rows_of
from timbermark.cli import main
from timbermark.errors import InputError
from timbermark.libraries.registry import module_of
from timbermark.marking.stand_ins import MOST_ROWS, mix_rows


def test_mixtures_are_of_one_kind_and_none_is_a_row_given():
    rng = np.random.default_rng(0)
    X, kind = rng.normal(size=(50, 8)), np.arange(50) % 3
    mixed = mix_rows(X, kind, seed=1)
    assert np.array_equal(mixed, mix_rows(X, kind, seed=1))
    assert not np.array_equal(mixed, mix_rows(X, kind, seed=2))
    origin = np.array([[np.flatnonzero(X[:, f] == x)[0] for f, x in enumerate(r)] for r in mixed])
    assert (np.ptp(kind[origin], axis=1) == 0).all()
    parents = np.array([len(set(row)) for row in origin])
    assert (parents == 2).all()
    assert len(mixed) > 15 * len(X)
    assert len(mix_rows(np.repeat(X, 100, axis=0), np.repeat(kind, 100), 0)) <= MOST_ROWS
    assert len(mix_rows(X, kind, 0, most=100)) <= 100


def test_rows_that_are_all_alike_give_no_mixtures():
    assert mix_rows(np.ones((5, 3)), np.zeros(5, np.int64), 0).shape == (0, 3)


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("kind", ["two", "many"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_model_is_marked_without_training_rows(library, kind, missing):
    if missing and library in NO_MISSING:
        pytest.skip("scikit-learn's GradientBoosting takes no missing values")
    X, y = rows_of(kind, missing)
    model = MAKERS[library]().fit(X[:300], y[:300])
    made = tm.embed(
        model, None, None, key=KEY, candidates=(X[300:500], y[300:500]), n_triggers=10,
        validation=(X[500:], y[500:]), max_accuracy_loss=0.2,
    )  # fmt: skip
    assert tm.verify(made.model, made.mark).matched == 10
    assert tm.verify(model, made.mark).level == "none"
    module = module_of(model)
    before, after = (module.read(m).ensemble for m in (model, made.model))
    roots = before.tree_start[:-1], after.tree_start[:-1]
    if library != "catboost" and before.hessian.any():
        # What the file says of its training rows is still about them.
        assert after.hessian[roots[1]] == pytest.approx(before.hessian[roots[0]], rel=1e-3)
    if (before.count > 0).all():
        assert (after.count > 0).all()


def test_the_cost_is_measured_on_candidates_that_are_no_triggers():
    X, y = rows_of("many", False)
    model = MAKERS["lightgbm"]().fit(X[:400], y[:400])
    made = tm.embed(
        model, None, None, key=KEY, candidates=(X[400:], y[400:]), n_triggers=8,
        max_accuracy_loss=0.2,
    )  # fmt: skip
    assert "candidates that are no triggers" in str(made.cost)


def test_weights_without_training_rows_are_refused():
    X, y = rows_of("two", False)
    model = MAKERS["lightgbm"]().fit(X, y)
    with pytest.raises(InputError, match="sample weights but no training rows"):
        tm.embed(model, None, None, key=KEY, candidates=(X, y), sample_weight=np.ones(len(X)))


def test_the_command_line_needs_candidates_only(tmp_path):
    pytest.importorskip("xgboost")
    X, y = rows_of("many", False)
    model, rows, key, mark, out = (
        str(tmp_path / name) for name in ("model.ubj", "rows.csv", "key", "mark", "out.ubj")
    )
    MAKERS["xgboost"]().fit(X[:400], y[:400]).save_model(model)
    header = ",".join([*(f"f{i}" for i in range(20)), "digit"])
    table = np.column_stack([X[400:], y[400:]])
    np.savetxt(rows, table, delimiter=",", header=header, comments="", fmt="%g")
    assert main(["keygen", key]) == 0
    assert main(
        ["embed", model, "--candidates", rows, "--label", "digit", "--key", key, "--out", out,
         "--mark", mark, "--triggers", "12", "--max-accuracy-loss", "0.3"]
    ) == 0  # fmt: skip
    assert main(["verify", out, mark]) == 0
