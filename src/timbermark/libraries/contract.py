"""The contract between timbermark and the libraries: a model that was opened, and its adapter.

An adapter is a module with the functions of `Adapter`. It opens a model as a `ForeignModel` and
closes it around other leaf values and thresholds. Nothing else needs to know which library it is
for: what differs between libraries stands in the fields of the `ForeignModel`.

Tables whose categories are texts become frames with the model's categories, as libraries want.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble, FloatType

PathLike: TypeAlias = str | os.PathLike[str]
Task: TypeAlias = Literal["classification", "regression", "ranking"]


@dataclass(frozen=True, slots=True, eq=False)
class ForeignModel:
    """A model of another library as neutral trees, with all that it takes to go back.

    ``task``: whether it answers with labels, with numbers that mean something by themselves, or
    with numbers that only rank. ``margin_scale``: margins times this become probabilities or
    numbers by the ensemble's objective. It is 1 but for LightGBM's ``sigmoid`` and its random
    forests, whose answers come from means.
    ``l2`` is None where the file does not hold both hessians and gains, so that nobody can check
    one against the other.

    ``threshold_dtype``: round thresholds to this type before `close`. ``shared_thresholds``: the
    library keeps one list of thresholds for all trees, so that splits of one column with the same
    threshold move together or not at all. ``fixed_thresholds``: columns of the ensemble whose
    thresholds cannot move, with these thresholds, None for all of them. See `movable`.

    ``input_columns`` [d]: which column of what ``predict`` takes each column of the ensemble is,
    number for number; -1 where it is made of others, or holds codes of categories. None where
    transformers come first and only asking tells.

    ``known_texts``: of columns that take texts, by place, the texts that are categories, None where
    every text is one; columns whose categories the model does not keep are left out.

    A deployed model around boosted ones (see `timbermark.libraries.wrappers`) has these ``inside``;
    its ensemble joins theirs, and ``rows`` sends what it takes through its own transformers.
    ``scores`` makes its answers of their margins where they are not those of the one inside;
    ``numbers`` does so where it transforms the numbers of the one inside.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> from timbermark import libraries
    >>> model = GradientBoostingClassifier().fit([[0.0], [1.0]], ["no", "yes"])
    >>> foreign = libraries.open(model)
    >>> foreign.kind, foreign.classes.tolist(), foreign.ensemble.n_trees
    ('GradientBoostingClassifier', ['no', 'yes'], 100)
    >>> confidence = foreign.confidence(foreign.margins([[0.2], [0.9]]))
    >>> bool(abs(confidence - model.predict_proba([[0.2], [0.9]])).max() < 1e-12)
    True
    """

    library: str
    kind: str  # the name of the model's type, such as "XGBClassifier"
    ensemble: Ensemble  # the trees that the model's own predict uses
    classes: AnyArray  # labels by class number, as predict gives them; none for numbers
    native: Any  # a copy of the model that nobody else holds
    adapter: Adapter
    feature_names: tuple[str, ...] | None = None  # of what predict takes, in its order
    margin_scale: float = 1.0
    leaf_dtype: FloatType = "f8"  # what leaf values can hold
    threshold_dtype: FloatType = "f8"  # what thresholds can hold
    notes: tuple[str, ...] = ()  # sentences for the user
    l2: float | None = None  # what regularizes the hessians that gains in its file follow from
    extra: Any = None  # the adapter's own
    task: Task = "classification"
    text_columns: frozenset[int] | None = frozenset()  # which take texts; None: any may
    known_texts: Mapping[int, frozenset[str] | None] = field(default_factory=dict)
    takes_frames: bool = False  # finds its columns by name
    inside: tuple[ForeignModel, ...] = ()
    scores: Callable[[Reals], Reals] | None = None  # margins [n, outputs] -> [n, classes]
    numbers: Callable[[Reals], Reals] | None = None  # those of the model inside -> as many
    shared_thresholds: bool = False
    fixed_thresholds: Mapping[int, frozenset[float] | None] = field(default_factory=dict)
    input_columns: AnyArray | None = None
    stores_labels: bool = True  # else its classes are numbers, whatever it was trained on
    told_monotone: bool = False  # the library was told to keep it so in some feature; else unknown

    @property
    def movable(self) -> Flags:
        """Return the splits whose threshold `close` can move, bool [N].

        These are the splits by number, unless they only separate missing values from others (an
        infinite threshold) or the library needs the threshold for something else as well.
        """
        e = self.ensemble
        found: Flags = (e.left >= 0) & (e.category_set < 0) & np.isfinite(e.threshold)
        whole = [column for column, fixed in self.fixed_thresholds.items() if fixed is None]
        found &= ~np.isin(e.feature, whole)
        for column, fixed in self.fixed_thresholds.items():
            if fixed is not None:
                found &= ~((e.feature == column) & np.isin(e.threshold, list(fixed)))
        return found

    def rows(self, X: Any) -> Reals:
        """Return what ``predict`` takes as columns of the ensemble, float64 [n, d].

        Raises InputError if the model does not take ``X``.
        """
        return self.adapter.rows(self, X)

    def native_rows(self, rows: Reals) -> Any:
        """Return an ``X`` for ``predict`` that stands for rows of the ensemble, float64 [n, d]."""
        return self.adapter.native_rows(self, rows)

    def margins(self, X: Any) -> Reals:
        """Return the raw scores that the model itself gives, float64 [n, outputs].

        Raises InputError if the model does not take ``X``.
        """
        return self.adapter.margins(self.native, X)

    def confidence(self, margins: Reals) -> Reals:
        """Return the model's own probabilities for margins, float64 [n, classes].

        They are those of ``predict_proba``; one-against-all classifiers have rows that do not sum
        to 1.
        """
        if self.scores is not None:
            return self.scores(margins)
        return reference.probabilities(margins * self.margin_scale, self.ensemble.objective)

    def answers(self, margins: Reals) -> Reals:
        """Return what the model says for margins, float64 [n, classes] or, as numbers, [n, 1].

        Numbers are those of ``predict``.
        """
        if self.task == "classification":
            return self.confidence(margins)
        found = reference.numbers(margins * self.margin_scale, self.ensemble.objective)
        return found if self.numbers is None else self.numbers(found)


def plain_columns(ensemble: Ensemble, categories: Iterable[int] = ()) -> AnyArray:
    """Return the number of each column, int64 [d]; -1 for those that hold categories.

    These are columns that are split by category, and those in ``categories``.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> plain_columns(constant_ensemble(n_features=3, value=1.0), categories=[1])
    array([ 0, -1,  2])
    """
    found = np.arange(ensemble.n_features)
    found[ensemble.feature[ensemble.category_set >= 0]] = -1
    found[list(categories)] = -1
    return found


def import_library(module: str, purpose: str) -> Any:
    """Return a module of a library whose name is that of an extra.

    Raises MissingLibraryError, which says what it is needed for, where it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingLibraryError.for_extra(module.partition(".")[0], purpose) from None


