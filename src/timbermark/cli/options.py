"""Options that several commands have, declared once, and what they name: servers, rows, secrets.

Passphrases come from a prompt or the environment, never from the command line.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from timbermark.cli.tables import LOCAL, is_pattern, on_scheduler, read_table
from timbermark.errors import InputError
from timbermark.files import container_kind
from timbermark.marking.budget import Budget

if TYPE_CHECKING:
    import numpy as np

    from timbermark.ownership.keys import OwnerKey
    from timbermark.ownership.mark import Mark
    from timbermark.tracing.roll import Roll

Loaded = TypeVar("Loaded")
VARIABLE = "TIMBERMARK_PASSPHRASE"
FLAGS: dict[str, str] = {
    "token": "--token-env or --token-file", "headers": "--headers-file", "judge": "--for",
    "unmarked": "--unmarked",
}  # fmt: skip
"""The flag of every parameter that is an option of a command; commands add those not here yet."""


def command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], None]:
    """Return a decorator that makes a function a command.

    A parameter whose type is a data class stands for a group of options: the command has all fields
    of the class as options and gets them together as one object.

    >>> @dataclass(frozen=True)
    ... class Flags:
    ...     loud: bool = False
    >>> app = typer.Typer()
    >>> @command(app)
    ... def greet(who: str, flags: Flags) -> None:
    ...     print(who, flags.loud)
    >>> app(["Ann", "--loud"], standalone_mode=False)
    Ann True
    """

    def register(function: Callable[..., None]) -> None:
        own = inspect.signature(function, eval_str=True).parameters.values()
        groups: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
        shown = [p for p in own if p.name not in groups]
        for group in groups.values():
            kinds = get_type_hints(group, include_extras=True)
            options = inspect.signature(group).parameters.values()
            shown += [option.replace(annotation=kinds[option.name]) for option in options]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            for parameter, group in groups.items():
                given[parameter] = group(**{f.name: given.pop(f.name) for f in fields(group)})
            function(**given)

        shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
        # Typer reads the signature and the annotations, and looks behind no wrapper.
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        del run.__wrapped__
        for parameter, flag in _list_flags(shown).items():
            FLAGS.setdefault(parameter, flag)
        app.command(name)(run)

    return register


def _list_flags(parameters: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Return the flags of parameters that are options, by the parameter's name."""
    found = {}
    for parameter in parameters:
        for about in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(about, typer.models.OptionInfo) and parameter.name not in _WORDS:
                # Typer takes the first flag for a default, until it makes the command.
                named = [n for n in (about.default, *(about.param_decls or ())) if n is not ...]
                found[parameter.name] = str(named[0]) if named else _flag_of(parameter.name)
    return found


_WORDS = frozenset({"mark", "model", "name", "seeds", "jobs"})
"""Options that are arguments of other commands, have another meaning in Python, or are those of
`reproduce`, which is a command alone."""


