"""Suspects in this process: objects, functions and model files, opened so that they can be asked.

Files are read into trees; what a file does to rows before its trees runs in another process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.files import container_kind
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.ensemble import digest as digest_trees
from timbermark.trees.ensemble_file import load_ensemble
from timbermark.trees.model_file import CLASSIFIER, REGRESSOR, SavedModel
from timbermark.trees.model_file import read_model as read_saved
from timbermark.verification.answers import ReadingRules, frame_columns, list_answers
from timbermark.verification.inquiry import Facts, Inquiry, Suspect
from timbermark.verification.refusals import refusal
from timbermark.verification.table import AnswerTable, is_answer_file
from timbermark.verification.transcript import Context

if TYPE_CHECKING:
    from timbermark.libraries.contract import ForeignModel

_OURS = b"timbermark "


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A suspect that answers rows by functions, one for each kind of answers that it offers.

    Each function takes rows [n, d] in the suspect's columns: float64, of objects if the mark has
    columns of texts, or a data frame with ``facts.takes_frames``. "either" is a function of which
    nobody knows before what it gives.
    """

    facts: Facts
    functions: Mapping[str, Callable[[Any], Any]]

    def ask(self, inquiry: Inquiry) -> Iterator[Mapping[int, Any]]:
        """Yield all answers at once.

        Raises InputError if the suspect raises anything, with that as its cause.
        """
        rows, order = inquiry.everything()
        kind = inquiry.rules.wanted
        function = self.functions.get(kind) or self.functions["either"]
        try:
            response = function(rows)
        except Exception as error:
            said = ": ".join(
                filter(None, (type(error).__name__, " ".join(str(error).split())[:300]))
            )
            raise self._failed(function, said) from error
        yield dict(zip(order, list_answers(response, len(order)), strict=True))

    def _failed(self, function: Any, said: str) -> InputError:
        name, owner = self.facts.context.suspect, getattr(function, "__self__", None)
        if self.facts.context.through != "function":
            return refusal("suspect.failed", suspect=name, said=said)
        if _can_be_asked(owner):
            kind = type(owner).__name__
            return refusal("suspect.failed:method", suspect=name, said=said, owner=kind)
        return refusal("suspect.failed:function", suspect=name, said=said)


def open_suspect(suspect: Any) -> Suspect:
    """Return anything that can be asked as a suspect.

    A text is an address if it begins with http:// or https://, otherwise the path of a file: a
    table of answers if it ends in .csv, .csv.gz or .parquet or is a Parquet file, otherwise a
    model. Data frames and dictionaries are answers. Objects with ``predict_proba`` or ``predict``
    are asked through these, other callables are called; what an adapter of a library asks
    differently (bare boosters, tables with categories) becomes trees.

    Raises InputError or FileFormatError if it cannot be asked, OSError if a file cannot be opened.

    >>> open_suspect(len).facts.context.suspect
    'function len'
    >>> open_suspect("http://localhost:5000/invocations")
    Endpoint(http://localhost:5000/invocations, protocol='mlflow')
    """
    if hasattr(suspect, "ask") and hasattr(suspect, "facts"):
        found: Suspect = suspect
        return found
    if is_url(suspect):
        # Whoever asks a file needs nothing that speaks to servers.
        from timbermark.verification.endpoint import Endpoint

        return Endpoint(suspect)
    if isinstance(suspect, str | os.PathLike):
        if is_answer_file(suspect):
            return AnswerTable.from_file(suspect)
        return open_named(read_model(suspect), f"file {os.fspath(suspect)}")
    if isinstance(suspect, Mapping):
        return AnswerTable.from_mapping(suspect)
    if frame_columns(suspect) is not None:
        return AnswerTable.from_frame(suspect)
    return _open_object(suspect)


def is_url(word: object) -> bool:
    """Return whether a word is meant as an address.

    >>> is_url("https://host/score"), is_url("model.json")
    (True, False)
    """
    return isinstance(word, str) and word.lower().startswith(("http://", "https://"))


