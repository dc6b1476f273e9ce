"""Keys, marks, evidence and verdicts: small enough to read in an evening, free of the engine.

What proves ownership, and why nobody can be accused by chance or by choice, is in
docs/mark-format.md.
"""

from timbermark.ownership.claim import Claim
from timbermark.ownership.evidence import (
    levels_around,
    numbers_evidence,
    scores_evidence,
    sequential_evidence,
)
from timbermark.ownership.judging_answers import judge, judge_again
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.opening import OpenedMark, Opening, open_mark
from timbermark.ownership.statistics import (
    Level,
    evidence_bits,
    level,
    log2_tail,
    matches_needed,
    round_bits,
    show_chance,
)
from timbermark.ownership.suspects import Suspect, open_suspect
from timbermark.ownership.symbols import derive_seed, derive_symbols, query_order
from timbermark.ownership.transcript import Inquiry, Transcript
from timbermark.ownership.verdict import (
    Answer,
    EvidenceKind,
    Price,
    Verdict,
    price_of_columns,
    price_of_draws,
    price_of_kind,
    price_of_label_map,
)
from timbermark.ownership.verifying import verify

__all__ = [
    "Answer",
    "Claim",
    "EvidenceKind",
    "Inquiry",
    "Level",
    "Mark",
    "OpenedMark",
    "Opening",
    "OwnerKey",
    "Price",
    "Suspect",
    "Transcript",
    "Verdict",
    "derive_seed",
    "derive_symbols",
    "evidence_bits",
    "judge",
    "judge_again",
    "level",
    "levels_around",
    "log2_tail",
    "matches_needed",
    "numbers_evidence",
    "open_mark",
    "open_suspect",
    "price_of_columns",
    "price_of_draws",
    "price_of_kind",
    "price_of_label_map",
    "query_order",
    "round_bits",
    "scores_evidence",
    "sequential_evidence",
    "show_chance",
    "verify",
]
