"""Mark gradient-boosted models, prove that they are yours, and see beforehand what it costs.

The names listed in ``__all__`` are the public face; nothing else is public. Each is imported when
it is first used, so that ``import timbermark`` itself is immediate: a verifier or the command line
never waits for the compiler of the training engine.

>>> import timbermark
>>> timbermark.__version__
'0.2.0'
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timbermark import errors
    from timbermark.attacks.lab import attack
    from timbermark.estimator import TimberClassifier, TimberRegressor
    from timbermark.guard.guarding import Guard, plan
    from timbermark.marking.budget import Budget
    from timbermark.marking.embedding import embed, rotate
    from timbermark.marking.models import load, save
    from timbermark.marking.warmup import warmup
    from timbermark.ownership.claim import Claim
    from timbermark.ownership.keys import OwnerKey
    from timbermark.ownership.mark import Mark
    from timbermark.ownership.opening import Opening, open_mark
    from timbermark.tracing.making import copies
    from timbermark.tracing.roll import Roll
    from timbermark.tracing.tracing import trace
    from timbermark.verification.disputes import Party, judge_dispute
    from timbermark.verification.endpoint import Endpoint
    from timbermark.verification.judge import claim, judge
    from timbermark.verification.verifying import verify

__version__ = "0.2.0"

__all__ = [
    "Budget",
    "Claim",
    "Endpoint",
    "Guard",
    "Mark",
    "Opening",
    "OwnerKey",
    "Party",
    "Roll",
    "TimberClassifier",
    "TimberRegressor",
    "__version__",
    "attack",
    "claim",
    "copies",
    "embed",
    "errors",
    "judge",
    "judge_dispute",
    "load",
    "open_mark",
    "plan",
    "rotate",
    "save",
    "trace",
    "verify",
    "warmup",
]

_HOME = {
    "Budget": "timbermark.marking.budget",
    "Claim": "timbermark.ownership.claim",
    "Endpoint": "timbermark.verification.endpoint",
    "Guard": "timbermark.guard.guarding",
    "Mark": "timbermark.ownership.mark",
    "Opening": "timbermark.ownership.opening",
    "OwnerKey": "timbermark.ownership.keys",
    "Party": "timbermark.verification.disputes",
    "Roll": "timbermark.tracing.roll",
    "TimberClassifier": "timbermark.estimator",
    "TimberRegressor": "timbermark.estimator",
    "attack": "timbermark.attacks.lab",
    "claim": "timbermark.verification.judge",
    "copies": "timbermark.tracing.making",
    "embed": "timbermark.marking.embedding",
    "judge": "timbermark.verification.judge",
    "judge_dispute": "timbermark.verification.disputes",
    "load": "timbermark.marking.models",
    "open_mark": "timbermark.ownership.opening",
    "plan": "timbermark.guard.guarding",
    "rotate": "timbermark.marking.embedding",
    "save": "timbermark.marking.models",
    "trace": "timbermark.tracing.tracing",
    "verify": "timbermark.verification.verifying",
    "warmup": "timbermark.marking.warmup",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home module on first use (PEP 562)."""
    if name == "errors":
        return import_module("timbermark.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'timbermark' has no attribute {name!r}")
    try:
        value: object = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from timbermark.errors import explain_missing

        raise explain_missing(error) or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, whether or not they are imported yet."""
    return sorted({*globals(), *__all__})
