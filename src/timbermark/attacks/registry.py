"""All attacks: what each needs, how strong it can be, and chains of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timbermark.attacks import overwriting, own_models, service, trees, tuning
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


_SETS = ("all", "fast", "chains")
FILE, ANSWERS, ROWS, LABELS = "file", "answers", "rows", "labels"
_ALL = (FILE, ROWS, LABELS)
_ASKED = (ANSWERS, ROWS, LABELS)

ATTACKS: tuple[Attack, ...] = (
    Attack("refit", "tune", _ALL, "of the old leaves kept", (0.9, 0.5, 0.2, 0.0),
           trees.refit, (0.2,)),
    Attack("library-refit", "tune", _ALL, "of the old leaves kept", (0.9, 0.5, 0.2, 0.0),
           trees.refit_by_library),
    Attack("update-leaves", "tune", _ALL, "times the rows are added", (1.0, 5.0),
           tuning.update_leaves, (1.0,)),
    Attack("update-regrown", "tune", _ALL, "of the rows", (1.0,), tuning.update_regrown),
    Attack("add-trees", "tune", _ALL, "more rounds", (5.0, 20.0, 50.0), tuning.add_trees, (5.0,)),
    Attack("boost-answers", "tune", _ASKED, "of 50 rounds", (0.2, 1.0), tuning.boost_answers),
    Attack("keep-first", "cut", (FILE,), "of the rounds", (0.75, 0.5, 0.25),
           trees.keep_first, (0.5,)),
    Attack("drop-first", "cut", (FILE, ROWS), "of the rounds kept", (0.9, 0.75),
           trees.drop_first),
    Attack("drop-weakest", "cut", (FILE, ROWS), "of the rounds kept", (0.75, 0.5, 0.25),
           trees.drop_weakest),
    Attack("prune", "cut", (FILE,), "of the splits", (0.25, 0.5, 0.75), trees.prune, (0.5,)),
    Attack("leaf-noise", "blur", (FILE,), "of the leaves' deviation", (0.1, 0.25, 0.5, 1.0),
           trees.add_leaf_noise, (0.5,)),
    Attack("round-leaves", "blur", (FILE,), "bits", (16.0, 8.0, 6.0, 4.0),
           trees.round_leaves),
    Attack("round-input", "blur", (ANSWERS, ROWS), "levels; 0: the columns' own grids",
           (1024.0, 64.0, 16.0, 8.0, 0.0), service.round_input, (64.0,)),
    Attack("input-noise", "blur", (ANSWERS, ROWS), "of a deviation", (0.03, 0.1),
           service.add_input_noise, (0.03,)),
    Attack("input-vote", "blur", (ANSWERS, ROWS), "of a deviation", (0.03, 0.1, 0.2),
           service.vote_on_noisy_input),
    Attack("round-answers", "blur", (ANSWERS,), "digits", (2.0, 1.0, 0.0),
           service.round_answers, (1.0,)),
    Attack("snap-thresholds", "splits", (FILE, ROWS), "of the way to the middle", (1.0,),
           trees.snap_thresholds, (1.0,)),
    Attack("jitter-thresholds", "splits", (FILE, ROWS), "more gaps", (0.0, 1.0, 3.0),
           trees.jitter_thresholds),
    Attack("merge-thresholds", "splits", (FILE, ROWS), "of the rows in between",
           (0.0, 0.005, 0.02), trees.merge_thresholds),
    Attack("move-thresholds", "splits", (FILE, ROWS), "of a deviation", (0.01, 0.03, 0.1),
           trees.move_thresholds),
    Attack("average-own", "mix", _ASKED, "of the thief's model", (0.3, 0.5, 0.7, 0.9),
           own_models.average_with_own, (0.5, 0.9)),
    Attack("average-other", "mix", _ASKED, "of the thief's forest", (0.3, 0.5, 0.7, 0.9),
           own_models.average_with_other, (0.5,)),
    Attack("majority", "mix", _ASKED, "votes of the stolen model", (1.0,), own_models.majority),
    Attack("distil-labels", "copy", (ANSWERS, ROWS), "questions per row", (1.0, 3.0),
           own_models.distil_labels),
    Attack("distil-scores", "copy", (ANSWERS, ROWS), "questions per row", (1.0, 3.0),
           own_models.distil_scores),
    Attack("distil-with-labels", "copy", _ASKED, "weight of the true labels", (0.5,),
           own_models.distil_with_labels),
    Attack("mark-again", "mark", (FILE, ROWS), "marks", (1.0, 2.0, 3.0), overwriting.mark_again),
    Attack("relabel-unsure", "mark", _ALL, "guesses", (300.0, 1000.0, 3000.0),
           overwriting.relabel_unsure),
    Attack("relabel-outliers", "mark", _ALL, "guesses", (300.0, 1000.0),
           overwriting.relabel_outliers),
    Attack("flatten-file", "flatten", (FILE,), "of the leaves", (0.05, 0.1, 0.25, 0.5),
           trees.flatten_by_file),
    Attack("flatten-rows", "flatten", _ALL, "of the leaves", (0.02, 0.05, 0.1, 0.25, 0.5),
           trees.flatten_by_rows, (0.25,)),
    Attack("flatten-learnt", "flatten", _ALL, "of the leaves", (0.1, 0.5, 1.0),
           overwriting.flatten_by_learning),
    Attack("dodge-mixtures", "dodge", _ASKED, "of real rows", (0.01, 0.05, 0.2),
           service.dodge_mixtures, (0.05,)),
    Attack("dodge-unsure", "dodge", _ASKED, "of real rows", (0.05, 0.1, 0.2),
           service.dodge_unsure, (0.05,)),
    Attack("refuse-off-grid", "dodge", _ASKED, "values off their grid", (1.0,),
           service.refuse_off_grid),
    Attack("dodge-repeats", "dodge", _ASKED, "questions that differ in one value", (1.0,),
           service.dodge_repeats),
)  # fmt: skip
"""Every attack on a model in a thief's hands, in the order in which it is tried."""
_COPY = (ANSWERS, ROWS)
GUARD_ATTACKS: tuple[Attack, ...] = (
    Attack("distil-labels", "copy", _COPY, "questions per row", (1.0,),
           own_models.distil_labels, (1.0,)),
    Attack("distil-scores", "copy", _COPY, "questions per row", (1.0,),
           own_models.distil_scores, (1.0,)),
    Attack("distil-with-labels", "copy", _ASKED, "weight of the true labels", (0.5,),
           own_models.distil_with_labels),
    Attack("learn-labels", "copy", _COPY, "rows a leaf of a forest", (1.0, 3.0, 10.0),
           own_models.learn("forest"), (3.0,)),
    Attack("learn-scores", "copy", _COPY, "rows a leaf of a forest", (1.0, 3.0),
           own_models.learn_scores),
    Attack("learn-little", "copy", _COPY, "rounds of eight leaves", (60.0,),
           own_models.learn("small")),
    Attack("stop-early", "copy", _COPY, "of the answers held out", (0.1,),
           own_models.learn("early")),
    Attack("drop-unsure", "dodge", _COPY, "of the answers", (0.05, 0.2),
           own_models.drop_unsure, (0.05,)),
    Attack("ask-sure", "dodge", _ASKED, "of the rows left out", (0.1, 0.3), own_models.ask_sure),
    Attack("average-noise", "blur", _COPY, "of a deviation", (1e-6, 1e-3),
           own_models.average_noise),
    Attack("pool-clients", "mix", _COPY, "clients", (2.0,), own_models.pool_clients),
)  # fmt: skip
"""Every attack on a guarded model behind a service, in the order in which it is tried."""


