"""The numbers that decide how a mark is made, with their reasons and the figures that chose them.

Constants that follow from memory or arithmetic are defined where they are used. Budgets are
promises to the user and are in `timbermark.marking.budget`, ladders of strengths in
`timbermark.marking.rehearsing`, the limits that hide an edit in `timbermark.editing.leaves`.
"""

ENOUGH_BITS = 64.0
"""Bits of evidence that are conclusive. A weaker mark is made only with ``weak``. A forger needs
2^64 trials for as much evidence, each of them an scrypt over 64 MiB."""

CONFIDENCE = 0.75
"""The confidence of the upper bounds by which a budget is judged. Small tables have few held-out
rows: with 300 of them and one changed label, 0.75 bounds the share by 0.9 %, 0.95 by 1.6 %, with
which no mark of a small table would fit."""

STATED_CONFIDENCE = 0.999
"""The confidence of the bounds that are stated with a cost. One run states ten to forty figures,
and none of them may be too small beyond its bound in 95 % of the runs (`./dev bench fidelity --part
stated` and `--part rare`)."""

UNSEEN_MOVE, UNSEEN_RANKS, UNSEEN_PRECISION = 0.1, 0.005, 0.05
UNSEEN_NUMBER, UNSEEN_SQUARE, UNSEEN_ANSWER, UNSEEN_ORDER = 0.25, 1.0, 0.05, 0.24
"""What one unseen row may do that no row of the sample did, as a part of the stated bounds. First:
the change of a probability, or of the first ten of a list; the share of the other class that a row
of the smaller one passes; the share of its precision, or the NDCG of a list. Then: the change of a
number, in units of the model's error; what its squared error grows by, in units of the mean squared
error; the relative change of a large number; and what a rank that shifts by a fifth of all takes
from the rank correlation. Few rows change much, those next to thresholds that were moved, so that a
sample may hold none of them. (Without it, 14 of 34 runs with rare positives stated a figure that
was up to 7 times too small. Of the largest answers of nine regressors of targets with heavy tails 1
to 4 % change, by 2 to 10 % on average; with 0.01 for a large number, and nothing for errors and
ranks, 5 of 40 such runs stated a figure that was up to 3 times too small.)"""

UNSEEN_SLACK = 1.5
"""The factor on bounds that are stated for rows made to resemble unseen ones. (Without it, `./dev
bench fidelity --part rare` found a mean change of a probability of 0.000053 on unseen rows that was
stated as 0.000051 at most.)"""

RARE_SHARE, FEW_ROWS = 0.1, 25
"""The largest share of rows with which the smaller of two classes is rare: then the rows with the
highest scores are a list that somebody works off. Of three and more classes, those with fewer rows
than the second number are too few to tell what they lose."""

LEAST_OF_CLASS = 10
"""The fewest rows of the smaller of two classes with which labels tell what it loses. Of fewer, the
model's own scores tell more."""

MOST_RARITY = 50.0
"""The most times that a row of a rare class weighs more in an edit."""

BUDGET_SHARE_TWO_CLASSES, BUDGET_SHARE = 0.5, 0.75
"""The share of a limit that a rehearsal may use. The real symbols may cost more than throwaway
ones, and with two classes every change moves the same score. (`./dev bench fidelity`, pendigits,
XGBoost: 0.6 % of labels by the rows that judge, 0.8 % of test rows.)"""

LEAF_SHARE, SPLIT_SHARE, LONE_SPLIT_SHARE = 0.35, 0.35, 0.6
"""The shares of a budget that a leaf seal beside a split seal, a split seal beside a leaf seal, and
a split seal alone may use: the latter carries most of the evidence and costs next to nothing. The
real symbols may cost more than the throwaway ones by which boundaries are chosen. (spambase, churn
and wine with LightGBM and XGBoost, leaves with 0.5 and 0.35: labels changed 0.34 and 0.23 %, drift
0.0035 and 0.0029; snapped thresholds leave 90 bits at least, and 101; input rounded to 64 levels
0 to 70, and 2 to 57.)"""

