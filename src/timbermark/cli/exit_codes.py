"""The exit codes of all commands. `timbermark.cli.main` gives those of errors."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timbermark.ownership.evidence import Level

DONE, NONE, BAD_INPUT, INDICATIVE, UNEXPECTED = 0, 1, 2, 3, 4
INTERRUPTED, ENDED = 128 + signal.SIGINT, 128 + signal.SIGTERM
EXIT_CODES = (
    "Exit codes: 0 done, for verify, judge and trace: conclusive; 3 indicative; 1 none; "
    "2 bad input; 4 anything unexpected; 130 interrupted; 143 ended."
)
_LEVELS = {"conclusive": DONE, "indicative": INDICATIVE, "none": NONE}
DISPUTES = {"first": DONE, "second": NONE, "undecided": INDICATIVE}
"""The exit codes of a dispute, by whose the model is."""


def exit_code(level: Level) -> int:
    """Return the exit code of a level of evidence.

    >>> exit_code("conclusive"), exit_code("indicative"), exit_code("none")
    (0, 3, 1)
    """
    return _LEVELS[level]
