"""Deployed models around small boosted ones: every kind of wrapper, texts and missing values."""

from functools import cache

import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder

from tests.marking.models import new_model

N = 300
WRAPPERS = (
    *("pipeline", "grid", "random", "calibrated", "calibrated inside", "temperature"),
    *("frozen", "frozen, shared", "labels"),
)


@cache
def table(n_classes=2, n=N):
    """Return a frame of numbers, texts and missing values, and labels from 0."""
    rng = np.random.default_rng(n_classes)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "town": rng.choice(["Bern", "Oslo", "Rome", "Cork"], n),
            "net income": rng.normal(size=n).round(3),
            "active": rng.random(n) < 0.5,
        }
    )
    score = frame["net income"] + (frame["town"] == "Rome") + frame["age"] / 40
    frame.loc[rng.random(n) < 0.1, "town"] = np.nan
    frame.loc[rng.random(n) < 0.1, "net income"] = np.nan
    cuts = np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1])
    return frame, np.digitize(score + rng.normal(size=n) * 0.2, cuts)


def transformer():
    texts = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="?"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    return ColumnTransformer(
        [("texts", texts, ["town"]), ("rest", SimpleImputer(), ["age", "net income", "active"])],
        remainder="passthrough",
    )


@cache
def fitted(wrapper, library="histogram", n_classes=2):
    """Return a fitted wrapper around a model of a library."""
    X, y = table(n_classes)
    plain = new_model(library, 8)
    pipeline = make_pipeline(transformer(), plain)
    if wrapper == "pipeline":
        return pipeline.fit(X, y)
    if wrapper == "grid":
        return GridSearchCV(pipeline, {}, cv=2).fit(X, y)
    if wrapper == "random":
        return RandomizedSearchCV(pipeline, {"columntransformer__n_jobs": [1]}, n_iter=1, cv=2).fit(
            X, y
        )
    if wrapper == "calibrated":
        return CalibratedClassifierCV(pipeline, cv=3).fit(X, y)
    if wrapper == "calibrated inside":
        inner = CalibratedClassifierCV(plain, cv=2, method="isotonic")
        return make_pipeline(transformer(), inner).fit(X, y)
    if wrapper == "labels":
        names = ["no", "yes"] if n_classes == 2 else list("abcdefgh"[:n_classes])
        return fitted("pipeline", library, n_classes), LabelEncoder().fit(names)
    if wrapper == "temperature":
        return CalibratedClassifierCV(pipeline, cv=2, method="temperature").fit(X, y)
    from sklearn.frozen import FrozenEstimator

    frozen = FrozenEstimator(fitted("pipeline", library, n_classes))
    if wrapper == "frozen":
        return CalibratedClassifierCV(frozen).fit(X, y)
    return CalibratedClassifierCV(frozen, ensemble=True, cv=3).fit(X, y)
