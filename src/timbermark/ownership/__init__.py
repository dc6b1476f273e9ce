"""Keys, marks and verdicts: small enough to read in an evening, free of the training engine.

What proves ownership, and why nobody can be accused by chance or by choice, is in
docs/mark-format.md.
"""

from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.sealing import PassphraseError, PassphraseNeededError
from timbermark.ownership.statistics import (
    evidence_bits,
    level,
    log2_tail,
    matches_needed,
    p_value,
    show_p_value,
)
from timbermark.ownership.symbols import derive_symbols, query_order
from timbermark.ownership.verdict import Answer, Verdict
from timbermark.ownership.verifying import verify

__all__ = [
    "Answer",
    "Mark",
    "OwnerKey",
    "PassphraseError",
    "PassphraseNeededError",
    "Verdict",
    "derive_symbols",
    "evidence_bits",
    "level",
    "log2_tail",
    "matches_needed",
    "p_value",
    "query_order",
    "show_p_value",
    "verify",
]
