"""`timbermark embed`, `plan` and `rotate`: a mark, the rehearsal of one, and a new one for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.attack import (
    check_attacks,
    check_forecast,
    forecast,
    show_found,
    try_attacks,
)
from timbermark.cli.marking_choices import (
    Attacks,
    Choices,
    Force,
    Group,
    Json,
    Key,
    Label,
    Method,
    Model,
    Out,
    Paper,
    Passphrase,
    Report,
    Scheduler,
    Separate,
    Train,
    Validation,
    not_judged,
    strength_line,
    takes_choices,
    takes_paper,
)
from timbermark.cli.options import new_passphrase, unlock
from timbermark.cli.outputs import (
    check_ending,
    check_outputs,
    check_report,
    show,
    show_json,
    tell,
    write_both,
)
from timbermark.cli.tables import FileTable, on_scheduler, open_files
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult
    from timbermark.cli.tables import Table
    from timbermark.libraries.contract import ForeignModel
    from timbermark.marking.embedding import EmbedResult

How = Annotated[
    Method, typer.Option(help="edit: seals; in-place: as in the paper, our own models.")
]


@app.command()
@takes_choices
@takes_paper
def plan(
    model: Model,
    choices: Choices,
    paper: Paper,
    train: Train = None,
    label: Label = None,
    group: Group = None,
    candidates: Separate = None,
    validation: Validation = None,
    attacks: Attacks = None,
    scheduler: Scheduler = "local",
    method: How = Method.edit,
    guard: Annotated[
        bool, typer.Option("--guard", help="Show what a guard costs on the rows of --validation.")
    ] = False,
    share: Annotated[
        float | None, typer.Option(help="With --guard: the part of answers drawn.  [0.01]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rehearse a mark and show its strength, its cost and what it survives; writes nothing."""
    if guard:
        from timbermark.cli.guard import plan_guard

        if attacks is not None:
            raise InputError("--attacks is not for a guard.", hint="leave it out.")
        plan_guard(model, validation or candidates or train, label, share or 0.01, as_json)
        return
    if share is not None:
        raise InputError("--share is for a guard.", hint="say --guard, or leave it out.")
    _check_rows(train, candidates)
    wanted = check_attacks(attacks, validation)
    in_place = method is Method.in_place
    paper.check_unused(("state_out",) if in_place else ("state", "state_out"))
    chosen = choices.read()
    asked = _only_set_limits({"method": method.value, **paper.read(), **chosen}, in_place)
    opened = _open(model, chosen)
    _load_state(opened, paper.state)
    rows = read_rows(
        opened, train, candidates, validation, label, group, scheduler, chosen["label_map"]
    )
    from timbermark.marking import embedding

    with on_scheduler(scheduler, _tables(rows)):
        if wanted is not None:
            check_forecast(opened, rows, chosen["label_map"])
        found = embedding.plan(opened, **rows, **asked, progress=True)
        tell(map(str, found.notes))
        survived = None if wanted is None else forecast(opened, rows, asked, wanted)
    if as_json:
        facts = {**found.to_dict(), "not_judged": not_judged(found, chosen["budget"])}
        show_json(facts if survived is None else {**facts, "attacks": survived.to_dict()})
        return
    show(str(found))
    show(strength_line(found, chosen["budget"]))
    if survived is not None:
        show("")
        show_found(survived, as_json=False)


