"""What a mark costs: the same figures before and after, on the same rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, recall_score, roc_auc_score


@dataclass(frozen=True, slots=True)
class Quality:
    """How good a model is on some rows. ``auc`` only with two classes; ``recall`` per class, NaN
    for a class without rows."""

    accuracy: float
    log_loss: float
    auc: float | None
    recall: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """``measured_on`` says which rows: "validation"; "training" where none were given; and
    "candidates" where there are no training rows either."""

    measured_on: str
    n_rows: int
    before: Quality
    after: Quality
    changed: np.ndarray  # int64: which of the rows given changed their label
    evidence_bits: float  # what the mark proves while untouched
    n_triggers: int
    rounds: int
    weights: tuple[float, ...]  # how heavy each trigger had to be
    replaced: int  # triggers that could not be set and were replaced

    @property
    def accuracy_lost(self) -> float:
        """In shares: 0.003 is 0.3 points. Negative where the mark helped."""
        return self.before.accuracy - self.after.accuracy

    def __str__(self) -> str:
        where = {
            "validation": "held-out rows",
            "training": "training rows that are no triggers",
            "candidates": "candidates that are no triggers",
        }
        return (
            f"{self.evidence_bits:.0f} bits embedded in {self.n_triggers} triggers, evidence "
            f"2^-{self.evidence_bits:.0f}, accuracy "
            f"{self.before.accuracy:.4f} → {self.after.accuracy:.4f} on {self.n_rows} "
            f"{where[self.measured_on]}, {len(self.changed)} predictions changed"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, nothing secret."""
        plain = {k: v for k, v in asdict(self).items() if k not in ("changed", "weights")}
        return {
            **plain,
            "changed": len(self.changed),
            "changed_rows": self.changed.tolist(),
            "accuracy_lost": self.accuracy_lost,
        }


def measure(confidence: np.ndarray, label: np.ndarray) -> Quality:
    """The quality of probabilities [n, K] on rows with class numbers ``label`` [n]."""
    n_classes = confidence.shape[1]
    kinds = np.arange(n_classes)
    answers = confidence.argmax(axis=1)
    recall = recall_score(label, answers, labels=kinds, average=None, zero_division=np.nan)
    two = n_classes == 2 and len(np.unique(label)) == 2
    return Quality(
        accuracy=float((answers == label).mean()),
        log_loss=float(log_loss(label, confidence, labels=kinds)),
        auc=float(roc_auc_score(label, confidence[:, 1])) if two else None,
        recall=tuple(float(r) for r in recall),
    )
