"""`timbermark embed`, `plan` and `rotate`: a mark, the rehearsal of one, and a new one for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.attack import check_attacks, check_forecast, show_found
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import (
    Output,
    check_ending,
    show,
    show_json,
    tell,
    use_flags,
    write_both,
)
from timbermark.cli.tables import check_width, list_features, on_scheduler, read_given
from timbermark.errors import InputError
from timbermark.marking.budget import NEED_TARGETS, Budget

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult
    from timbermark.libraries.contract import ForeignModel
    from timbermark.marking.embedding import EmbedResult, Plan
    from timbermark.ownership.keys import OwnerKey

How = Annotated[options.Method, option("edit: seals; in-place: as in the paper, our own models.")]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The tables that were named on the command line."""

    train: options.Train = None
    label: options.Label = None
    group: options.Group = None
    candidates: options.Separate = None
    validation: options.Validation = None
    scheduler: options.Scheduler = "local"

    @property
    def files(self) -> dict[str, Path | None]:
        """Return the file behind each flag. Raises InputError if there are no rows for triggers."""
        if self.train is None and self.candidates is None:
            raise InputError(
                "There are no rows to make triggers from.",
                hint="give the training rows with --train, or rows like them with --candidates.",
            )
        return {
            "--train": self.train,
            "--candidates": self.candidates,
            "--validation": self.validation,
        }

    def read(
        self, model: ForeignModel, label_map: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the tables as arguments of `timbermark.embed`.

        ``label_map``: labels are left as they are written, for `timbermark.embed` to map.
        """
        self._check_group(model)
        paths = {name: path for name, path in self.files.items() if path is not None}
        names = None
        if self.group is not None and model.feature_names is None:
            names = list_features(next(iter(paths.values())), (self.label, self.group))
        given = {
            name: read_given(
                model, path, self.label, names=names, group=self.group, scheduler=self.scheduler,
                mapped=label_map is not None,
            )
            for name, path in paths.items()
        }  # fmt: skip
        bare = [paths[name] for name, table in given.items() if table[1] is None]
        if self.label is not None and len(bare) == len(given):
            raise InputError(
                f"{bare[0]} has no column '{self.label}'.", hint="check the name after --label."
            )
        if self.label is not None:
            tell(
                f"{p} has no column '{self.label}': its rows are used without labels." for p in bare
            )
        if model.feature_names is None:
            for name, path in paths.items():
                check_width(model, path, given[name][0])
        X, y, groups = given.get("--train", (None, None, None))
        found = {"X": X, "y": y, "groups": groups}
        for name in ("candidates", "validation"):
            X, *more = given.get(f"--{name}", (None, None, None))
            kept = [part for part in more if part is not None]
            found[name] = (X, *kept) if kept else X
        return found

    def passes(self, given: Mapping[str, Any]) -> Any:
        """Return the context in which passes over the tables that were read run on --scheduler."""
        tables = [given[name] for name in ("X", "candidates", "validation")]
        rows = [table[0] if isinstance(table, tuple) else table for table in tables]
        return on_scheduler(self.scheduler, rows)

    def _check_group(self, model: ForeignModel) -> None:
        if self.group is None:
            return
        if model.task != "ranking":
            raise InputError(
                f"--group is for rankers, and the model is one of {model.task}.",
                hint="leave it out.",
            )
        if self.label is None:
            raise InputError("--group needs the relevance of rows.", hint="name it with --label.")


@dataclass(frozen=True, kw_only=True)
class Target(Output):
    """Where a marked model and its mark go, and whose key makes the mark."""

    key: options.Key
    out: options.Out
    mark: Annotated[Path, option("Where the secret mark goes.")]
    passphrase: options.Passphrase = False


@command(app)
def plan(
    model: options.Model,
    rows: Rows,
    choices: options.Choices,
    paper: options.Paper,
    attacks: options.Attacks = None,
    method: How = options.Method.edit,
    guard: Annotated[
        bool, option("Show what a guard costs on the rows of --validation.", "--guard")
    ] = False,
    share: Annotated[
        float | None, option("With --guard: the part of answers drawn.  [0.01]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Rehearse a mark and show its strength, its cost and what it survives; writes nothing."""
    if guard:
        from timbermark.cli.guard import plan_guard

        options.refuse_beside("a guard", choices, paper)
        if attacks is not None or method is not options.Method.edit:
            name = "--method" if attacks is None else "--attacks"
            raise InputError(f"{name} is not for a guard.", hint="leave it out.")
        table = rows.validation or rows.candidates or rows.train
        plan_guard(model, table, rows.label, share, Output(as_json=as_json))
        return
    if share is not None:
        raise InputError("--share is for a guard.", hint="say --guard, or leave it out.")
    _ = rows.files  # which refuses none
    wanted = check_attacks(attacks, rows.validation)
    in_place = method is options.Method.in_place
    paper.check_unused(*(("state_out",) if in_place else ("state", "state_out")))
    chosen = choices.read()
    asked = _only_set_limits({"method": method.value, **paper.read(), **chosen}, in_place)
    opened = _open(model, chosen)
    _load_state(opened, paper.state)
    given = rows.read(opened, chosen["label_map"])
    from timbermark.marking import embedding

    with rows.passes(given):
        if wanted is not None:
            check_forecast(opened, given, chosen["label_map"])
        found = embedding.plan(opened, **given, **asked, progress=True)
        survived = None
        if wanted is not None:
            from timbermark.attacks import lab

            survived = lab.forecast(opened, **given, **asked, attacks=wanted, progress=True)
    _show_found(found, chosen["budget"], {}, [], survived, as_json)


@command(app)
def embed(
    model: options.Model,
    owner: options.Owner,
    rows: Rows,
    target: Target,
    choices: options.Choices,
    paper: options.Paper,
    attacks: options.Attacks = None,
    method: How = options.Method.edit,
    report: options.Report = None,
) -> None:
    """Mark a model: a model of the same kind, and a secret mark that proves it is yours."""
    files = {"MODEL": model, **rows.files}
    wanted = check_attacks(attacks, rows.validation)
    in_place = method is options.Method.in_place
    begun = _begin(model, owner, files, target, choices, paper, in_place, report)
    chosen = begun.chosen
    given = rows.read(begun.model, chosen["label_map"])
    from timbermark.marking import embedding

    with rows.passes(given):
        if wanted is not None:
            check_forecast(begun.model, given, chosen["label_map"])
        result = embedding.embed(
            begun.model, **given, **begun.asked, method=method.value, key=begun.key, owner=owner,
            progress=True,
        )  # fmt: skip
        kept = write_both(
            result, target.out, target.mark, begun.protection, target.force, begun.state
        )
        survived = None
        if wanted is not None:
            from timbermark.attacks import lab

            X, y, groups = (*given["validation"], None)[:3]
            survived = lab.attack(
                result.model, result.mark, X, y, groups=groups, label_map=chosen["label_map"],
                attacks=wanted, random_state=chosen["random_state"], progress=True,
            )  # fmt: skip
    if report is not None:
        result.report(report, attacks=survived, force=target.force)
    _show_made(result, begun, target, kept, report, survived)


@command(app)
def rotate(
    model: Annotated[
        Path, argument("The marked model, if its mark was made in place; else the unmarked.")
    ],
    old: Annotated[Path, argument("The mark that is to be replaced.")],
    rows: Rows,
    target: Target,
    choices: options.Choices,
    paper: options.Paper,
    owner: Annotated[
        str | None, option("Whom it speaks for; as the old mark if not given.")
    ] = None,
) -> None:
    """Replace a mark: new symbols, and a new key if another one is given.

    A mark made in place is forgotten first, which takes the state that was written with it. Seals
    cannot be taken back: give the unmarked model. Keep the old mark for copies that carry it.
    """
    files = {"MODEL": model, "OLD": old, **rows.files}
    from timbermark.marking import embedding
    from timbermark.marking.in_place import settings_of

    replaced = options.load_mark(old)
    in_place = settings_of(replaced) is not None
    begun = _begin(model, owner, files, target, choices, paper, in_place)
    given = rows.read(begun.model, begun.chosen["label_map"])
    with rows.passes(given):
        result = embedding.rotate(
            begun.model, replaced, **given, **begun.asked, key=begun.key, owner=owner,
            progress=True,
        )  # fmt: skip
    kept = write_both(result, target.out, target.mark, begun.protection, target.force, begun.state)
    _show_made(result, begun, target, kept, None, None)


@dataclass(frozen=True, slots=True)
class _Begun:
    """What marking begins with, checked as far as is possible without the rows.

    ``chosen``: the choices of cost and strength; ``asked``: these and those about marks in place,
    as arguments of `timbermark.embed`; ``state``: where a training state goes.
    """

    model: ForeignModel
    key: OwnerKey
    protection: str | None
    chosen: dict[str, Any]
    asked: dict[str, Any]
    state: Path | None


def _begin(
    model: Path,
    owner: str | None,
    files: dict[str, Path | None],
    target: Target,
    choices: options.Choices,
    paper: options.Paper,
    in_place: bool,
    report: Path | None = None,
) -> _Begun:
    """Return a model and a key, and refuse all that can be refused before rows are read."""
    state = paper.target(in_place, target.out)
    files = {**files, "--key": target.key, "--state": paper.state}
    written = {"--out": target.out, "--mark": target.mark, "--state-out": state}
    target.check(written, files)
    target.check_report(report, {**files, **written})
    chosen, said = choices.read(), paper.read()
    if owner is not None:
        from timbermark.ownership.encoding import check_name

        check_name(owner, "owner")
    key = options.load_key(target.key)
    opened = _open(model, chosen)
    check_ending(opened, target.out)
    _load_state(opened, paper.state)
    asked = _only_set_limits(said | chosen, in_place)
    return _Begun(opened, key, options.new_passphrase(target.passphrase), chosen, asked, state)


def _load_state(opened: ForeignModel, state: Path | None) -> None:
    """Give a model of our own its training state. Raises StateError for that of another."""
    if state is None:
        return
    from timbermark.estimator_base import TimberEstimator

    if not isinstance(opened.native, TimberEstimator):
        raise InputError(
            f"state is for models that learn in place, and this is a {opened.kind}.",
            hint="leave it out.",
            code="in-place.model",
            parameter="state",
        )
    opened.native.load_state(state)


def _only_set_limits(asked: dict[str, Any], in_place: bool) -> dict[str, Any]:
    """Return arguments of `timbermark.embed` in which default limits do not refuse the paper's."""
    return asked | {"budget": None} if in_place and asked["budget"] == Budget() else asked


def _show_made(
    result: EmbedResult,
    begun: _Begun,
    target: Target,
    kept: Path | None,
    report: Path | None,
    survived: AttackResult | None,
) -> None:
    """Show what was made and where it is; ``kept``: the name of a mark that was there before."""
    if kept is not None:
        tell([f"The mark that was there is kept as {kept}."])
    facts = {"out": str(target.out), "mark": str(target.mark)}
    lines = [
        f"{target.out}: the marked model",
        f"{target.mark}: the secret mark {result.mark.mark_id.hex()}, keep it",
    ]
    if begun.state is not None:
        facts["state"] = str(begun.state)
        lines.append(f"{begun.state}: its training state, keep it to yourself")
    if report is not None:
        lines.append(f"{report}: the page")
    _show_found(result, begun.chosen["budget"], facts, lines, survived, target.as_json)


def _show_found(
    made: EmbedResult | Plan,
    budget: Budget,
    facts: dict[str, str],
    lines: list[str],
    survived: AttackResult | None,
    as_json: bool,
) -> None:
    """Show what a mark came to, or would; ``facts``, ``lines``: about files, for JSON or people."""
    used = made.use
    # Limits that are set but had no labels to be judged by.
    skipped = [
        name
        for name in NEED_TARGETS[made.cost.task]
        if getattr(budget, name) is not None and name not in used
    ]
    if as_json:
        told = {} if survived is None else {"attacks": survived.to_dict()}
        show_json({**made.to_dict(), "not_judged": skipped, **facts, **told})
        return
    parts = [f"{name} {bits:.0f} bits" for name, bits in made.seals.items()]
    if made.strength is not None:
        parts.append(f"{made.strength.q} labels each in leaves, lead {made.strength.lead:.2g}")
    shown = [use_flags(str(made)), f"strength: {', '.join(parts)}"]
    if used:
        shares = sorted(used.items(), key=lambda item: -item[1])
        shown.append(f"used of the limits: {', '.join(f'{n} {share:.0%}' for n, share in shares)}")
    if skipped:
        shown.append(f"not judged: {', '.join(skipped)} (needs labelled rows: --label)")
    show("\n".join([*shown, *lines]))
    if survived is not None:
        show("")
        show_found(survived, Output())


def _open(path: Path, choices: dict[str, Any]) -> ForeignModel:
    """Return the opened model. Raises InputError for choices that it does not allow."""
    from timbermark.marking.models import open_model
    from timbermark.marking.rehearsing import list_strengths
    from timbermark.marking.sealing import Choices as Asked

    opened = open_model(path)
    asked = {name: value for name, value in choices.items() if name != "random_state"}
    fitting = Asked(**asked).for_task(opened)
    if fitting.seals != "splits":
        weak = fitting.weak or fitting.seals == "both"
        list_strengths(
            len(opened.classes), fitting.n_triggers, fitting.alphabet, fitting.lead, weak
        )
    return opened
