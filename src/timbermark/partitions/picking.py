"""Some rows of a table in parts: those whose numbers have the lowest hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.kernels.hashing import hash_rows
from timbermark.partitions.parts import Block, Parts
from timbermark.partitions.running import run_pass

_EXTRA_DEVIATIONS = 6.0
"""Standard deviations that are added to a limit on hashes, so that enough rows are below it."""


def place_keys(start: int, n: int, seed: int) -> np.ndarray:
    """Return uint64 [n]: hashes of the numbers of rows, from ``start`` on.

    >>> bool((place_keys(0, 10, seed=1)[5:] == place_keys(5, 5, seed=1)).all())
    True
    """
    keys = np.empty(n, np.uint64)
    numbers = np.arange(start, start + n, dtype=np.uint64)[:, None]
    hash_rows(numbers, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), keys)
    return keys


def hash_limit(k: int, n: int) -> int | None:
    """Return a bound that the ``k`` lowest of ``n`` hashes do not exceed, None for k >= n.

    >>> hash_limit(10, 10) is None, hash_limit(10, 10**6) < 2**52
    (True, True)
    """
    if k >= n:
        return None
    share = (k + _EXTRA_DEVIATIONS * np.sqrt(k) + 10) / n
    return int(min(share, 1.0) * (2.0**64 - 2048))


def pick_rows(table: Parts, k: int, seed: int) -> Any:
    """Return at most ``k`` rows, float64 [k, d], of a table of numbers, in the order of hashes.

    Raises InputError, which names the part, for what is no number.
    """
    return run_pass(table, _Picking(k, seed, hash_limit(k, table.n_rows)))[0]


@dataclass(frozen=True, slots=True)
class _Picking:
    """The pass that keeps the rows with the lowest hashes."""

    k: int
    seed: int
    limit: int | None
    title = "reading rows"

    def look(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        keys = place_keys(block.start, len(block.rows), self.seed)
        rows = _numbers(block.rows)
        if self.limit is not None:
            kept = keys <= np.uint64(self.limit)
            rows, keys = rows[kept], keys[kept]
        return self.merge([(rows, keys)])

    def merge(
        self, results: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, keys = (np.concatenate(part) for part in zip(*results, strict=True))
        order = np.argsort(keys, kind="stable")[: self.k]
        return rows[order], keys[order]


def _numbers(rows: Any) -> np.ndarray:
    try:
        if hasattr(rows, "iloc"):
            return np.asarray(rows.to_numpy(np.float64, na_value=np.nan))
        return np.asarray(rows, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"There is something that is no number ({error}).",
            hint="give the codes that the model was trained on.",
        ) from None
