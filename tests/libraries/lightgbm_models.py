"""LightGBM models of every kind that is supported, and ways to change an ensemble."""

import inspect

import numpy as np
import pytest

lgb = pytest.importorskip("lightgbm")

N = 240
QUIET = {"verbose": -1, "num_threads": 1, "seed": 1}
SMALL = QUIET | {"num_leaves": 7, "min_data_in_leaf": 5, "learning_rate": 0.3}
CATEGORIES = {"min_data_per_group": 3, "cat_smooth": 1.0, "max_cat_to_onehot": 2}


def table(rng, n=N, missing=0.0):
    """Column 1 has many zeros, column 3 is a category's number."""
    X = rng.normal(size=(n, 4))
    X[:, 1] *= rng.random(n) < 0.5
    X[:, 3] = rng.integers(0, 70, n)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def classes_of(X, n_classes):
    whole = np.nan_to_num(np.asarray(X, dtype=float))
    score = whole[:, 0] + np.where(whole[:, 1] == 0, 1.0, -0.5) + np.sin(whole[:, 3] * 3) * 2
    return np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


def classifier(n_classes=2, labels=None, missing=0.0, fit=None, n_estimators=6, **parameters):
    X = table(np.random.default_rng(0), missing=missing)
    y = classes_of(X, n_classes)
    if labels is not None:
        y = np.array(labels)[y]
    model = lgb.LGBMClassifier(n_estimators=n_estimators, **(SMALL | parameters))
    return model.fit(X, y, **(fit or {})), X


def booster(n_classes=2, missing=0.0, rounds=6, columns=None, **parameters):
    X = table(np.random.default_rng(0), missing=missing)
    y = classes_of(X, n_classes)
    options = {"categorical_feature": columns} if columns else {}
    data = lgb.Dataset(X, y, params=QUIET, **options)
    if n_classes > 2:
        parameters = {"objective": "multiclass", "num_class": n_classes} | parameters
    return lgb.train(SMALL | {"objective": "binary"} | parameters, data, rounds), X


def of_categories(n_classes, **parameters):
    fit = {"categorical_feature": [3]}
    return classifier(n_classes, missing=0.1, fit=fit, **(CATEGORIES | parameters))


def frame(n_classes=2):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = table(rng, missing=0.05)
    data = pd.DataFrame(X, columns=["a", "größe", "c=d", "place"])
    names = [f"town {i}" for i in range(70)]
    data["place"] = pd.Categorical.from_codes(np.nan_to_num(X[:, 3], nan=-1).astype(int), names)
    data["size"] = pd.Categorical(
        rng.choice(["S", "M", "L"], N), categories=["S", "M", "L"], ordered=True
    )
    data["flag"] = rng.random(N) < 0.5
    model = lgb.LGBMClassifier(n_estimators=6, **SMALL, **CATEGORIES)
    labels = np.array(["no", "yes", "maybe"])[classes_of(X, n_classes)]
    return model.fit(data, labels), data


def stopped_early():
    """The wrapper drops the trees after the best iteration itself, but keeps the number."""
    X = table(np.random.default_rng(0))
    y = classes_of(X, 3)
    # The first is the way from 4.7 on, the second the way before.
    model = lgb.LGBMClassifier(n_estimators=60, **SMALL)
    new = "eval_X" in inspect.signature(model.fit).parameters
    other = {"eval_X": X[160:], "eval_y": y[160:]} if new else {"eval_set": [(X[160:], y[160:])]}
    stop = [lgb.early_stopping(3, verbose=False)]
    model.fit(X[:160], y[:160], callbacks=stop, **other)
    assert 0 < model.best_iteration_ == model.booster_.current_iteration() < 60
    return model, X


def stopped_and_kept():
    X = table(np.random.default_rng(0))
    y = classes_of(X, 3)
    parameters = SMALL | {"objective": "multiclass", "num_class": 3}
    data = lgb.Dataset(X[:160], y[:160], params=QUIET)
    model = lgb.train(
        parameters,
        data,
        60,
        valid_sets=[data.create_valid(X[160:], y[160:])],
        callbacks=[lgb.early_stopping(3, verbose=False)],
        keep_training_booster=True,
    )
    assert 0 < model.best_iteration < model.current_iteration()
    return model, X


def best_by_hand():
    model, X = classifier()
    model.booster_.best_iteration = 4
    return model, X


