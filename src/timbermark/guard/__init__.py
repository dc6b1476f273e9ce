"""The guard: answers of a served model that a copy trained on them carries home.

`drawing` decides which answers are drawn and how, `ledger` keeps the drawn questions, `guarding`
is the estimator that serves, `evidence` makes marks of ledgers, `planning` says beforehand what a
guard costs.
"""