LARGE_TABLE_SHARE = 0.5
"""The part of that share which marks of large tables use: there many rows pay for few triggers.
(`./dev bench fidelity --part large`: 0.33 and 0.55 % of labels changed without it.)"""

SET_SHARE, HOPELESS_SHARE = 0.9, 0.75
"""The share of set symbols with which a mark is accepted, and the share below which a strength is
given up at once. Scores count also triggers that moved part of the way, and the stated evidence
accounts for symbols that are not set. (Asking for 0.97 made marks of a
third of the strength.)"""

TAKEN_SHARE = 0.3
"""The share of the requested lead with which a trigger counts as taken. Triggers with less are
replaced or left out, because the first attack would flip them."""

ARRIVED_SHARE = 0.5
"""The share of its lead that every trigger must have before an edit ends. (When any lead above 0
was enough, weak marks ended after six rounds with 75 of 88 symbols, now with 88.)"""

PLENTY_BITS, SAFE_BITS = 160.0, 68.0
"""Triggers that are not taken are left out if the others are worth the first number of bits; a mark
with symbols that are not set must prove the second. (pendigits, XGBoost, averaged half and half:
120 triggers that took 158 bits, 256 of which 228 took 124.)"""

LEAD_GROWTH_AIM, LEAST_LEAD_GROWTH, MOST_LEAD_GROWTH = 0.92, 1.15, 1.6
"""A mark that fits is tried once more with a longer lead, chosen to use the first number as a share
of what it may cost. The lead grows at least by the second factor, or not at all, and at most by the
third."""

SPARE_CANDIDATES = 3.0
"""Candidates to find per trigger: the next ones replace triggers that are not taken."""

EXPECTED_LEAD, SHORT_LEAD, LONGEST_SHORT_LEAD = 1.0, 0.2, 0.5
"""The lead at which candidates are compared, and the lead used instead for marks with leads up to
the third number and for large tables: with a short lead, the gap between the best labels matters
most. (`./dev bench scale`: the same strength changes six tenths of the labels; `./dev bench
fidelity`: of four models that were stopped early and could not be marked, all can.)"""

HELD_SHARE, MOST_HELD, MOST_HELD_OF_TWO = 0.3, 5_000, 20_000
"""The share of rows that judge and report where no validation rows are given, and the most of
each; of two classes more, because one of them may be rare: of 1 % in 5,000 rows there are 50. Where
one is rare, all rows judge or report that are not needed to hold the model. (`./dev bench fidelity
--part rare`, CatBoost on census with 103 positives: with 6,000 rows that judge the mark lost 2 to 4
% of the average precision and used a quarter of that limit, because 0.4 % of the rows move, 3 % of
the positives, and there were 15 of them.)"""

CERTAIN_WEIGHT, CERTAIN_ROWS_KEPT = 0.1, 4
"""Rows that weigh less than this in an edit are certain; one of so many stands for all of them.
(letter, XGBoost: 7.9 s of processor time where it was 14.3, with the same use of the budget.)"""

UNSEEN_ROWS, MOST_UNSEEN_ROWS = 2_000, 10_000
"""The fewest and the most surrogates of unseen rows: a share of 1 % has a standard error of 0.2 %
with the first number of them. Where a class is rare there are as many as rows that judge."""

SURROGATES, SURROGATE_WEIGHT = 6_000, 0.5
"""Smaller tables are filled up with mixtures to this number of rows; a mixture weighs
the second number times as much as a row. Few rows leave the model free between them, where mixed
triggers are."""

NEIGHBOUR_RANKS = (0, 8, 64)
"""Ranks of the neighbours with which rows are mixed to resemble unseen rows; 0 is the row itself.
On twelve models a mixture with the eighth neighbour was as far from the training rows as an unseen
row, but for avila, where hardly any mixture resembles a row."""