def _open_object(suspect: Any) -> Model:
    from timbermark import libraries

    if isinstance(suspect, tuple) and libraries.is_supported(suspect):
        return _open_pair(*suspect)
    if hasattr(suspect, "model") and hasattr(suspect, "mark") and hasattr(suspect, "cost"):
        raise refusal("suspect.result")
    if not isinstance(suspect, type):
        way = libraries.way_of_asking(suspect)
        if way == "trees":
            named = _name_foreign(libraries.open(suspect))
            return open_named(named, type(suspect).__name__, "object")
        if any(callable(_attribute(suspect, name)) for name in ("predict_proba", "predict")):
            model = _open_estimator(suspect)
            facts = replace(model.facts, stores_labels=way != "no-labels")
            return replace(model, facts=facts)
        if callable(suspect):
            name = getattr(suspect, "__name__", type(suspect).__name__)
            facts = Facts(context=Context(f"function {name}", "function"))
            return Model(facts=facts, functions={"either": suspect})
    raise refusal("suspect.unknown", suspect=suspect)


def _can_be_asked(suspect: Any) -> bool:
    """Return whether an object can be a suspect itself, as the owner of a bound method may."""
    from timbermark import libraries

    if suspect is None or isinstance(suspect, type | ModuleType):
        return False
    named = any(callable(_attribute(suspect, name)) for name in ("predict_proba", "predict"))
    return named or libraries.way_of_asking(suspect) == "trees"


def _open_estimator(model: Any) -> Model:
    names = _attribute(model, "feature_names_in_")
    count = _attribute(model, "n_features_in_")
    known = None if names is None else tuple(str(name) for name in names)
    functions = {
        kind: found
        for kind, name in (("scores", "predict_proba"), ("labels", "predict"))
        if callable(found := _attribute(model, name))
    }
    listed = _list_classes(_attribute(model, "classes_"))
    if listed is None and "scores" not in functions:
        # What predict gives, labels, scores or numbers, nobody knows before.
        functions = {"either": functions["labels"]}
    facts = Facts(
        context=Context(type(model).__name__, "object"),
        names=known,
        # A pickled model of CatBoost says that it takes no columns.
        n_features=len(known) if known is not None else int(count or 0) or None,
        takes_frames=known is not None,
        offers=tuple(kind for kind in functions if kind != "either"),
        reading=ReadingRules(classes=listed, by_hand=False),
    )
    return Model(facts=facts, functions=functions)


def _list_classes(classes: Any) -> tuple[Any, ...] | None:
    try:
        known = np.asarray(classes)
    except Exception:  # of a foreign class, or lists of several outputs
        return None
    return tuple(known.tolist()) if classes is not None and known.ndim == 1 else None


def _open_pair(model: Any, encoder: Any) -> Model:
    """Return a model whose class numbers an encoder turns into labels."""
    inner = _open_estimator(model)
    labels, numbers = inner.functions.get("labels"), inner.facts.reading.classes
    functions = dict(inner.functions)
    if labels is not None:
        functions["labels"] = lambda X: encoder.inverse_transform(labels(X))
    classes = None if numbers is None else tuple(encoder.inverse_transform(numbers))
    reading = replace(inner.facts.reading, classes=classes)
    return Model(facts=replace(inner.facts, reading=reading), functions=functions)


def _attribute(model: Any, name: str) -> Any:
    try:
        return getattr(model, name, None)
    except Exception:  # a property of a foreign class may raise anything
        return None


