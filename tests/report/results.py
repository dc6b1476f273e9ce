"""Results of every kind without training: what pages are made from."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from timbermark.attacks.results import AttackResult, AttackRow
from timbermark.marking.cost import Cost, RowSet, label_figures, number_figures
from timbermark.marking.embedding import EmbedResult
from timbermark.marking.rehearsing import Attempt, Strength
from timbermark.marking.tallies import (
    Counting,
    group_ndcg,
    number_distributions,
    score_distributions,
)
from timbermark.marking.words import library_notes
from timbermark.ownership import Mark, OwnerKey

BAD = "<script>alert(1)</script>"


def make_mark(owner: str = BAD, k: int = 64) -> Mark:
    return Mark.make(
        OwnerKey.generate(), owner=owner, model_digest="0" * 64, classes=["no", f"y{BAD}"],
        triggers=np.random.default_rng(0).normal(size=(k, 3)), alphabets=[[0, 1]] * k,
        reference=np.full((k, 2), 0.5), feature_names=["a", BAD, "c"],
    )  # fmt: skip


def probabilities(n: int, n_classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    label = rng.integers(n_classes, size=n)
    margins = rng.normal(size=(n, n_classes)) + 2.5 * np.eye(n_classes)[label]
    powers = np.exp(margins)
    return powers / powers.sum(axis=1, keepdims=True), label


def _result(cost, mark: Mark, use: dict[str, float]) -> EmbedResult:
    strength = Strength(mark.n_triggers, mark.q, 1.5)
    attempt = Attempt(strength, mark.n_triggers - 1, use, 7, 90.0)
    labels = 80.0 if mark.classes else None
    return EmbedResult(
        model=SimpleNamespace(), mark=mark, cost=cost, bits=90.0, label_bits=labels,
        seals={"leaves": 90.0}, n_set=attempt.n_set, strength=strength, attempts=(attempt,),
        use=use, notes=library_notes([f"A note on {BAD}."]),
    )  # fmt: skip


def embed_result(n_classes: int = 3, labelled: bool = True, owner: str = BAD) -> EmbedResult:
    before, label = probabilities(400, n_classes)
    after = 0.97 * before + 0.03 / n_classes
    classes = [f"class {i} & {BAD} $x^{{2}}$" for i in range(n_classes)]
    known = label if labelled else None
    tally = Counting("labels").tally(before, after, known)
    rows = RowSet("validation", tally.n, tally.estimated)
    counts = score_distributions(before, after, known, np.abs(after - before).max(axis=1))
    figures = tuple(label_figures(tally, classes, rows))
    cost = Cost("classification", rows, figures, tuple(classes), distributions=counts)
    return _result(cost, make_mark(owner), {"changed": 0.4, "drift": 0.5})


def numbers_result(ranks: bool) -> EmbedResult:
    rng = np.random.default_rng(1)
    target = rng.normal(size=300)
    before = target + rng.normal(scale=0.3, size=300)
    after = before + rng.normal(scale=0.01, size=300)
    if ranks:
        target = np.column_stack([np.maximum(target, 0.0).round(), np.repeat(np.arange(30), 10)])
    tally = Counting("ranks" if ranks else "numbers", 0.3, True).tally(
        before[:, None], after[:, None], target
    )
    rows, moved = RowSet("unseen", tally.n), (after - before) / 0.3
    groups = [group_ndcg(answers, target) for answers in (before, after)] if ranks else None
    counts = number_distributions(before, after, None if ranks else target, moved, groups)
    figures = tuple(number_figures(tally, 0.3, ranks, rows))
    task = "ranking" if ranks else "regression"
    cost = Cost(task, rows, figures, (), 0.3, True, counts)
    return _result(cost, make_mark(), {"move": 0.7})


def attack_result() -> AttackResult:
    rows = [
        AttackRow(f"attack-{i} {BAD}", family, strength, 150.0 * (1 - strength) - 5 * i,
                  90.0 * (1 - strength), 0.95 - 0.2 * strength, 1.0 - strength * i / 9, 1.0,
                  level="none" if strength > 0.5 else "conclusive")
        for i, family in enumerate(["tune", "cut", "blur", "mix", "copy", "mark", "flatten",
                                    "dodge", "chain", "tune", "cut"])
        for strength in (0.1, 0.5, 0.9)
    ]  # fmt: skip
    rows = [replace(row, score_bits=max(row.score_bits, 0.0)) for row in rows]
    rows.append(AttackRow("left-out", "copy", 1.0, skipped="no-grid"))
    untouched = AttackRow("untouched", "none", 0.0, 190.0, 128.0, 0.97, 1.0, level="conclusive")
    return AttackResult(tuple(rows), untouched, 0.9, 400, 300)
