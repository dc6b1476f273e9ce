"""Attack your own marked model as a thief would, before you ship it.

python examples/attack_your_model.py
"""

from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import timbermark as tm

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
model = tm.TimberClassifier(max_iter=40, random_state=0).fit(X[:1100], y[:1100])
made = tm.embed(model, X[:1100], y[:1100], key=tm.OwnerKey.generate(), owner="Ann Ltd")

# The thief has the file and a few hundred labelled rows of their own.
found = tm.attack(
    made.model,
    made.mark,
    X[1100:],
    y[1100:],
    attacks=["round-answers:1", "keep-first:0.5", "refit:0.5"],
)
print(found)
for row in found.rows:
    print(f"{row.attack:15} {row.level:12} accuracy {row.quality:.3f}")
assert found.rows[0].level == "conclusive"
