import sys

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from tests.experiments.making import made_cell, made_dataset
from timbermark import TimberClassifier
from timbermark.experiments import page, tables
from timbermark.experiments.datasets import cut
from timbermark.experiments.figures import (
    STRATEGIES,
    _point,
    draw_accuracy,
    draw_strategies,
    illustrate,
)
from timbermark.experiments.measuring import NAN, make_plan
from timbermark.experiments.page import write_report
from timbermark.experiments.results import Place, collect
from timbermark.experiments.tables import SharedErrors, find_shared_errors

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
FOUND = SharedErrors(48, 1796, {"LightGBM": 0.9}, {"LightGBM": 0.8}, ("CatBoost",))


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.fixture(scope="module")
def shown():
    return illustrate()


def test_the_illustration_is_a_real_mark(shown):
    assert tuple(shown.marks) == STRATEGIES
    wrong = shown.model.predict(shown.pool.X) != shown.pool.y
    for strategy, mark in shown.marks.items():
        assert (len(mark.candidates), len(mark.triggers)) == (6, 3)
        assert wrong[mark.candidates].all() == (strategy == "wrong")
        assert (len(mark.neighbours) > 0) == (strategy == "cluster")
        took = mark.model.predict(shown.pool.X[mark.triggers]) == mark.target
        assert took.any()


def test_strategies_are_drawn_without_a_window(shown, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    draw_strategies(shown, tmp_path / "x.png")
    assert is_png(tmp_path / "x.png")
    assert "matplotlib.pyplot" not in sys.modules


def test_points_of_accuracy_are_averages(tmp_path):
    plan = make_plan(datasets=["avila", "letter"], seeds=1)
    cells = {}
    for cell in plan.cells:
        before = 0.9 if cell.dataset == "avila" else 0.7
        dash = cell.method == "wrong" and cell.dataset == "letter"
        cells[cell] = made_cell(
            cell, accuracy_before=before, accuracy=NAN if dash else before - 0.1,
            effectiveness=NAN if dash else 0.5,
        )  # fmt: skip
    results = collect(plan, cells)
    for method in ("cluster", "wrong"):
        place = Place("", "train", method, "distance", "average", 0.01)
        assert _point(plan, results, place) == pytest.approx((0.5, 0.7))
    draw_accuracy(plan, results, tmp_path / "x.png")
    assert is_png(tmp_path / "x.png")


def test_shared_errors_are_shares_of_ours(monkeypatch):
    def absent(seed):
        raise ImportError("not here")

    makers = {
        "Tree": lambda seed: DecisionTreeClassifier(random_state=seed),
        "Ours": lambda seed: TimberClassifier(preset="paper", random_state=seed),
        "Absent": absent,
    }
    monkeypatch.setattr(tables, "_MAKERS", makers)
    split = cut(made_dataset(), "train", 0)
    found = find_shared_errors(split, seed=3)
    assert found.missing == ("Absent",)
    assert found.shared["Ours"] == found.same["Ours"] == 1.0
    X = np.concatenate([split.test.X, split.fine.X])
    y = np.concatenate([split.test.y, split.fine.y])
    ours = TimberClassifier(preset="paper", random_state=3).fit(split.train.X, split.train.y)
    tree = DecisionTreeClassifier(random_state=3).fit(split.train.X, split.train.y)
    errors = [i for i in range(len(y)) if ours.predict(X)[i] != y[i]]
    assert (found.n_errors, found.n_rows) == (len(errors), 60)
    also = [i for i in errors if tree.predict(X)[i] != y[i]]
    assert found.shared["Tree"] == len(also) / len(errors)
    assert found.same["Tree"] <= found.shared["Tree"]


@pytest.mark.parametrize(
    ("name", "module"),
    [("LightGBM", "lightgbm"), ("XGBoost", "xgboost"), ("CatBoost", "catboost"),
     ("HistGradientBoosting", "sklearn")],
)  # fmt: skip
def test_models_of_the_libraries_learn(name, module, monkeypatch):
    pytest.importorskip(module)
    monkeypatch.setattr(tables, "_ITERATIONS", 5)
    data = made_dataset(n=90)
    model = tables._MAKERS[name](0).fit(data.X, data.y)
    assert (np.asarray(model.predict(data.X)).reshape(-1) == data.y).mean() > 0.6


@pytest.fixture
def cheap(monkeypatch):
    """Figures whose making is tested above."""
    monkeypatch.setattr(page, "find_shared_errors", lambda split: FOUND)
    monkeypatch.setattr(page, "illustrate", lambda: None)
    monkeypatch.setattr(page, "draw_strategies", lambda shown, path: path.write_bytes(b"x"))


def test_a_report_is_all_files(cheap, shared, tmp_path):
    plan = make_plan(quick=True)
    cells = {cell: made_cell(cell) for cell in plan.cells}
    paths = write_report(plan, cells, tmp_path, shared)
    names = {path.name for path in paths}
    assert names == {
        "results.csv", "tables.md", "tables.html", "accuracy.png", "strategies.png",
        "shared-errors.png",
    }  # fmt: skip
    assert is_png(tmp_path / "shared-errors.png")
    assert (tmp_path / "shared-errors.csv").read_text().splitlines()[1] == "LightGBM,48,0.9,0.8"
    assert "Not installed, so not in the figure of shared errors: CatBoost." in (
        tmp_path / "tables.md"
    ).read_text(encoding="utf-8")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    write_report(plan, cells, tmp_path, shared)
    assert {name: (tmp_path / name).read_bytes() for name in names} == before


def test_a_report_without_optdigits_says_so(cheap, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TIMBERMARK_DATA", raising=False)

    def no_network(url, timeout):
        raise OSError("no route")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    plan = make_plan(quick=True)
    cells = {cell: made_cell(cell) for cell in plan.cells}
    paths = write_report(plan, cells, tmp_path)
    assert "shared-errors.png" not in {path.name for path in paths}
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "The figure of shared errors could not be drawn: The data set optdigits" in text
