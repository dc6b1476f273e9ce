"""Draw docs/pictures/result.svg: what marking changes, and what it proves.

    .venv/bin/python tools/draw_result.py

An XGBoost model of scikit-learn's breast cancer data is marked with the defaults. On the left every
held-out row and every trigger, before and after; on the right the evidence in four suspects. The
thief trains 20 more trees on rows of their own, at XGBoost's default learning rate.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xgboost
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.utils import shuffle

import timbermark as tm

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "result.svg"
_ROWS, _TRIGGERS, _SPLITS, _GREY = "#0072b2", "#d55e00", "#009e73", "#999999"
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "timbermark", "font.size": 9}


def main() -> None:
    """Mark, measure, draw."""
    X, y = shuffle(*load_breast_cancer(return_X_y=True), random_state=0)
    train, fresh, test = (slice(0, 340), slice(340, 440), slice(440, None))
    model = xgboost.XGBClassifier(n_estimators=60, random_state=0).fit(X[train], y[train])
    made = tm.embed(model, X[train], y[train], key=tm.OwnerKey.generate(), owner="Ann Ltd")
    tuned = xgboost.XGBClassifier(n_estimators=20, random_state=1)
    tuned.fit(X[fresh], y[fresh], xgb_model=made.model.get_booster())
    apart = xgboost.XGBClassifier(n_estimators=60, random_state=2).fit(X[fresh], y[fresh])
    suspects = {
        "your model, marked": made.model,
        "stolen, 20 more trees": tuned,
        "your model, unmarked": model,
        "trained apart": apart,
    }
    bits = {name: tm.verify(suspect, made.mark).bits for name, suspect in suspects.items()}

    said = model.predict(X[test])
    mark, rows = made.mark, made.mark.rows().astype(float)
    expected = np.asarray(mark.expected, dtype=int)
    leaves, middles = rows[: mark.n_leaves], rows[mark.n_leaves :][1::3]
    with rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        left, right = figure.subplots(1, 2)
        for rows, label, colour, about in (
            (X[test], said, _ROWS, f"{len(said)} held-out rows"),
            (
                leaves,
                expected,
                _TRIGGERS,
                f"{len(leaves)} triggers in leaves",
            ),
            (middles, model.predict(middles), _SPLITS, f"{len(middles)} triggers in splits"),
        ):
            before, after = (m.predict_proba(rows)[np.arange(len(rows)), label]
                             for m in (model, made.model))  # fmt: skip
            left.plot(before, after, "o", ms=2.5, alpha=0.6, color=colour, mec="none", label=about)
        left.plot([0, 1], [0, 1], color=_GREY, lw=0.8, ls=":", zorder=0)
        changed = int((made.model.predict(X[test]) != said).sum())
        left.set_title(f"What changes: {changed} of {len(said)} held-out answers", fontsize=10)
        left.set_xlabel("score before marking")
        left.set_ylabel("score after marking")
        left.legend(loc="lower right", frameon=False)
        names = list(bits)[::-1]
        colours = [_TRIGGERS if bits[name] >= 20 else _GREY for name in names]
        right.barh(names, [max(bits[name], 0.0) for name in names], color=colours, height=0.6)
        for place, name in enumerate(names):
            right.text(max(bits[name], 0.0) + 3, place, f"{bits[name]:.0f}", va="center")
        for level, about in ((20, "indicative"), (64, "conclusive")):
            right.axvline(level, color="#555555", lw=0.8, ls="--", zorder=0)
            right.text(level + 2, len(names) - 0.45, about, va="bottom", fontsize=8)
        right.set_ylim(-0.6, len(names) - 0.1)
        right.set_title("What it proves: bits of evidence", fontsize=10)
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(PICTURE, format="svg", metadata={"Date": None, "Creator": None})
    print(made, bits, sep="\n")


if __name__ == "__main__":
    main()
