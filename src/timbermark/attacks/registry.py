"""All attacks: what each needs, how strong it can be, and chains of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timbermark.attacks import (
    averaging,
    blurring,
    continuing,
    cutting,
    distilling,
    dodging,
    flattening,
    overwriting,
    refitting,
)
from timbermark.attacks.stolen import Stolen, Thief
from timbermark.errors import InputError

Run = Callable[[Stolen, Thief, float], Stolen]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    ``needs``: of "file", "answers", "rows", "labels", what the thief must have; ``strengths``: what
    ``run`` is tried with, the mildest first; ``strength_is``: what these numbers are; ``fast``:
    those that a quick look takes.
    """

    name: str
    family: str
    needs: tuple[str, ...]
    strength_is: str
    strengths: tuple[float, ...]
    run: Run
    fast: tuple[float, ...] = ()


FILE, ANSWERS, ROWS, LABELS = "file", "answers", "rows", "labels"
_ALL = (FILE, ROWS, LABELS)
_ASKED = (ANSWERS, ROWS, LABELS)

ATTACKS: tuple[Attack, ...] = (
    Attack("refit", "tune", _ALL, "of the old leaves kept", (0.9, 0.5, 0.2, 0.0),
           refitting.refit, (0.5, 0.2)),
    Attack("update-leaves", "tune", _ALL, "times the rows are added", (1.0, 5.0),
           refitting.update_leaves, (1.0,)),
    Attack("update-regrown", "tune", _ALL, "of the rows", (1.0,), refitting.update_regrown),
    Attack("add-trees", "tune", _ALL, "more rounds", (0.1, 0.5), continuing.add_trees, (0.1,)),
    Attack("boost-answers", "tune", _ASKED, "of 50 rounds", (0.2, 1.0), continuing.boost_answers),
    Attack("keep-first", "cut", (FILE,), "of the rounds", (0.75, 0.5, 0.25),
           cutting.keep_first, (0.5, 0.25)),
    Attack("drop-first", "cut", (FILE, ROWS), "of the rounds kept", (0.9, 0.75),
           cutting.drop_first, (0.9,)),
    Attack("drop-weakest", "cut", (FILE, ROWS), "of the rounds kept", (0.75, 0.5, 0.25),
           cutting.drop_weakest, (0.5,)),
    Attack("prune", "cut", (FILE,), "of the splits", (0.25, 0.5, 0.75), cutting.prune, (0.5,)),
    Attack("leaf-noise", "blur", (FILE,), "of the leaves' deviation", (0.1, 0.25, 0.5, 1.0),
           blurring.add_leaf_noise, (0.5,)),
    Attack("round-leaves", "blur", (FILE,), "bits", (16.0, 8.0, 6.0, 4.0),
           blurring.round_leaves, (6.0,)),
    Attack("move-thresholds", "blur", (FILE, ROWS), "of a deviation", (0.01, 0.03, 0.1),
           blurring.move_thresholds, (0.03,)),
    Attack("round-input", "blur", (ANSWERS, ROWS), "levels", (64.0, 16.0, 8.0),
           blurring.round_input, (16.0,)),
    Attack("input-noise", "blur", (ANSWERS, ROWS), "of a deviation", (0.03, 0.1),
           blurring.add_input_noise, (0.03,)),
    Attack("input-vote", "blur", (ANSWERS, ROWS), "of a deviation", (0.03, 0.1, 0.2),
           blurring.vote_on_noisy_input, (0.1,)),
    Attack("round-answers", "blur", (ANSWERS,), "digits", (2.0, 1.0, 0.0),
           blurring.round_answers, (1.0,)),
    Attack("average-own", "mix", _ASKED, "of the thief's model", (0.3, 0.5, 0.7, 0.9),
           averaging.average_with_own, (0.5, 0.9)),
    Attack("average-other", "mix", _ASKED, "of the thief's forest", (0.3, 0.5, 0.7, 0.9),
           averaging.average_with_other, (0.5, 0.9)),
    Attack("majority", "mix", _ASKED, "votes of the stolen model", (1.0,), averaging.majority,
           (1.0,)),
    Attack("distil-labels", "copy", (ANSWERS, ROWS), "questions per row", (1.0, 3.0),
           distilling.distil_labels),
    Attack("distil-scores", "copy", (ANSWERS, ROWS), "questions per row", (1.0, 3.0),
           distilling.distil_scores, (1.0,)),
    Attack("distil-with-labels", "copy", _ASKED, "weight of the true labels", (0.5,),
           distilling.distil_with_labels),
    Attack("mark-again", "mark", (FILE, ROWS), "marks", (1.0, 2.0, 3.0), overwriting.mark_again),
    Attack("relabel-unsure", "mark", _ALL, "guesses", (300.0, 1000.0, 3000.0),
           overwriting.relabel_unsure, (1000.0,)),
    Attack("relabel-outliers", "mark", _ALL, "guesses", (300.0, 1000.0),
           overwriting.relabel_outliers),
    Attack("flatten-file", "flatten", (FILE,), "of the leaves", (0.05, 0.1, 0.25, 0.5),
           flattening.flatten_by_file, (0.1, 0.25)),
    Attack("flatten-rows", "flatten", _ALL, "of the leaves", (0.02, 0.05, 0.1, 0.25, 0.5),
           flattening.flatten_by_rows, (0.1,)),
    Attack("flatten-learnt", "flatten", _ALL, "of the leaves", (0.1, 0.5, 1.0),
           flattening.flatten_by_learning),
    Attack("dodge-mixtures", "dodge", _ASKED, "of real rows", (0.01, 0.05, 0.2),
           dodging.dodge_mixtures, (0.05,)),
    Attack("dodge-unsure", "dodge", _ASKED, "of real rows", (0.05, 0.1, 0.2),
           dodging.dodge_unsure, (0.05, 0.1)),
)  # fmt: skip
"""Every attack, in the order in which it is tried."""
