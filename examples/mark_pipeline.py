"""Mark a deployed pipeline with text categories and missing values, without its labels.

The mark lives in the rows that the pipeline takes, so what is stolen can be verified as it is.

    python examples/mark_pipeline.py
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import timbermark as tm

rng = np.random.default_rng(0)
n = 4000
rows = pd.DataFrame(
    {
        "income": rng.lognormal(10, 0.5, n).round(),
        "age": rng.integers(18, 90, n).astype(float),
        "debt": rng.lognormal(8, 1.0, n).round(),
        "years": rng.integers(0, 40, n).astype(float),
        "region": rng.choice(["north", "south", "east", "west"], n),
        "product": rng.choice(["loan", "card", "mortgage"], n),
    }
)
risk = rows["debt"] / rows["income"] * 8 - rows["years"] / 20 + (rows["region"] == "north")
defaulted = (risk + rng.normal(0, 0.5, n) > 1.5).map({True: "yes", False: "no"})
rows.loc[rng.random(n) < 0.1, "income"] = np.nan

texts = make_column_transformer((OrdinalEncoder(), ["region", "product"]), remainder="passthrough")
pipeline = make_pipeline(texts, HistGradientBoostingClassifier(max_iter=60, random_state=0))
pipeline.fit(rows, defaulted)

budget = tm.Budget(changed=0.01)  # at most 1 % of answers may change
made = tm.embed(pipeline, rows, key=tm.OwnerKey.generate(), owner="Ann Bank", budget=budget)
print(made)
print(pd.DataFrame(made.mark.rows()[:3], columns=made.mark.feature_names))  # triggers are secret

verdict = tm.verify(made.model, made.mark)  # a Pipeline again
print(verdict)
assert verdict.level != "none"
assert tm.verify(pipeline, made.mark).level == "none"
