"""`timbermark guard` and `timbermark ledger`: a guarded model, and what was asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli.app import app
from timbermark.cli.options import (
    Authority,
    Force,
    Json,
    Key,
    Model,
    argument,
    command,
    load_key,
    option,
)
from timbermark.cli.outputs import check_outputs, finish, show, show_either, show_json, tell
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.guard.ledger_file import Summary


@command(app)
def guard(
    model: Model,
    rows: Annotated[Path, option("Rows such as it is asked: CSV or Parquet.")],
    key: Key,
    owner: Annotated[str, option('Whose model it is, as "Ann Ltd".')],
    out: Annotated[Path, option("The folder that MLflow or MLServer serves.")],
    label: Annotated[str | None, option("The label column of the rows.")] = None,
    share: Annotated[float, option("The part of answers that are drawn.")] = 0.01,
    scores: Annotated[
        bool, option("Answer with scores where a request does not say.", "--scores")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Put a guard around a model that is served: a copy trained on its answers carries proof."""
    if out.exists() and not force:
        raise InputError(f"{out} exists.", hint="give another name, or --force.")
    from timbermark.guard.guarding import Guard
    from timbermark.serving import write_folder

    owner_key = load_key(key)
    opened, X, y = _read(model, rows, label)
    made = Guard(opened, X, key=owner_key, owner=owner, share=share, ledger=None, y=y)
    write_folder(made, out, answers="scores" if scores else "labels", force=force)
    cost = made.cost(X, y)
    served = f"{out}: serve it with mlflow models serve -m {out} --env-manager local"
    show_either(as_json, {"folder": str(out), **cost.to_dict()}, served, str(cost))


def plan_guard(model: Path, rows: Path | None, label: str | None, share: float, js: bool) -> None:
    """Show what a guard would cost: the command `timbermark plan --guard`."""
    if rows is None:
        raise InputError("--guard needs rows such as the model is asked.", hint="--validation FILE")
    from timbermark.guard.guarding import plan

    opened, X, y = _read(model, rows, label)
    cost: Any = plan(opened, X, y, guard=True, share=share)
    finish(cost, js)


def _read(model: Path, rows: Path, label: str | None) -> tuple[Any, Any, Any]:
    from timbermark.cli.tables import check_width, read_labels, read_table
    from timbermark.marking.models import open_model

    opened = open_model(model)
    table = read_table(rows, opened.feature_names, label, opened.text_columns, opened.known_texts)
    check_width(opened, rows, table.X)
    labels = table.labels
    return opened, table.X, None if labels is None else read_labels(labels, opened.classes)