def ancestors(model: object, package: str) -> frozenset[str]:
    """Return the names of a package's classes that an object belongs to, without an import.

    >>> sorted(ancestors(7, "builtins"))
    ['int', 'object']
    """
    kinds = type(model).__mro__
    return frozenset(k.__name__ for k in kinds if k.__module__.partition(".")[0] == package)


def unfitted(model: object) -> InputError:
    """Return the error for a model that was never trained."""
    return InputError(f"The {type(model).__name__} is not fitted.", hint="call its fit first.")


@contextmanager
def naming(path: PathLike) -> Iterator[None]:
    """Let errors about what a file holds begin with its path, as errors about a file."""
    try:
        yield
    except (FileFormatError, InputError) as error:
        message = f"{os.fspath(path)}: {error.message}"
        raise FileFormatError(message, error.hint, error.code) from None


class Adapter(Protocol):
    """What the module of a library has."""

    name: str  # how the library is called in messages

    def is_model(self, model: object) -> bool:
        """Return whether an object is one of its models, without importing the library."""

    def open(self, model: Any) -> ForeignModel:
        """Return a model as neutral trees, with a copy of it.

        Raises InputError if it is not fitted or not supported.
        """

    def open_file(self, path: PathLike) -> ForeignModel:
        """Return the model in a file, which is checked before the library sees it.

        Raises FileFormatError if the file is damaged or does not hold a supported model,
        MissingLibraryError without the library, OSError if it cannot be opened.
        """

    def rows(self, foreign: ForeignModel, X: Any) -> Reals:
        """Return what ``predict`` takes as columns of the ensemble; see `ForeignModel.rows`."""

    def native_rows(self, foreign: ForeignModel, rows: Reals) -> Any:
        """Return the inverse of ``rows``; see `ForeignModel.native_rows`."""

    def margins(self, model: Any, X: Any) -> Reals:
        """Return the raw scores of a model of the library; see `ForeignModel.margins`."""

    def close(self, foreign: ForeignModel, ensemble: Ensemble) -> Any:
        """Return a new model of the same type with an ensemble's leaf values and thresholds.

        The ensemble has been checked to differ from the foreign model's in these only. Statistics
        that the library keeps, such as counts and gains, may follow leaf values; they never follow
        thresholds, because they belong to training rows that nobody else has.
        """

    def save(self, model: Any, path: PathLike) -> None:
        """Write the library's own file, in the format that ``path`` ends in.

        Raises InputError if the format is not known or cannot hold the model, OSError if the
        system refuses.
        """


