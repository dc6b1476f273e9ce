"""The adapter of deployed models around boosted ones, and the kinds of them.

What is deployed is marked in the rows that *it* takes; what is edited are the boosted models
inside. Nothing is fitted again: a copy of the whole gets other boosted models in their places. Each
kind says how rows get in and how answers come out:

| kind | what is deployed |
|---|---|
| pipelines | transformers, `ColumnTransformer` among them, before the model |
| searches | searches for parameters, which predict with the best estimator that they found |
| frozen | estimators that are kept from being fitted again |
| calibration | one boosted model or several, and what makes probabilities of them |
| label maps | ``(model, encoder)``: the model answers with the labels of a fitted LabelEncoder |
| targets | regressors whose targets are transformed: numbers are those after transforming back |

Each kind peels one layer off, and is given the function that peels the next.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError, TimbermarkError
from timbermark.libraries import skops_files
from timbermark.libraries.closing import close as close_inside
from timbermark.libraries.contract import Adapter, ForeignModel, PathLike, find_texts, unfitted
from timbermark.libraries.scikit_learn import is_kind, name, without_scorer
from timbermark.libraries.skops_files import list_parts
from timbermark.trees.construction import join, split
from timbermark.trees.ensemble import Ensemble

Scores: TypeAlias = Callable[[Sequence[ForeignModel], Sequence[Reals]], Reals]


@dataclass(frozen=True, slots=True, eq=False)
class Peeled:
    """The boosted models in a deployed one, the way in and the way out.

    ``scores`` makes answers [n, classes] of the opened models and their margins, in their order;
    None where they are those of the only model inside. ``numbers`` makes the numbers that the
    deployed model gives of those of the only model inside; None where they are the same.
    ``steps``: the fitted transformers that rows pass on their way to the first model, in order.
    ``frozen``: wrappers that a copy must be made of by hand.
    """

    models: tuple[Any, ...]
    rows: Callable[[Any], tuple[Any, ...]]  # what predict takes -> what each model takes
    scores: Scores | None = None
    numbers: Callable[[Reals], Reals] | None = None
    classes: AnyArray | None = None  # None: those of the only model inside
    steps: tuple[Any, ...] = ()
    frozen: tuple[Any, ...] = ()


Peel: TypeAlias = Callable[[Any], Peeled]


def _peel_pipelines(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the last step; rows pass through the others first."""
    if not model.steps or model.steps[-1][1] in (None, "passthrough"):
        raise InputError("The Pipeline has no model at its end.", hint="give a whole pipeline.")
    inside = peel(model.steps[-1][1])
    before = model[:-1]
    if all(step in (None, "passthrough") for _, step in before.steps):
        return inside
    steps = tuple(step for _, step in before.steps)
    return replace(
        inside,
        rows=lambda X: inside.rows(before.transform(X)),
        steps=(*steps, *inside.steps),
    )


_SEARCHES = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")


