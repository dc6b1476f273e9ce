"""The records of triggers: what the leaves of a mark's Merkle tree are the hashes of.

Each record has a salt of its own, so that its hash says nothing about it, and so that its symbol
can be checked by whoever is shown the record and by nobody else.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from timbermark.dtypes import ClassIndices, Reals
from timbermark.ownership.columns import Column, numeric_matrix
from timbermark.ownership.encoding import encode

SALT_BYTES = 32
_SALTS_DOMAIN = b"timbermark/salts/2"


def derive_salts(secret: bytes, n_triggers: int) -> list[bytes]:
    """Return the salt of each trigger, 32 bytes of SHAKE-256("timbermark/salts/2" ‖ secret).

    Some of them say nothing about the others.

    >>> [salt.hex()[:8] for salt in derive_salts(bytes(32), 2)]
    ['22e12644', 'e1a11159']
    """
    stream = hashlib.shake_256(_SALTS_DOMAIN + secret).digest(SALT_BYTES * n_triggers)
    return [stream[at : at + SALT_BYTES] for at in range(0, len(stream), SALT_BYTES)]


def encode_records(
    places: Sequence[int],
    salts: Sequence[bytes],
    columns: Sequence[Column],
    alphabets: ClassIndices | Reals,
    reference: Reals,
    alternatives: Reals,
) -> list[bytes]:
    """Return the bytes of the records of n triggers: place in the mark, salt, rows and the rest.

    Records without ``alternatives`` [n, 0, q] do not name them, as before there were any.

    ``columns`` are d columns of n values, or of 2n where a trigger is a pair of rows, the other
    arguments n items each; see docs/mark-format.md for the encoding.

    >>> row = [np.array([0.5]), ("red",)]
    >>> known = np.array([[0, 1]]), np.array([[0.9, 0.1]]), np.zeros((1, 0, 2))
    >>> len(encode_records([0], [bytes(32)], row, *known))
    1
    """
    numbers = numeric_matrix(columns).astype("<f8")
    width = len(numbers) // len(alphabets)
    texts = [column for column in columns if not isinstance(column, np.ndarray)]
    answers = alphabets.astype("<i4" if alphabets.dtype.kind == "i" else "<f8")
    expected, others = reference.astype("<f8"), alternatives.astype("<f8")
    records = []
    for i, place in enumerate(places):
        record: dict[str, Any] = {
            "place": int(place),
            "salt": salts[i],
            "numbers": numbers[width * i : width * (i + 1)].tobytes(),
            "texts": [column[width * i + j] for j in range(width) for column in texts],
            "alphabet": answers[i].tobytes(),
            "reference": expected[i].tobytes(),
        }
        if others.shape[1]:
            record["alternatives"] = others[i].tobytes()
        records.append(encode(record))
    return records