@command(app)
def ledger(
    path: Annotated[Path, argument("The ledger of a guard.")],
    client: Annotated[
        list[str] | None,
        option("Whose questions the mark is of; may be repeated.  [all clients']"),
    ] = None,
    key: Annotated[Path | None, option("Your owner key.")] = None,
    out: Annotated[Path | None, option("Where the secret mark goes.")] = None,
    model: Annotated[
        Path | None, option("The unguarded model: with --rows, scores of a suspect show more.")
    ] = None,
    rows: Annotated[
        Path | None,
        option("For --model: all questions of the client if you log them, else others."),
    ] = None,
    label: Annotated[str | None, option("The label column of --rows, if any.")] = None,
    claim: Annotated[Path | None, option("Where its claim goes, for a judge.")] = None,
    chain: Annotated[Path | None, option("Write the chain and its stamps, for a judge.")] = None,
    only_stamped: Annotated[
        bool, option("Leave out questions after the last stamp.", "--only-stamped")
    ] = False,
    merge: Annotated[
        list[Path] | None, option("Add another replica's ledger; may be repeated.")
    ] = None,
    stamp: Annotated[
        bool, option("Have the ledger's head stamped: --tsa or --query.", "--stamp")
    ] = False,
    tsa: Authority = "",
    query: Annotated[Path | None, option("Write the query for one to a file.")] = None,
    response: Annotated[Path | None, option("Add an authority's response.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show who asked what of a guarded model; make a mark of a client's drawn questions.

    Stamp an empty ledger before serving, and its head from time to time: a judge counts questions
    before a verified stamp fully, later ones as indicative at most.
    """
    outputs = {"--out": out, "--claim": claim, "--chain": chain, "--query": query}
    given = {"the ledger": path, "--key": key, "--response": response}
    check_outputs(outputs, given, force)
    if out is not None and key is None:
        raise InputError("A mark takes your owner key.", hint="--key owner.key")
    if (model is None) != (rows is None):
        raise InputError("--model and --rows go together.", hint="give both, or neither.")
    mine = ("--client", client), ("--claim", claim), ("--key", key), ("--model", model)
    for flag, value in mine:
        if value and out is None:
            raise InputError(f"{flag} is for a mark.", hint="say where it goes: --out acme.mark")
    if stamp != bool(tsa or query):
        raise InputError("--stamp takes --tsa or --query.", hint="--stamp --tsa ADDRESS")
    from timbermark.guard import ledger_file as ledgers

    added = ledgers.merge(path, merge) if merge else 0
    if stamp:
        _stamp(path, tsa, query)
    if response is not None:
        head = ledgers.add_stamp(path, response.read_bytes())
        tell([f"The stamp covers {head.count} entries."])
    chains = ledgers.read_chains(path)
    made = None
    if out is not None and key is not None:
        table = None if model is None or rows is None else (model, rows, label)
        made = _make_mark(path, client, key, out, claim, only_stamped, force, table)
    if chain is not None:
        from timbermark.verification.chain import save_chains

        save_chains(chain, chains)
    found = ledgers.read_summary(path)
    if as_json:
        show_json({**_facts(found), "added": added, **({} if made is None else {"mark": made})})
        return
    _show(found)
    for target, text in ((out, "the secret mark"), (claim, "its claim"), (chain, "the chain")):
        if target is not None:
            show(f"{target}: {text}")


def _stamp(path: Path, tsa: str, query: Path | None) -> None:
    from timbermark.files import atomic_write
    from timbermark.guard import ledger_file as ledgers
    from timbermark.verification.stamps import fetch_stamp, make_query

    heads = ledgers.request_stamps(path)
    if query is not None:
        if len(heads) > 1:
            raise InputError(
                f"The ledger has {len(heads)} chains, and a query is about one.",
                hint="use --tsa, or stamp the ledger of each replica.",
            )
        atomic_write(query, make_query(heads[0]))
        show(f"{query}: the query for a time-stamping authority")
        return
    for head in heads:
        ledgers.add_stamp(path, fetch_stamp(make_query(head), tsa))


def _make_mark(
    path: Path,
    clients: list[str] | None,
    key: Path,
    out: Path,
    claim: Path | None,
    only_stamped: bool,
    force: bool,
    table: tuple[Path, Path, str | None] | None,
) -> dict[str, Any]:
    from timbermark.guard import ledger_file as ledgers
    from timbermark.guard.drawing import claim_guard, guard_secret, learn_answers, make_mark

    owner_key = load_key(key)
    statement = ledgers.read_statement(path)
    secret = guard_secret(statement, owner_key)
    names = ledgers.list_clients(clients or None)
    questions = ledgers.read_questions(path, secret, clients=names, stamped=only_stamped)
    others = None
    if table is not None:
        opened, X, _ = _read(*table)
        if opened.task == "classification":
            others = learn_answers(X, lambda rows: opened.confidence(opened.margins(rows)))
    mark = make_mark(questions, statement, owner_key, clients=names, others=others)
    mark.save(out, force=force)
    if claim is not None:
        claim_guard(mark, owner_key).save(claim, force=force)
    return {"file": str(out), "questions": mark.n_triggers, "bits": round(mark.full_bits, 3)}


def _facts(found: Summary) -> dict[str, Any]:
    return {
        "owner": found.statement["owner"],
        "clients": [
            {"client": c.client, "asked": c.asked, "drawn": c.drawn, "bits": c.cells}
            for c in found.clients
        ],
        "entries": found.entries,
        "chains": found.chains,
        "stamped": found.stamped,
        "open_sessions": found.open_sessions,
        "gaps": [dict(gap) for gap in found.gaps],
        "rotated": found.rotated,
        "clock_steps": found.clock_steps,
    }


def _show(found: Summary) -> None:
    show(f"ledger of {found.statement['owner']}: {found.entries} entries, the chain holds")
    show(f"{'client':24} {'questions':>10} {'drawn':>8} {'bits of a copy, at most':>24}")
    for c in found.clients:
        show(f"{c.client or '(no name)':24.24} {c.asked:10} {c.drawn:8} {c.cells:24}")
    notes = []
    if found.stamped < found.entries:
        notes.append(f"{found.entries - found.stamped} entries are not stamped: --stamp")
    if found.open_sessions:
        notes.append(
            f"{found.open_sessions} sessions have no end: they run, or were killed with their last "
            "batch"
        )
    notes += [f"gap: {gap['count']} answers not kept ({gap['gap']})" for gap in found.gaps]
    if found.rotated:
        notes.append(f"{found.rotated} questions were dropped to keep the file small")
    if found.clock_steps:
        notes.append(f"the clock went back {found.clock_steps} times")
    tell(notes)