def option(about: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """Return the declaration of an option; ``flags``: its name, if not that of the parameter."""
    return typer.Option(*flags, help=about, rich_help_panel=panel, **more)


def argument(about: str) -> Any:
    """Return the declaration of an argument."""
    return typer.Argument(help=about)


class Answers(StrEnum):
    """What a suspect is asked for."""

    auto = "auto"
    labels = "labels"
    scores = "scores"
    numbers = "numbers"


_ROWS = "Rows (CSV, .csv.gz, Parquet or 'many/*.parquet')"
_SERVER, _ASKING = "Endpoints: the server", "Endpoints: asking"
_LIMITS, _OF_NUMBERS = "Limits on the cost", "Limits on the cost of regressors and rankers"
_STRENGTH, _PAPER = "Strength", "The paper's marks, learnt in place (--method in-place)"
DECOYS_FROM = "Rows whose values decoys take; many/*.parquet will do."

Protocol = StrEnum(
    "Protocol",
    {"auto": "auto", "mlflow": "mlflow", "v1": "kserve-v1", "v2": "kserve-v2", "json": "json"},
)
Scale = StrEnum("Scale", ["auto", "probabilities", "margins"])
InDoubt = StrEnum("InDoubt", ["ask", "skip"])
Method = StrEnum("Method", [("edit", "edit"), ("in_place", "in-place")])
Kind = StrEnum("Kind", ["mixed", "rows", "outlier", "cluster", "confidence", "wrong"])
SealKind = StrEnum("SealKind", ["both", "splits", "leaves"])

Model = Annotated[Path, argument("The model file, of any library.")]
MarkedModel = Annotated[Path, argument("The marked model's file, of any library.")]
SecretMark = Annotated[Path, argument("Your secret mark.")]
SecretRoll = Annotated[Path, argument("Your secret roll.")]
Suspect = Annotated[
    str, argument("A model file of any library, an https:// address, or answers.csv.")
]
Train = Annotated[Path | None, option("Training rows; they hold the model.", panel=_ROWS)]
Label = Annotated[str | None, option("The label column; only the cost needs it.", panel=_ROWS)]
Separate = Annotated[
    Path | None, option("Rows to make triggers from.", "--candidates", panel=_ROWS)
]
Validation = Annotated[Path | None, option("Held-out rows to measure the cost on.", panel=_ROWS)]
Group = Annotated[str | None, option("The column of groups (qid), for rankers.", panel=_ROWS)]
Scheduler = Annotated[
    str,
    option(
        "Where passes over Parquet files run: local, or a Dask scheduler's address.", panel=_ROWS
    ),
]
Attacks = Annotated[
    list[str] | None,
    option(
        "Attack the mark, or its rehearsal: fast, all or names as in timbermark attack. Needs "
        "labelled --validation rows, half of which are the thief's."
    ),
]
Key = Annotated[Path, option("Your owner key.")]
Signer = Annotated[Path, option("Your owner key, which signs.")]
Owner = Annotated[str, option('Whom the mark speaks for, as "Ann Ltd".')]
Claimed = Annotated[Path, option("The claim that was published for it.")]
Judge = Annotated[str, option("The name of the judge who asks.", "--for")]
Authority = Annotated[str, option("Address of a time-stamping authority (RFC 3161) to ask.")]
AnswersWanted = Annotated[Answers, option("What counts; another kind than auto takes costs a bit.")]
SuspectLabels = Annotated[
    str | None, option("Its labels and the mark's, as no=0,yes=1, if they differ; costs bits.")
]
LabelMap = Annotated[str | None, option("Which class each label of the rows is, as in no=0,yes=1.")]
"""The labels of rows where a model's file has none, for `embed`, `plan` and `attack`."""
Out = Annotated[Path, option("Where the marked model goes.")]
Report = Annotated[Path | None, option("Write a page to file, HTML; nothing in it is secret.")]
Seed = Annotated[int, option("For random choices.", min=0, max=2**32 - 1)]
Passphrase = Annotated[bool, option("Encrypt the secret file.", "--passphrase")]
Force = Annotated[bool, option("Overwrite existing files.", "--force")]
Json = Annotated[bool, option("For machines.", "--json")]


def _server(about: str, *flags: str) -> Any:
    return option(about, *flags, panel=_SERVER)


def _asking(about: str) -> Any:
    return option(about, panel=_ASKING)


def _refuse_secret(suspect: Path) -> None:
    """Raise InputError if the suspect's place is taken by a mark or a roll."""
    if suspect.stat() and suspect.is_dir():
        return
    if (kind := container_kind(suspect)) in ("mark", "roll"):
        raise InputError(
            f"{suspect} is a {kind}, not a suspect.",
            hint=f"the suspect comes first, then the {kind}.",
            code="suspect.secret",
            parameter="suspect",
        )


@dataclass(frozen=True, kw_only=True)
class EndpointFlags:
    """What was said on the command line about a server and about asking it."""

    protocol: Annotated[Protocol | None, _server("What it speaks; auto: the address tells.")] = None
    body: Annotated[
        str | None, _server('Template of the request, as {"rows": "$rows"}, or @file.')
    ] = None
    answer: Annotated[str | None, _server("Path to the answers, as results.*.label.")] = None
    output: Annotated[str | None, _server("kserve-v2: the output to ask for.")] = None
    columns: Annotated[
        str | None, _server("Its names of the columns in its order, with commas.")
    ] = None
    classes: Annotated[
        str | None, _server("The classes of its scores in their order, with commas.")
    ] = None
    class_numbers: Annotated[
        bool, _server("It answers with numbers from 0 for classes.", "--class-numbers")
    ] = False
    scale: Annotated[Scale | None, _server("What its scores are.")] = None
    token_env: Annotated[str | None, _server("Environment variable that holds a bearer token.")] = (
        None
    )
    token_file: Annotated[Path | None, _server("File that holds a bearer token.")] = None
    headers_file: Annotated[
        Path | None, _server("File of further headers, one Name: value on a line.")
    ] = None
    cafile: Annotated[Path | None, _server("Certificates to trust, PEM.")] = None
    timeout: Annotated[float | None, _server("Seconds for each request.  [30]")] = None
    retries: Annotated[int | None, _server("Of each request.  [6]")] = None
    idempotency_header: Annotated[
        str | None, _server("Header for a key that a repeated request has again.")
    ] = None
    batch: Annotated[int | None, _asking("Questions in each request.  [1]")] = None
    rate: Annotated[float | None, _asking("Questions per minute, at most.")] = None
    journal: Annotated[Path | None, _asking("Keeps every answer; resumes an interrupted run.")] = (
        None
    )
    decoys: Annotated[int | None, _asking("Decoys for each trigger.  [1]")] = None
    decoys_from: Annotated[Path | None, _asking(DECOYS_FROM)] = None
    scheduler: Annotated[
        str | None,
        _asking(
            "Where many files of --decoys-from are read: local, or a Dask scheduler's address."
        ),
    ] = None
    stop_at: Annotated[str | None, _asking("Bits that are enough; off asks everything.  [64]")] = (
        None
    )
    in_doubt: Annotated[
        InDoubt | None, _asking("After a crash: ask again what was under way, or skip it.")
    ] = None

    def open(self, suspect: str) -> Any:
        """Return an `Endpoint` for an address; any other suspect as it is.

        Raises InputError for options of servers with a file, and OSError for a file that is not
        there.
        """
        from timbermark.verification.endpoint import Endpoint
        from timbermark.verification.suspects import is_url

        server = self._read_server()
        if is_url(suspect):
            return Endpoint(suspect, **server)
        if server:
            raise InputError(
                f"{_flag_of(next(iter(server)))} is for endpoints.", hint="leave it out for a file."
            )
        _refuse_secret(Path(suspect))  # before a passphrase is asked for
        return suspect

    def asking(self, feature_names: Sequence[str] | None, columns: Any) -> dict[str, Any]:
        """Return how it is asked: arguments of `timbermark.verify`; names, columns: the mark's."""
        rows = read_rows(feature_names, self.decoys_from, columns, self.scheduler or LOCAL)
        return {
            "journal": self.journal,
            "decoys": self.decoys,
            "decoys_from": rows,
            "stop_at": _read_stop(self.stop_at),
            "in_doubt": self.in_doubt and self.in_doubt.value,
        }

    def refuse(self, reason: str, *, only_asking: bool = False) -> None:
        """Raise InputError if any of them, or any about asking, was given."""
        asking = ("journal", "decoys", "decoys_from", "scheduler", "stop_at", "in_doubt")
        for name in asking if only_asking else [field.name for field in fields(self)]:
            if getattr(self, name) not in (None, False):
                raise InputError(f"{_flag_of(name)} is given {reason}.", hint="leave it out.")

    def _read_server(self) -> dict[str, Any]:
        server: dict[str, Any] = {
            "protocol": self.protocol and self.protocol.value,
            "body": read_body(self.body),
            "answer": self.answer,
            "output": self.output,
            "columns": split_words(self.columns),
            "classes": split_words(self.classes),
            "class_numbers": self.class_numbers or None,
            "scale": self.scale and self.scale.value,
            "token": _read_token(self.token_env, self.token_file),
            "headers": _read_headers(self.headers_file) or None,
            **{name: getattr(self, name) for name in ("cafile", "timeout", "retries")},
            **{name: getattr(self, name) for name in ("idempotency_header", "batch", "rate")},
        }
        return {name: value for name, value in server.items() if value is not None}


def _flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def refuse_beside(what: str, *said: Any) -> None:
    """Raise InputError for an option of groups of options that was given: it would do nothing."""
    for group in said:
        for part in fields(group):
            if getattr(group, part.name) != part.default:
                raise InputError(
                    f"{_flag_of(part.name)} is not for {what}.",
                    hint="leave it out.",
                    code="guard.option",
                    parameter=part.name,
                )


def _read_token(variable: str | None, file: Path | None) -> str | None:
    """Return the token from an environment variable or from a file; None if neither is named."""
    if variable is not None and file is not None:
        raise InputError("--token-env and --token-file are both given.", hint="give one of them.")
    if variable is not None:
        token = os.environ.get(variable, "").strip()
        if not token:
            raise InputError(
                f"The environment variable {variable} holds no token.", hint="set it, or leave out."
            )
        return token
    if file is None:
        return None
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if not token:
        raise InputError(f"{file} holds no token.", hint="write it there, and nothing else.")
    return token


def _read_headers(file: Path | None) -> dict[str, str]:
    """Return the headers in a file, one "Name: value" on each line."""
    headers: dict[str, str] = {}
    text = "" if file is None else file.read_text(encoding="utf-8", errors="replace")
    for line in filter(str.strip, text.splitlines()):
        name, _, value = line.partition(":")
        if ":" not in line or not name.strip():
            # The line is not shown: it may be a secret.
            raise InputError(
                f"{file} holds a line that is no header.", hint='as in "X-Api-Key: …".'
            )
        headers[name.strip()] = value.strip()
    return headers


def read_body(given: str | None) -> Any:
    """Return the template of the request: JSON, or @ and the name of a file that holds it."""
    if given is None:
        return None
    if given.startswith("@"):
        given = Path(given[1:]).read_text(encoding="utf-8", errors="replace")
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"The template of the request is no JSON ({error}).",
            hint='as in \'{"rows": "$rows"}\'.',
            code="template",
            parameter="body",
        ) from None


