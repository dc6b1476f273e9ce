"""Strengths of a mark: how many triggers, how many answers each, how far ahead; what is tried.

A *ladder* is a sequence of strengths, the strongest first. `timbermark.marking.rehearsing` goes
down a ladder until one fits the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timbermark.errors import InputError
from timbermark.marking.defaults import ENOUGH_BITS
from timbermark.ownership.evidence import label_bits


@dataclass(frozen=True, slots=True, order=True)
class Strength:
    """How strong a mark is: ``k`` triggers, alphabets of ``q`` answers, and the ``lead``.

    ``hidden``: splits keep their gains where the file shows them.
    """

    k: int
    q: int
    lead: float
    hidden: bool = True

    @property
    def bits(self) -> float:
        """Return the bits of evidence if every symbol is matched."""
        return self.k * float(np.log2(self.q))

    @property
    def full_label_bits(self) -> float:
        """Return what labels prove if every symbol is matched."""
        return label_bits(self.k, self.k, self.q)

    @property
    def expense(self) -> float:
        """Return a figure proportional to the cost of a mark: lead · √(triggers that change)."""
        return self.lead * float(np.sqrt(self.k * (self.q - 1) / self.q))


# More triggers and a longer lead survive more and cost more; a step is two thirds to four fifths of
# the expense of the one before. Of four labels, fewer triggers with a longer lead survive more
# (`./dev bench attacks`, pendigits, LightGBM, leaves refitted with 0.2 of the old ones: 320 with a
# lead of 3 leave 5 bits, 128 with a lead of 6 leave 16, at the same cost).
_LADDER_OF_TWO = (
    Strength(384, 2, 3.0), Strength(384, 2, 2.0), Strength(320, 2, 1.5), Strength(256, 2, 1.0),
    Strength(256, 2, 0.75), Strength(224, 2, 0.6), Strength(192, 2, 0.45), Strength(144, 2, 0.35),
    Strength(96, 2, 0.35),
    Strength(96, 2, 0.2), Strength(88, 2, 0.15), Strength(88, 2, 0.1),
    # Small models cannot always be edited without a trace in the gains of their file.
    Strength(120, 2, 0.2, False), Strength(120, 2, 0.15, False), Strength(120, 2, 0.1, False),
    # A million rows of two classes carried no mark with a lead of 0.1 (`./dev bench scale`).
    Strength(96, 2, 0.1, False), Strength(88, 2, 0.1, False), Strength(120, 2, 0.05, False),
    Strength(88, 2, 0.05, False),
)  # fmt: skip
_LADDER_OF_FOUR = (
    Strength(192, 4, 6.0), Strength(192, 4, 4.5), Strength(256, 4, 3.0), Strength(256, 4, 2.0),
    Strength(192, 4, 1.5), Strength(192, 4, 1.0),
    Strength(128, 4, 0.75), Strength(96, 4, 0.5),
    # Models of noisy tables: many triggers of two labels cost less than few of four (wine, XGBoost:
    # 48 of four with a lead of 0.35 change 0.54 % of labels, 144 of two 0.31 %).
    Strength(224, 2, 0.6), Strength(192, 2, 0.45), Strength(144, 2, 0.35), Strength(96, 2, 0.35),
    Strength(48, 4, 0.35), Strength(48, 4, 0.2), *_LADDER_OF_TWO[-10:],
)  # fmt: skip


def list_strengths(
    n_classes: int,
    n_triggers: int | str,
    alphabet: int | str,
    lead: float | str,
    weak: bool = False,
) -> tuple[Strength, ...]:
    """Return the strengths to try, the strongest first; what is not "auto" is held to its value.

    Raises InputError for values that make no mark, and for marks that are worth less than 64 bits
    unless they may be ``weak``.

    >>> list_strengths(2, "auto", "auto", "auto")[0]
    Strength(k=384, q=2, lead=3.0, hidden=True)
    """
    _check(n_classes, n_triggers, alphabet, lead)
    ladder: Sequence[Strength] = (
        _LADDER_OF_FOUR if n_classes >= 4 and alphabet != 2 else _LADDER_OF_TWO
    )
    tried = [
        replace(
            rung,
            k=rung.k if n_triggers == "auto" else int(n_triggers),
            lead=rung.lead if lead == "auto" else float(lead),
        )
        for rung in ladder
        if alphabet in ("auto", rung.q)
    ]
    if all(strength.hidden for strength in tried):
        tried.append(replace(tried[-1], hidden=False))
    strong = [strength for strength in tried if strength.bits >= ENOUGH_BITS or weak]
    if not strong:
        raise InputError(
            f"n_triggers={n_triggers} makes a mark of at most {tried[0].bits:.0f} bits, too few to "
            "convince anyone but you.",
            hint="use n_triggers=96 or more, or allow a weak mark with weak=True.",
            code="mark.weak",
            parameter="n_triggers",
        )
    return tuple(dict.fromkeys(strong))


def _check(n_classes: int, n_triggers: int | str, alphabet: int | str, lead: float | str) -> None:
    whole = isinstance(n_triggers, int | np.integer) and not isinstance(n_triggers, bool)
    if n_triggers != "auto" and (not whole or int(n_triggers) < 1):
        raise InputError(
            f"n_triggers={n_triggers!r} must be auto or a whole number > 0.",
            hint="auto is a good start.",
            parameter="n_triggers",
        )
    if alphabet not in ("auto", 2, 4):
        raise InputError(
            f"alphabet={alphabet!r} must be auto, 2 or 4.", hint="use auto.", parameter="alphabet"
        )
    if alphabet == 4 and 0 < n_classes < 4:
        raise InputError(
            f"alphabet=4 needs as many classes; the model has {n_classes}.", hint="use alphabet=2."
        )
    number = isinstance(lead, int | float) and not isinstance(lead, bool)
    if lead != "auto" and (not number or not 0.0 < float(lead) <= 20.0):
        raise InputError(
            f"lead={lead!r} must be auto or a number above 0, 20 at most.",
            hint="try 1.0.",
            parameter="lead",
        )
