"""A bank's model: text categories, missing values, class weights, early stopping, calibrated.

Churn and census as they are read from their files; four kinds of deployed models. Each is marked
with the defaults, pickled, loaded and verified with raw rows; figures are on test rows that nothing
else saw. ``--sets``, ``--models``, ``--seeds`` and ``--rows`` choose; one JSON line per run goes to
``--out``.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
import warnings

import numpy as np
import pandas as pd
from common import load_field, show
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import timbermark as tm
from timbermark import libraries

warnings.simplefilter("ignore")
KEY = tm.OwnerKey.generate()
ROUNDS, PATIENCE = 300, 15


def load(name, seed, most):
    """A frame of numbers and texts with missing values, and labels, in a random order."""
    rng = np.random.default_rng(seed)
    table = load_field(name)
    some = rng.permutation(len(table.rows))[:most] if name == "census" else slice(None)
    X = pd.DataFrame(table.rows, columns=table.names).iloc[some].replace("?", np.nan)
    y = np.array([label in ("True.", "50000+.") for label in table.target])[some].astype(int)
    for column in X:
        numbers = pd.to_numeric(X[column], errors="coerce")
        if numbers.notna().sum() == X[column].notna().sum():
            X[column] = numbers
    if name == "churn":
        for column in ("State", "Day Mins", "Eve Calls"):
            X.loc[rng.random(len(X)) < 0.05, column] = np.nan
    order = rng.permutation(len(X))
    return X.iloc[order].reset_index(drop=True), y[order]


def prepared(X, encoder):
    texts = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
    numbers = [c for c in X if c not in texts]
    filled = SimpleImputer(strategy="constant", fill_value="unknown")
    return ColumnTransformer(
        [("texts", make_pipeline(filled, encoder), texts), ("numbers", "passthrough", numbers)],
        sparse_threshold=0,
    )


def one_hot():
    return OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20)


def lightgbm(X, y, X_stop, y_stop, X_cal, y_cal):
    import lightgbm as lgb

    before = prepared(X, one_hot()).fit(X)
    model = lgb.LGBMClassifier(n_estimators=ROUNDS, class_weight="balanced", verbose=-1, n_jobs=2)
    stop = [(before.transform(X_stop), y_stop)]
    patience = lgb.early_stopping(PATIENCE, verbose=False)
    model.fit(before.transform(X), y, eval_set=stop, callbacks=[patience])
    frozen = FrozenEstimator(make_pipeline(before, model))
    return CalibratedClassifierCV(frozen, method="sigmoid").fit(X_cal, y_cal)


def xgboost(X, y, X_stop, y_stop, X_cal, y_cal):
    import xgboost as xgb

    before = prepared(X, one_hot()).fit(X)
    weight = (y == 0).sum() / (y == 1).sum()
    model = xgb.XGBClassifier(
        n_estimators=ROUNDS, scale_pos_weight=weight, early_stopping_rounds=PATIENCE, n_jobs=2
    )
    model.fit(before.transform(X), y, eval_set=[(before.transform(X_stop), y_stop)], verbose=False)
    frozen = FrozenEstimator(make_pipeline(before, model))
    # scikit-learn advises against isotonic calibration on fewer rows.
    method = "isotonic" if len(X_cal) >= 1000 else "sigmoid"
    return CalibratedClassifierCV(frozen, method=method).fit(X_cal, y_cal)


def histogram(X, y, X_stop, y_stop, X_cal, y_cal):
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = HistGradientBoostingClassifier(
        max_iter=ROUNDS, early_stopping=True, class_weight="balanced", random_state=0
    )
    pipeline = make_pipeline(prepared(X, encoder), model)
    X, y = pd.concat([X, X_stop, X_cal]), np.concatenate([y, y_stop, y_cal])
    return CalibratedClassifierCV(pipeline, cv=3).fit(X, y)


def catboost(X, y, X_stop, y_stop, X_cal, y_cal):
    from catboost import CatBoostClassifier

    texts = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
    filled = SimpleImputer(strategy="constant", fill_value="unknown").set_output(transform="pandas")
    before = ColumnTransformer(
        [("texts", filled, texts)], remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    before.fit(X)
    model = CatBoostClassifier(
        iterations=ROUNDS, auto_class_weights="Balanced", cat_features=texts, verbose=0,
        early_stopping_rounds=PATIENCE, allow_writing_files=False, thread_count=2,
    )  # fmt: skip
    model.fit(before.transform(X), y, eval_set=(before.transform(X_stop), y_stop))
    frozen = FrozenEstimator(make_pipeline(before, model))
    return CalibratedClassifierCV(frozen, method="sigmoid").fit(X_cal, y_cal)


MODELS = {
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "histogram": histogram,
    "catboost": catboost,
}


def run(name, kind, seed, most):
    X, y = load(name, seed, most)
    n = len(X)
    ends = [int(share * n) for share in (0.45, 0.55, 0.65)]
    parts = [
        part for a, b in zip([0, *ends], [*ends, n], strict=True) for part in (X.iloc[a:b], y[a:b])
    ]
    start = time.perf_counter()
    model = MODELS[kind](*parts[:6])
    trained = time.perf_counter() - start
    start = time.perf_counter()
    result = {"set": name, "model": kind, "seed": seed}
    try:
        made = tm.embed(model, parts[0], parts[1], key=KEY, owner="bank")
    except tm.errors.TimbermarkError as error:
        return {**result, "error": str(error)}
    took = time.perf_counter() - start
    again = pickle.loads(pickle.dumps(made.model))
    X_test, y_test = parts[6:]
    before, after = model.predict_proba(X_test), again.predict_proba(X_test)
    foreign = libraries.open(model)
    adapter = foreign.adapter
    same = (adapter.margins(model, X_test) == adapter.margins(again, X_test)).all(axis=1)
    return {
        **result,
        "bits": made.bits,
        "scores_bits": tm.verify(again, made.mark).bits,
        "labels_bits": tm.verify(again, made.mark, answers="labels").bits,
        "unmarked_bits": tm.verify(model, made.mark).bits,
        "changed": float((before.argmax(axis=1) != after.argmax(axis=1)).mean()),
        "drift": float(np.abs(before - after).max(axis=1).mean()),
        "auc_lost": float(roc_auc_score(y_test, before[:, 1]) - roc_auc_score(y_test, after[:, 1])),
        "mean_score": float(abs(after[:, 1].mean() / before[:, 1].mean() - 1)),
        "untouched": int(same.sum()),
        "untouched_equal": bool(np.array_equal(before[same], after[same])),
        "trained": trained,
        "took": took,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="churn,census")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=60_000, help="of census")
    parser.add_argument("--out", default=None)
    chosen = parser.parse_args()
    lines = []
    for name in chosen.sets.split(","):
        for kind in chosen.models.split(","):
            for seed in range(chosen.seeds):
                lines.append(run(name, kind, seed, chosen.rows))
                print(json.dumps(lines[-1]), flush=True)
                if chosen.out:
                    with open(chosen.out, "a") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    done = [line for line in lines if "error" not in line]
    shown = ("bits", "scores_bits", "unmarked_bits", "changed", "drift", "auc_lost", "mean_score")
    show(
        "a bank's model",
        ["set", "model", *shown],
        [[line["set"], line["model"], *(f"{line[s]:.4g}" for s in shown)] for line in done],
    )


if __name__ == "__main__":
    main()
