"""Mark a model as in the paper: it learns its triggers in place. Then replace that mark.

python examples/mark_in_place.py
"""

from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import timbermark as tm

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
model = tm.TimberClassifier(max_iter=100, random_state=0).fit(X[:1000], y[:1000])
key = tm.OwnerKey.generate()

# Of 1000 training rows a ratio of 0.1 makes 100 triggers. They come from rows that the model has
# not learnt. The keyed hash draws a bit for each: keep the model's label, or flip it.
made = tm.embed(
    model, X[:1000], y[:1000], key=key, owner="Ann Ltd", method="in-place", strategy="cluster",
    selection="distance", ratio=0.1, candidates=(X[1000:1400], y[1000:1400]),
)  # fmt: skip
print(made)
print(f"{made.n_set} of {made.mark.n_leaves} bits took")
assert tm.verify(made.model, made.mark).level == "conclusive"
assert tm.verify(model, made.mark).level == "none"

# What a service needs, and what only you need.
made.model.save("marked.timber")
made.model.save_state("marked.state")
made.mark.save("secret.mark")

# A new key: the model forgets the old triggers, which gives the unmarked model, and learns others.
again = tm.load("marked.timber").load_state("marked.state")
new = tm.rotate(
    again, tm.Mark.load("secret.mark"), X[:1000], y[:1000], key=tm.OwnerKey.generate(),
    candidates=(X[1000:1400], y[1000:1400]),
)  # fmt: skip
assert new.mark.model_digest == made.mark.model_digest
assert tm.verify(new.model, new.mark).level == "conclusive"
assert tm.verify(new.model, made.mark).level == "none"