def _peel_searches(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the best estimator."""
    best = getattr(model, "best_estimator_", None)
    if best is None:
        if not model.refit:
            raise InputError(
                f"The {type(model).__name__} keeps no model (refit=False).",
                hint="search with refit=True, or give the model that you deploy.",
            )
        raise unfitted(model)
    return peel(best)


def _peel_frozen(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the frozen estimator."""
    inside = peel(model.estimator)
    return replace(inside, frozen=(*inside.frozen, model))


def _peel_calibration(model: Any, peel: Peel) -> Peeled:
    """Return the models inside, and the mean of what calibration makes of each."""
    fitted = getattr(model, "calibrated_classifiers_", None)
    if not fitted:
        raise unfitted(model)
    parts = [peel(one.estimator) for one in fitted]
    if any(len(part.models) != 1 for part in parts):
        raise InputError(
            "The CalibratedClassifierCV is around another one with several models.",
            hint="calibrate once.",
        )
    # A frozen estimator is shared by all calibrators.
    numbers = {id(part.models[0]): number for number, part in reversed(list(enumerate(parts)))}
    distinct = [parts[number] for number in sorted(numbers.values())]
    place = {id(part.models[0]): number for number, part in enumerate(distinct)}
    places = [place[id(part.models[0])] for part in parts]

    def rows(X: Any) -> tuple[Any, ...]:
        return tuple(given for part in distinct for given in part.rows(X))

    def scores(models: Sequence[ForeignModel], margins: Sequence[Reals]) -> Reals:
        total: Any = 0.0
        for one, part, number in zip(fitted, parts, places, strict=True):
            total = total + _calibrate(one, part, models[number], margins[number])
        return np.asarray(total / len(fitted))

    frozen = {id(each): each for part in parts for each in part.frozen}
    return Peeled(
        models=tuple(part.models[0] for part in distinct),
        rows=rows,
        scores=scores,
        classes=np.asarray(model.classes_),
        steps=parts[0].steps,
        frozen=tuple(frozen.values()),
    )


def _calibrate(one: Any, part: Peeled, model: ForeignModel, margins: Reals) -> Reals:
    """Return the probabilities of one calibrated model, whose estimator gives the margins."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    if not len(margins):  # isotonic regression refuses to be asked nothing
        return np.zeros((0, len(one.estimator.classes_)))

    class Echo(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """Answers with what it is given."""

    def respond(self: Any, X: Any) -> Any:
        return X

    if hasattr(one.estimator, "decision_function"):
        method, values = "decision_function", margins if margins.shape[1] > 1 else margins[:, 0]
    else:
        method, scores = "predict_proba", part.scores
        values = model.confidence(margins) if scores is None else scores([model], [margins])
    respond.__name__ = method  # by which scikit-learn tells margins from probabilities
    setattr(Echo, method, respond)
    echo = Echo()
    echo.classes_ = one.estimator.classes_
    calibrated = copy.copy(one)
    calibrated.estimator = echo
    return np.asarray(calibrated.predict_proba(values), dtype=np.float64)


def _peel_label_maps(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the model, with the labels of the encoder."""
    inner, encoder = model
    if getattr(encoder, "classes_", None) is None:
        raise unfitted(encoder)
    inside = peel(inner)
    numbers = np.asarray(getattr(inner, "classes_", np.arange(len(encoder.classes_))))
    try:
        labels = np.asarray(encoder.inverse_transform(numbers))
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(
            f"The {type(encoder).__name__} does not know the model's classes ({error}).",
            hint="give the encoder that made the labels which the model was trained on.",
        ) from None
    return replace(inside, classes=labels)


def _peel_targets(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the regressor, and the inverse transformation of its numbers."""
    inner, transformer = (getattr(model, name, None) for name in ("regressor_", "transformer_"))
    if inner is None or transformer is None:
        raise unfitted(model)
    inside = peel(inner)
    before = inside.numbers

    def transform_back(given: Reals) -> Reals:
        # Numbers beyond what can be transformed back are not finite, which the caller sees.
        with np.errstate(all="ignore"):
            taken = given if before is None else before(given)
            made = transformer.inverse_transform(taken.reshape(-1, 1))
        return np.asarray(made, dtype=np.float64)

    def numbers(given: Reals) -> Reals:
        return transform_back(given).reshape(given.shape)

    try:
        width = transform_back(np.array([[0.5], [1.0]])).reshape(2, -1).shape
    except Exception as error:
        raise InputError(
            f"The {type(model).__name__} does not transform numbers back ({error}).",
            hint="give an inverse_func or a transformer that takes a column of numbers.",
        ) from error
    if width != (2, 1):
        raise InputError(
            f"The {type(model).__name__} gives {width[-1]} numbers for each row.",
            hint="mark a model that gives one; train one for each target.",
        )
    return replace(inside, numbers=numbers)


KINDS: dict[str, Callable[[Any, Peel], Peeled]] = {
    "Pipeline": _peel_pipelines,
    **dict.fromkeys(_SEARCHES, _peel_searches),
    "FrozenEstimator": _peel_frozen,
    "CalibratedClassifierCV": _peel_calibration,
    "TransformedTargetRegressor": _peel_targets,
}
"""How to get at what is inside a fitted wrapper, by the name of its type.

Each function is given the wrapper and the function that does so for what is inside it, and raises
InputError if the wrapper is not fitted or not supported. Pairs have `_peel_label_maps`.
"""
_TREES = ("Tree", "TreePredictor")


def is_wrapper(model: object) -> bool:
    """Return whether an object is a deployed model around others, fitted or not.

    >>> is_wrapper("a text")
    False
    """
    return _find_peel(model) is not None


def asked_model(model: Any) -> Any:
    """Return the part of a deployed model whose ``predict_proba`` is asked.

    >>> asked_model(("model", "encoder"))
    'model'
    """
    return model[0] if isinstance(model, tuple) else model


class WrapperAdapter:
    """The `timbermark.libraries.Adapter` of deployed models; ``find`` gives those of the inside."""

    name = name

    def __init__(self, find: Callable[[object], Adapter]) -> None:
        self._find = find

    def is_model(self, model: object) -> bool:
        """Return whether an object is a deployed model around others."""
        return is_wrapper(model)

    def open(self, model: Any) -> ForeignModel:
        """Return the boosted models inside as one ensemble, with a copy of the whole.

        Raises InputError if the wrapper or what is inside is not fitted or not supported.
        """
        outside = self._peel(model)
        inside = tuple(self._find(one).open(one) for one in outside.models)
        natives = [part.native for part in inside]
        native = _duplicate(model, outside, natives)
        peeled = self._peel(native)
        first = inside[0]
        if first.task != "classification" and peeled.classes is not None:
            raise InputError(
                f"The {first.kind} answers with numbers, which have no labels.",
                hint="give the model without an encoder.",
            )
        if first.task == "classification" and peeled.numbers is not None:
            raise InputError(
                f"The {first.kind} answers with labels, which cannot be transformed as numbers.",
                hint="give the classifier itself.",
            )
        names = _feature_names(model)
        regular = {part.l2 for part in inside}
        return replace(
            first,
            kind=_name(model),
            ensemble=join([part.ensemble for part in inside]),
            classes=first.classes if peeled.classes is None else peeled.classes,
            feature_names=names,
            native=native,
            adapter=self,
            notes=tuple(dict.fromkeys(note for part in inside for note in part.notes)),
            l2=first.l2 if len(regular) == 1 else None,
            extra=peeled,
            text_columns=None,
            known_texts=_known_texts(model, peeled, first),
            takes_frames=names is not None,
            inside=inside,
            scores=_score_function(peeled, inside),
            numbers=peeled.numbers,
            fixed_thresholds=_fixed_thresholds(inside),
            input_columns=_input_columns(peeled, inside),
            stores_labels=first.stores_labels or peeled.classes is not None,
        )

    def open_file(self, path: PathLike) -> ForeignModel:
        """Return the deployed model in a ``.skops`` file around models of scikit-learn.

        Types are checked before anything is built, and trees node by node before they predict.

        Raises FileFormatError if the file is damaged, holds other types or trees that are not part
        of its boosted models; MissingLibraryError without skops; OSError if it cannot be opened.
        """

        def open_checked(model: Any) -> ForeignModel:
            models = self._peel(model).models
            opened = [self._find(one).open(one) for one in models]
            # Trees that nobody has checked could read memory that is not theirs.
            n_trees = sum(type(part).__name__ in _TREES for part in list_parts(model))
            if sum(part.ensemble.n_trees for part in opened) != n_trees:
                raise InputError("it holds trees outside its boosted model")
            return self.open(model)

        return skops_files.open_file(path, KINDS, open_checked)

    def rows(self, foreign: ForeignModel, X: Any) -> Reals:
        """Return what the deployed model takes as columns of the ensemble, float64 [n, d].

        Raises InputError if a transformer is not fitted or refuses ``X``.
        """
        peeled: Peeled = foreign.extra
        given = _ask(lambda: peeled.rows(X), foreign.kind)
        found = [part.rows(taken) for part, taken in zip(foreign.inside, given, strict=True)]
        return found[0] if len(found) == 1 else np.hstack(found)

    def native_rows(self, foreign: ForeignModel, rows: Reals) -> NoReturn:
        """Raise InputError: transformers cannot be undone."""
        raise InputError(
            f"The rows that a {foreign.kind} takes do not follow from columns of its trees.",
            hint="give rows as its predict takes them.",
        )

    def margins(self, model: Any, X: Any) -> Reals:
        """Return the raw scores of the boosted models inside, side by side, float64 [n, outputs].

        Raises InputError if a transformer refuses ``X``.
        """
        peeled = self._peel(model)
        given = _ask(lambda: peeled.rows(X), _name(model))
        return np.hstack(
            [
                self._find(one).margins(one, taken)
                for one, taken in zip(peeled.models, given, strict=True)
            ]
        )

    def close(self, foreign: ForeignModel, ensemble: Ensemble) -> Any:
        """Return a copy of the deployed model around boosted models with other trees."""
        parts = split(ensemble, [part.ensemble for part in foreign.inside])
        made = [close_inside(part, e) for part, e in zip(foreign.inside, parts, strict=True)]
        return _duplicate(foreign.native, foreign.extra, made)

    def save(self, model: Any, path: PathLike) -> None:
        """Write a deployed model around models of scikit-learn to a ``.skops`` file.

        Raises InputError for other models inside, if the name does not end in .skops, or if a part
        of it cannot be written; MissingLibraryError without skops.
        """
        self.check_file(model)
        peeled = self._peel(model)
        plain = _duplicate(model, peeled, [without_scorer(one) for one in peeled.models])
        skops_files.save(plain, path, _name(model))

    def check_file(self, model: Any) -> None:
        """Raise InputError unless a deployed model has a file that can be read safely."""
        others = {self._find(one).name for one in self._peel(model).models} - {self.name}
        if others or isinstance(model, tuple):
            raise InputError(
                f"A {_name(model)} around a model of {', '.join(sorted(others)) or 'a pair'} has "
                "no file that can be read safely.",
                hint="pickle what embed gives back yourself, from Python.",
            )

    def _peel(self, model: Any) -> Peeled:
        peel = _find_peel(model)
        if peel is not None:
            return peel(model, self._peel)
        try:
            self._find(model)
        except InputError as error:
            raise InputError(
                f"There is no boosted model that can be marked inside: {error.message}",
                hint=error.hint,
            ) from None
        return Peeled(models=(model,), rows=lambda X: (X,))


def _find_peel(model: object) -> Callable[[Any, Peel], Peeled] | None:
    if isinstance(model, tuple):  # an encoder is whatever maps numbers back to labels
        pair = len(model) == 2 and hasattr(model[1], "inverse_transform")
        return _peel_label_maps if pair else None
    return next((peel for name, peel in KINDS.items() if is_kind(model, name)), None)


def _name(model: Any) -> str:
    return type(asked_model(model)).__name__


def _score_function(
    peeled: Peeled, inside: tuple[ForeignModel, ...]
) -> Callable[[Reals], Reals] | None:
    if peeled.scores is None:
        return inside[0].scores
    make_scores = peeled.scores
    ends = np.cumsum([part.ensemble.n_outputs for part in inside])[:-1]

    def scores(margins: Reals) -> Reals:
        parts = np.split(np.asarray(margins, np.float64), ends, axis=1)
        return make_scores(inside, parts)

    return scores


def _fixed_thresholds(
    inside: tuple[ForeignModel, ...],
) -> dict[int, frozenset[float] | None]:
    """Return the thresholds that cannot move, by the columns of the joined ensemble."""
    first = np.cumsum([0, *(part.ensemble.n_features for part in inside)]).tolist()
    return {
        start + column: fixed
        for part, start in zip(inside, first, strict=False)
        for column, fixed in part.fixed_thresholds.items()
    }


def _input_columns(peeled: Peeled, inside: tuple[ForeignModel, ...]) -> AnyArray | None:
    known = [part.input_columns for part in inside if part.input_columns is not None]
    return None if peeled.steps or len(known) < len(inside) else np.concatenate(known)


def _duplicate(model: Any, peeled: Peeled, models: list[Any]) -> Any:
    """Return a copy of a deployed model with other boosted models in their places."""
    memo: dict[int, Any] = {id(old): new for old, new in zip(peeled.models, models, strict=True)}
    try:
        for frozen in peeled.frozen:
            # It hands out the methods of what it holds, also that of being copied.
            plain = object.__new__(type(frozen))
            memo[id(frozen)] = plain
            plain.__dict__.update(copy.deepcopy(vars(frozen), memo))
        return copy.deepcopy(model, memo)
    except TimbermarkError:
        raise
    except Exception as error:
        raise InputError(
            f"The {_name(model)} cannot be copied ({type(error).__name__}: {error}).",
            hint="look for steps that hold open files, locks or connections.",
        ) from error


def _feature_names(model: Any) -> tuple[str, ...] | None:
    names: AnyArray | None = getattr(asked_model(model), "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)


def _known_texts(
    model: Any, peeled: Peeled, first: ForeignModel
) -> Mapping[int, frozenset[str] | None]:
    """Return what is known of columns of texts: by encoders, or by the model that rows go to."""
    if not peeled.steps:
        return first.known_texts
    names = _feature_names(model)
    width = getattr(asked_model(model), "n_features_in_", 0) if names is None else len(names)
    found: dict[int, frozenset[str] | None] = {}
    _follow(list(peeled.steps), list(range(int(width))), found)
    return found


def _follow(steps: list[Any], places: list[int], found: dict[int, frozenset[str] | None]) -> None:
    """Add the categories of each column that an encoder takes as texts.

    ``places``: of the columns that the first of the fitted steps takes. They are followed through
    pipelines, column transformers and imputers, no further.
    """
    while steps:
        step = steps.pop(0)
        if step is None or isinstance(step, str):
            if step == "drop":
                return
        elif hasattr(step, "steps"):
            steps = [inner for _, inner in step.steps] + steps
        elif hasattr(step, "transformers_"):
            for _, inner, columns in step.transformers_:
                chosen = _choose(step, columns, len(places))
                _follow([inner], [places[place] for place in chosen], found)
            return
        elif _fits(getattr(step, "categories_", None), places):
            for place, texts in find_texts(
                dict(zip(places, step.categories_, strict=True))
            ).items():
                found[place] = (found.get(place) or frozenset()) | (texts or frozenset())
            return
        elif not _fits(getattr(step, "statistics_", None), places) or step.add_indicator:
            return


def _fits(values: Any, places: list[int]) -> bool:
    return isinstance(values, list | np.ndarray) and len(values) == len(places)


def _choose(transformer: Any, columns: Any, width: int) -> list[int]:
    """Return which columns of a table a part of a column transformer takes, none if unclear."""
    names = list(getattr(transformer, "feature_names_in_", ()))
    if isinstance(columns, str):
        columns = [columns]
    elif isinstance(columns, int | np.integer):
        columns = [int(columns)]
    elif isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):
            return []
        columns = list(range(width))[columns]
    chosen = np.asarray(list(columns), dtype=object)
    if all(isinstance(column, bool | np.bool_) for column in chosen):
        return np.flatnonzero(chosen.astype(bool)).tolist() if len(chosen) == width else []
    found = [
        names.index(column) if isinstance(column, str) and column in names else column
        for column in chosen.tolist()
    ]
    return found if all(isinstance(c, int) and -width <= c < width for c in found) else []


def _ask(question: Callable[[], Any], kind: str) -> Any:
    """Return what transformers make of rows, or raise their error as ours."""
    from sklearn.exceptions import NotFittedError

    try:
        return question()
    except TimbermarkError:
        raise
    except NotFittedError as error:
        raise InputError(
            f"A step of the {kind} is not fitted ({_first_line(error)}).",
            hint="fit the whole of it, and give that.",
        ) from error
    except Exception as error:
        raise InputError(
            f"The {kind} does not take these rows ({_first_line(error)}).",
            hint="give rows as its predict takes them; leave out those with categories that it "
            "has never seen, or let its encoder ignore them; digits that are texts stay so in "
            "Parquet, not in CSV.",
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(".")
