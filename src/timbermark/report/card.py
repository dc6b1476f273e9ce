"""Cards and bills of materials: what model-risk files and regulators ask for about a mark.

A card is described as a `Page`, which becomes HTML as all pages do, or Markdown here. Nothing in it
is secret.

The claim is also an in-toto statement in a DSSE envelope, signed with the owner's key. Tools of the
supply chain (in-toto, sigstore) carry and check such envelopes beside their own signatures: the
subject is the file of the marked model, the predicate is the claim. docs/mlflow.md shows what is in
it.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import timbermark
from timbermark.errors import FileFormatError, InputError
from timbermark.marking.words import figure_name
from timbermark.ownership.claim import Claim
from timbermark.ownership.encoding import check_name
from timbermark.ownership.evidence import level
from timbermark.ownership.keys import OwnerKey
from timbermark.report import pages
from timbermark.report.pages import Page, Section, Table, facts, section

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult
    from timbermark.marking.embedding import EmbedResult
    from timbermark.ownership.claim import Claim
    from timbermark.ownership.mark import Mark


BEGIN, END = "<!-- timbermark card -->", "<!-- end of timbermark card -->"
_BOM_FORMAT, _BOM_VERSION = "CycloneDX", "1.6"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a card tells about a marked model.

    ``name`` of the model; ``library`` and ``kind`` of it; ``marked_digest``: SHA-256 of its trees,
    ``file_digest``: of its file; ``bits``: what its answers prove. ``cost``: what
    `timbermark.embed` measured, as ``result.cost.to_dict()``; ``attacks``: what
    `timbermark.attack` found, as ``found.to_dict()``; ``claim``: the published one.
    ``purpose``: the owner's own words on why the model is marked.
    """

    name: str
    mark: Mark
    bits: float
    library: str
    kind: str
    task: str
    marked_digest: str
    file_digest: str | None = None
    cost: Mapping[str, Any] | None = None
    attacks: Mapping[str, Any] | None = None
    claim: Claim | None = None
    purpose: str = ""

    @classmethod
    def of_result(
        cls,
        result: EmbedResult,
        name: str,
        *,
        attacks: AttackResult | None = None,
        claim: Claim | None = None,
        purpose: str = "",
    ) -> Card:
        """Return the card of a marking that has just been done.

        ``attacks``, ``claim``, ``purpose``: as above.
        """
        from timbermark.marking.models import open_model
        from timbermark.trees.ensemble import digest

        foreign = open_model(result.model)
        return cls(
            name=name,
            mark=result.mark,
            bits=result.bits,
            library=foreign.library,
            kind=foreign.kind,
            task=foreign.task,
            marked_digest=digest(foreign.ensemble),
            cost=result.cost.to_dict(),
            attacks=None if attacks is None else attacks.to_dict(),
            claim=claim,
            purpose=purpose,
        )


