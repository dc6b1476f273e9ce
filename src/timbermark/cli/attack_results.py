"""What `attack` and the option --attacks share: names of attacks, forecasts, the table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timbermark.cli.printing import show, show_json, tell
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult
    from timbermark.libraries.contract import ForeignModel
    from timbermark.marking.embedding import EmbedResult


def take_attacks(given: list[str] | None) -> str | list[str]:
    """Return what the lab takes for the words after --attacks, which commas may separate.

    >>> take_attacks(["refit:0.5,majority"]), take_attacks(None)
    (['refit:0.5', 'majority'], 'fast')
    """
    words = [word.strip() for text in given or ["fast"] for word in text.split(",")]
    words = [word for word in words if word]
    return words[0] if len(words) == 1 and words[0] in ("all", "fast", "chains") else words


def show_found(found: AttackResult, as_json: bool) -> None:
    """Print what the lab found, and its notes."""
    from timbermark.attacks.results import explain, summarize

    tell(explain(found))
    if as_json:
        show_json(found.to_dict())
        return
    show(str(found))
    summary = summarize(found)
    if summary:
        show(summary)


def check_attacks(given: list[str] | None, validation: Path | None) -> str | list[str] | None:
    """Return the attacks to try, None for none. Raises InputError for unknown ones."""
    if not given:
        return None
    from timbermark.attacks.registry import find_attacks

    wanted = take_attacks(given)
    find_attacks(wanted)
    if validation is None:
        raise InputError(
            "--attacks needs rows that the model was not trained on.",
            hint="give them with --validation, and their labels with --label.",
        )
    return wanted


def check_forecast(
    model: ForeignModel, rows: dict[str, Any], label_map: Mapping[str, str] | None = None
) -> None:
    """Raise InputError if the validation rows are too few for attacks or have no labels."""
    from timbermark.attacks.lab import take_validation
    from timbermark.boosting.progress import step_bar

    with step_bar(True) as say:
        take_validation(model, rows["validation"], say, label_map)


def try_attacks(
    result: EmbedResult, rows: dict[str, Any], wanted: str | list[str], chosen: dict[str, Any]
) -> AttackResult:
    """Return what a mark survives that was just made, by a thief who has the validation rows."""
    from timbermark.attacks.lab import attack

    X, y, groups = (*rows["validation"], None)[:3]
    return attack(
        result.model,
        result.mark,
        X,
        y,
        groups=groups,
        label_map=chosen["label_map"],
        attacks=wanted,
        random_state=chosen["random_state"],
        progress=True,
    )


def forecast(
    model: ForeignModel, rows: dict[str, Any], choices: dict[str, Any], wanted: str | list[str]
) -> AttackResult:
    """Return what a rehearsed mark survives."""
    from timbermark.attacks import lab

    return lab.forecast(model, **rows, **choices, attacks=wanted, progress=True)