def with_categories(
    X: Any, categories: Mapping[int, Sequence[Any]], names: Sequence[str] | None, strict: bool
) -> Any:
    """Return a table in which columns of categories are what the library takes.

    ``categories``: for each column of categories, by place, those that the model knows, in its
    order. A frame without category types or a matrix of objects gets them; everything else is given
    back as it is: a matrix of numbers holds the model's codes. ``strict``: refuse a category that
    the model does not know, else it is missing; frames with other ``names`` are given back.

    Raises InputError for such a category, MissingLibraryError without pandas.

    >>> frame = with_categories(np.array([[0.5, "b"]], object), {1: ["a", "b"]}, ["x", "y"], True)
    >>> frame["y"].cat.codes.tolist(), frame["x"].dtype
    ([1], dtype('float64'))
    """
    if not categories or not _needs_categories(X, categories):
        return X
    if strict and names is not None and [*map(str, getattr(X, "columns", names))] != list(names):
        return X  # the library says what is wrong
    try:
        import pandas as pd
    except ImportError:
        raise MissingLibraryError(
            "pandas is needed to give the model its categories.", hint="pip install pandas"
        ) from None
    n_columns = X.shape[1]
    columns = {}
    for place in range(n_columns):
        given = X.iloc[:, place] if hasattr(X, "iloc") else pd.Series(X[:, place])
        if place not in categories:
            numeric = given.dtype == object and not hasattr(X, "iloc")
            columns[place] = given.astype(np.float64) if numeric else given
            continue
        known = list(categories[place])
        values = given.astype(object)
        found = values.isin(known)
        strange = values[~values.isna() & ~found]
        if strict and len(strange):
            shown = names[place] if names is not None else place
            raise InputError(
                f"Column '{shown}' holds the category {strange.iloc[0]!r:.60}, which the model has "
                "never seen.",
                hint="leave such rows out, or make the value missing.",
            )
        columns[place] = pd.Series(
            pd.Categorical(values.where(found, None), categories=known), index=given.index
        )
    frame = pd.DataFrame(columns)
    frame.columns = X.columns if hasattr(X, "iloc") else pd.Index(names or range(n_columns))
    return frame


def find_texts(categories: Mapping[int, Sequence[Any]]) -> dict[int, frozenset[str] | None]:
    """Return the categories of each column that has texts for them; missing values are none.

    >>> find_texts({0: [1, 2], 3: ["a", np.nan]})
    {3: frozenset({'a'})}
    """
    found: dict[int, frozenset[str] | None] = {}
    for place, known in categories.items():
        present = [value for value in known if value is not None and value == value]
        if present and all(isinstance(value, str) for value in present):
            found[place] = frozenset(present)
    return found


def _needs_categories(X: Any, categories: Mapping[int, Sequence[Any]]) -> bool:
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        kinds = [str(kind) for kind in X.dtypes]
        return any(place < len(kinds) and kinds[place] != "category" for place in categories)
    objects = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype == object
    return objects and any(isinstance(value, str) for value in X.flat)
