"""Results on stdout, as text or as JSON; notes and errors on stderr, in the words of flags.

An error of Python mentions a parameter as ``name=value``, or as the first word of its message where
it is the error's own ``parameter``. Here the same parameter is a flag.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from timbermark.cli.secrets import VARIABLE
from timbermark.errors import PassphraseNeededError, TimbermarkError

if TYPE_CHECKING:
    from timbermark.ownership.evidence import Level

DONE, NONE, BAD_INPUT, INDICATIVE, UNEXPECTED = 0, 1, 2, 3, 4
EXIT_CODES = (
    "Exit codes: 0 done, for verify and judge: conclusive; 3 indicative; 1 none; "
    "2 bad input; 4 anything unexpected; 130 interrupted."
)
_LEVELS = {"conclusive": DONE, "indicative": INDICATIVE, "none": NONE}
_SAME_NAME = (
    *("alphabet", "answer", "answers", "attacks", "batch", "bits", "body", "cafile", "candidates"),
    *("claim", "class_numbers", "classes", "colluders", "columns", "customer", "customers"),
    *("decoys", "decoys_from", "force", "group"),
    *("idempotency_header", "in_doubt", "journal", "key", "label", "label_map", "lead", "marked"),
    *("method", "mode", "ratio", "selection", "state", "state_out"),
    *("n_triggers", "output", "owner", "passphrase", "protocol", "rate", "report", "retries"),
    *("roll", "roots", "rows", "scale", "scheduler", "seed", "share", "stop_at", "strategy"),
    *("suspect",),
    *("timeout", "train", "triggers", "trust_journal", "tsa", "unmarked", "validation", "weak"),
)
_FLAGS = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME_NAME},
    "at_least": "--at-least",
    "max_changed": "--max-changed",
    "judge": "--for",
    "token": "--token-env or --token-file",
    "headers": "--headers-file",
    "changed": "--max-changed",
    "drift": "--max-drift",
    "accuracy": "--max-accuracy-loss",
    "auc": "--max-auc-loss",
    "move": "--max-move",
    "largest": "--max-largest",
    "rmse": "--max-rmse-growth",
    "mae": "--max-mae-growth",
    "r2": "--max-r2-loss",
    "order": "--max-order-loss",
    "ndcg": "--max-ndcg-loss",
    "score": "--max-score-change",
    "recall": "--max-recall-loss",
    "churn": "--max-churn",
    "precision": "--max-precision-loss",
    "top": "--max-top-change",
    "mean": "--max-mean-change",
    "tail": "--max-tail-change",
    "seals": "--seals",
}
_CLOSING = {"{": "}", "[": "]", "(": ")", "'": "'", '"': '"'}


def exit_code(level: Level) -> int:
    """Return the exit code of a level of evidence.

    >>> exit_code("conclusive"), exit_code("indicative"), exit_code("none")
    (0, 3, 1)
    """
    return _LEVELS[level]


def say_error(error: TimbermarkError) -> tuple[str, str]:
    """Return the message and the hint of an error, with flags in place of parameters.

    >>> from timbermark.errors import InputError
    >>> say_error(InputError("decoys is for endpoints.", hint="leave it out.", parameter="decoys"))
    ('--decoys is for endpoints.', 'leave it out.')
    """
    if isinstance(error, PassphraseNeededError):
        return error.message, f"set {VARIABLE}, or answer the question on a terminal."
    message, own = error.message, error.parameter
    if own in _FLAGS and message.startswith(own + " "):
        message = _FLAGS[own] + message.removeprefix(own)
    return use_flags(message), use_flags(error.hint)


def use_flags(text: str) -> str:
    """Return a text in which every ``name=value`` of a known parameter is a flag.

    >>> use_flags("share=0.5 is too little; give label_map={theirs: yours}, or force=True.")
    '--share 0.5 is too little; give --label-map theirs=yours, or --force.'
    """
    pieces, at = [], 0
    while (equals := text.find("=", at)) >= 0:
        start = equals
        while start > at and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
        name = text[start:equals]
        is_word = start == 0 or text[start - 1] in " ('\"\n"
        if name not in _FLAGS or not is_word:
            pieces.append(text[at : equals + 1])
            at = equals + 1
            continue
        end = _end_of_value(text, equals + 1)
        pieces += [text[at:start], _flag(name, text[equals + 1 : end])]
        at = end
    return "".join([*pieces, text[at:]])


def _end_of_value(text: str, start: int) -> int:
    closing = _CLOSING.get(text[start : start + 1])
    if closing is not None and (end := text.find(closing, start + 1)) >= 0:
        return end + 1
    end = start
    while end < len(text) and text[end] not in " ,;)":
        end += 1
    # A full stop ends the sentence, not the value.
    return end - 1 if text[start:end].endswith(".") else end


def _flag(name: str, value: str) -> str:
    if value == "True":
        return _FLAGS[name]
    if name == "label_map":
        value = value.strip("{}").replace(": ", "=")
    bare = value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value
    shown = f"'{bare}'" if name == "body" else bare
    return f"{_FLAGS[name]} {shown}"


def show(text: str) -> None:
    """Print a result on stdout; a reader that has gone away does not change the exit code."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        # The descriptor itself, because Python flushes the old stream once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_json(facts: Mapping[str, Any]) -> None:
    """Print facts as one line of JSON; numbers that JSON does not have become null."""
    show(json.dumps(_plain(facts), allow_nan=False))


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print one line for each fact that there is."""
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        if value is None or value == []:
            continue
        if isinstance(value, bool):
            value = "yes" if value else "no"
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        show(f"{name.replace('_', ' '):{width}}{value}")


def tell(notes: Iterable[str]) -> None:
    """Print notes on stderr, in the words of the command line."""
    for note in notes:
        typer.echo(f"note: {use_flags(note)}", err=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)
