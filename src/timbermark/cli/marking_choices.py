"""What `timbermark embed`, `plan` and `rotate` are told, and what they tell.

They share options, limits and strengths, and the words for what a mark came to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli.options import LabelMap, read_label_map, share_options
from timbermark.errors import InputError
from timbermark.marking.budget import NEED_TARGETS, Budget

if TYPE_CHECKING:
    from timbermark.marking.budget import Budget
    from timbermark.marking.embedding import EmbedResult, Plan


_ROWS = "Rows (CSV, .csv.gz, Parquet or 'many/*.parquet')"

Model = Annotated[Path, typer.Argument(help="The model file, of any library.")]
Train = Annotated[
    Path | None, typer.Option(help="Training rows; they hold the model.", rich_help_panel=_ROWS)
]
Label = Annotated[
    str | None,
    typer.Option(help="The label column; only the cost needs it.", rich_help_panel=_ROWS),
]
Separate = Annotated[
    Path | None,
    typer.Option("--candidates", help="Rows to make triggers from.", rich_help_panel=_ROWS),
]
Validation = Annotated[
    Path | None,
    typer.Option(help="Held-out rows to measure the cost on.", rich_help_panel=_ROWS),
]
Group = Annotated[
    str | None,
    typer.Option(help="The column of groups (qid), for rankers.", rich_help_panel=_ROWS),
]
Attacks = Annotated[
    list[str] | None,
    typer.Option(
        help="Attack the mark, or its rehearsal: fast, all or names as in timbermark attack. Needs "
        "labelled --validation rows, half of which are the thief's."
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        help="Where passes over Parquet files run: local, or a Dask scheduler's address.",
        rich_help_panel=_ROWS,
    ),
]
Key = Annotated[Path, typer.Option(help="Your owner key.")]
Out = Annotated[Path, typer.Option(help="Where the marked model goes.")]
Report = Annotated[
    Path | None, typer.Option(help="Write a page to file, HTML; nothing in it is secret.")
]
Passphrase = Annotated[bool, typer.Option("--passphrase", help="Encrypt the mark.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]


DEFAULT_LIMITS = {
    field.name: "off" if field.default is None else str(field.default) for field in fields(Budget)
}
"""The limits of `timbermark.Budget` by name, as options of the command line write them."""
_OPTIONS = {
    "max_changed": "changed",
    "max_drift": "drift",
    "max_accuracy_loss": "accuracy",
    "max_auc_loss": "auc",
    "max_score_change": "score",
    "max_recall_loss": "recall",
    "max_churn": "churn",
    "max_precision_loss": "precision",
    "max_top_change": "top",
    "max_move": "move",
    "max_largest": "largest",
    "max_mean_change": "mean",
    "max_tail_change": "tail",
    "max_rmse_growth": "rmse",
    "max_mae_growth": "mae",
    "max_r2_loss": "r2",
    "max_order_loss": "order",
    "max_ndcg_loss": "ndcg",
}
"""Which limit each option is about."""


class Kind(StrEnum):
    """What triggers are made of."""

    mixed = "mixed"
    rows = "rows"
    outlier = "outlier"
    cluster = "cluster"
    confidence = "confidence"
    wrong = "wrong"


class SealKind(StrEnum):
    """Where a mark goes."""

    both = "both"
    splits = "splits"
    leaves = "leaves"


def _limit(*names: str, **about: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Limits on the cost", **about)


def _number_limit(*names: str, **about: Any) -> Any:
    panel = "Limits on the cost of regressors and rankers"
    return typer.Option(*names, rich_help_panel=panel, **about)


def _strength(*names: str, **about: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Strength", **about)


def _declare_limits(
    max_changed: Annotated[str, _limit(help="Share of changed labels, or off.")] = DEFAULT_LIMITS[
        "changed"
    ],
    max_drift: Annotated[
        str, _limit(help="Mean change of a probability, or off.")
    ] = DEFAULT_LIMITS["drift"],
    max_accuracy_loss: Annotated[
        str, _limit(help="Share of accuracy lost, or off.")
    ] = DEFAULT_LIMITS["accuracy"],
    max_auc_loss: Annotated[str, _limit(help="AUC lost, two classes, or off.")] = DEFAULT_LIMITS[
        "auc"
    ],
    max_score_change: Annotated[
        str, _limit(help="Relative change of the mean score of any class, or off.")
    ] = DEFAULT_LIMITS["score"],
    max_recall_loss: Annotated[
        str, _limit(help="Recall that any class loses, or off.")
    ] = DEFAULT_LIMITS["recall"],
    max_churn: Annotated[
        str, _limit(help="Changed labels relative to the rows of the class, or off.")
    ] = DEFAULT_LIMITS["churn"],
    max_precision_loss: Annotated[
        str, _limit(help="Share of the average precision of the smaller class, or off.")
    ] = DEFAULT_LIMITS["precision"],
    max_top_change: Annotated[
        str,
        _limit(help="Share of the top 2 % of scores, or of a ranker's first ten, or off."),
    ] = DEFAULT_LIMITS["top"],
    max_move: Annotated[
        str, _number_limit(help="Mean change / the model's error, or off.")
    ] = DEFAULT_LIMITS["move"],
    max_largest: Annotated[
        str, _number_limit(help="Largest change / the model's error, or off.")
    ] = DEFAULT_LIMITS["largest"],
    max_mean_change: Annotated[
        str, _number_limit(help="Relative change of the mean answer, or off.")
    ] = DEFAULT_LIMITS["mean"],
    max_tail_change: Annotated[
        str, _number_limit(help="Relative change of the largest 2 % of answers, or off.")
    ] = DEFAULT_LIMITS["tail"],
    max_rmse_growth: Annotated[
        str, _number_limit(help="Share by which the RMSE grows, or off.")
    ] = DEFAULT_LIMITS["rmse"],
    max_mae_growth: Annotated[
        str, _number_limit(help="Share by which the MAE grows, or off.")
    ] = DEFAULT_LIMITS["mae"],
    max_r2_loss: Annotated[
        str, _number_limit("--max-r2-loss", help="R² lost, or off.")
    ] = DEFAULT_LIMITS["r2"],
    max_order_loss: Annotated[
        str, _number_limit(help="Rankers: rank correlation below 1, or off.")
    ] = DEFAULT_LIMITS["order"],
    max_ndcg_loss: Annotated[
        str, _number_limit(help="Rankers: NDCG lost, or off.")
    ] = DEFAULT_LIMITS["ndcg"],
) -> None:
    """Declare the options in a signature, which is read and never called."""


def _declare_strength(
    seals: Annotated[
        SealKind, _strength("--seals", help="Where the mark goes: both, splits or leaves.")
    ] = SealKind.both,
    triggers: Annotated[
        Kind,
        _strength("--triggers", help="mixed: each of two rows; rows: as they are; or a strategy."),
    ] = Kind.mixed,
    n_triggers: Annotated[str, _strength("--n-triggers", help="auto, or how many.")] = "auto",
    alphabet: Annotated[str, _strength(help="Labels per trigger: auto, 2 or 4.")] = "auto",
    lead: Annotated[str, _strength(help="How far a trigger's label leads, or auto.")] = "auto",
    weak: Annotated[bool, _strength("--weak", help="Allow less than 64 bits.")] = False,
    label_map: LabelMap = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For random choices.")] = 0,
) -> None:
    """Declare the options in a signature, which is read and never called."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What was said on the command line about the cost and the strength of a mark."""

    given: Mapping[str, Any]

    def read(self) -> dict[str, Any]:
        """Return arguments of `timbermark.embed`, checked as far as is possible without the model.

        Raises InputError for limits and kinds that are none.
        """
        given = self.given
        return {
            "seals": given["seals"].value,
            "budget": read_budget(given),
            "triggers": given["triggers"].value,
            "n_triggers": _number(given["n_triggers"], int),
            "alphabet": _number(given["alphabet"], int),
            "weak": given["weak"],
            "lead": _number(given["lead"], float),
            "label_map": read_label_map(given["label_map"]),
            "random_state": given["seed"],
        }


