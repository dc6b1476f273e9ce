"""Plots can be told apart without colours, and take the page's colours where they have some."""

import re

from matplotlib.figure import Figure

from tests.report.results import attack_result, embed_result, numbers_result
from timbermark.attacks.results import draw_curves
from timbermark.report import describe
from timbermark.report.pages import Plot
from timbermark.report.plots import classes_plot, draw_plot

_TIMES = ("before", "after")
STYLED = {"none", "currentColor"}


def plots_of(result):
    return [
        part for section in describe(result).sections for part in section.parts
        if isinstance(part, Plot)
    ]  # fmt: skip


def test_every_curve_of_attacks_has_a_look_of_its_own():
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    draw_curves(attack_result(), axes)
    looks = [
        (line.get_marker(), line.get_linestyle())
        for line in axes.lines
        if not line.get_label().startswith("_")
    ]
    assert len(looks) == 12
    assert len(set(looks)) == len(looks)


def test_before_and_after_differ_by_dashes():
    for result in (embed_result(2), embed_result(5), numbers_result(True), numbers_result(False)):
        for plot in plots_of(result):
            axes = Figure().subplots()
            plot.draw(axes)
            shown = [*axes.lines, *axes.patches]
            named = {
                one.get_label(): one for one in shown if one.get_label() in ("before", "after")
            }
            if len(named) == 2:
                looks = [
                    (getattr(one, "get_marker", lambda: "")(), str(one.get_linestyle()))
                    for one in named.values()
                ]
                assert looks[0] != looks[1]


def test_colours_are_those_of_the_page():
    for plot in [*plots_of(embed_result()), *plots_of(numbers_result(True))]:
        svg = str(draw_plot(plot, "x"))
        used = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg))
        assert {colour for colour in used if not colour.startswith("var(--tm-")} <= STYLED


def test_names_begin_with_the_plots_own():
    (plot, *_) = plots_of(embed_result())
    svg = str(draw_plot(plot, "mine"))
    names = re.findall(r"\bid=\"([^\"]*)\"", svg)
    assert names
    assert all(name.startswith("mine-") for name in names)
    used = re.findall(r"(?:href=\"#|url\(#)([^\")]*)", svg)
    assert used
    assert set(used) <= set(names)


def test_classes_have_names_of_any_script():
    plot = classes_plot(["日本", "αβγ", "🌲"], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.3, 0.2, 0.5])
    svg = str(draw_plot(plot, "x"))
    assert all(name in svg for name in ("日本", "αβγ", "🌲"))


def test_labels_are_never_read_as_formulae():
    result = embed_result(4)
    texts = "".join(str(draw_plot(plot, "x")) for plot in plots_of(result))
    assert "<script" not in texts
    assert "class 0" in texts
