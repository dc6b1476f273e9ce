"""Claim a model in public, then prove to a judge that a suspect carries its mark.

python examples/claim_and_judge.py
"""

from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import timbermark as tm

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
model = tm.TimberClassifier(max_iter=40, random_state=0).fit(X[:1200], y[:1200])
key = tm.OwnerKey.generate()
made = tm.embed(model, X[:1200], y[:1200], key=key, owner="Ann Ltd")
made.model.save("marked.timber")

# Before the model leaves the house. The claim holds no secret: publish it. On the command line,
# `timbermark claim --tsa ADDRESS` also has it dated by a time-stamping authority.
claim = tm.claim("marked.timber", made.mark, key=key)
claim.save("model.claim")

# In a dispute. Which triggers are shown is drawn from the claim and the judge's name.
opening = tm.open_mark(made.mark, claim, judge="Court of A", share=0.5)
opening.save("mark.opening")

# The judge trusts neither side: everything is derived again from the files.
judgment = tm.judge(
    "mark.opening", claim="model.claim", suspect="marked.timber", judge="Court of A"
)
print(judgment)
judgment.save("pack.zip")  # to file; `timbermark judge pack.zip` checks it again, offline
assert judgment.level == "conclusive"
assert tm.judge("pack.zip").bits == judgment.bits