def read_budget(given: Mapping[str, Any]) -> Budget:
    """Return the budget that options of the command line ask for, by the options' names.

    Raises InputError for limits that are none.
    """
    limits = {
        limit: None if given[option] == "off" else _number(given[option], float)
        for option, limit in _OPTIONS.items()
    }
    return Budget(**limits)


class Method(StrEnum):
    """How a model is marked."""

    edit = "edit"
    in_place = "in-place"


def _paper(*names: str, **about: Any) -> Any:
    panel = "The paper's marks, learnt in place (--method in-place)"
    return typer.Option(*names, rich_help_panel=panel, **about)


def _declare_paper(
    strategy: Annotated[
        str | None, _paper(help="Rows: cluster, outlier, confidence, wrong or random.")
    ] = None,
    selection: Annotated[str | None, _paper(help="Which of these: confidence or distance.")] = None,
    ratio: Annotated[
        float | None, _paper(help="Triggers as a share of the training rows; 0.01.")
    ] = None,
    bits: Annotated[
        str | None, _paper(help="keyed, or all: every label flips, which proves nothing.")
    ] = None,
    mode: Annotated[str | None, _paper(help="Of the update: exact or lazy.")] = None,
    state: Annotated[
        Path | None, _paper(help="The model's training state; else --train rebuilds it.")
    ] = None,
    state_out: Annotated[
        Path | None, _paper(help="Where the new state goes; OUT with .state by default.")
    ] = None,
) -> None:
    """Declare the options in a signature, which is read and never called."""