@dataclass(frozen=True, slots=True, eq=False)
class NamedModel:
    """A model's trees and what identifies them, read without the engine."""

    trees: Ensemble
    classes: AnyArray | None  # None for bare trees, which have no labels of their own, and numbers
    feature_names: tuple[str, ...] | None
    file_digest: str | None  # SHA-256, if it is a file
    foreign: ForeignModel | None = None  # of another library

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the trees, the same in every file format; claims name it."""
        return digest_trees(self.trees)


def name_model(model: Any) -> NamedModel:
    """Return the trees of a model or a model file, by whose digests a claim names it.

    Raises InputError or FileFormatError if it is no model with trees, OSError if the file cannot be
    opened.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> fitted = GradientBoostingClassifier(n_estimators=2).fit([[0.0], [1.0]], [0, 1])
    >>> len(name_model(fitted).digest)
    64
    """
    if isinstance(model, str | os.PathLike):
        return read_model(model, whole=True)
    own_trees = getattr(model, "ensemble_", None)
    if isinstance(own_trees, Ensemble):
        return NamedModel(own_trees, None, None, None)
    from timbermark import libraries

    return _name_foreign(libraries.open(model))


def _name_foreign(foreign: ForeignModel, digest: str | None = None) -> NamedModel:
    classes = foreign.classes if foreign.task == "classification" else None
    return NamedModel(foreign.ensemble, classes, foreign.feature_names, digest, foreign)


def read_model(path: str | os.PathLike[str], *, whole: bool = False) -> NamedModel:
    """Return the model in a file of timbermark or another library, with the digest of its bytes.

    ``whole``: its trees have the digest that embedding computes, to the last rounding, for which
    the model's library is imported.

    Raises FileFormatError if it is no model, InputError if the file changed while it was read,
    OSError if it cannot be opened.
    """
    before = _hash_file(path)
    with open(path, "rb") as file:
        own = file.read(len(_OURS)) == _OURS
    if own:
        found = _read_own(path, before)
    else:
        from timbermark import libraries

        found = _name_foreign(libraries.open_suspect_file(path, whole=whole), before)
    if _hash_file(path) != before:
        # The digest would name other bytes than those that are judged.
        raise refusal("file.changed", path=os.fspath(path))
    return found


def _hash_file(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_own(path: str | os.PathLike[str], digest: str) -> NamedModel:
    with open(path, "rb") as file:
        if file.read(80).startswith(b"timbermark ensemble "):
            return NamedModel(load_ensemble(path), None, None, digest)
    kind = REGRESSOR if container_kind(path) == REGRESSOR else CLASSIFIER
    saved: SavedModel = read_saved(path, kind)
    names = None if saved.names is None else tuple(saved.names)
    return NamedModel(saved.ensemble, saved.classes, names, digest)


def open_named(model: NamedModel, what: str, through: str = "file") -> Model:
    """Return the trees of a model as a suspect; ``what`` describes it."""
    trees, classes, foreign, names = model.trees, model.classes, model.foreign, model.feature_names

    def margins(X: Any) -> AnyArray:
        if foreign is None:
            return reference.margins(trees, X)
        try:
            rows = foreign.rows(X)
        except InputError:
            raise
        except Exception as error:
            raise refusal("suspect.other-features", library=foreign.library, why=error) from error
        return reference.margins(trees, rows).astype(np.float64)

    def answers(X: Any) -> AnyArray:
        if foreign is not None:
            return foreign.answers(margins(X))
        say = reference.numbers if trees.gives_numbers else reference.probabilities
        return say(margins(X), trees.objective)

    def labels(X: Any) -> AnyArray:
        if foreign is not None and foreign.scores is not None:
            numbers = answers(X).argmax(axis=1)
        else:
            numbers = reference.labels(margins(X), trees)
        return numbers if classes is None else np.asarray(classes[numbers])

    functions: dict[str, Callable[[Any], Any]] = {"scores": answers, "labels": labels}
    gives_numbers = trees.gives_numbers if foreign is None else foreign.task != "classification"
    if gives_numbers:
        functions = {"numbers": lambda X: answers(X)[:, 0]}
    named = None if names is None else len(names)
    facts = Facts(
        context=Context(what, through, model.file_digest),
        names=names,
        n_features=trees.n_features if foreign is None else named,
        takes_frames=foreign is not None and foreign.takes_frames,
        offers=tuple(functions),
        stores_labels=foreign is None or foreign.stores_labels,
        # Scores of trees are probabilities, which nobody chose.
        reading=ReadingRules(
            classes=None if classes is None else tuple(classes.tolist()),
            class_numbers=classes is None and not gives_numbers,
            scale="probabilities",
            by_hand=False,
        ),
    )
    return Model(facts=facts, functions=functions)
