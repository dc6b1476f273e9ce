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
    Attack("library-refit", "tune", _ALL, "of the old leaves kept", (0.9, 0.5, 0.2),
           refitting.refit_by_library),
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
           blurring.vote_on_noisy_input),
    Attack("round-answers", "blur", (ANSWERS,), "digits", (2.0, 1.0, 0.0),
           blurring.round_answers, (1.0,)),
    Attack("average-own", "mix", _ASKED, "of the thief's model", (0.3, 0.5, 0.7, 0.9),
           averaging.average_with_own, (0.5, 0.9)),
    Attack("average-other", "mix", _ASKED, "of the thief's forest", (0.3, 0.5, 0.7, 0.9),
           averaging.average_with_other, (0.5, 0.9)),
    Attack("majority", "mix", _ASKED, "votes of the stolen model", (1.0,), averaging.majority,
           (1.0,)),
    Attack("distil-labels", "copy", (ANSWERS, ROWS), "questions per row", (1.0, 3.0),
           distilling.distil_labels, (1.0,)),
    Attack("distil-scores", "copy", (ANSWERS, ROWS), "questions per row", (1.0, 3.0),
           distilling.distil_scores),
    Attack("distil-with-labels", "copy", _ASKED, "weight of the true labels", (0.5,),
           distilling.distil_with_labels),
    Attack("mark-again", "mark", (FILE, ROWS), "marks", (1.0, 2.0, 3.0), overwriting.mark_again),
    Attack("relabel-unsure", "mark", _ALL, "guesses", (300.0, 1000.0, 3000.0),
           overwriting.relabel_unsure),
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
           dodging.dodge_unsure, (0.05,)),
)  # fmt: skip
"""Every attack, in the order in which it is tried."""


def find_attacks(wanted: str | Sequence[str]) -> list[tuple[Attack, float]]:
    """Return attacks with their strengths, in the order in which they are tried.

    ``wanted``: "all", "fast", or names of attacks. A name may end in a strength, as in "refit:0.5",
    and names joined by "+" are a chain, as in "keep-first:0.5+average-own:0.5"; within a chain a
    missing strength is the attack's second mildest.

    Raises InputError for a name that is not known.

    >>> [(attack.name, strength) for attack, strength in find_attacks(["majority", "refit:0.5"])]
    [('majority', 1.0), ('refit', 0.5)]
    """
    if isinstance(wanted, str):
        if wanted == "all":
            return [(a, s) for a in (*ATTACKS, *CHAINS) for s in a.strengths]
        if wanted == "fast":
            return [(a, s) for a in ATTACKS for s in a.fast]
        wanted = [wanted]
    found: list[tuple[Attack, float]] = []
    for word in wanted:
        if word in ("all", "fast"):
            found += find_attacks(word)
        elif "+" in word:
            chain = make_chain(word)
            found.append((chain, chain.strengths[0]))
        else:
            attack, strength = _find_one(word)
            found += [(attack, s) for s in (attack.strengths if strength is None else (strength,))]
    return list(dict.fromkeys(found))


def make_chain(words: str) -> Attack:
    """Return the attack that runs others one after the other; see `find_attacks` for the words.

    >>> make_chain("keep-first:0.5+refit:0.9").needs
    ('file', 'rows', 'labels')
    """
    links: list[tuple[Attack, float]] = []
    for word in words.split("+"):
        attack, strength = _find_one(word.strip())
        usual = attack.strengths[min(1, len(attack.strengths) - 1)]
        links.append((attack, usual if strength is None else strength))

    def run(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
        for attack, how in links:
            stolen = attack.run(stolen, thief, how)
        return stolen

    needed = {need for attack, _ in links for need in attack.needs}
    needs = tuple(need for need in (FILE, ANSWERS, ROWS, LABELS) if need in needed)
    name = "+".join(f"{attack.name}:{how:g}" for attack, how in links)
    return Attack(name, "chain", needs, "as named", (1.0,), run)


def _find_one(word: str) -> tuple[Attack, float | None]:
    name, _, how = word.partition(":")
    known = {attack.name: attack for attack in ATTACKS}
    if name not in known:
        near = difflib.get_close_matches(name, [*known, "all", "fast"], n=1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        raise InputError(
            f"There is no attack called '{name}'.",
            hint=f"{meant}use all, fast, or some of {', '.join(known)}.",
        )
    if not how:
        return known[name], None
    try:
        strength = float(how)
    except ValueError:
        strength = float("nan")
    low, high = min(known[name].strengths), max(known[name].strengths)
    if not low / 10 <= strength <= 10 * max(high, 1.0) or strength < 0.0:
        raise InputError(
            f"'{how}' is no strength of the attack '{name}'.",
            hint=f"it is a number such as {known[name].strengths[0]:g} "
            f"({known[name].strength_is}).",
        )
    return known[name], strength


CHAINS: tuple[Attack, ...] = tuple(
    make_chain(words)
    for words in (
        "refit:0.9+average-own:0.5",
        "refit:0.5+keep-first:0.75",
        "keep-first:0.5+average-own:0.5",
        "leaf-noise:0.25+average-other:0.5",
        "flatten-rows:0.05+average-own:0.3",
        "mark-again:1+refit:0.9",
        "prune:0.25+refit:0.9",
        "average-own:0.5+round-answers:1",
    )
)
"""Chains of two that belong to ``all``."""
