"""Keep questions to a number per minute."""

from __future__ import annotations

import time


class RateLimit:
    """Limit questions to ``rate`` per minute; None sets no limit.

    >>> RateLimit(None).wait(5)
    """

    def __init__(self, rate: float | None) -> None:
        self._seconds = 0.0 if rate is None else 60.0 / rate
        self._next = time.monotonic()

    def wait(self, n: int) -> None:
        """Wait until n questions may be asked."""
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + n * self._seconds
