"""The paper's two figures, made for real, and one that it lacks.

The strategies are drawn in two dimensions, on a small data set that is really marked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.estimator import TimberClassifier
from timbermark.experiments.datasets import Rows
from timbermark.experiments.measuring import METHODS, Plan
from timbermark.experiments.results import AVERAGE, Place, Results
from timbermark.experiments.tables import METHOD_TITLES, SCENARIO_TITLES, SharedErrors
from timbermark.marking.in_place import Flipped, flip_in_place
from timbermark.marking.strategies import Strategy

STRATEGIES: tuple[Strategy, ...] = ("wrong", "outlier", "cluster", "confidence")
_N_TRAIN, _N_CANDIDATES = 400, 120
_RATIO = 6 / _N_TRAIN
"""Six candidates, three triggers: few enough to be told apart in a figure."""
_CENTRES = np.array([[-1.1, -0.6], [1.1, -0.5], [0.0, 1.1]])
_SPREAD = 0.62


@dataclass(frozen=True, slots=True)
class Illustration:
    """A model of points in the plane, the rows it may be marked with, and a mark per strategy."""

    model: TimberClassifier
    pool: Rows
    marks: dict[str, Flipped]


def illustrate(seed: int = 0) -> Illustration:
    """Train on three overlapping clouds and mark the model with each of the four strategies."""
    train, pool = _clouds(_N_TRAIN, seed), _clouds(_N_CANDIDATES, seed + 1)
    model = TimberClassifier(preset="paper", random_state=seed, n_jobs=1).fit(train.X, train.y)
    marks: dict[str, Flipped] = {
        strategy: flip_in_place(
            model, train.X, train.y, strategy=strategy, selection="confidence", ratio=_RATIO,
            candidates=(pool.X, pool.y), random_state=seed,
        )
        for strategy in STRATEGIES
    }  # fmt: skip
    return Illustration(model, pool, marks)


def _clouds(n: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % len(_CENTRES)
    return Rows(_CENTRES[y] + rng.normal(scale=_SPREAD, size=(n, 2)), y)


_DPI = 150
_CLASS_COLOURS = ("#0072b2", "#d55e00", "#009e73")
_CLASS_PALE = ("#d6e6f2", "#f9e2d0", "#d4eee5")
_CLASS_STRONG = ("#7fb7dc", "#eea06a", "#74c9ac")
_METHOD_COLOURS = {
    "cluster": "#0072b2",
    "outlier": "#009e73",
    "wrong": "#cc79a7",
    "confidence": "#d55e00",
    "random": "#7f7f7f",
}
_TITLES = {
    "wrong": "Wrong Prediction Flip",
    "outlier": "Outlier Flip",
    "cluster": "Cluster Center Flip",
    "confidence": "Confidence Flip",
}


def draw_strategies(shown: Illustration, path: Path) -> None:
    """Draw the four strategies on points in the plane: chosen rows above, marked models below."""
    figure = _figure(15.0, 6.4)
    axes = figure.subplots(2, len(shown.marks) + 1)
    edges = _edges(shown.pool.X)
    _draw_regions(axes[0, 0], shown.model, edges)
    _draw_points(axes[0, 0], shown.pool.X, shown.pool.y, size=16, alpha=0.9)
    axes[0, 0].set_title("(a) the model and D_cand", fontsize=10)
    for i, (strategy, mark) in enumerate(shown.marks.items(), start=1):
        before, after = axes[0, i], axes[1, i]
        _draw_regions(before, shown.model, edges)
        _draw_regions(after, mark.model, edges, unlike=shown.model)
        for axis in (before, after):
            _draw_points(axis, shown.pool.X, shown.pool.y, size=9, alpha=0.35)
        others = np.setdiff1d(mark.candidates, mark.triggers)
        X, y = shown.pool.X, shown.pool.y
        _draw_points(before, X[others], y[others], size=52, edge="black", width=0.8)
        _draw_points(before, X[mark.triggers], y[mark.triggers], size=64, edge="black", width=2.2)
        for axis in (before, after):
            near = mark.neighbours
            _draw_points(axis, X[near], y[near], size=30, marker="^", edge="black", width=0.8)
        _draw_points(after, X[mark.triggers], mark.target, size=30, edge="black", width=1.6)
        took = int((mark.model.predict(X[mark.triggers]) == mark.target).sum())
        before.set_title(f"(b{i}) {_TITLES[strategy]}", fontsize=10)
        after.set_title(f"(c{i}) marked: {took} of {len(mark.triggers)} took", fontsize=10)
    _draw_strategies_legend(axes[1, 0])
    for axis in axes.ravel():
        axis.set_xticks([])
        axis.set_yticks([])
    _save(figure, path)


def draw_shared_errors(found: SharedErrors, path: Path) -> None:
    """Draw the share of our model's errors that each library makes, too."""
    figure = _figure(6.4, 4.0)
    axis = figure.subplots()
    names = list(found.shared)
    places = np.arange(len(names))
    for values, colour, width, label in (
        (found.shared, "#9ecae1", 0.7, "wrong as well"),
        (found.same, "#0072b2", 0.45, "with the same wrong answer"),
    ):
        bars = axis.bar(places, [values[n] for n in names], width, color=colour, label=label)
        axis.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    axis.set_xticks(places, names, fontsize=9)
    axis.set_ylim(0.0, 1.1)
    axis.set_ylabel(f"share of our {found.n_errors} errors of {found.n_rows} rows")
    axis.set_title("Errors shared with other libraries, optdigits", fontsize=10)
    axis.legend(fontsize=8, loc="upper right", ncols=2)
    if found.missing:
        text = f"not installed: {', '.join(found.missing)}"
        axis.text(0.01, 0.97, text, transform=axis.transAxes, va="top", fontsize=8)
    _save(figure, path)