@app.command()
@takes_choices
@takes_paper
def embed(
    model: Model,
    choices: Choices,
    paper: Paper,
    key: Key,
    owner: Annotated[str, typer.Option(help='Whom the mark speaks for, as "Ann Ltd".')],
    out: Out,
    mark: Annotated[Path, typer.Option(help="Where the secret mark goes.")],
    train: Train = None,
    label: Label = None,
    group: Group = None,
    candidates: Separate = None,
    validation: Validation = None,
    attacks: Attacks = None,
    scheduler: Scheduler = "local",
    method: How = Method.edit,
    report: Report = None,
    passphrase: Passphrase = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Mark a model: a model of the same kind, and a secret mark that proves it is yours."""
    _check_rows(train, candidates)
    wanted = check_attacks(attacks, validation)
    in_place = method is Method.in_place
    state = paper.state_out(out) if in_place else None
    if not in_place:
        paper.check_unused()
    files = {
        "MODEL": model, "--key": key, "--train": train, "--candidates": candidates,
        "--validation": validation, "--state": paper.state,
    }  # fmt: skip
    written = {"--out": out, "--mark": mark} | ({} if state is None else {"--state-out": state})
    check_outputs(written, files, force)
    check_report(report, {**files, **written}, force)
    chosen, said = choices.read(), paper.read()
    _check_owner(owner)
    from timbermark.ownership.keys import OwnerKey

    owner_key = unlock(lambda secret: OwnerKey.load(key, secret))
    opened = _open(model, chosen)
    check_ending(opened, out)
    _load_state(opened, paper.state)
    protection = new_passphrase(passphrase)
    rows = read_rows(
        opened, train, candidates, validation, label, group, scheduler, chosen["label_map"]
    )
    from timbermark.marking import embedding

    with on_scheduler(scheduler, _tables(rows)):
        if wanted is not None:
            check_forecast(opened, rows, chosen["label_map"])
        asked = {"method": method.value, **said, **chosen}
        result = embedding.embed(
            opened, **rows, **_only_set_limits(asked, in_place), key=owner_key, owner=owner,
            progress=True,
        )  # fmt: skip
        kept = write_both(result, out, mark, protection, force, state)
        survived = None if wanted is None else try_attacks(result, rows, wanted, chosen)
    if report is not None:
        result.report(report, attacks=survived, force=force)
    _show_made(result, chosen, written, kept, report, survived, as_json)


@app.command()
@takes_choices
@takes_paper
def rotate(
    model: Annotated[
        Path,
        typer.Argument(help="The marked model, if its mark was made in place; else the unmarked."),
    ],
    old: Annotated[Path, typer.Argument(help="The mark that is to be replaced.")],
    choices: Choices,
    paper: Paper,
    key: Key,
    out: Out,
    mark: Annotated[Path, typer.Option(help="Where the new secret mark goes.")],
    owner: Annotated[
        str | None, typer.Option(help="Whom it speaks for; as the old mark if not given.")
    ] = None,
    train: Train = None,
    label: Label = None,
    candidates: Separate = None,
    validation: Validation = None,
    passphrase: Passphrase = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Replace a mark: new symbols, and a new key if another one is given.

    A mark made in place is forgotten first, which takes the state that was written with it. Seals
    cannot be taken back: give the unmarked model. Keep the old mark for copies that carry it.
    """
    _check_rows(train, candidates)
    from timbermark.marking import embedding
    from timbermark.marking.in_place import settings_of
    from timbermark.ownership.keys import OwnerKey
    from timbermark.ownership.mark import Mark

    replaced = unlock(lambda secret: Mark.load(old, secret))
    in_place = settings_of(replaced) is not None
    state = paper.state_out(out) if in_place else None
    if not in_place:
        paper.check_unused()
    files = {
        "MODEL": model, "OLD": old, "--key": key, "--train": train, "--candidates": candidates,
        "--validation": validation, "--state": paper.state,
    }  # fmt: skip
    written = {"--out": out, "--mark": mark} | ({} if state is None else {"--state-out": state})
    check_outputs(written, files, force)
    chosen, said = choices.read(), paper.read()
    if owner is not None:
        _check_owner(owner)
    owner_key = unlock(lambda secret: OwnerKey.load(key, secret))
    opened = _open(model, chosen)
    check_ending(opened, out)
    _load_state(opened, paper.state)
    protection = new_passphrase(passphrase)
    rows = read_rows(opened, train, candidates, validation, label, None, "local")
    result = embedding.rotate(
        opened, replaced, **rows, **_only_set_limits(said | chosen, in_place), key=owner_key,
        owner=owner, progress=True,
    )  # fmt: skip
    kept = write_both(result, out, mark, protection, force, state)
    _show_made(result, chosen, written, kept, None, None, as_json)


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
    from timbermark.marking.budget import Budget

    return asked | {"budget": None} if in_place and asked["budget"] == Budget() else asked


def _show_made(
    result: EmbedResult,
    chosen: dict[str, Any],
    written: dict[str, Path],
    kept: Path | None,
    report: Path | None,
    survived: AttackResult | None,
    as_json: bool,
) -> None:
    """Show what was made and where it is; ``kept``: the name of a mark that was there before."""
    tell(map(str, result.notes))
    if kept is not None:
        tell([f"The mark that was there is kept as {kept}."])
    out, mark, state = (written.get(flag) for flag in ("--out", "--mark", "--state-out"))
    if as_json:
        show_json(
            {
                **result.to_dict(),
                "not_judged": not_judged(result, chosen["budget"]),
                "out": str(out),
                "mark": str(mark),
                **({} if state is None else {"state": str(state)}),
                **({} if survived is None else {"attacks": survived.to_dict()}),
            }
        )
        return
    show(str(result))
    show(strength_line(result, chosen["budget"]))
    show(f"{out}: the marked model\n{mark}: the secret mark {result.mark.mark_id.hex()}, keep it")
    if state is not None:
        show(f"{state}: its training state, keep it to yourself")
    if report is not None:
        show(f"{report}: the page")
    if survived is not None:
        show("")
        show_found(survived, as_json=False)


def _check_rows(train: Path | None, candidates: Path | None) -> None:
    if train is None and candidates is None:
        raise InputError(
            "There are no rows to make triggers from.",
            hint="give the training rows with --train, or rows like them with --candidates.",
        )


def _check_owner(owner: str) -> None:
    from timbermark.ownership.encoding import check_name

    check_name(owner, "owner")


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


def read_rows(
    model: ForeignModel,
    train: Path | None,
    candidates: Path | None,
    validation: Path | None,
    label: str | None,
    group: str | None,
    scheduler: str,
    label_map: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the tables as arguments of `timbermark.embed`.

    ``label_map``: labels are left as they are written, for `timbermark.embed` to map.
    """
    from timbermark.cli.tables import (
        check_width,
        list_features,
        read_groups,
        read_labels,
        read_table,
    )

    _check_group(model, label, group)
    names: Sequence[str] | None = model.feature_names
    passed = {
        path: open_files(model, path, label, scheduler)
        for path in (train, candidates, validation)
        if path is not None
    }
    if group is not None and any(passed.values()):
        raise InputError(
            "--group goes with rows that fit in memory, in one file.",
            hint="give such a file, or leave the groups out.",
        )
    if names is None and group is not None:
        first = next(path for path in (train, candidates, validation) if path is not None)
        names = list_features(first, (label, group))
    tables = [
        None
        if path is None
        else passed[path] or read_table(path, names, label, model.text_columns, model.known_texts)
        for path in (train, candidates, validation)
    ]
    given = [table for table in tables if table is not None]
    bare = [table for table in given if table.labels is None]
    if label is not None and len(bare) == len(given):
        raise InputError(
            f"{given[0].path} has no column '{label}'.", hint="check the name after --label."
        )
    if label is not None:
        tell(f"{t.path} has no column '{label}': its rows are used without labels." for t in bare)
    if names is None:
        for table in given:
            if not isinstance(table, FileTable):
                check_width(model, table)

    def parts(table: Table | FileTable | None) -> tuple[Any, ...]:
        """Return rows, and labels and groups if there are any."""
        if table is None:
            return (None,)
        if table.labels is None:
            return (table.X,)
        if isinstance(table, FileTable):
            return table.X, table.labels
        mapped = label_map is not None
        found = table.X, table.labels if mapped else read_labels(table.labels, model.classes)
        return found if group is None else (*found, read_groups(table.path, group))

    whole, separate, held = (parts(table) for table in tables)
    X, y, groups = (*whole, None, None)[:3]
    return {
        "X": X,
        "y": y,
        "groups": groups,
        "candidates": separate if len(separate) > 1 else separate[0],
        "validation": held if len(held) > 1 else held[0],
    }


def _tables(rows: dict[str, Any]) -> list[Any]:
    """Return the rows of all tables, without their labels."""
    tables = [rows[name] for name in ("X", "candidates", "validation")]
    return [table[0] if isinstance(table, tuple) else table for table in tables]


def _check_group(model: ForeignModel, label: str | None, group: str | None) -> None:
    if group is None:
        return
    if model.task != "ranking":
        raise InputError(
            f"--group is for rankers, and the model is one of {model.task}.", hint="leave it out."
        )
    if label is None:
        raise InputError("--group needs the relevance of rows.", hint="name it with --label.")
