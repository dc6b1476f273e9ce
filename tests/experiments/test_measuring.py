from dataclasses import astuple

import numpy as np
import pytest

from tests.experiments.making import made_dataset
from timbermark.experiments import measuring
from timbermark.experiments.datasets import cut, load_dataset
from timbermark.experiments.measuring import (
    MEASURES,
    METHODS,
    RATIOS,
    Base,
    Cell,
    measure,
    measure_cells,
    trigger_counts,
)
from timbermark.marking.strategies import SELECTIONS


def cells_of(scenario, methods=METHODS, ratios=(0.02, 0.1), selections=SELECTIONS):
    return [
        Cell("made", scenario, 0, method, ratio, selection)
        for method in methods
        for ratio in ratios
        for selection in selections
    ]


@pytest.fixture(scope="module", params=["train", "holdout"])
def group(request):
    """The cells of one group, each with its result."""
    cells = cells_of(request.param)
    return dict(zip(cells, measure_cells(made_dataset(), cells), strict=True))


def numbers(measured):
    return np.array(astuple(measured.measures))


def test_every_cell_is_given_out_in_order(group):
    for cell, measured in group.items():
        assert measured.cell == cell
        n_train = 180 if cell.candidates == "train" else 144
        assert (measured.n, measured.k) == trigger_counts(n_train, cell.ratio)
        found = numbers(measured)
        assert ((found >= 0) & (found <= 1) | np.isnan(found)).all()


def test_wrong_is_a_dash_exactly_where_too_few_are_wrong(group):
    assert len({measured.n_wrong for measured in group.values()}) == 1
    for cell, measured in group.items():
        dash = np.isnan(measured.measures.effectiveness)
        assert dash == (cell.method == "wrong" and measured.n_wrong < measured.n)
        assert not np.isnan(measured.measures.accuracy_before)
        if dash:
            assert np.isnan(numbers(measured)[1:]).all()


@pytest.mark.parametrize("method", ["outlier", "cluster", "random"])
def test_what_a_group_shares_changes_no_number(group, method):
    cell = next(c for c in group if c.method == method and c.ratio == 0.02)
    (alone,) = measure_cells(made_dataset(), [cell])
    assert np.array_equal(numbers(alone), numbers(group[cell]), equal_nan=True)


def test_outliers_of_a_lower_ratio_are_the_first_of_a_higher():
    base = Base.train(cut(made_dataset(), "train", 0), 0)
    cell = Cell("made", "train", 0, "outlier", 0.02, "confidence")
    many, few = base.find(cell.method, 0.1), base.find(cell.method, 0.02)
    assert np.array_equal(many.order[: len(few.order)], few.order)


def test_measures_are_those_of_the_papers_equations():
    base = Base.train(cut(made_dataset(), "holdout", 0), 0)
    cell = Cell("made", "holdout", 0, "confidence", 0.1, "distance")
    mark = base.mark(cell, base.find(cell.method, 0.1))
    found = measure(base, mark)
    split = base.split
    pool, test, fine = split.candidates, split.test, split.fine

    answers = [int(mark.model.predict(pool.X[[row]])[0]) for row in mark.triggers]
    took = [a == t for a, t in zip(answers, mark.target, strict=True)]
    assert found.effectiveness == sum(took) / len(took)
    right = [int(mark.model.predict(test.X[[i]])[0]) == test.y[i] for i in range(len(test))]
    assert found.accuracy == sum(right) / len(right)
    assert found.adjusted_accuracy == found.accuracy * found.effectiveness
    others = [row for row in mark.candidates if row not in set(mark.triggers)]
    assert len(others) == len(mark.candidates) - len(mark.triggers)
    same = [
        base.model.predict(pool.X[[row]])[0] == mark.model.predict(pool.X[[row]])[0]
        for row in others
    ]
    assert found.resilience == sum(same) / len(same)
    assert found.adjusted_resilience == found.resilience * found.effectiveness
    assert found.accuracy_before == base.model.score(test.X, test.y)
    mark.model.update(fine.X, fine.y, mode="exact")
    after = mark.model.predict(pool.X[mark.triggers])
    kept = [a == t for a, t, was in zip(after, mark.target, took, strict=True) if was]
    assert found.robustness == sum(kept) / len(kept)
    assert found.accuracy_tuned == mark.model.score(test.X, test.y)


def test_one_candidate_leaves_none_to_stay():
    (measured,) = measure_cells(
        made_dataset(), [Cell("made", "holdout", 0, "confidence", 0.001, "confidence")]
    )
    assert (measured.n, measured.k) == (1, 1)
    assert np.isnan(measured.measures.resilience)
    assert np.isnan(measured.measures.adjusted_resilience)
    assert not np.isnan(measured.measures.effectiveness)


def test_image_segmentation_has_the_papers_dash(shared):
    data = load_dataset("image_segmentation", shared)
    cell = Cell("image_segmentation", "train", 0, "random", RATIOS[0], "confidence")
    (measured,) = measure_cells(data, [cell])
    assert np.isnan(measured.measures.adjusted_resilience)
    assert measured.k == 1


def test_no_cells_train_no_model(monkeypatch):
    monkeypatch.setattr(measuring, "cut", None)
    assert list(measure_cells(made_dataset(), [])) == []
    assert len(MEASURES) == 12
