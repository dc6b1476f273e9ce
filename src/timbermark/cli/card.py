"""`timbermark card`: the paper trail of a mark, for people, for bills of materials, for in-toto."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.options import command, option
from timbermark.cli.outputs import Output
from timbermark.errors import InputError
from timbermark.files import atomic_write

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark
    from timbermark.report.card import Card

_ENDINGS = (".md", ".html")


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a card is told beside the model and its mark."""

    facts: Annotated[
        Path | None, option("What timbermark embed printed with --json: the cost.")
    ] = None
    attacks: Annotated[Path | None, option("What timbermark attack printed with --json.")] = None
    claim: Annotated[Path | None, option("The claim that was published.")] = None
    name: Annotated[str | None, option("The model's name.  [its file's]")] = None
    purpose: Annotated[str, option("Why the model is marked, in your words.")] = ""

    def make_card(self, model: Path, mark: Mark) -> Card:
        """Return the card. Raises InputError if what it is told is about another model or mark."""
        from timbermark.ownership.claim import Claim
        from timbermark.report.card import Card
        from timbermark.trees.ensemble import digest
        from timbermark.verification.suspects import open_named, read_model
        from timbermark.verification.verifying import verify

        opened = read_model(model, whole=True)
        foreign = opened.foreign
        verdict = verify(open_named(opened, f"file {model}"), mark)
        if verdict.level == "none":
            raise InputError(
                f"{model} does not carry the mark: {verdict.bits:.1f} bits.",
                hint="give the model that marking gave back.",
                code="card.unmarked",
            )
        published = None if self.claim is None else Claim.load(self.claim)
        if published is not None:
            published.check_head(mark.head)
            if published.marked_file not in (None, opened.file_digest):
                raise InputError(
                    f"{self.claim} names another file than {model}.",
                    hint="give the file that was claimed.",
                    code="card.other-file",
                )
        costs = self._read(self.facts, "cost")
        if costs is not None and costs.get("mark_id") != mark.mark_id.hex():
            raise InputError(
                f"{self.facts} is about another mark.",
                hint="give what embed printed when this mark was made.",
                code="card.other-mark",
            )
        found = self._read(self.attacks, "rows")
        numbers = "regression" if opened.trees.gives_numbers else "classification"
        return Card(
            name=self.name or model.name,
            mark=mark,
            bits=verdict.bits,
            library="timbermark" if foreign is None else foreign.library,
            kind="gradient-boosted trees" if foreign is None else foreign.kind,
            task=numbers if foreign is None else foreign.task,
            marked_digest=digest(opened.trees),
            file_digest=opened.file_digest,
            cost=None if costs is None else costs["cost"],
            attacks=found,
            claim=published,
            purpose=self.purpose,
        )

    def _read(self, path: Path | None, part: str) -> Any:
        from timbermark.report.card import read_results

        return None if path is None else read_results(path.read_bytes(), str(path), part)


@command(app)
def card(
    model: options.MarkedModel,
    mark: options.SecretMark,
    told: Told,
    output: Output,
    out: Annotated[
        list[Path] | None, option("Write the card: NAME.md or NAME.html, or both.")
    ] = None,
    append: Annotated[
        Path | None, option("Put the card at the end of this model card (skops, Hugging Face).")
    ] = None,
    bom: Annotated[Path | None, option("Write a CycloneDX bill of materials, JSON.")] = None,
    statement: Annotated[
        Path | None, option("Write an in-toto statement; needs --claim and --key.")
    ] = None,
    key: Annotated[Path | None, option("Your owner key, which signs.")] = None,
) -> None:
    """Write the papers of a mark for model-risk files and regulators; nothing in them is secret.

    The card says what the mark is for, what it changed, what it survives, who can verify it and
    what risk is left. The figures come from what embed and attack printed with --json.
    """
    cards = {f"--out {path.name}": path for path in out or ()}
    outputs = {**cards, "--bom": bom, "--statement": statement}
    if not any((*outputs.values(), append)):
        raise InputError(
            "There is nothing to write.",
            hint="give --out card.md, --append, --bom or --statement.",
            code="card.nothing",
        )
    for path in cards.values():
        if path.suffix not in _ENDINGS:
            raise InputError(
                f"--out {path} ends neither in .md nor in .html.",
                hint="the ending says what is written.",
                code="card.ending",
            )
    if statement is not None and (told.claim is None or key is None):
        raise InputError(
            "--statement needs the claim and the owner key.",
            hint="give --claim model.claim --key owner.key.",
            code="card.unsigned",
        )
    given = {"MODEL": model, "MARK": mark, "--append": append, "--key": key}
    read = {"--claim": told.claim, "--facts": told.facts, "--attacks": told.attacks}
    output.check(outputs, {**given, **read})
    if any(path.suffix == ".html" for path in cards.values()):
        from timbermark.report import check_packages

        check_packages()
    from timbermark.report import show_now
    from timbermark.report.card import append_card, bill_of_materials, describe_card, to_markdown

    existing = None if append is None else _read_text(append)
    made = told.make_card(model, options.load_mark(mark))
    page = describe_card(made)
    contents: dict[Path, bytes] = {}
    for path in cards.values():
        if path.suffix == ".md":
            contents[path] = to_markdown(page).encode()
        else:
            from timbermark.report.pages import render_page

            contents[path] = render_page(page, show_now()).encode()
    if append is not None:
        contents[append] = append_card(existing or "", made).encode()
    if bom is not None:
        contents[bom] = json.dumps(bill_of_materials(made), indent=1).encode() + b"\n"
    if statement is not None:
        from timbermark.report.card import make_statement

        assert made.claim is not None
        assert key is not None
        contents[statement] = make_statement(made.claim, options.load_key(key), model.name)
    for path, content in contents.items():
        atomic_write(path, content)
    written = [str(path) for path in contents]
    output.show({"written": written}, *(f"{path}: written" for path in written))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(
            f"--append {path} is not a text in UTF-8.",
            hint="give the model card as Markdown, such as README.md.",
            code="card.not-text",
        ) from None
