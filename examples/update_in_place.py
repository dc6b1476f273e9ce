"""Teach a fitted model new rows in place, make it forget some, and save what later updates need.

python examples/update_in_place.py
"""

from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import timbermark as tm

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
model = tm.TimberClassifier(max_iter=40, random_state=0).fit(X[:1000], y[:1000])
before = model.score(X[1400:], y[1400:])

model.update(X[1000:1400], y[1000:1400])  # trees learn in place; their number stays
after = model.score(X[1400:], y[1400:])
print(f"accuracy {before:.4f} → {after:.4f}")

# Rows 1000 to 1399 are those just learnt. Exactly forgotten, they leave no trace.
twin = tm.TimberClassifier(max_iter=40, random_state=0).fit(X[:1000], y[:1000])
model.forget(range(1300, 1400), mode="exact")
twin.update(X[1000:1300], y[1000:1300], mode="exact")
assert (model.predict_proba(X) == twin.predict_proba(X)).all()

model.save("model.timber")  # no trace of training rows
model.save_state("model.state")  # what further updates need: keep it to yourself
again = tm.load("model.timber")
again.load_state("model.state")
assert (again.predict(X) == model.predict(X)).all()
assert after >= before - 0.02
assert model.count_rows() == 1300