def _read_stop(given: str | None) -> float | str | None:
    """Return the bits at which asking stops: a number, auto or off."""
    if given is None or given in ("auto", "off"):
        return given
    try:
        return float(given)
    except ValueError:
        raise InputError(
            f"--stop-at {given[:40]} is neither a number of bits nor off.",
            hint="64 bits convince anyone, 20 convince you.",
        ) from None


def _limit(about: str, *flags: str, numbers: bool = False) -> Any:
    return option(f"{about}, or off.", *flags, panel=_OF_NUMBERS if numbers else _LIMITS)


_number = functools.partial(_limit, numbers=True)
_OFF = {
    field.name: "off" if field.default is None else str(field.default) for field in fields(Budget)
}
"""The limits of `timbermark.Budget` by name, as options of the command line write them."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What was said on the command line about the cost of a mark.

    The second word of an option is the limit of `timbermark.Budget` that it sets.
    """

    max_changed: Annotated[str, _limit("Share of changed labels")] = _OFF["changed"]
    max_drift: Annotated[str, _limit("Mean change of a probability")] = _OFF["drift"]
    max_accuracy_loss: Annotated[str, _limit("Share of accuracy lost")] = _OFF["accuracy"]
    max_auc_loss: Annotated[str, _limit("AUC lost, two classes")] = _OFF["auc"]
    max_score_change: Annotated[str, _limit("Relative change of the mean score of any class")] = (
        _OFF["score"]
    )
    max_recall_loss: Annotated[str, _limit("Recall that any class loses")] = _OFF["recall"]
    max_churn: Annotated[str, _limit("Changed labels relative to the rows of the class")] = _OFF[
        "churn"
    ]
    max_precision_loss: Annotated[
        str, _limit("Share of the average precision of the smaller class")
    ] = _OFF["precision"]
    max_top_change: Annotated[
        str, _limit("Share of the top 2 % of scores, or of a ranker's first ten")
    ] = _OFF["top"]
    max_move: Annotated[str, _number("Mean change / the model's error")] = _OFF["move"]
    max_largest: Annotated[str, _number("Largest change / the model's error")] = _OFF["largest"]
    max_mean_change: Annotated[str, _number("Relative change of the mean answer")] = _OFF["mean"]
    max_tail_change: Annotated[str, _number("Relative change of the largest 2 % of answers")] = (
        _OFF["tail"]
    )
    max_rmse_growth: Annotated[str, _number("Share by which the RMSE grows")] = _OFF["rmse"]
    max_mae_growth: Annotated[str, _number("Share by which the MAE grows")] = _OFF["mae"]
    max_r2_loss: Annotated[str, _number("R² lost", "--max-r2-loss")] = _OFF["r2"]
    max_order_loss: Annotated[str, _number("Rankers: rank correlation below 1")] = _OFF["order"]
    max_ndcg_loss: Annotated[str, _number("Rankers: NDCG lost")] = _OFF["ndcg"]

    def budget(self) -> Budget:
        """Return the budget that is asked for. Raises InputError for limits that are none."""
        said = {field.name: getattr(self, field.name) for field in fields(Limits)}
        return Budget(
            **{
                limit_of(name): None if value == "off" else _read_number(value, float)
                for name, value in said.items()
            }
        )


