"""`timbermark guard` and `timbermark ledger`: a guarded model, and what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import Output, show, tell
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.guard.ledger_file import Summary

_SHARE = 0.01


@command(app)
def guard(
    model: options.Model,
    rows: Annotated[Path, option("Rows such as it is asked: CSV or Parquet.")],
    key: options.Key,
    owner: Annotated[str, option('Whose model it is, as "Ann Ltd".')],
    out: Annotated[Path, option("The folder that MLflow or MLServer serves.")],
    output: Output,
    label: Annotated[str | None, option("The label column of the rows.")] = None,
    share: Annotated[float, option("The part of answers that are drawn.")] = _SHARE,
    scores: Annotated[
        bool, option("Answer with scores where a request does not say.", "--scores")
    ] = False,
) -> None:
    """Put a guard around a model that is served: a copy trained on its answers carries proof."""
    if out.exists() and not output.force:
        raise InputError(f"{out} exists.", hint="give another name, or --force.")
    from timbermark.guard.guarding import Guard
    from timbermark.serving import write_folder

    owner_key = options.load_key(key)
    opened, X, y = _read(model, rows, label)
    made = Guard(opened, X, key=owner_key, owner=owner, share=share, ledger=None, y=y)
    write_folder(made, out, answers="scores" if scores else "labels", force=output.force)
    cost = made.cost(X, y)
    served = f"{out}: serve it with mlflow models serve -m {out} --env-manager local"
    output.show({"folder": str(out), **cost.to_dict()}, served, str(cost))


def plan_guard(
    model: Path, rows: Path | None, label: str | None, share: float | None, output: Output
) -> None:
    """Show what a guard would cost: the command `timbermark plan --guard`."""
    if rows is None:
        raise InputError("--guard needs rows such as the model is asked.", hint="--validation FILE")
    from timbermark.guard.guarding import plan

    opened, X, y = _read(model, rows, label)
    cost: Any = plan(opened, X, y, guard=True, share=_SHARE if share is None else share)
    output.finish(cost)


def _read(model: Path, rows: Path, label: str | None) -> tuple[Any, Any, Any]:
    from timbermark.cli.tables import check_width, read_labels, read_table
    from timbermark.marking.models import open_model

    opened = open_model(model)
    table = read_table(rows, opened.feature_names, label, opened.text_columns, opened.known_texts)
    check_width(opened, rows, table.X)
    labels = table.labels
    return opened, table.X, None if labels is None else read_labels(labels, opened.classes)


@dataclass(frozen=True, kw_only=True)
class Made:
    """What was said on the command line about a mark that is made of a ledger."""

    client: Annotated[
        list[str] | None,
        option("Whose questions the mark is of; may be repeated.  [all clients']"),
    ] = None
    key: Annotated[Path | None, option("Your owner key.")] = None
    out: Annotated[Path | None, option("Where the secret mark goes.")] = None
    model: Annotated[
        Path | None, option("The unguarded model: with --rows, scores of a suspect show more.")
    ] = None
    rows: Annotated[
        Path | None,
        option("For --model: all questions of the client if you log them, else others."),
    ] = None
    label: Annotated[str | None, option("The label column of --rows, if any.")] = None
    claim: Annotated[Path | None, option("Where its claim goes, for a judge.")] = None
    only_stamped: Annotated[
        bool, option("Leave out questions after the last stamp.", "--only-stamped")
    ] = False

    def check(self) -> None:
        """Raise InputError for options that do not go together."""
        if self.out is not None and self.key is None:
            raise InputError("A mark takes your owner key.", hint="--key owner.key")
        if (self.model is None) != (self.rows is None):
            raise InputError("--model and --rows go together.", hint="give both, or neither.")
        for name in ("client", "claim", "key", "model"):
            if getattr(self, name) and self.out is None:
                hint = "say where it goes: --out acme.mark"
                raise InputError(f"--{name} is for a mark.", hint=hint)

    def make(self, path: Path, force: bool) -> dict[str, Any]:
        """Write the mark, if there shall be one, and return facts about it."""
        if self.out is None or self.key is None:
            return {}
        from timbermark.guard import drawing
        from timbermark.guard import ledger_file as ledgers

        key, statement = options.load_key(self.key), ledgers.read_statement(path)
        secret, names = (
            drawing.guard_secret(statement, key),
            ledgers.list_clients(self.client or None),
        )
        questions = ledgers.read_questions(path, secret, clients=names, stamped=self.only_stamped)
        others = None
        if self.model is not None and self.rows is not None:
            opened, X, _ = _read(self.model, self.rows, self.label)
            if opened.task == "classification":
                others = drawing.learn_answers(
                    X, lambda rows: opened.confidence(opened.margins(rows))
                )
        mark = drawing.make_mark(questions, statement, key, clients=names, others=others)
        mark.save(self.out, force=force)
        if self.claim is not None:
            drawing.claim_guard(mark, key).save(self.claim, force=force)
        bits = round(mark.full_bits, 3)
        return {"mark": {"file": str(self.out), "questions": mark.n_triggers, "bits": bits}}


@command(app)
def ledger(
    path: Annotated[Path, argument("The ledger of a guard.")],
    mark: Made,
    output: Output,
    chain: Annotated[Path | None, option("Write the chain and its stamps, for a judge.")] = None,
    merge: Annotated[
        list[Path] | None, option("Add another replica's ledger; may be repeated.")
    ] = None,
    stamp: Annotated[
        bool, option("Have the ledger's head stamped: --tsa or --query.", "--stamp")
    ] = False,
    tsa: options.Authority = "",
    query: Annotated[Path | None, option("Write the query for one to a file.")] = None,
    response: Annotated[Path | None, option("Add an authority's response.")] = None,
) -> None:
    """Show who asked what of a guarded model; make a mark of a client's drawn questions.

    Stamp an empty ledger before serving, and its head from time to time: a judge counts questions
    before a verified stamp fully, later ones as indicative at most.
    """
    outputs = {"--out": mark.out, "--claim": mark.claim, "--chain": chain, "--query": query}
    output.check(outputs, {"the ledger": path, "--key": mark.key, "--response": response})
    mark.check()
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
    made = mark.make(path, output.force)
    if chain is not None:
        from timbermark.verification.chain import save_chains

        save_chains(chain, chains)
    found = ledgers.read_summary(path)
    files = ((mark.out, "the secret mark"), (mark.claim, "its claim"), (chain, "the chain"))
    written = (f"{target}: {text}" for target, text in files if target is not None)
    output.show({**_facts(found), "added": added, **made}, *_list_clients(found), *written)
    if not output.as_json:
        tell(_list_notes(found))


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


def _list_clients(found: Summary) -> list[str]:
    return [
        f"ledger of {found.statement['owner']}: {found.entries} entries, the chain holds",
        f"{'client':24} {'questions':>10} {'drawn':>8} {'bits of a copy, at most':>24}",
        *(
            f"{c.client or '(no name)':24.24} {c.asked:10} {c.drawn:8} {c.cells:24}"
            for c in found.clients
        ),
    ]


def _list_notes(found: Summary) -> list[str]:
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
    return notes
