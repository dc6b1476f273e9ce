"""What makes a mark sound: every part is checked, copied and made unchangeable."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from timbermark.dtypes import CLASS_INDEX, REAL, AnyArray, ClassIndices, Reals
from timbermark.errors import InputError
from timbermark.ownership.encoding import is_unicode
from timbermark.ownership.keys import KEY_BYTES, MARK_ID_BYTES
from timbermark.ownership.labels import Label, check_classes
from timbermark.ownership.score_forms import SCORE_FLOOR
from timbermark.ownership.symbols import ALPHABET_SIZES

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark

PROTOCOL = 2
"""Raised whenever the same content would give other symbols."""
ANSWERS = ("classes", "numbers")
"""What the suspects of a mark answer with: labels or scores of classes, or numbers."""
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
MAX_DRAWS = 1 << 32
MOST_ALTERNATIVES = 16
NO_ALTERNATIVES: Reals = np.zeros((0, 0, 0))
_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_LONGEST_OWNER = 200


def require(holds: bool, message: str, hint: str) -> None:
    """Raise InputError with the message as a sentence unless the condition holds.

    >>> require(True, "never shown", "")
    """
    if not holds:
        raise InputError(f"{message[0].upper()}{message[1:]}.", hint=hint)


def from_hex(name: str, text: object) -> bytes:
    """Return bytes from hexadecimal digits. Raises InputError, with the name, for anything else.

    >>> from_hex("secret", "00ff")
    b'\\x00\\xff'
    """
    require(
        isinstance(text, str) and _HEX.fullmatch(text) is not None,
        f"{name} is not in hexadecimal digits",
        "",
    )
    return bytes.fromhex(str(text))


def check_name(name: object, what: str) -> None:
    """Raise InputError unless it is a name of 1 to 200 printable characters.

    >>> check_name("Ann Ltd", "owner")
    """
    require(
        type(name) is str
        and name.strip() != ""
        and len(name) <= _LONGEST_OWNER
        and is_unicode(name)
        and name.isprintable(),
        f"{what} is not a name of 1 to {_LONGEST_OWNER} printable characters",
        "name a person or an organisation.",
    )


def check_protocol(protocol: object) -> None:
    """Raise InputError unless the protocol is the one that is implemented.

    >>> check_protocol(2)
    """
    require(
        type(protocol) is int and protocol == PROTOCOL,
        f"protocol={protocol!r} is not known",
        f"this timbermark knows protocol {PROTOCOL}.",
    )


def check_secrets(mark_id: object, secret: object) -> None:
    """Raise InputError unless the id is 16 and the secret 32 bytes.

    >>> check_secrets(bytes(16), bytes(32))
    """
    for name, value, size in (
        ("mark_id", mark_id, MARK_ID_BYTES),
        ("secret", secret, KEY_BYTES),
    ):
        require(
            isinstance(value, bytes) and len(value) == size,
            f"{name} is not {size} bytes",
            "Mark.make draws it.",
        )


def check_words(owner: object, model_digest: object, answers: object, created: object) -> None:
    """Raise InputError unless owner, digest, kind of answers and time are as `Mark` states.

    >>> check_words("Ann", "0" * 64, "classes", "2030-12-31T23:59:59Z")
    """
    check_name(owner, "owner")
    require(
        isinstance(model_digest, str) and _HEX_DIGEST.fullmatch(model_digest) is not None,
        "model_digest is not 64 hexadecimal digits",
        "take the SHA-256 of the unmarked model.",
    )
    require(
        answers in ANSWERS,
        f"answers={answers!r} is no known kind of answers",
        f"use one of {ANSWERS}.",
    )
    require(
        isinstance(created, str) and _is_time(created),
        f"created={created!r} is not a time like 2030-12-31T23:59:59Z",
        "give it in UTC, to the second.",
    )


def check_draws(draws: object) -> int:
    """Return how many symbol vectors were drawn. Raises InputError unless it is at least 1.

    >>> check_draws(np.int64(3))
    3
    """
    number = draws.item() if isinstance(draws, np.integer) else draws
    require(
        type(number) is int and 1 <= number <= MAX_DRAWS,
        f"draws={draws!r} is not a whole number from 1 to 2^32",
        "count every set of symbols that was derived before this one was kept.",
    )
    return int(number)  # type: ignore[call-overload, no-any-return]


def freeze_alphabets(given: Any, k: int, classes: Sequence[Label]) -> ClassIndices:
    """Return the alphabets as a read-only int32 [k, q].

    Raises InputError unless each has q distinct class numbers and q is 2 or 4.

    >>> freeze_alphabets([[0, 1], [1, 0]], 2, ["no", "yes"]).dtype
    dtype('int32')
    """
    array = _matrix(given, "alphabets")
    require(
        array.ndim == 2 and array.dtype.kind in "iu",
        f"alphabets of type {array.dtype} and shape {array.shape} are no matrix of class numbers",
        "give one row of q class numbers for each trigger.",
    )
    require(
        len(array) == k, f"{k} triggers have {len(array)} alphabets", "give one for each trigger."
    )
    require(
        array.shape[1] in ALPHABET_SIZES,
        f"the alphabets have {array.shape[1]} labels",
        "use 2 or 4.",
    )
    require(
        bool((array >= 0).all() and (array < len(classes)).all()),
        f"an alphabet has a class number outside 0 to {len(classes) - 1}",
        "alphabets hold numbers of classes, not labels.",
    )
    ordered = np.sort(array, axis=1)
    require(
        bool((ordered[:, 1:] != ordered[:, :-1]).all()),
        "an alphabet has the same class twice",
        "the labels of an alphabet must differ.",
    )
    return _frozen(array, CLASS_INDEX)


def freeze_answers(mark: "Mark", k: int) -> dict[str, Any]:
    """Return the classes, alphabets and known answers of a mark with k triggers, frozen, by name.

    Raises InputError if they are not as `Mark` says.
    """
    if mark.answers == "numbers":
        require(
            len(mark.classes) == 0,
            "a mark of numbers has classes",
            "leave them out: the suspect answers with numbers.",
        )
        classes: tuple[Label, ...] = ()
        alphabets: AnyArray = freeze_levels(mark.alphabets, k)
        reference = freeze_numbers(mark.reference, k)
    else:
        classes = check_classes(mark.classes)
        alphabets = freeze_alphabets(mark.alphabets, k, classes)
        reference = freeze_reference(mark.reference, k, len(classes))
    alternatives = freeze_alternatives(mark.alternatives, k, alphabets.shape[1])
    require(
        mark.answers != "numbers" or alternatives.shape[1] == 0,
        "a mark of numbers has alternatives",
        "leave them out: only scores are compared with them.",
    )
    return {
        "classes": classes,
        "alphabets": alphabets,
        "reference": reference,
        "alternatives": alternatives,
    }


def freeze_reference(given: Any, k: int, n_classes: int) -> Reals:
    """Return the unmarked model's probabilities as a read-only float64 [k, K], from 1e-6 to 1.

    Raises InputError unless it is a matrix [k, K] of numbers from 0 to 1.

    >>> freeze_reference([[0.0, 1.0]], 1, 2)
    array([[1.e-06, 1.e+00]])
    """
    array = _matrix(given, "reference")
    require(
        array.dtype.kind in "biuf" and array.shape == (k, n_classes),
        f"the reference has the type {array.dtype} and the shape {array.shape}, not numbers of "
        f"shape {(k, n_classes)}",
        "give the unmarked model's probability of each class for each trigger.",
    )
    return _freeze_shares(array, "the reference holds", "the unmarked model, not its margins.")


def freeze_alternatives(given: Any, k: int, q: int) -> Reals:
    """Return other models' scores of alphabets' labels as a read-only float64 [k, R, q].

    Nothing at all, as in `NO_ALTERNATIVES`, stands for no models. Scores are kept from 1e-6 to 1.

    Raises InputError unless they are numbers from 0 to 1 of that shape, of at most 16 models.

    >>> freeze_alternatives([[[0.0, 1.0]]], 1, 2).tolist(), freeze_alternatives([], 1, 2).shape
    ([[[1e-06, 1.0]]], (1, 0, 2))
    """
    array = _matrix(given, "alternatives")
    if array.shape in ((0,), NO_ALTERNATIVES.shape):
        array = np.zeros((k, 0, q))
    require(
        array.dtype.kind in "biuf"
        and array.ndim == 3
        and (len(array), array.shape[2]) == (k, q)
        and array.shape[1] <= MOST_ALTERNATIVES,
        f"the alternatives have the type {array.dtype} and the shape {array.shape}, not numbers of "
        f"shape ({k}, R, {q}) with R up to {MOST_ALTERNATIVES}",
        "give each alternative model's score of each label of each trigger's alphabet.",
    )
    return _freeze_shares(array, "the alternatives hold", "the other models, not their margins.")


def _freeze_shares(array: AnyArray, what: str, whose: str) -> Reals:
    """Return probabilities read-only, from 1e-6 to 1; raises InputError for anything else."""
    # A sum of float32 numbers may pass 1 by a few units in the last place.
    require(
        bool(((array >= 0) & (array <= 1 + 1e-5)).all()),
        f"{what} values that are no probabilities",
        f"use predict_proba of {whose}",
    )
    return _frozen(np.clip(np.asarray(array, REAL), SCORE_FLOOR, 1.0), REAL)


def freeze_levels(given: Any, k: int) -> Reals:
    """Return the levels of number triggers as a read-only float64 [k, q].

    Raises InputError unless each trigger has 2 or 4 distinct ones, rising, all finite.

    >>> freeze_levels([[-1.0, 1.0]], 1)
    array([[-1.,  1.]])
    """
    array = _matrix(given, "alphabets")
    require(
        array.dtype.kind in "iuf" and array.ndim == 2 and len(array) == k,
        f"alphabets of type {array.dtype} and shape {array.shape} are no levels of {k} triggers",
        "give one row of q levels for each pair of rows.",
    )
    require(
        array.shape[1] in ALPHABET_SIZES,
        f"the alphabets have {array.shape[1]} levels",
        "use 2 or 4.",
    )
    levels = np.asarray(array, REAL)
    require(
        bool(np.isfinite(levels).all() and (np.diff(levels, axis=1) > 0).all()),
        "the levels of a trigger do not rise or are not finite",
        "give distinct numbers in their order.",
    )
    return _frozen(levels, REAL)


def freeze_numbers(given: Any, k: int) -> Reals:
    """Return the unmarked model's numbers on pairs of rows as a read-only float64 [k, 2].

    Raises InputError unless they are finite.

    >>> freeze_numbers([[1.0, 2.5]], 1)
    array([[1. , 2.5]])
    """
    array = _matrix(given, "reference")
    require(
        array.dtype.kind in "iuf" and array.shape == (k, 2) and bool(np.isfinite(array).all()),
        f"the reference of shape {array.shape} is not two finite numbers for each of {k} triggers",
        "give the unmarked model's answers to both rows of each pair.",
    )
    return _frozen(array, REAL)


def rows_per_trigger(answers: str) -> int:
    """Return how many rows a trigger is: 2 where suspects answer with numbers.

    >>> rows_per_trigger("numbers"), rows_per_trigger("classes")
    (2, 1)
    """
    return 2 if answers == "numbers" else 1


def count_triggers(n_rows: int, answers: str) -> int:
    """Return the number of triggers in a number of rows; with numbers a trigger is a pair.

    Raises InputError for an odd number of rows that should be pairs.

    >>> count_triggers(6, "numbers"), count_triggers(6, "classes")
    (3, 6)
    """
    if answers != "numbers":
        return n_rows
    require(
        n_rows % 2 == 0, f"{n_rows} rows are no pairs", "with numbers a trigger is a pair of rows."
    )
    return n_rows // 2


def freeze_names(given: Any, d: int) -> tuple[str, ...] | None:
    """Return the names of d features, or None if they are not known.

    Raises InputError unless they are d distinct texts.

    >>> freeze_names(["a", "b"], 2)
    ('a', 'b')
    """
    if given is None:
        return None
    names = tuple(given) if isinstance(given, list | tuple | np.ndarray) else ()
    names = tuple(name.item() if isinstance(name, np.str_) else name for name in names)
    require(
        all(type(name) is str and is_unicode(name) for name in names)
        and len(set(names)) == len(names) == d,
        f"feature_names are not {d} distinct texts",
        "give one name for each feature, or None.",
    )
    return names


def _is_time(text: str) -> bool:
    try:
        return datetime.strptime(text, TIME_FORMAT).strftime(TIME_FORMAT) == text
    except ValueError:
        return False


def _matrix(given: Any, name: str) -> AnyArray:
    try:
        return np.asarray(given)
    except ValueError:
        raise InputError(
            f"The {name} are rows of different lengths.", hint="give a matrix."
        ) from None


def _frozen(array: AnyArray, dtype: Any) -> AnyArray:
    copy = np.array(array, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy
