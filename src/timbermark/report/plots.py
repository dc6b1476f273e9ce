"""The plots of pages: what they show, in words too, and how they are drawn.

The chart of attacks is drawn by `timbermark.attacks.results`, which also writes it to files.

Lines differ by dashes and markers as well as by colour.

Matplotlib's figures become inline SVG, named for readers' voices, in the colours of the page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from timbermark.ownership.evidence import CONCLUSIVE_BITS, INDICATIVE_BITS
from timbermark.report.pages import Plot

if TYPE_CHECKING:
    from timbermark.marking.tallies import Histogram, ReliabilityBin


FIRST, SECOND, MUTED, LINE = "#0072b2", "#d55e00", "#777777", "#d0d0d0"
"""Colours in plots. On a page they become the style's, which differ in the dark."""
_STYLED = {
    "#000000": "currentColor",
    FIRST: "var(--tm-first)",
    SECOND: "var(--tm-second)",
    MUTED: "var(--tm-muted)",
    LINE: "var(--tm-line)",
    "#ffffff": "var(--tm-paper)",
}
_SETTINGS: Any = {
    # Text stays text, which is small, can be searched, and takes the page's font.
    "svg.fonttype": "none",
    # A class may be called $x$.
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "grid.color": LINE,
    "legend.frameon": False,
    "font.size": 10.0,
}
# Fixed places, because a layout that looks for them draws everything twice. A wide plot has room
# for a legend beside it.
_SIZE, _PLACE = (4.6, 3.0), (0.145, 0.165, 0.835, 0.8)
_WIDE, _WIDE_PLACE = (8.6, 5.2), (0.075, 0.1, 0.7, 0.88)
_NOTHING_ELSE = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_PROLOG = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_TAG = re.compile(r"<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>\s*")
_GLOBAL_STYLE = re.compile(r"\s*<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)
_FONT = re.compile(r"font-family: [^;\"]*;? ?")
_TURN = re.compile(r" transform=\"rotate\(-0 [^)]*\)\"")


def draw_plot(plot: Plot, name: str) -> Any:
    """Return a plot as an SVG element that can stand in a page; ``name`` is its own in the page."""
    from matplotlib import rc_context, rcdefaults

    with rc_context():
        rcdefaults()  # not what the user's own plots look like
        with rc_context(_SETTINGS):
            from matplotlib.figure import Figure

            size, place = (_WIDE, _WIDE_PLACE) if plot.wide else (_SIZE, _PLACE)
            figure = Figure(figsize=size)
            axes = figure.add_axes(place)
            figure.patch.set_visible(False)
            axes.patch.set_visible(False)
            plot.draw(axes)
            return inline_svg(figure, name, plot.title, plot.description)


def inline_svg(figure: Any, name: str, title: str, description: str) -> Any:
    """Return a figure as an SVG element with a title and a description to be read aloud.

    Colours become those of the page, and every name in it begins with ``name``, so that several
    can stand in one page.
    """
    from markupsafe import Markup, escape
    from matplotlib import rc_context

    written = io.StringIO()
    plain: Any = {"svg.hashsalt": "timbermark", "svg.fonttype": "none"}
    with rc_context(plain), warnings.catch_warnings():
        # The page's font has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(written, format="svg", metadata=_NOTHING_ELSE)
    text = _GLOBAL_STYLE.sub("", _PROLOG.sub("", written.getvalue()), count=1)
    text = re.sub(r"\bid=\"", f'id="{name}-', text)
    text = text.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    text = _TURN.sub("", _FONT.sub("", text))
    for colour, styled in _STYLED.items():
        text = text.replace(f": {colour}", f": {styled}")
    head = Markup(
        '<svg viewBox="{box}" role="img" aria-labelledby="{name}-title {name}-desc">'
        '<title id="{name}-title">{title}</title><desc id="{name}-desc">{description}</desc>'
    )
    found = _TAG.match(text)
    assert found is not None
    opened = head.format(box=found[1], name=name, title=title, description=escape(description))
    return opened + Markup(re.sub(r"\s*\n\s*", "\n", text[found.end() :]).rstrip())


Curve = Sequence[tuple[int, float]]
_FEWEST_ROWS = 5
_BEFORE: dict[str, Any] = {"color": FIRST, "lw": 1.6, "ls": "-", "label": "before"}
_AFTER: dict[str, Any] = {"color": SECOND, "lw": 1.6, "ls": (0, (4, 2)), "label": "after"}


def evidence_plot(curve: Curve) -> Plot:
    """Return the plot of bits against the number of questions.

    >>> evidence_plot([(1, 2.0), (2, 70.0)]).description
    'Bits of evidence, minus all prices, in the order of asking: 70.0 after 2 questions. They \
reached 20 bits (indicative) after 2 questions and 64 bits (conclusive) after 2.'
    """
    last, bits = curve[-1]
    reached = [next((n for n, b in curve if b >= wanted), None)
               for wanted in (INDICATIVE_BITS, CONCLUSIVE_BITS)]  # fmt: skip
    said = f"Bits of evidence, minus all prices, in the order of asking: {bits:.1f} after {last} "
    said += "questions."
    if reached[0] is not None:
        said += f" They reached 20 bits (indicative) after {reached[0]} questions"
        said += "." if reached[1] is None else f" and 64 bits (conclusive) after {reached[1]}."

    def draw(axes: Any) -> None:
        xs, ys = [n for n, _ in curve], [b for _, b in curve]
        for level, word in ((INDICATIVE_BITS, "indicative"), (CONCLUSIVE_BITS, "conclusive")):
            axes.axhline(level, color=MUTED, lw=0.9, ls="--")
            axes.annotate(
                f"{word}, {level:.0f}", (1.0, level), xycoords=("axes fraction", "data"),
                xytext=(0, 3), textcoords="offset points", fontsize=9, ha="right",
            )  # fmt: skip
        axes.plot(xs, ys, color=FIRST, lw=2.0, marker="o", ms=3.0, markevery=max(1, len(xs) // 16))
        axes.set_xlim(0, last * 1.01)
        axes.set_ylim(min(0.0, *ys), max(CONCLUSIVE_BITS * 1.15, max(ys) * 1.05))
        axes.set_xlabel("questions")
        axes.set_ylabel("bits of evidence")

    return Plot("Evidence from question to question", said, draw)


def histogram_plot(title: str, description: str, across: str, found: Histogram) -> Plot:
    """Return the plot of counts before and after, as two outlines."""

    def draw(axes: Any) -> None:
        if sum(found.before):
            axes.stairs(found.before, found.edges, **_BEFORE)
        axes.stairs(found.after, found.edges, **_AFTER)
        axes.set_xlabel(across)
        axes.set_ylabel("rows")
        axes.set_xlim(found.edges[0], found.edges[-1])
        axes.yaxis.get_major_locator().set_params(integer=True)
        if sum(found.before):
            axes.legend(fontsize=9)

    return Plot(title, description, draw)


def bars_plot(
    title: str, description: str, across: str, names: Sequence[str], counts: Sequence[int]
) -> Plot:
    """Return the plot of counts by name, each written above its bar."""

    def draw(axes: Any) -> None:
        bars = axes.bar(range(len(names)), counts, 0.8, color=LINE, edgecolor=MUTED)
        axes.bar_label(bars, fontsize=9, padding=2)
        axes.set_xticks(range(len(names)), names, fontsize=8.5)
        axes.set_xlabel(across)
        axes.set_ylabel("rows")
        axes.set_ylim(0, max(counts) * 1.12)

    return Plot(title, description, draw)


def reliability_plot(
    before: Sequence[ReliabilityBin], after: Sequence[ReliabilityBin], what: str
) -> Plot:
    """Return the reliability curve: how often what is said with a score holds."""
    before, after = _known_well(before), _known_well(after)
    farthest = max(after, key=lambda b: abs(b.score - b.share) * b.n)
    said = (
        f"How often {what}, against its score, in {len(after)} groups of rows with similar scores; "
        "on the diagonal scores are honest. After marking, the group that counts most off it has a "
        f"mean score of {farthest.score:.2f} and a share of {farthest.share:.2f}, {farthest.n} "
        "rows."
    )

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, lw=0.9, ls=":")
        for bins, style, marker in ((before, _BEFORE, "o"), (after, _AFTER, "D")):
            axes.plot(
                [b.score for b in bins], [b.share for b in bins], marker=marker, ms=4.5,
                mfc="white" if marker == "D" else None, **style,
            )  # fmt: skip
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("mean score")
        axes.set_ylabel("share of rows where it holds")
        axes.legend(fontsize=9, loc="lower right")

    return Plot("Reliability", said, draw)


def _known_well(bins: Sequence[ReliabilityBin]) -> Sequence[ReliabilityBin]:
    """Return the bins with enough rows for their share to be reliable."""
    return [found for found in bins if found.n >= _FEWEST_ROWS] or bins


def classes_plot(
    names: Sequence[str], shares: Sequence[float], before: Sequence[float], after: Sequence[float]
) -> Plot:
    """Return mean scores before and after beside the share of rows, class by class."""
    gaps = [abs(a - share) for a, share in zip(after, shares, strict=True)]
    worst = max(range(len(names)), key=lambda i: gaps[i])
    said = (
        "The mean score of each class before and after marking, beside the share of rows of that "
        f"class. After marking the two are farthest apart for {names[worst]}: {after[worst]:.4f} "
        f"and {shares[worst]:.4f}."
    )

    def draw(axes: Any) -> None:
        places = list(range(len(names)))
        axes.plot(places, shares, ls="", marker="_", ms=16, mew=1.6, color=MUTED, label="rows")
        left, right = [p - 0.15 for p in places], [p + 0.15 for p in places]
        axes.plot(left, before, ls="", marker="o", ms=4.5, color=FIRST, label="before")
        axes.plot(right, after, ls="", marker="D", ms=4.5, mfc="white", color=SECOND, label="after")
        short = [name if len(name) <= 8 else name[:7] + "…" for name in names]
        axes.set_xticks(places, short, fontsize=9, rotation=0 if len(names) <= 6 else 45)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylim(0, max(*shares, *before, *after) * 1.25)
        axes.set_ylabel("mean score")
        axes.legend(fontsize=9, ncols=3, loc="upper center")

    return Plot("Mean scores by class", said, draw)
