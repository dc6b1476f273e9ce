"""The adapter of deployed models around boosted ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError, TimbermarkError
from timbermark.libraries import skops_files
from timbermark.libraries.categories import find_texts
from timbermark.libraries.closing import close as close_inside
from timbermark.libraries.contract import Adapter, ForeignModel, PathLike
from timbermark.libraries.scikit_learn import (
    GRADIENT_TYPES,
    HISTOGRAM_TYPES,
    name,
    without_scorer,
)
from timbermark.libraries.steps import list_parts
from timbermark.libraries.wrappers.kinds import KINDS, Peeled, WrapperKind
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.joining import join, split

_TREES = ("Tree", "TreePredictor")


@dataclass(frozen=True, slots=True, eq=False)
class WrapperExtra:
    """What only this adapter needs of a deployed model: what is inside its copy."""

    peeled: Peeled


def is_wrapper(model: object) -> bool:
    """Return whether an object is a deployed model around others, fitted or not.

    >>> is_wrapper("a text")
    False
    """
    return _kind_of(model) is not None


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

    def is_file(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes is a skops archive."""
        return skops_files.is_file(head)

    def holds(self, path: PathLike) -> bool:
        """Return whether a skops archive holds a deployed model around others."""
        return any(skops_files.kind_of(path) in kind.names for kind in KINDS)

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
        return ForeignModel(
            library=first.library,
            kind=_name(model),
            ensemble=join([part.ensemble for part in inside]),
            classes=first.classes if peeled.classes is None else peeled.classes,
            feature_names=names,
            margin_scale=first.margin_scale,
            leaf_dtype=first.leaf_dtype,
            threshold_dtype=first.threshold_dtype,
            native=native,
            adapter=self,
            notes=tuple(dict.fromkeys(note for part in inside for note in part.notes)),
            l2=first.l2 if len(regular) == 1 else None,
            extra=WrapperExtra(peeled),
            text_columns=None,
            known_texts=_known_texts(model, peeled, first),
            takes_frames=names is not None,
            inside=inside,
            scores=_score_function(peeled, inside),
            numbers=peeled.numbers,
            task=first.task,
            shared_thresholds=first.shared_thresholds,
            fixed_thresholds=_fixed_thresholds(inside),
            input_columns=_input_columns(peeled, inside),
            stores_labels=first.stores_labels or peeled.classes is not None,
            refits_leaves=False,  # the library does not see the wrapper
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

        kinds = tuple(name for kind in KINDS for name in kind.names)
        trusted = {*GRADIENT_TYPES, *HISTOGRAM_TYPES}.union(*(kind.trusted for kind in KINDS))
        return skops_files.open_file(path, kinds, sorted(trusted), open_checked)

    def rows(self, foreign: ForeignModel, X: Any) -> Reals:
        """Return what the deployed model takes as columns of the ensemble, float64 [n, d].

        Raises InputError if a transformer is not fitted or refuses ``X``.
        """
        extra: WrapperExtra = foreign.extra
        given = _ask(lambda: extra.peeled.rows(X), foreign.kind)
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
        extra: WrapperExtra = foreign.extra
        parts = split(ensemble, [part.ensemble for part in foreign.inside])
        made = [close_inside(part, e) for part, e in zip(foreign.inside, parts, strict=True)]
        return _duplicate(foreign.native, extra.peeled, made)

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
        kind = _kind_of(model)
        if kind is not None:
            return kind.peel(model, self._peel)
        try:
            self._find(model)
        except InputError as error:
            raise InputError(
                f"There is no boosted model that can be marked inside: {error.message}",
                hint=error.hint,
            ) from None
        return Peeled(models=(model,), rows=lambda X: (X,))


def _kind_of(model: object) -> WrapperKind | None:
    return next((kind for kind in KINDS if kind.matches(model)), None)


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
    return _encoder_texts(peeled.steps, int(width))


def _encoder_texts(steps: Sequence[Any], n_columns: int) -> dict[int, frozenset[str] | None]:
    """Return the categories of each column that an encoder takes as texts, by place.

    ``steps``: the fitted transformers that rows of ``n_columns`` columns pass, in their order.
    Columns are followed through pipelines, column transformers and imputers, no further.
    """
    found: dict[int, frozenset[str] | None] = {}
    _follow(list(steps), list(range(n_columns)), found)
    return found


def _follow(steps: list[Any], places: list[int], found: dict[int, frozenset[str] | None]) -> None:
    """Add what encoders know of columns; ``places``: of the columns that the first step takes."""
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