def limit_of(name: str) -> str:
    """Return the limit of `timbermark.Budget` that an option sets.

    >>> limit_of("max_accuracy_loss")
    'accuracy'
    """
    return name.split("_")[1]


FLAGS.update({limit_of(field.name): _flag_of(field.name) for field in fields(Limits)})


def _strength(about: str, *flags: str) -> Any:
    return option(about, *flags, panel=_STRENGTH)


@dataclass(frozen=True, kw_only=True)
class Choices(Limits):
    """What was said on the command line about the cost and the strength of a mark."""

    seals: Annotated[
        SealKind, _strength("Where the mark goes: both, splits or leaves.", "--seals")
    ] = SealKind.both
    triggers: Annotated[
        Kind,
        _strength("mixed: each of two rows; rows: as they are; or a strategy.", "--triggers"),
    ] = Kind.mixed
    n_triggers: Annotated[str, _strength("auto, or how many.", "--n-triggers")] = "auto"
    alphabet: Annotated[str, _strength("Labels per trigger: auto, 2 or 4.")] = "auto"
    lead: Annotated[str, _strength("How far a trigger's label leads, or auto.")] = "auto"
    weak: Annotated[bool, _strength("Allow less than 64 bits.", "--weak")] = False
    label_map: LabelMap = None
    seed: Seed = 0

    def read(self) -> dict[str, Any]:
        """Return arguments of `timbermark.embed`, checked as far as is possible without the model.

        Raises InputError for limits and kinds that are none.
        """
        return {
            "seals": self.seals.value,
            "budget": self.budget(),
            "triggers": self.triggers.value,
            "n_triggers": _read_number(self.n_triggers, int),
            "alphabet": _read_number(self.alphabet, int),
            "weak": self.weak,
            "lead": _read_number(self.lead, float),
            "label_map": read_label_map(self.label_map),
            "random_state": self.seed,
        }


