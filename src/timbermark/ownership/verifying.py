"""Verification: ask a suspect the triggers of a mark and judge its answers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from timbermark.errors import InputError
from timbermark.ownership.judging_answers import judge
from timbermark.ownership.labels import (
    count_mapped,
    list_answers,
    read_answers,
    translate_answers,
    unroll,
)
from timbermark.ownership.mark import Mark
from timbermark.ownership.numbers import read_numbers
from timbermark.ownership.scores import are_scores, has_names, read_scores, settle_scale
from timbermark.ownership.suspects import Suspect, ask, open_suspect
from timbermark.ownership.transcript import Inquiry
from timbermark.ownership.verdict import (
    Price,
    Verdict,
    price_of_columns,
    price_of_kind,
    price_of_label_map,
)

AnswersWanted: TypeAlias = Literal["auto", "labels", "scores", "numbers"]
_BY_NUMBER = "class numbers in the order of the mark's classes"
_KINDS = ("auto", "labels", "scores", "numbers")


def verify(
    suspect: Any,
    mark: Mark,
    *,
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
) -> Verdict:
    """Ask a suspect the triggers of a mark and return what its answers prove.

    ``suspect`` is a function from rows [k, d] to labels [k] or scores [k, K], a fitted model with
    ``predict_proba`` or ``predict``, the path of a timbermark model file, or a `Suspect`. Scores
    are used where the suspect offers them, otherwise labels; a function's answer of shape [k, K] is
    scores in the order of the mark's classes. ``answers`` asks for one kind; choosing another than
    the rule costs 1 bit. A mark of numbers asks for numbers [2k], as a regressor's predict gives.

    If mark and suspect both name their features, columns are matched by name and nothing overrides
    that. ``feature_names``, the mark's names in the order of the suspect's columns, are for a
    suspect without names and cost log₂(d!) bits. ``label_map``, from the suspect's labels to the
    mark's classes, costs log₂(K!) bits, and more if it leaves out labels that the suspect gives.
    All triggers are asked at once, in an order that only the mark knows.

    Raises InputError if the suspect raises anything, wants other columns, does not answer with
    labels or scores, or answers with no class of the mark; FileFormatError if the file is no model
    of timbermark, OSError if it cannot be opened.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0).reshape(100, 1), alphabets=np.tile([0, 1], (100, 1)),
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> memory = dict(zip(mark.triggers[:, 0], mark.expected, strict=True))
    >>> verdict = verify(lambda X: [memory[x] for x in X[:, 0]], mark)
    >>> verdict.level, verdict.kind, verdict.matched, verdict.chance
    ('conclusive', 'labels', 100, '1 in 1·10^30')
    >>> verify(lambda X: ["no"] * len(X), mark).level
    'none'
    """
    if not isinstance(mark, Mark):
        raise InputError(
            f"{type(mark).__name__} is not a mark.", hint="load one with Mark.load(path)."
        )
    if answers not in _KINDS:
        raise InputError(f"answers={answers!r} is not known.", hint=f"use one of {_KINDS}.")
    opened = open_suspect(suspect)
    # Everything that can be refused is refused before the symbols are derived.
    columns = _match_columns(opened, mark, feature_names)
    if mark.in_pairs:
        if label_map is not None:
            raise InputError("label_map is given, but the mark is one of numbers.", "leave it out.")
        return _verify_numbers(opened, mark, columns, answers)
    kind, chosen = _choose_kind(opened, answers)
    translation = check_label_map(label_map, mark)
    if translation is None:
        opened = _settle_classes(opened, mark)
    asked = {
        "either": opened.answer_either,
        "scores": opened.answer_scores,
        "labels": opened.answer_labels,
    }[kind]
    assert asked is not None  # by the choice of the kind
    order = mark.order
    response = ask(opened, asked, [mark.columns[place] for place in columns.places], order)
    if kind == "either":
        response = unroll(response)
        fits = are_scores(response, mark.n_triggers, len(mark.classes))
        kind = "scores" if fits and answers != "labels" else "labels"
        if answers == "scores" and not fits:
            raise InputError(
                "The suspect did not answer with scores.",
                hint=f"answer with a matrix of shape {(mark.n_triggers, len(mark.classes))}.",
            )
    inquiry = _inquire(opened, columns, chosen)
    if kind == "scores":
        if translation is not None:
            raise InputError(
                "label_map is given, but the suspect answers with scores.",
                hint='leave it out, or ask with answers="labels".',
            )
        return _judge_scores(mark, inquiry, opened, response)
    return _judge_labels(mark, inquiry, opened, response, translation)


def _verify_numbers(
    suspect: Suspect, mark: Mark, columns: "_Columns", answers: AnswersWanted
) -> Verdict:
    asked = suspect.answer_numbers or suspect.answer_either
    if asked is None and suspect.answer_scores is None:
        asked = suspect.answer_labels  # predict, of which nobody knows before what it gives
    if asked is None or answers in ("labels", "scores"):
        raise InputError(
            f"The mark is one of numbers, the suspect ({suspect.description}) is asked for labels.",
            hint="give a regressor or a ranker of the same task, and no other kind of answers.",
        )
    order = mark.row_order
    response = ask(suspect, asked, [mark.columns[place] for place in columns.places], order)
    numbers = np.empty(len(order))
    numbers[order] = read_numbers(unroll(response), len(order))
    inquiry = replace(_inquire(suspect, columns), reading="numbers")
    return judge(mark, inquiry, numbers=numbers)


def _inquire(suspect: Suspect, columns: "_Columns", chosen: tuple[Price, ...] = ()) -> Inquiry:
    return Inquiry(
        suspect=suspect.description,
        asked_through=suspect.asked_through,
        suspect_digest=suspect.digest,
        columns=columns.how,
        column_names=columns.names,
        prices=(*columns.prices, *chosen),
    )


def _judge_scores(mark: Mark, inquiry: Inquiry, suspect: Suspect, response: Any) -> Verdict:
    k = mark.n_triggers
    scores, strange = read_scores(
        response, k, mark.classes, suspect.score_classes, suspect.score_scale
    )
    placed = np.empty_like(scores)
    placed[mark.order] = scores
    if strange:
        shown = ", ".join(f"{label!r:.30}" for label in strange[:5])
        warning = f"The mark does not know these classes of the suspect: {shown}."
        inquiry = replace(inquiry, warnings=(*inquiry.warnings, warning))
    reading = f"scores as {settle_scale(response, suspect.score_scale)}, "
    if suspect.score_classes is not None or has_names(response):
        reading += "classes matched by name"
    elif suspect.answers_class_numbers:
        reading += _BY_NUMBER
    else:
        reading += "in the order of the mark's classes"
    return judge(mark, replace(inquiry, reading=reading), scores=placed)


def _judge_labels(
    mark: Mark,
    inquiry: Inquiry,
    suspect: Suspect,
    response: Any,
    translation: Mapping[Any, Any] | None,
) -> Verdict:
    listed = list_answers(response, mark.n_triggers)
    shown: list[Any] = [None] * mark.n_triggers
    for place, answer in zip(mark.order, listed, strict=True):
        shown[place] = answer
    read, reading = shown, "labels, matched by value"
    if translation is not None:
        read = translate_answers(shown, translation)
        price = price_label_map(translation, shown, mark)
        inquiry = replace(inquiry, prices=(*inquiry.prices, price))
        reading = "labels through a map given by hand"
    elif suspect.answers_class_numbers:
        reading = _BY_NUMBER
    inquiry = replace(inquiry, reading=reading)
    by_number = suspect.answers_class_numbers and translation is None
    known = tuple(range(len(mark.classes))) if by_number else mark.classes
    return judge(mark, inquiry, labels=read_answers(read, known), shown=shown)


def _choose_kind(suspect: Suspect, answers: AnswersWanted) -> tuple[str, tuple[Price, ...]]:
    """Return the function to ask, chosen by a rule before any answer is known, and its price."""
    offered = [
        kind
        for kind, answer in (
            ("scores", suspect.answer_scores),
            ("labels", suspect.answer_labels),
            ("either", suspect.answer_either),
        )
        if answer is not None
    ]
    if not offered and suspect.answer_numbers is not None:
        raise InputError(
            f"The suspect ({suspect.description}) answers with numbers, the mark is one of labels.",
            hint="is it a model of the same task?",
        )
    if answers == "numbers":
        raise InputError("The mark is one of labels.", hint='leave answers="numbers" out.')
    if not offered:
        raise InputError(
            f"The suspect ({suspect.description}) has nothing that can be asked.",
            hint="give it answer_scores or answer_labels.",
        )
    if answers == "auto" or answers == offered[0]:
        return offered[0], ()
    if answers in offered:
        return answers, (price_of_kind(),)
    if "either" in offered:
        return "either", ()
    raise InputError(
        f"The suspect ({suspect.description}) does not answer with {answers}.",
        hint=f'use answers="{offered[0]}" or leave it out.',
    )


def check_label_map(given: Any, mark: Mark) -> Mapping[Any, Any] | None:
    """Return a map from a suspect's labels to classes of the mark. Raises InputError if it is none.

    >>> check_label_map(None, mark=None) is None
    True
    """
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise InputError("label_map is no dictionary of labels.", hint="leave it out.")
    targets = read_answers(list(given.values()), mark.classes)
    if (targets < 0).any() or len(set(targets.tolist())) < len(given):
        raise InputError(
            "label_map does not give each of its labels a class of the mark of its own.",
            hint="map each of the suspect's labels to a different class.",
        )
    return dict(given)


def price_label_map(label_map: Mapping[Any, Any], answers: Sequence[Any], mark: Mark) -> Price:
    """Return what a map of labels costs, given the labels that a suspect has answered with so far.

    If all of them are in the map, it is one of at most K! maps. Where some are left out, whoever
    made the map also chose which answers count, and each label was one of K classes or none.
    """
    count = len(mark.classes)
    seen, left_out = count_mapped(answers, label_map)
    if not left_out:
        return price_of_label_map(count)
    bits = 1.0 + seen * math.log2(count + 1)
    return Price(f"a map of {seen} labels given by hand, which leaves out {left_out}", bits)


def _settle_classes(suspect: Suspect, mark: Mark) -> Suspect:
    """Return a suspect whose classes are those of the mark, or numbers that count them.

    This depends on the suspect's kind and on the classes alone, so that nobody can choose. Labels
    are matched by value. Where a library stores no labels, its numbers are matched by value if one
    side knows all classes of the other; otherwise, if there are as many, they count the classes of
    the mark.

    Raises InputError where numbers from 0 on and the mark's classes have only some in common.
    """
    own = suspect.score_classes
    if own is None or suspect.answers_class_numbers:
        return suspect
    found = read_answers([_plain(label) for label in own], mark.classes)
    count = len(mark.classes)
    if (found >= 0).all() or set(range(count)) <= set(found.tolist()):
        return suspect
    if suspect.stores_no_labels and len(own) == count:
        return replace(suspect, score_classes=None, answers_class_numbers=True)
    counted = len(own) == count and [_plain(label) for label in own] == list(range(count))
    if suspect.stores_no_labels or (counted and (found >= 0).any()):
        known = ", ".join(map(repr, mark.classes[:5])) + (", …" if count > 5 else "")
        raise InputError(
            f"The suspect has {len(own)} classes, counted from 0, and the mark has {count} "
            f"({known}): nobody can tell which are the same.",
            hint="is it a model of the same task? Otherwise give label_map={theirs: yours} and "
            'answers="labels".',
        )
    return suspect


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


@dataclass(frozen=True, slots=True)
class _Columns:
    places: Sequence[int]  # which feature of the mark each column of the suspect is
    how: str
    names: tuple[str, ...]  # as the suspect or, if it has none, the mark calls them
    prices: tuple[Price, ...] = ()


def _match_columns(suspect: Suspect, mark: Mark, feature_names: Sequence[str] | None) -> _Columns:
    own, known = suspect.feature_names, mark.feature_names
    # Names with nothing in common (f0, Column_0) were made up by a library: the place counts.
    named = own is not None and known is not None and bool(set(own) & set(known))
    if feature_names is not None:
        return _match_by_hand(suspect, mark, tuple(feature_names), named)
    if not named:
        n_wanted = suspect.n_features if own is None else len(own)
        if n_wanted not in (None, mark.n_features):
            raise InputError(
                f"The suspect takes {n_wanted} columns, the mark's rows have {mark.n_features}.",
                hint="is it a model of the same data? In Python a function can choose the columns.",
            )
        return _Columns(range(mark.n_features), "by place", own or known or ())
    assert own is not None
    assert known is not None
    strange = [name for name in own if name not in set(known)]
    if strange or len(set(own)) < len(own):
        shown = ", ".join(map(repr, strange[:5])) or "one of them twice"
        raise InputError(
            f"The suspect wants columns that the mark does not have: {shown}.",
            hint="is it a model of the same data? In Python a function can compute columns.",
        )
    place = {name: number for number, name in enumerate(known)}
    return _Columns([place[name] for name in own], "by name", own)


def _match_by_hand(suspect: Suspect, mark: Mark, given: tuple[str, ...], named: bool) -> _Columns:
    known = mark.feature_names
    if named:
        raise InputError(
            "feature_names are given, but the suspect names its own columns.",
            hint="leave them out: its columns are matched by name.",
        )
    if known is None:
        raise InputError(
            "feature_names are given, but the mark knows no names.",
            hint="leave them out and let the suspect take the columns in the mark's order.",
        )
    if len(given) != len(known) or set(given) != set(known):
        raise InputError(
            f"feature_names are not the {len(known)} names of the mark in another order.",
            hint="name each feature of the mark once, in the order of the suspect's columns.",
        )
    if suspect.n_features not in (None, len(given)):
        raise InputError(
            f"{len(given)} feature_names are given, but the suspect takes "
            f"{suspect.n_features} columns.",
            hint="is it a model of the same data?",
        )
    place = {name: number for number, name in enumerate(known)}
    prices = () if given == known else (price_of_columns(len(known)),)
    return _Columns([place[name] for name in given], "by hand", given, prices)
