from dataclasses import replace

import pytest

import timbermark as tm
from tests.verification.staircases import JUDGE, build_house, others_model, staircase
from timbermark.marking.embedding import Plan
from timbermark.trees.ensemble_file import save_ensemble
from timbermark.verification.disputes import Party, judge_dispute
from timbermark.verification.judge import judge

KINDS = (
    "classes", "two classes", "no labels", "regressor", "ranker", "with attacks", "plan", "cost",
    "verdict", "weak verdict", "judgment", "dispute", "attacks",
)  # fmt: skip


def results(folder):
    """One result of every kind; whatever has a name is called like an attack on the page."""
    from tests.report.results import BAD, attack_result, embed_result, make_mark, numbers_result

    ann = build_house(folder / "ann", BAD, staircase(1), 1)
    bob = build_house(folder / "bob", "Bob & Sons", others_model(2), 2)
    mark = make_mark()
    memory = {row.tobytes(): label for row, label in zip(mark.rows(), mark.expected, strict=True)}

    def suspect(X):
        return [memory[row.tobytes()] for row in X]

    save_ensemble(folder / "sold.timber", replace(ann.trees, value=ann.trees.value * 1.01))
    dispute = judge_dispute(
        Party(ann.evidence, None, ann.unmarked, ann.marked),
        Party(bob.evidence, None, bob.unmarked, bob.marked),
        suspect=folder / "sold.timber",
    )
    return {
        "classes": embed_result(),
        "two classes": embed_result(2),
        "no labels": embed_result(labelled=False),
        "regressor": numbers_result(ranks=False),
        "ranker": numbers_result(ranks=True),
        "with attacks": (embed_result(12), {"attacks": attack_result()}),
        "plan": Plan(**embed_result(2).shared()),
        "cost": embed_result(2).cost,
        "verdict": tm.verify(suspect, mark),
        "weak verdict": tm.verify(lambda X: ["no"] * len(X), mark),
        "judgment": judge(ann.evidence, suspect=ann.marked, judge=JUDGE),
        "dispute": dispute,
        "attacks": attack_result(),
    }


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Results by kind, and their pages as files."""
    folder = tmp_path_factory.mktemp("pages")
    found = results(folder)
    pages = {}
    for kind, result in found.items():
        result, more = result if isinstance(result, tuple) else (result, {})
        pages[kind] = folder / f"{kind.replace(' ', '-')}.html"
        result.report(pages[kind], **more)
    return found, pages
