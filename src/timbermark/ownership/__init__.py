"""Keys, marks and evidence: small enough to read in an evening, free of the engine.

What proves ownership, and why nobody can be accused by chance or by choice, is in
docs/mark-format.md.
"""

from timbermark.ownership.claim import Claim
from timbermark.ownership.evidence import Answers, Level, Price, level, weigh
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.opening import OpenedMark, Opening, open_mark
from timbermark.ownership.seals import LeafSeal, SplitSeal

__all__ = [
    "Answers",
    "Claim",
    "LeafSeal",
    "Level",
    "Mark",
    "OpenedMark",
    "Opening",
    "OwnerKey",
    "Price",
    "SplitSeal",
    "level",
    "open_mark",
    "weigh",
]