def rare_class():
    X = table(np.random.default_rng(0))
    y = classes_of(X, 2)
    y[0] = 2  # too little of a class for a split: its trees are single leaves
    parameters = SMALL | {"min_sum_hessian_in_leaf": 1.0}
    return lgb.LGBMClassifier(n_estimators=4, **parameters).fit(X, y), X


def still_training():
    X = table(np.random.default_rng(0))
    data = lgb.Dataset(X, classes_of(X, 2), params=QUIET)
    model = lgb.Booster(SMALL | {"objective": "binary"}, data)
    for _ in range(4):
        model.update()
    return model, X


def continued():
    first, X = booster(3)
    y = classes_of(X, 3)
    return lgb.LGBMClassifier(n_estimators=3, **SMALL).fit(X, y, init_model=first), X


def changing_rate():
    rates = [lgb.reset_parameter(learning_rate=[0.5, 0.4, 0.3, 0.2, 0.1, 0.05])]
    return classifier(fit={"callbacks": rates})


def weighted():
    weight = np.random.default_rng(3).random(N)
    return classifier(3, fit={"sample_weight": weight}, subsample=0.6, subsample_freq=1)


RF = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}

MAKERS = {
    "two": lambda: classifier(),
    "two, labels": lambda: classifier(labels=["no", "yes"]),
    "two, nan missing": lambda: classifier(missing=0.2),
    "two, zero missing": lambda: classifier(missing=0.2, zero_as_missing=True),
    "two, none missing": lambda: classifier(missing=0.2, use_missing=False),
    "two, sigmoid": lambda: classifier(missing=0.1, sigmoid=0.7),
    "three": lambda: classifier(3, labels=[-5, 0, 1000]),
    "three, nan missing": lambda: classifier(3, missing=0.2),
    "three, zero missing": lambda: classifier(3, missing=0.2, zero_as_missing=True),
    "three, ova": lambda: classifier(3, missing=0.1, objective="multiclassova"),
    "three, ova, sigmoid": lambda: classifier(3, objective="ova", sigmoid=1.3),
    "two as many": lambda: booster(2, objective="multiclass", num_class=2),
    "two, categories": lambda: of_categories(2),
    "three, categories": lambda: of_categories(3),
    "ova, categories, zero": lambda: of_categories(3, objective="ova", zero_as_missing=True),
    "one-hot categories": lambda: of_categories(2, max_cat_to_onehot=100),
    "frame": frame,
    "frame, three": lambda: frame(3),
    "dart": lambda: classifier(boosting_type="dart", drop_rate=0.5, skip_drop=0.0),
    "dart, three": lambda: classifier(3, boosting_type="dart", drop_rate=0.5, skip_drop=0.0),
    "forest": lambda: classifier(missing=0.1, **RF),
    "forest, three": lambda: classifier(3, **RF),
    "goss": lambda: classifier(data_sample_strategy="goss", top_rate=0.3),
    "quantised": lambda: classifier(use_quantized_grad=True),
    "monotone": lambda: classifier(monotone_constraints=[1, 0, 0, -1]),
    "smooth": lambda: classifier(path_smooth=5.0, reg_lambda=1.0, extra_trees=True),
    "weighted": weighted,
    "unbalanced": lambda: classifier(is_unbalance=True),
    "changing rate": changing_rate,
    "regularized": lambda: classifier(reg_lambda=3.0, n_estimators=9),
    "regularized, three": lambda: classifier(3, reg_lambda=2.0),
    "regularized, both": lambda: classifier(3, reg_lambda=2.0, reg_alpha=0.3),
    "regularized, dart": lambda: classifier(reg_lambda=3.0, boosting_type="dart", drop_rate=0.5),
    "regularized, forest": lambda: classifier(
        reg_lambda=1.0, boosting_type="rf", bagging_freq=1, bagging_fraction=0.7, sigmoid=2.0),
    "least gain": lambda: classifier(min_split_gain=0.5, learning_rate=1.0),
    "stopped early": stopped_early,
    "stopped and kept": stopped_and_kept,
    "best by hand": best_by_hand,
    "single leaves": lambda: classifier(min_child_samples=N, min_data_in_leaf=N),
    "rare class": rare_class,
    "booster": lambda: booster(missing=0.1),
    "booster, categories": lambda: booster(3, columns=[3], **CATEGORIES),
    "booster, no start": lambda: booster(boost_from_average=False),
    "still training": still_training,
    "continued": continued,
}  # fmt: skip
