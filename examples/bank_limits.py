"""Limits for a scorecard of rare defaults: look at the cost, tighten what counts, mark, compare.

python examples/bank_limits.py
"""

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, roc_auc_score

import timbermark as tm

# 2 % of the customers default. The champion is trained on 15,000 rows; 15,000 others are the
# validation rows, and the rest is next month.
X, y = make_classification(
    45_000, 12, n_informative=6, weights=[0.98], flip_y=0.004, random_state=0
)
train, held, later = (slice(start, start + 15_000) for start in (0, 15_000, 30_000))
champion = LGBMClassifier(n_estimators=80, random_state=0, verbose=-1).fit(X[train], y[train])

# Cases are worked off from the top, and provisions are sums of scores: both are held closer than
# by default. All other limits stay as they are.
limits = tm.Budget(top=0.02, score=0.01)
key = tm.OwnerKey.generate()
made = tm.embed(
    champion, X[train], y[train], key=key, owner="Ann Bank", budget=limits,
    validation=(X[held], y[held]), random_state=0,
)  # fmt: skip
print(made)
for code, used in sorted(made.use.items(), key=lambda item: -item[1]):
    print(f"{code:10} {used:.0%} of its limit")

# The marked model is a challenger: compare both on rows that neither of them has seen.
before, after = (m.predict_proba(X[later])[:, 1] for m in (champion, made.model))
n_top = len(before) // 50
kept = len(set(np.argsort(-before)[:n_top]) & set(np.argsort(-after)[:n_top])) / n_top
gini = [2 * roc_auc_score(y[later], p) - 1 for p in (before, after)]
precision = [average_precision_score(y[later], p) for p in (before, after)]
print(f"Gini {gini[0]:.4f} before, {gini[1]:.4f} after")
print(f"average precision {precision[0]:.4f} before, {precision[1]:.4f} after")
print(f"mean score changes by {after.mean() / before.mean() - 1:+.2%}; top 2 %: {kept:.1%} stay")

# The decision to deploy is an assertion in the job.
assert kept > 0.97
assert abs(after.mean() / before.mean() - 1) < 0.01
assert gini[0] - gini[1] < 0.004
assert tm.verify(made.model, made.mark).level == "conclusive"