def find_attacks(
    wanted: str | Sequence[str], table: Sequence[Attack] | None = None
) -> list[tuple[Attack, float]]:
    """Return attacks with their strengths, in the order in which they are tried.

    ``table``: what names are of, such as `GUARD_ATTACKS`; by default `ATTACKS` and their chains.

    ``wanted``: "all", "fast", "chains", or names of attacks. A name may end in a strength, as in
    "refit:0.5", and names joined by "+" are a chain, as in "keep-first:0.5+average-own:0.5"; within
    a chain a missing strength is the attack's second mildest.

    Raises InputError for a name that is not known.

    >>> [(attack.name, strength) for attack, strength in find_attacks(["majority", "refit:0.5"])]
    [('majority', 1.0), ('refit', 0.5)]
    """
    attacks, chains = (ATTACKS, CHAINS) if table is None else (tuple(table), ())
    if isinstance(wanted, str):
        if wanted == "all":
            return [(a, s) for a in (*attacks, *chains) for s in a.strengths]
        if wanted == "fast":
            return [(a, s) for a in attacks for s in a.fast]
        if wanted == "chains":
            return [(a, s) for a in chains for s in a.strengths]
        wanted = [wanted]
    found: list[tuple[Attack, float]] = []
    for word in wanted:
        if word in _SETS:
            found += find_attacks(word, table)
        elif "+" in word and table is None:
            chain = make_chain(word)
            found.append((chain, chain.strengths[0]))
        else:
            attack, strength = _find_one(word, attacks)
            found += [(attack, s) for s in (attack.strengths if strength is None else (strength,))]
    return list(dict.fromkeys(found))


def make_chain(words: str) -> Attack:
    """Return the attack that runs others one after the other; see `find_attacks` for the words.

    >>> make_chain("keep-first:0.5+refit:0.9").needs
    ('file', 'rows', 'labels')
    """
    links: list[tuple[Attack, float]] = []
    for word in words.split("+"):
        attack, strength = _find_one(word.strip(), ATTACKS)
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


def _find_one(word: str, table: Sequence[Attack]) -> tuple[Attack, float | None]:
    name, _, how = word.partition(":")
    known = {attack.name: attack for attack in table}
    if name not in known:
        near = difflib.get_close_matches(name, [*known, *_SETS], n=1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        raise InputError(
            f"There is no attack called '{name}'.",
            hint=f"{meant}use {', '.join(_SETS)}, or some of {', '.join(known)}.",
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


# What a mark in leaves does not survive, after or before what one in splits does not.
_NEXT = ("refit:0.2", "add-trees:20", "dodge-unsure:0.05", "average-own:0.5")
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
        *(f"{first}+{second}"
          for first in ("snap-thresholds:1", "jitter-thresholds:1", "merge-thresholds:0.005")
          for second in _NEXT),
        # A service has no file left to edit.
        *(f"{second}+{first}" if second.startswith(("add-trees", "refit")) else f"{first}+{second}"
          for first in ("round-input:64", "refuse-off-grid:1") for second in _NEXT),
        "snap-thresholds:1+dodge-mixtures:0.05",
    )
)  # fmt: skip
"""Chains of two that belong to ``all``."""
HARDEST = tuple(
    f"snap-thresholds:1+{second}"
    for second in ("refit:0.2", "dodge-unsure:0.05", "dodge-mixtures:0.05")
)
"""The chains that meet both seals where they are weakest; they are reported by themselves."""
