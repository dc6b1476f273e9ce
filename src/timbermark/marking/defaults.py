"""The numbers of marking that were measured, each with the benchmark and the figure that chose it.

What is no more than a matter of memory or of arithmetic stands where it is used. Budgets are
promises to the user and stand in `timbermark.marking.budget`; ladders of strengths stand in
`timbermark.marking.strengths`, what hides an edit in `timbermark.editing.gains`.
"""

ENOUGH_BITS = 64.0
"""Bits that convince anyone. A mark that is worth less is made only when asked for by name.
A forger needs 2^64 trials for as much, each of them an scrypt over 64 MiB."""

CONFIDENCE = 0.75
"""Of the upper bounds by which a budget is judged. Held-out rows are few where data are: with 300
of them and one changed label, 0.75 bounds the share by 0.9 %, 0.95 by 1.6 %, so that no mark of a
small table would fit."""

BUDGET_SHARE_TWO_CLASSES, BUDGET_SHARE = 0.5, 0.75
"""How much of a limit a rehearsal may use. The real symbols may cost more than throwaway ones, and
with two classes everything that moves moves one score. (`./dev bench fidelity`, pendigits, XGBoost:
0.6 % of labels by the rows that judge, 0.8 % of test rows.)"""

SET_SHARE, HOPELESS_SHARE = 0.9, 0.75
"""A mark is taken if this share of its symbols is set, and a strength with less than the second one
is given up at once. Scores prove what moved, and evidence says what is not set costs. (`./dev bench
evidence --part robustness`: asking for 0.97 made marks of a third of the strength.)"""

TAKEN_SHARE = 0.3
"""A trigger counts as taken if its label leads by this share of the lead asked for: those with less
are replaced or left out, because the first attack would turn them."""

ARRIVED_SHARE = 0.5
"""An edit goes on until every trigger has this share of its lead. (With triggers that only lead at
all, weak marks ended after six rounds with 75 of 88 symbols, now with 88.)"""

PLENTY_BITS, SAFE_BITS = 160.0, 68.0
"""Triggers that are not taken are left out where the others make this many bits; the second is what
a mark must prove where not all are set. (pendigits, XGBoost, averaged half and half: 120 triggers
that took 158 bits, 256 of which 228 took 124.)"""

LEAD_GROWTH_AIM, LEAST_LEAD_GROWTH, MOST_LEAD_GROWTH = 0.92, 1.15, 1.6
"""A mark that fits is tried once more with a longer lead, which aims at this share of what it may
cost, if that makes the lead longer by the second factor; never by more than the third."""

SPARE_CANDIDATES = 3.0
"""Candidates to look for, per trigger: some are not taken, and the next ones replace them."""

EXPECTED_LEAD, SHORT_LEAD, LONGEST_SHORT_LEAD = 1.0, 0.2, 0.5
"""The lead at which candidates are compared, and the one for marks with leads up to the third
number and for large tables: with a short lead it counts most how close the best labels are.
(`./dev bench scale`: the same strength changes six tenths of the labels; `./dev bench fidelity`:
of four models that were stopped early and could not be marked, all can.)"""

HELD_SHARE, MOST_HELD = 0.3, 5_000
"""The share of rows that judge and report where no validation rows are given, and how many each."""

CERTAIN_WEIGHT, CERTAIN_ROWS_KEPT = 0.1, 4
"""Rows that weigh less than this in an edit are certain; one of so many stands for all of them.
(letter, XGBoost: 7.9 s of processor time where it was 14.3, with the same use of the budget.)"""

UNSEEN_ROWS = 2_000
"""Rows that stand for unseen ones, at least: a share of 1 % then has a standard error of 0.2 %."""

SURROGATES, SURROGATE_WEIGHT = 6_000, 0.5
"""Tables with fewer rows are joined by mixtures up to this number, which weigh less than rows do:
a model may do anything between few rows, and triggers are mixtures, too."""

NEIGHBOUR_RANKS = (0, 8, 64)
"""Neighbours that rows are mixed with to stand for unseen ones, the row itself first. On twelve
models a mixture with the eighth neighbour was as far from the training rows as an unseen row, but
for avila, where hardly any mixture resembles a row."""
