"""The forecast: what a mark would be, without making one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from timbermark.marking.choosing import choose, count_labels, count_triggers
from timbermark.marking.selection import DEFAULT_SELECTION, Selection
from timbermark.marking.surveying import survey
from timbermark.ownership.statistics import Level, evidence_bits, level, matches_needed

_LOSS_PER_FLIP = 0.3
"""Test accuracy lost for each flipped share of the rows; see docs/marking.md."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What :func:`timbermark.embed` would do.

    ``flips``: how many triggers will, on average, have to change their answer; the others keep
    it. ``matches_for_public``: how many must survive an attack for the highest level of evidence,
    None where all would not be enough. ``expected_accuracy_loss``: a share, by what marks cost on
    the five data sets of docs/marking.md: 0.2 to 0.6 points for each percent of rows flipped.
    """

    strategy: str
    why: str
    n_triggers: int
    alphabet: int
    usable_rows: int
    flips: float
    evidence_bits: float
    level: Level
    matches_for_public: int | None
    accuracy_before: float
    expected_accuracy_loss: float
    measured_on: str

    def __str__(self) -> str:
        return (
            f"{self.n_triggers} triggers out of {self.usable_rows} usable rows by the "
            f"{self.strategy} strategy ({self.why}), about {self.flips:.0f} of them to be flipped; "
            f"evidence 2^-{self.evidence_bits:.0f} (level {self.level}); expected cost about "
            f"{100 * self.expected_accuracy_loss:.2f} points of accuracy"
        )


def plan(
    model: Any,
    X: Any,
    y: Any,
    *,
    candidates: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    strategy: str = "auto",
    selection: Selection | None = None,
    n_triggers: int | str = "auto",
    alphabet: int | str = "auto",
    random_state: int = 0,
    sample_weight: Any = None,
    training: Mapping[str, float] | None = None,
) -> Plan:
    """The forecast for :func:`timbermark.embed` with these arguments; changes nothing.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import TimberClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(max_iter=5, random_state=0).fit(X[:1000], y[:1000])
    >>> forecast = plan(model, X[:1000], y[:1000], candidates=(X[1000:], y[1000:]))
    >>> forecast.n_triggers, forecast.alphabet, forecast.evidence_bits, forecast.level
    (50, 4, 100.0, 'public')
    """
    ground = survey(
        model, X, y, candidates, validation, sample_weight, training=training, seed=random_state
    )
    k = count_triggers(n_triggers, ground.n_rows)
    q = count_labels(alphabet, len(ground.marked.classes))
    choice = choose(
        ground.pool, strategy, selection or DEFAULT_SELECTION, k, q, ground.separate, random_state
    )
    answers = ground.test_confidence.argmax(axis=1)
    bits = evidence_bits(k, k, q)
    return Plan(
        strategy=choice.strategy,
        why=choice.why,
        n_triggers=k,
        alphabet=q,
        usable_rows=int(ground.pool.allowed.sum()),
        flips=k * (1 - 1 / q),
        evidence_bits=bits,
        level=level(bits),
        matches_for_public=matches_needed(k, q, 64),
        accuracy_before=float((answers == ground.test_label).mean()),
        expected_accuracy_loss=_LOSS_PER_FLIP * k * (1 - 1 / q) / ground.n_rows,
        measured_on=ground.measured_on,
    )