def _read_number(text: str, kind: type[int] | type[float]) -> Any:
    """Return a number; any other text as it is, to be checked by whoever takes it."""
    try:
        return kind(text)
    except ValueError:
        return text


def _paper(about: str) -> Any:
    return option(about, panel=_PAPER)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What was said on the command line about a mark that is learnt in place."""

    strategy: Annotated[
        str | None, _paper("Rows: cluster, outlier, confidence, wrong or random.")
    ] = None
    selection: Annotated[str | None, _paper("Which of these: confidence or distance.")] = None
    ratio: Annotated[float | None, _paper("Triggers as a share of the training rows; 0.01.")] = None
    bits: Annotated[
        str | None, _paper("keyed, or all: every label flips, which proves nothing.")
    ] = None
    mode: Annotated[str | None, _paper("Of the update: exact or lazy.")] = None
    state: Annotated[
        Path | None, _paper("The model's training state; else --train rebuilds it.")
    ] = None
    state_out: Annotated[
        Path | None, _paper("Where the new state goes; OUT with .state by default.")
    ] = None

    def read(self) -> dict[str, Any]:
        """Return what was said as arguments of `timbermark.embed`.

        Raises InputError for values that are not known.
        """
        names = ("strategy", "selection", "ratio", "bits", "mode")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if said:
            from timbermark.marking.in_place import InPlace

            InPlace(**said)
        return said

    def target(self, in_place: bool, out: Path) -> Path | None:
        """Return where the new state goes if the marked model goes to ``out``.

        Raises InputError for files of a state where none is read or written.
        """
        if in_place:
            return self.state_out or out.with_suffix(".state")
        self.check_unused("state", "state_out")
        return None

    def check_unused(self, *names: str) -> None:
        """Raise InputError for files of a state that are given."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(
                    f"{_flag_of(name)} goes with marks that are learnt in place.",
                    hint="leave it out, or use embed --method in-place.",
                    code="method.argument",
                    parameter=name,
                )


def split_words(given: str | None) -> list[str] | None:
    """Return words that are separated by commas.

    >>> split_words("age, income")
    ['age', 'income']
    """
    return None if given is None else [word.strip() for word in given.split(",")]


