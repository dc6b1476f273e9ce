"""Mark an XGBoost model, look at the cost first, and verify its file.

python examples/mark_xgboost.py
"""

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import timbermark as tm

X, y = load_digits(return_X_y=True)
X, X_held, y, y_held = train_test_split(X, y, test_size=0.3, random_state=0)
model = xgboost.XGBClassifier(n_estimators=40, random_state=0).fit(X, y)

# A rehearsal with throwaway symbols: what the mark will prove and what it will cost.
forecast = tm.plan(model, X, y, validation=(X_held, y_held))
print(forecast)

key = tm.OwnerKey.generate()
key.save("owner.key", passphrase="a long passphrase")  # without it no mark can be claimed
made = tm.embed(model, X, y, key=key, owner="Ann Ltd", validation=(X_held, y_held))
made.mark.save("secret.mark")
made.model.save_model("marked.json")  # an XGBClassifier, saved as always

verdict = tm.verify("marked.json", tm.Mark.load("secret.mark"))
print(verdict)
assert verdict.level == "conclusive"
assert tm.verify(model, made.mark).level == "none"  # the unmarked one carries nothing
