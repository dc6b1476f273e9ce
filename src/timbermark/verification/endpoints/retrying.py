"""Repeat requests that failed for a passing reason: pauses that double, jitter, Retry-After."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from timbermark.verification.endpoints.sending import Failure, FailureError

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
LONGEST_WAIT = 900.0
"""Seconds; a server that asks to wait longer ends the run."""


def try_repeatedly(attempt: Callable[[], T], retries: int) -> T:
    """Return what ``attempt`` returns, calling it again up to ``retries`` times if it fails.

    Only failures of the kind "again" are repeated, after a pause that doubles each time, or after
    the seconds that the server asks for.

    Raises FailureError with the last failure, or if the server asks to wait too long.

    >>> try_repeatedly(lambda: "answered", retries=3)
    'answered'
    """
    pause = FIRST_PAUSE
    for left in range(retries, -1, -1):
        try:
            return attempt()
        except FailureError as error:
            last = error.failure
            if last.kind != "again" or not left:
                raise
        if last.wait is not None and last.wait > LONGEST_WAIT:
            later = Failure("final", f"asks to wait for {last.wait:.0f} s.", "come back then.")
            raise FailureError(later)
        # Between a half and the whole, so that several clients do not come back together.
        time.sleep(pause * random.uniform(0.5, 1.0) if last.wait is None else last.wait)
        pause = min(2.0 * pause, LONGEST_PAUSE)
    raise AssertionError("the last attempt returns or raises")