def read_results(data: bytes, name: str, part: str) -> Mapping[str, Any]:
    """Return what a command printed with ``--json``; ``part`` is what must be in it.

    Raises FileFormatError if that is not there.

    >>> read_results(b'{"cost": {"figures": []}}', "embed.json", "cost")["cost"]
    {'figures': []}
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get(part), dict | list):
        raise FileFormatError(
            f"{name} does not hold the JSON of a result with '{part}'.",
            hint="it is what timbermark embed or attack prints with --json.",
            code="card.results",
        )
    return found


def describe_card(card: Card) -> Page:
    """Return the card as a page; docs/mlflow.md says which question each section answers."""
    mark = card.mark
    return Page(
        what="card of a mark",
        headline=f"{card.name} carries an ownership mark of {mark.owner}",
        level=level(card.bits),
        lead=(),
        figures=(
            (f"{card.bits:.0f} bits", "of evidence in an untouched copy"),
            (pages.chance_of(card.bits), "chance of coincidence, at most"),
        ),
        sections=(
            _purpose(card),
            _changes(card),
            _survival(card),
            _verifiers(card),
            section("Residual risk", pages.Notes(_list_risks(card))),
            section(
                "Monitoring and change control",
                "Check the served model at every deployment. A retrained model needs a new mark, a "
                "new claim and a new card; marks of earlier versions stay valid.",
                pages.Commands(
                    ("timbermark check SERVED secret.mark --at-least 64 --junit check.xml",)
                ),
            ),
            _places(),
        ),
        version=timbermark.__version__,
    )


def _purpose(card: Card) -> Section:
    mark = card.mark
    return section(
        "Purpose of the mark",
        card.purpose or None,
        "The mark lets the owner prove that a copy of the model is theirs. It takes no part in "
        "the model's decisions and uses no data about persons beyond the training rows.",
        facts(
            ("model", card.name),
            ("type", f"{card.kind} ({card.library}), {card.task}"),
            ("owner", mark.owner),
            ("mark", mark.mark_id.hex()),
            ("made", mark.created),
            ("SHA-256 of the mark without its secret", mark.digest.hex()),
            ("digest of the unmarked model's trees", mark.model_digest),
            ("digest of the marked model's trees", card.marked_digest),
            ("SHA-256 of the marked model's file", card.file_digest),
            ("timbermark", timbermark.__version__),
        ),
    )


def _changes(card: Card) -> Section:
    title = "What changed in the model"
    said = (
        f"{card.mark.n_splits} questions rest on thresholds that were moved between training "
        f"values, {card.mark.n_leaves} on leaf values that were changed. Trees, features, file "
        "format and serving code are as before."
    )
    if card.cost is None:
        missing = "The cost of marking was not given to this card: its figures are missing."
        return section(title, said, missing)
    rows = tuple(_figure_row(figure, card.cost) for figure in card.cost["figures"])
    header = ("figure", "before", "after", "change", "at most", "rows")
    table = Table("Figures before and after marking", header, rows)
    return section(title, said, str(card.cost.get("measured", "")), table)


def _figure_row(figure: Mapping[str, Any], cost: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (figure.get(part) for part in ("before", "after", "change", "at_most"))
    shown = ("" if number is None else f"{number:.5g}" for number in numbers)
    return (_name(figure, cost), *shown, str(figure.get("rows", "")))


def _name(figure: Mapping[str, Any], cost: Mapping[str, Any]) -> str:
    answers = "labels" if "classes" in cost else "numbers"
    known = bool(cost.get("error_known", True))
    return figure_name(str(figure["code"]), figure.get("class"), answers, known)


def _survival(card: Card) -> Section:
    title = "What the mark survives"
    if card.attacks is None:
        return section(
            title,
            "No attack was measured on this model. What marks survived on other models is "
            "published with timbermark (docs/robustness.md) and need not hold here.",
        )
    rows = [row for row in card.attacks["rows"] if row.get("score_bits") is not None]
    shown = tuple(
        (
            f"{row['attack']}, strength {row['strength']:g}",
            str(row["level"]),
            f"{row['score_bits']:.0f}",
            _number(row.get("quality")),
            _number(row.get("theft_kept")),
        )
        for row in rows
    )
    lost = [row["attack"] for row in rows if row["level"] == "none"]
    measure = str(card.attacks.get("measure", "quality"))
    header = ("attack", "evidence", "bits", measure, "worth of the theft kept")
    left = "evidence is left after each of them."
    if lost:
        left = f"no evidence is left after: {', '.join(sorted(set(lost)))}."
    return section(
        title,
        f"{len(rows)} attacks were measured on this model; {left}",
        Table("Evidence that attacks leave", header, shown, texts=2),
    )


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}"


def _verifiers(card: Card) -> Section:
    claim = card.claim
    said, shown = "No claim was published for this card.", None
    if claim is not None:
        said = "A signed claim was published."
        shown = facts(
            ("SHA-256 of the claim", claim.digest.hex()),
            ("claimed", claim.claimed),
            ("time stamps", str(len(claim.stamps))),
            ("public key of the owner (Ed25519)", claim.key.hex()),
        )
    lines = (
        "timbermark verify MODEL secret.mark",
        "timbermark judge evidence --claim model.claim --suspect MODEL",
    )
    return section(
        "Who can verify it",
        "The owner, with the secret mark, can verify any copy, as a file or behind an "
        "address. A judge or an auditor can do so with a part of the mark that the owner "
        f"opens to them, without trusting the owner. Others cannot. {said}",
        shown,
        pages.Commands(lines),
    )


def _list_risks(card: Card) -> tuple[str, ...]:
    found = [
        "A model that is retrained or distilled on enough data of its own may lose the mark.",
        "Whoever holds the secret mark knows the questions and can avoid them: it must be kept "
        "like a key.",
        "Rows like the questions, which are not drawn from the population, are answered as the "
        "mark says and not as the model learned.",
    ]
    if card.claim is None or not card.claim.stamps:
        found.append("Without a time stamp a claim proves who made it, not when.")
    if card.cost is None:
        found.append("The change of the model's answers is not documented here.")
    if card.attacks is None:
        found.append("How robust the mark is was not measured on this model.")
    if level(card.bits) != "conclusive":
        found.append(f"{card.bits:.0f} bits do not convince others than the owner.")
    return tuple(found)


def _places() -> Section:
    """Return where each section belongs in the files that it is written for."""
    development = "Model development, implementation and use"
    validation = "Validation and ongoing monitoring"
    governance = "Governance, policies and controls"
    rows = (
        ("Purpose of the mark", development, "1, general description"),
        ("What changed in the model", development, "2(b), design; 6, changes"),
        ("What the mark survives", validation, "2(g), testing; 2(h), cybersecurity"),
        ("Who can verify it", governance, "2(h), cybersecurity"),
        ("Residual risk", validation, "3, limitations; 5, risk management"),
        ("Monitoring and change control", governance, "3, monitoring and control; 6, changes"),
    )
    header = ("section", "SR 26-2", "EU AI Act, Annex IV")
    return section("For the file", Table("Where the sections belong", header, rows, texts=3))


def to_markdown(page: Page, depth: int = 1) -> str:
    """Return a page without plots as Markdown, its title as a heading of ``depth``.

    Texts from outside cannot form markup.

    >>> print(to_markdown(Page("card", "A *title*", (), (), (), "0.1.0")), end="")
    # A \\*title\\*
    """
    lines = [f"{'#' * depth} {_escape(page.headline)}", ""]
    lines += [f"**{_escape(number)}** {_escape(what)}  " for number, what in page.figures]
    for shown in page.sections:
        lines += ["", f"{'#' * (depth + 1)} {_escape(shown.title)}", ""]
        for text in shown.text:
            lines += [_escape(text), ""]
        for part in shown.parts:
            lines += [*_part_lines(part), ""]
    text = "\n".join(lines).strip()
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text + "\n"


def _part_lines(part: Any) -> list[str]:
    if isinstance(part, pages.Facts):
        return [f"- {_escape(name)}: {_escape(value)}" for name, value in part.rows]
    if isinstance(part, pages.Notes):
        return [f"- {_escape(line)}" for line in part.lines]
    if isinstance(part, pages.Commands):
        return ["```sh", *part.lines, "```"]
    if isinstance(part, Table):
        rule = ["---"] * part.texts + ["---:"] * (len(part.header) - part.texts)
        return [_row(part.header), _row(rule, escape=False), *map(_row, part.rows)]
    raise InputError("A card has no plots.", hint="write it as HTML.", code="card.plot")


def _row(cells: Sequence[str], escape: bool = True) -> str:
    return f"| {' | '.join(_escape(cell) if escape else cell for cell in cells)} |"


def _escape(text: str) -> str:
    flat = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in flat)


def append_card(existing: str, card: Card) -> str:
    """Return a model card in Markdown with the mark's card at its end.

    A card that an earlier call appended is replaced; all else stays as it is, the metadata of
    Hugging Face at the head included.

    Raises InputError if only the beginning of an earlier one is left.
    """
    shown = to_markdown(describe_card(card), depth=2)
    before, found, rest = existing.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if found and not ended:
        raise InputError(
            "The model card has the beginning of an earlier card of the mark, but not its end.",
            hint="remove what is left of it.",
            code="card.damaged",
            parameter="append",
        )
    return f"{before.rstrip()}\n\n{BEGIN}\n{shown}{END}\n{after.lstrip()}"


def bill_of_materials(card: Card) -> dict[str, Any]:
    """Return a CycloneDX ML-BOM with the marked model as its one component, ready for JSON.

    Merge it into the bill of the system that the model is part of.
    """
    mark, claim = card.mark, card.claim
    told = {
        "owner": mark.owner,
        "mark_id": mark.mark_id.hex(),
        "mark_digest": mark.digest.hex(),
        "model_digest": mark.model_digest,
        "marked_digest": card.marked_digest,
        "bits": f"{card.bits:.1f}",
        "claim_digest": None if claim is None else claim.digest.hex(),
    }
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"urn:timbermark:{card.marked_digest}")
    component: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": f"timbermark:{card.marked_digest}",
        "name": card.name,
        "publisher": mark.owner,
        "modelCard": {
            "modelParameters": {
                "task": card.task,
                "architectureFamily": "gradient-boosted decision trees",
                "modelArchitecture": f"{card.kind} ({card.library})",
            },
            "considerations": {"technicalLimitations": list(_list_risks(card))},
        },
        "properties": [
            {"name": f"timbermark:{name}", "value": value}
            for name, value in told.items()
            if value is not None
        ],
    }
    if card.file_digest is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": card.file_digest}]
    if card.cost is not None:
        component["modelCard"]["quantitativeAnalysis"] = {
            "performanceMetrics": [
                {
                    "type": _name(figure, card.cost),
                    "value": f"{figure['after']:.6g}",
                    "slice": str(figure.get("rows", "")),
                }
                for figure in card.cost["figures"]
                if figure.get("after") is not None
            ]
        }
    tool = {"type": "application", "name": "timbermark", "version": timbermark.__version__}
    return {
        "bomFormat": _BOM_FORMAT,
        "specVersion": _BOM_VERSION,
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {"tools": {"components": [tool]}},
        "components": [component],
    }


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:timbermark:claim:2"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


def make_statement(claim: Claim, key: OwnerKey, name: str) -> bytes:
    """Return the envelope as JSON: that the file ``name`` is the marked model of the claim.

    The signature is Ed25519 by the key that signed the claim; ``keyid`` is its public key. Nothing
    in it is secret.

    Raises InputError if the key is another one, or the claim does not name a file.

    >>> from timbermark.ownership.mark import Mark
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
    ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> claim = Claim.make(mark, key, marked_digest="1" * 64, marked_file="2" * 64)
    >>> json.loads(make_statement(claim, key, "model.json"))["payloadType"]
    'application/vnd.in-toto+json'
    """
    check_name(name, "name")
    if key.claim_key != claim.key:
        raise InputError(
            "The claim was not signed with this owner key.",
            hint="give the key that the claim was made with.",
            code="claim.other-key",
            parameter="key",
        )
    if claim.marked_file is None:
        raise InputError(
            "The claim does not name the file of the marked model.",
            hint="make the claim from the file: timbermark claim model.json …",
            code="statement.no-file",
            parameter="claim",
        )
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": claim.marked_file}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": claim.to_dict() | {"claim_digest": claim.digest.hex()},
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signature = key.sign_claim(_encode_before_signing(payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": key.claim_key.hex(), "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(envelope, indent=1).encode() + b"\n"


def _encode_before_signing(payload: bytes) -> bytes:
    """Return what DSSE signs: the type and the payload, each with its length before it.

    A claim's signed bytes begin otherwise, so that no signature of one fits the other.
    """
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
