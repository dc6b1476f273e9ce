"""Results of every kind without training: what pages are made from."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from timbermark.attacks.results import AttackResult, AttackRow
from timbermark.marking import costs, number_costs
from timbermark.marking.embedding import EmbedResult
from timbermark.marking.rehearsing import Attempt
from timbermark.marking.strengths import Strength
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
    attempt = Attempt(strength, mark.n_triggers - 1, use, 7)
    return EmbedResult(
        SimpleNamespace(), mark, cost, attempt.bits, strength, attempt.n_set, (attempt,),
        (f"A note on {BAD}.",),
    )  # fmt: skip


def embed_result(n_classes: int = 3, labelled: bool = True, owner: str = BAD) -> EmbedResult:
    before, label = probabilities(400, n_classes)
    after = 0.97 * before + 0.03 / n_classes
    classes = [f"class {i} & {BAD} $x^{{2}}$" for i in range(n_classes)]
    cost = costs.measure_cost(before, after, label if labelled else None, classes, "validation")
    return _result(cost, make_mark(owner), {"changed": 0.4, "drift": 0.5})


def numbers_result(ranks: bool) -> EmbedResult:
    rng = np.random.default_rng(1)
    target = rng.normal(size=300)
    before = target + rng.normal(scale=0.3, size=300)
    after = before + rng.normal(scale=0.01, size=300)
    if ranks:
        target = np.column_stack([np.maximum(target, 0.0).round(), np.repeat(np.arange(30), 10)])
    cost = number_costs.measure_cost(before, after, target, "training", 0.3, True, ranks)
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