def draw_accuracy(plan: Plan, results: Results, path: Path) -> None:
    """Draw accuracy against effectiveness: a point per method and ratio, a panel per scenario."""
    figure = _figure(6.2 * len(plan.scenarios), 5.0)
    axes = figure.subplots(1, len(plan.scenarios), sharey=True, squeeze=False)[0]
    sizes = dict(zip(plan.ratios, (30, 75, 150), strict=False))
    for axis, scenario in zip(axes, plan.scenarios, strict=True):
        for _, method, selection, ratio in (w for w in plan.ways if w[0] == scenario):
            x, y = _point(plan, results, Place("", scenario, method, selection, AVERAGE, ratio))
            colour = _METHOD_COLOURS[method]
            face = colour if selection == "confidence" else "white"
            axis.scatter(
                x, y, s=sizes[ratio], facecolor=face, edgecolor=colour, linewidth=1.4, alpha=0.85
            )
        axis.axhline(_before(plan, results, scenario), color="black", lw=0.8, ls="--")
        axis.set_title(SCENARIO_TITLES[scenario], fontsize=10)
        axis.set_xlabel("effectiveness")
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("test accuracy of the marked model")
    _draw_accuracy_legend(axes[-1], sizes)
    _save(figure, path)


def _point(plan: Plan, results: Results, average: Place) -> tuple[float, float]:
    """Return effectiveness and accuracy, averaged over data sets.

    A method that exists for some data sets only would be seen at their level of accuracy. So what
    is averaged is the change by marking, and the level is that of all data sets: for a method
    that exists for all of them this is the plain average.
    """

    def numbers(metric: str) -> np.ndarray:
        places = [replace(average, metric=metric, dataset=name) for name in plan.datasets]
        return np.array([results[place].mean for place in places])

    effectiveness, change = numbers("effectiveness"), numbers("accuracy")
    change = change - numbers("accuracy_before")
    there = ~np.isnan(effectiveness)
    if not there.any():
        return float("nan"), float("nan")
    level = _before(plan, results, average.candidates)
    return float(effectiveness[there].mean()), level + float(change[there].mean())


def _before(plan: Plan, results: Results, scenario: str) -> float:
    place = Place("accuracy_before", scenario, METHODS[-1], "confidence", AVERAGE, plan.ratios[0])
    return results[place].mean


def _figure(width: float, height: float) -> Any:
    # Without pyplot: no global state, no window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: Path) -> None:
    # No date and no version within, so that equal results give equal files.
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})


def _edges(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = X.min(axis=0) - 0.3, X.max(axis=0) + 0.3
    return np.linspace(low[0], high[0], 240), np.linspace(low[1], high[1], 240)


def _draw_regions(
    axis: Any, model: Any, edges: tuple[np.ndarray, np.ndarray], unlike: Any = None
) -> None:
    """Draw what the model says of every place; stronger where another model says otherwise."""
    from matplotlib.colors import ListedColormap

    across, up = np.meshgrid(*edges)
    places = np.column_stack([across.ravel(), up.ravel()])
    answers = model.predict(places)
    if unlike is not None:
        answers = answers + len(_CLASS_PALE) * (answers != unlike.predict(places))
    colours = ListedColormap(_CLASS_PALE + _CLASS_STRONG)
    axis.pcolormesh(
        *edges, answers.reshape(across.shape), cmap=colours, vmin=0, vmax=5, shading="nearest"
    )


def _draw_points(
    axis: Any,
    X: np.ndarray,
    y: np.ndarray,
    *,
    size: float,
    alpha: float = 1.0,
    marker: str = "o",
    edge: str = "none",
    width: float = 0.0,
) -> None:
    colours = [_CLASS_COLOURS[label] for label in y]
    axis.scatter(
        X[:, 0], X[:, 1], s=size, c=colours, alpha=alpha, marker=marker, edgecolors=edge,
        linewidths=width,
    )  # fmt: skip


def _draw_strategies_legend(axis: Any) -> None:
    from matplotlib.lines import Line2D

    axis.set_axis_off()

    def sign(label: str, marker: str = "o", size: float = 8, width: float = 0.8) -> Any:
        return Line2D(
            [], [], marker=marker, ls="", ms=size, mfc="#bbbbbb", mec="black", mew=width,
            label=label,
        )  # fmt: skip

    signs = [
        sign("row of D_cand (colour: its class)", size=4, width=0.0),
        sign("candidate"),
        sign("trigger (below: its new label)", size=9, width=2.2),
        sign("neighbour that keeps its label", marker="^"),
        sign("background: what the model says,", marker="s", size=10, width=0.0),
        sign("stronger where marking changed it", marker="", width=0.0),
    ]
    axis.legend(handles=signs, loc="center", frameon=False, fontsize=9)


def _draw_accuracy_legend(axis: Any, sizes: dict[float, int]) -> None:
    from matplotlib.lines import Line2D

    signs = [
        Line2D([], [], marker="o", ls="", color=colour, label=METHOD_TITLES[method])
        for method, colour in _METHOD_COLOURS.items()
    ]
    signs += [
        Line2D([], [], marker="o", ls="", color="black", mfc=face, label=label)
        for face, label in (("black", "lowest confidence"), ("white", "maximum distance"))
    ]
    signs += [
        Line2D([], [], marker="o", ls="", color="black", ms=size**0.5, label=f"ratio {ratio:g}")
        for ratio, size in sizes.items()
    ]
    signs.append(Line2D([], [], color="black", lw=0.8, ls="--", label="unmarked model"))
    axis.legend(handles=signs, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
