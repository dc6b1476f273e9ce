"""Errors and notes in the words of the command line: flags in place of Python's parameters."""

from __future__ import annotations

import re
from collections.abc import Callable

from timbermark.cli.secrets import VARIABLE

_FLAGS = {
    "n_triggers": "--n-triggers",
    "triggers": "--triggers",
    "alphabet": "--alphabet",
    "lead": "--lead",
    "answers": "--answers",
    "share": "--share",
    "protocol": "--protocol",
    "decoys": "--decoys",
    "stop_at": "--stop-at",
    "in_doubt": "--in-doubt",
    "batch": "--batch",
    "rate": "--rate",
    "timeout": "--timeout",
    "retries": "--retries",
    "scale": "--scale",
    "cafile": "--cafile",
}
_LIMITS = {
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
}
_ASSIGNED = re.compile(
    rf"(?<![\w.-])({'|'.join(_FLAGS)})=('[^']*'|\"[^\"]*\"|[^\s,;]+?)(?=[\s,;]|\.?$)"
)
_LIMIT = re.compile(rf"The budget's ({'|'.join(_LIMITS)})=(.*?) must be None or")
_USED = re.compile(rf"times the budget for ({'|'.join(_LIMITS)}) \(([^)]*)\)")
_NOTHING = re.compile(rf"No mark fits a budget of 0 for ({'|'.join(_LIMITS)})\.")
_OTHERS = re.compile(rf"The budget's ({'|'.join(_LIMITS)}) is a limit for")
_ALLOW = re.compile(r"allow (\S+) for it")


def _as_flag(match: re.Match[str]) -> str:
    return f"--{match[1].replace('_', '-')} is for endpoints"


def _list_flags(match: re.Match[str]) -> str:
    return "it takes " + ", ".join(f"--{name}" for name in match[1].split(", ")) + "."


_PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"'auto'", "auto"),
    (r"allow a weak mark", "allow a weak mark with --weak"),
    (r"ask for (\d+) or more", r"use --n-triggers \1 or more"),
    (r"ask for at most (\d+)", r"use --n-triggers \1 at most"),
    (r"ask for (fewer|more) triggers", r"ask for \1 triggers with --n-triggers"),
    (r"\bor fewer triggers", "or ask for fewer triggers with --n-triggers"),
    (r"give more rows", "give more rows with --train or --candidates"),
    (r"with validation rows it", "with --validation it"),
    (r"or leave them out\.", "or leave --validation out."),
    (r"\bOwner is not a name", "--owner is not a name"),
    (r"or force=True to replace it", "or use --force to replace it"),
    (r"The judge's name is not a name", "--for is not a name"),
    (r"give a suspect to ask\.", "give a suspect to ask with --suspect."),
    (r"give the claim as its owner published it\.", "give it with --claim."),
    (r"or ask to overwrite it", "or use --force to overwrite it"),
    (r"as a token or as headers", "with --token-env, --token-file or --headers-file"),
    (r"\b(journal|decoys|decoys_from|stop_at|in_doubt) is for endpoints", _as_flag),
    (r"give a path to the", "give with --answer a path to the"),
    (r"A path to the answers can be given,", "A path to the answers can be given with --answer,"),
    (r"ask fewer questions at once", "ask fewer questions at once with --batch"),
    (r"give a body with", "give --body with"),
    (r"label_map=\{theirs: yours\}", "--label-map THEIRS=YOURS,…"),
    (r"\blabel_map (?=is |does )", "--label-map "),
    (r"\b(body|answer|output) is no option of", r"--\1 is no option of"),
    (r"^it takes ((?:body|answer|output)(?:, (?:body|answer|output))*)\.$", _list_flags),
    (r"give its passphrase\.", f"set {VARIABLE}, or answer the question on a terminal."),
)


def use_flags(message: str, hint: str = "") -> tuple[str, str]:
    """Return a message and its hint with parameters of Python as flags of the command line.

    >>> use_flags("n_triggers=8 makes a mark of at most 16 bits.", "or allow a weak mark.")
    ('--n-triggers 8 makes a mark of at most 16 bits.', 'or allow a weak mark with --weak.')
    >>> use_flags("It would use 2.0 times the budget for drift (0.01).", "allow 0.022 for it.")
    ('It would use 2.0 times --max-drift 0.01.', 'allow --max-drift 0.022.')
    """
    limit = _USED.search(message)
    if limit is not None:
        hint = _ALLOW.sub(rf"allow {_LIMITS[limit[1]]} \1", hint)
    return _translate(message), _translate(hint)


def _translate(text: str) -> str:
    text = _NOTHING.sub(lambda m: f"No mark fits {_LIMITS[m[1]]} 0.", text)
    text = _LIMIT.sub(lambda m: f"{_LIMITS[m[1]]} {_bare(m[2])} must be off or", text)
    text = _OTHERS.sub(lambda m: f"{_LIMITS[m[1]]} is a limit for", text)
    text = _USED.sub(lambda m: f"times {_LIMITS[m[1]]} {m[2]}", text)
    text = _ASSIGNED.sub(lambda m: f"{_FLAGS[m[1]]} {_bare(m[2])}", text)
    for pattern, flag in _PHRASES:
        text = re.sub(pattern, flag, text)
    return text


def _bare(value: str) -> str:
    return value.strip("'\"")
