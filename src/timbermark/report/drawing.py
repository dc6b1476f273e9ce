"""Matplotlib's figures as inline SVG: named for readers' voices, in the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timbermark.report.pages import Plot

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