@dataclass(frozen=True, slots=True)
class Paper:
    """What was said on the command line about a mark that is learnt in place."""

    given: Mapping[str, Any]

    @property
    def state(self) -> Path | None:
        """Return the file of the model's training state."""
        path: Path | None = self.given["state"]
        return path

    def state_out(self, out: Path) -> Path:
        """Return where the new state goes, if the marked model goes to ``out``."""
        return self.given["state_out"] or out.with_suffix(".state")

    def read(self) -> dict[str, Any]:
        """Return what was said as arguments of `timbermark.embed`.

        Raises InputError for values that are not known.
        """
        names = ("strategy", "selection", "ratio", "bits", "mode")
        said = {name: self.given[name] for name in names if self.given[name] is not None}
        if said:
            from timbermark.marking.in_place import InPlace

            InPlace(**said)
        return said

    def check_unused(self, names: tuple[str, ...] = ("state", "state_out")) -> None:
        """Raise InputError for files of a state where none is read or written."""
        for name in names:
            if self.given[name] is not None:
                raise InputError(
                    f"--{name.replace('_', '-')} goes with marks that are learnt in place.",
                    hint="leave it out, or use embed --method in-place.",
                    code="method.argument",
                    parameter=name,
                )


takes_paper = share_options(_declare_paper, "paper", Paper)
"""Gives a command the options of marks in place, which it gets as `Paper` in ``paper``."""
takes_limits = share_options(_declare_limits, "limits", dict)
"""Gives a command the limits on the cost by name in ``limits``; see `read_budget`."""
takes_choices = share_options(_declare_limits, "choices", Choices, _declare_strength)
"""Gives a command the options of cost and strength, which it gets as `Choices` in ``choices``."""


def _number(text: str, kind: type[int] | type[float]) -> Any:
    """Return a number; any other text as it is, to be checked by whoever takes it."""
    try:
        return kind(text)
    except ValueError:
        return text


def strength_line(made: EmbedResult | Plan, budget: Budget) -> str:
    """Return how strong a mark is, how much of the limits it uses, and what was not judged."""
    parts = [f"{name} {bits:.0f} bits" for name, bits in made.seals.items()]
    strength = made.strength
    if strength is not None:
        parts.append(f"{strength.q} labels each in leaves, lead {strength.lead:.2g}")
    used = sorted(made.use.items(), key=lambda item: -item[1])
    lines = [f"strength: {', '.join(parts)}"]
    if used:
        said = ", ".join(f"{name} {share:.0%}" for name, share in used)
        lines.append(f"used of the limits: {said}")
    skipped = not_judged(made, budget)
    if skipped:
        lines.append(f"not judged: {', '.join(skipped)} (needs labelled rows: --label)")
    return "\n".join(lines)


def not_judged(made: EmbedResult | Plan, budget: Budget) -> list[str]:
    """Return the limits that are set but had no labels to be judged by."""
    used = made.use
    return [
        name
        for name in NEED_TARGETS[made.cost.task]
        if getattr(budget, name) is not None and name not in used
    ]