def read_label_map(given: str | None) -> dict[str, str] | None:
    """Return labels of a suspect or of rows, and the classes for them, as in "a=1,b=2".

    >>> read_label_map("no=0, yes=1")
    {'no': '0', 'yes': '1'}
    """
    if given is None:
        return None
    pairs = [word.partition("=") for word in split_words(given) or ()]
    label_map = {theirs.strip(): yours.strip() for theirs, _, yours in pairs}
    if not all(sign for _, sign, _ in pairs) or len(label_map) < len(pairs):
        raise InputError(
            f"--label-map {given[:40]} does not say once for each label which class it is.",
            hint="as in --label-map no=0,yes=1.",
        )
    return label_map


def read_rows(
    feature_names: Sequence[str] | None,
    path: Path | None,
    columns: Sequence[Sequence[str | None] | np.ndarray] | None = None,
    scheduler: str = LOCAL,
    label: str | None = None,
) -> Any:
    """Return rows of a file in the mark's columns; None without a file.

    ``label``: a column that is none of the mark's. ``columns``: the mark's, which are numbers or
    texts; None where only the table tells. What the mark has no value of is missing. Of many
    files, and of Parquet where there is a cluster, some rows are enough.
    """
    from timbermark.files.tables import is_parquet

    if path is not None and (is_pattern(path) or (scheduler != LOCAL and is_parquet(path))):
        from timbermark.verification.questions import sample_rows

        with on_scheduler(scheduler, [str(path)]):
            return sample_rows(path, feature_names)
    with on_scheduler(scheduler, []):
        pass  # which refuses one that has nothing to do
    if path is None:
        return None
    if columns is None:
        return read_table(path, feature_names, label, None).X
    texts = [place for place, column in enumerate(columns) if isinstance(column, tuple)]
    # In columns that the mark has no value of there may be anything; a decoy has none, either.
    known = {
        place: None
        for place, column in enumerate(columns)
        if all(value is None or value != value for value in column)
    }
    X = read_table(path, feature_names, label, frozenset([*texts, *known]), known).X
    if known:
        X[:, list(known)] = None
    return X


def new_passphrase(wanted: bool) -> str | None:
    """Return a passphrase to protect a new file with, asked for twice; None if none is wanted."""
    if not wanted:
        return None
    given = os.environ.get(VARIABLE)
    if given is None:
        given = _ask(twice=True)
    if not given.strip():
        raise InputError("The passphrase is empty.", hint="leave --passphrase out for none.")
    return given


def unlock(load: Callable[[str | None], Loaded]) -> Loaded:
    """Return the result of ``load(passphrase)``; ask for a passphrase only if it is needed."""
    loaded, encrypted = try_to_unlock(load)
    if loaded is None and encrypted:
        return load(None)  # which says that a passphrase is needed
    assert loaded is not None
    return loaded


def try_to_unlock(load: Callable[[str | None], Loaded]) -> tuple[Loaded | None, bool]:
    """Return what ``load(passphrase)`` gives, and whether a passphrase was needed.

    The first is None if it was needed and there is neither one in the environment nor a terminal
    to ask on.
    """
    from timbermark.errors import PassphraseNeededError

    try:
        return load(None), False
    except PassphraseNeededError:
        given = os.environ.get(VARIABLE)
        if given is None and not sys.stdin.isatty():
            return None, True
        return load(_ask(twice=False) if given is None else given), True


def load_mark(path: Path) -> Mark:
    """Return the mark in a file."""
    from timbermark.ownership.mark import Mark

    return unlock(lambda secret: Mark.load(path, secret))


def load_key(path: Path) -> OwnerKey:
    """Return the owner key in a file."""
    from timbermark.ownership.keys import OwnerKey

    return unlock(lambda secret: OwnerKey.load(path, secret))


def is_roll(path: Path) -> bool:
    """Return whether a file says that it is a roll."""
    from timbermark.files import container_kind

    return container_kind(path) == "roll"


def load_roll(path: Path) -> Roll:
    """Return the roll in a file."""
    from timbermark.tracing.roll import Roll

    return unlock(lambda secret: Roll.load(path, secret))


def _ask(twice: bool) -> str:
    if twice and not sys.stdin.isatty():
        raise InputError(
            "There is no terminal to ask for a passphrase on.", hint=f"set {VARIABLE}."
        )
    try:
        return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=twice, err=True))
    except typer.Abort as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise InputError("No passphrase was given.", hint=f"type one, or set {VARIABLE}.") from None
