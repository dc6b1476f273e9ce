"""Marking: a model and rows of its kind give the marked model, the secret mark and what it cost.

The road: `preparing` (rows in the roles they play), `boundaries` and `splits` (triggers of the
split seal), `choosing` and `rehearsing` (those of the leaf seal, and how strong), `sealing`
(symbols that nobody can choose, and both seals), `measuring` and `cost` (what it changed, judged by
the `budget`). `embedding` has `embed`, which walks all of it, and `plan`, which does so with a
throwaway key and gives no model.
"""
