"""Marking: a model and rows of its kind give the marked model, the secret mark and what it cost.

Five steps, each a function with a frozen result: `preparing` (rows in the roles they play),
`choosing` (triggers), `setting_symbols` (the edit), `costs` (what it changed), `embedding` (all
together, with symbols that nobody can choose). `planning` stops before the symbols are drawn.
"""
