"""A second opinion: models that the judge trains, and what the same triggers prove about them.

A mark must not accuse a model that has nothing to do with it. The verdict says so for any suspect;
these models show it for this mark, on rows that the judge trusts.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from timbermark.boosting.progress import step_bar
from timbermark.ownership.mark import Mark
from timbermark.verification.answers import match_labels
from timbermark.verification.inquiry import Facts
from timbermark.verification.refusals import refusal
from timbermark.verification.suspects import Model
from timbermark.verification.transcript import Context
from timbermark.verification.verifying import verify

MOST_ROWS = 20_000
"""More rows make the models better, not the opinion."""
_FEWEST_ROWS = 20


def train_references(
    X: Any, y: Any, mark: Mark, *, random_state: int = 0, progress: bool = False
) -> list[tuple[str, float, int, int]]:
    """Return kinds of models, trained on rows, and what their answers to a mark prove.

    Each is given with the bits of evidence, the matches and the number of triggers.

    ``X`` [n, d] has the mark's columns in the mark's order, ``y`` [n] the mark's classes, or the
    numbers that suspects answer with.
    ``progress`` shows steps on a terminal.

    Raises InputError if the rows do not fit the mark.

    >>> from timbermark.ownership import OwnerKey
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=X[:64] + 0.1, alphabets=[[0, 1]] * 64, reference=np.full((64, 2), 0.5),
    ... )
    >>> max(bits for _, bits, *_ in train_references(X, X[:, 0] > 0, mark)) < 20
    True
    """
    rows, labels = _check_rows(X, y, mark)
    if len(rows) > MOST_ROWS:
        kept = np.random.default_rng(random_state).permutation(len(rows))[:MOST_ROWS]
        rows, labels = rows[kept], labels[kept]
    found = []
    # Of models that did not converge: they are innocent all the same.
    with step_bar(progress) as say, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, model in _list_models(rows, random_state, gives_numbers=not mark.classes):
            say(f"second opinion: {kind}")
            model.fit(rows, labels)
            verdict = verify(_answers(model, mark), mark)
            found.append((kind, verdict.bits, verdict.matched, verdict.trials))
    return found


def _answers(model: Any, mark: Mark) -> Any:
    """Return a suspect: scores in the order of the mark's classes, or numbers."""
    facts = Facts(context=Context("reference model", "object"))
    if not mark.classes:
        return Model(facts=facts, functions={"either": model.predict})
    present = np.asarray(model.classes_)

    def scores(X: Any) -> Any:
        placed = np.zeros((len(X), len(mark.classes)))
        placed[:, present] = model.predict_proba(X)
        return placed

    return Model(facts=facts, functions={"either": scores})


def _check_rows(X: Any, y: Any, mark: Mark) -> tuple[Any, Any]:
    rows = np.asarray(X, dtype=object if mark.has_texts else None)
    if rows.ndim != 2 or rows.shape[1] != mark.n_features or len(rows) < 2:
        raise refusal("opinion.shape", shape=rows.shape, features=mark.n_features)
    if not mark.has_texts:
        try:
            rows = rows.astype(np.float64)
        except (TypeError, ValueError):
            raise refusal("opinion.texts") from None
    answers = np.asarray(y).tolist()
    if len(answers) != len(rows):
        raise refusal("opinion.labels", rows=len(rows), labels=len(answers))
    if not mark.classes:
        values = np.array([_number(answer) for answer in answers])
        known = np.isfinite(values)
        _check_count(int(known.sum()))
        return rows[known], values[known]
    numbers = match_labels(answers, mark.classes)
    known = numbers >= 0
    if len(np.unique(numbers[known])) < 2:
        raise refusal("opinion.classes", classes=mark.classes)
    _check_count(int(known.sum()))
    return rows[known], numbers[known]


def _number(answer: Any) -> float:
    try:
        return float(answer)
    except (TypeError, ValueError):
        return float("nan")


def _check_count(n: int) -> None:
    if n < _FEWEST_ROWS:
        raise refusal("opinion.few", rows=n, fewest=_FEWEST_ROWS)


def _list_models(rows: Any, seed: int, gives_numbers: bool) -> list[tuple[str, Any]]:
    from sklearn import ensemble, linear_model, neighbors
    from sklearn.preprocessing import StandardScaler

    kind = "Regressor" if gives_numbers else "Classifier"
    line, linear = "logistic regression", linear_model.LogisticRegression(max_iter=200)
    if gives_numbers:
        line, linear = "linear regression", linear_model.Ridge()
    boosted, forest, extra = (
        getattr(ensemble, name + kind)(random_state=seed)
        for name in ("HistGradientBoosting", "RandomForest", "ExtraTrees")
    )
    near = getattr(neighbors, "KNeighbors" + kind)()
    return [
        ("gradient boosting", _prepared(rows, boosted)),
        ("random forest", _filled(rows, forest)),
        ("extra trees", _filled(rows, extra)),
        (line, _filled(rows, StandardScaler(), linear)),
        ("nearest neighbours", _filled(rows, StandardScaler(), near)),
    ]


def _prepared(rows: Any, *steps: Any) -> Any:
    """Return a pipeline that encodes columns of texts before the given steps."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    texts = [
        place
        for place in range(rows.shape[1])
        if any(isinstance(value, str) for value in rows[:, place])
    ]
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1
    )
    first = make_column_transformer((encoder, texts), remainder="passthrough")
    return make_pipeline(*((first,) if texts else ()), *steps)


def _filled(rows: Any, *steps: Any) -> Any:
    """Return a pipeline that fills in missing values before the given steps."""
    from sklearn.impute import SimpleImputer

    return _prepared(rows, SimpleImputer(keep_empty_features=True), *steps)
