"""The guard: answers of a served model that a copy trained on them carries home.

`drawing` decides which answers are drawn and how, `ledger` keeps the drawn questions, `guarding`
is the estimator that serves and says beforehand what it costs. `drawing` also makes marks of
ledgers.
"""
