"""Make the cases of conformance/ again: `python -m tools.make_conformance`.

Equal runs write equal files. Each case states what it expects by the rules of docs/; both verifiers
must say so before anything is written. Run it when a format changes before its first release.
"""

from __future__ import annotations

import functools
import json
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from tests.ownership import independent_kit
from tests.ownership.authority import Authority
from tests.ownership.make_vectors import JUDGE, PASSPHRASE, loosened, make_claim, plain_answers
from tests.ownership.making import (
    carried,
    make_both,
    make_known_mark,
    make_mark,
    make_mixed_mark,
    make_number_mark,
    npy_bytes,
    signed,
    unpacked,
)
from tools.conformance import KIT, accumulate, commit, is_same, run

from timbermark.guard import ledger_file
from timbermark.ownership import Mark, OwnerKey, open_mark
from timbermark.ownership.evidence import Price
from timbermark.verification import chain as chains
from timbermark.verification import journal as journals
from timbermark.verification.packs import (
    CLAIM,
    MANIFEST,
    OPENING,
    TRANSCRIPT,
    _manifest,
    _manifest_bytes,
    _zip,
)
from timbermark.verification.stamps import make_query
from timbermark.verification.transcript import Context, Note, Transcript

LINES = {"mark": b"timbermark mark 4\n", "claim": b"timbermark claim 2\n",
         "opening": b"timbermark opening 3\n", "chain": b"timbermark guard-chain 1\n"}  # fmt: skip
STAMPS = Path(__file__).resolve().parents[1] / "tests/ownership/fixtures/stamps.json"
SINCE = "2030-01-02T03:04:05Z"
COUNT = 100_000
Change = Callable[[dict[str, Any], dict[str, bytes]], Any]


@functools.cache
def marks() -> dict[str, Mark]:
    """Return the marks of the kit, by name."""
    return {
        "leaves": make_mark(24, n_classes=6),
        "two-symbols": make_mark(24, q=2, n_classes=3),
        "both": make_both(24, 24),
        "texts": make_mixed_mark(16, 16),
        "known-models": make_known_mark(20, draws=3),
        "numbers": make_number_mark(80),
        "strong": make_mark(48, n_classes=4),
    }


def container(kind: str, meta: Any, members: dict[str, bytes]) -> bytes:
    """Return a container with a right checksum, the same bytes each time."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        files = {"meta.json": meta if isinstance(meta, bytes) else json.dumps(meta).encode()}
        for name, content in {**files, **members}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return signed(LINES[kind], file.getvalue())


def changed(kind: str, data: bytes, change: Change) -> bytes:
    """Return a container after a change of its parts, with a right checksum."""
    meta, members = unpacked(data)
    found = change(meta, members)
    return container(kind, meta if found is None else found, members)


def put(*path: Any) -> Change:
    """Return a change that puts the last word of a path at its place; `...` removes it."""

    def change(meta: dict[str, Any], _: Any) -> None:
        *way, last, value = path
        place: Any = meta
        for step in way:
            place = place[step]
        if value is ...:
            del place[last]
        else:
            place[last] = value

    return change


def array(name: str, edit: Callable[[Any], Any]) -> Change:
    """Return a change of an array."""

    def change(_: Any, members: dict[str, bytes]) -> None:
        members[f"{name}.npy"] = npy_bytes(edit(np.load(BytesIO(members[f"{name}.npy"])).copy()))

    return change


def at(index: Any, value: Any) -> Callable[[Any], Any]:
    """Return an edit of one place of an array."""

    def edit(given: Any) -> Any:
        given[index] = value
        return given

    return edit


class Kit:
    """Cases that are written once all of them hold."""

    def __init__(self) -> None:
        self.cases: dict[str, tuple[dict[str, Any], dict[str, bytes]]] = {}

    def add(self, name: str, reason: str, do: str, files: dict[str, bytes], **more: Any) -> None:
        """Add a case; ``refused`` is the class of its refusal, if it is one."""
        refused = more.pop("refused", None)
        name = f"{name}_fail" if refused else name
        assert name not in self.cases, name
        endings = {"mark": "m.mark", "claim": "c.claim", "opening": "o.opening", "pack": "p.zip",
                   "roots": "r.pem", "journal": "j.journal", "chain": "g.chain",
                   "ledger": "g.db"}  # fmt: skip
        case = {"reason": reason, "do": do, **{key: endings[key] for key in files}, **more}
        if refused:
            case["expected"] = {"result": "refused", "class": refused}
        self.cases[name] = case, {endings[key]: data for key, data in files.items()}

    def write(self, kit: Path) -> list[str]:
        """Write all cases; return what either verifier says otherwise."""
        shutil.rmtree(kit / "cases", ignore_errors=True)
        wrong = []
        for name, (case, files) in sorted(self.cases.items()):
            folder = kit / "cases" / name
            folder.mkdir(parents=True)
            for file, data in files.items():
                (folder / file).write_bytes(data)
            (folder / "case.json").write_text(json.dumps(case), "utf-8")
            ours, theirs = run(folder), independent_kit.run(folder)
            expected = case.setdefault("expected", ours)
            text = json.dumps(case, indent=None, ensure_ascii=False, sort_keys=True)
            (folder / "case.json").write_text(text + "\n", "utf-8")
            if name.endswith("_fail") != (expected["result"] == "refused"):
                wrong.append(f"{name}: {expected}")
            for who, said in (("timbermark", ours), ("independent", theirs)):
                if not is_same(said, expected):
                    wrong.append(f"{name}: {who} says {said}, expected is {expected}")
        return wrong


def answered(mark: Any, kind: str, how: str) -> dict[str, Any]:
    """Return answers of a suspect to a mark."""
    rng = np.random.default_rng(len(how))
    if how == "copy":
        values = plain_answers(carried(mark, kind))
    elif how == "loose":
        values = plain_answers(loosened(mark, kind))
    elif how == "silent":
        values = [None] * mark.n_rows
    elif kind == "labels":
        values = rng.integers(-1, len(mark.classes), mark.n_rows).tolist()
    elif kind == "scores":
        values = rng.dirichlet(np.ones(len(mark.classes)), mark.n_rows).round(4).tolist()
    else:
        values = rng.normal(size=mark.n_rows).round(4).tolist()
    return {"kind": kind, "values": values}


SAYS = {
    "copy": "a copy carries every symbol",
    "loose": "a changed copy carries most of the mark; some rows have no answer",
    "silent": "no row is answered: no evidence, no refusal",
    "innocent": "answers that know nothing of the mark",
}


def add_marks(kit: Kit) -> None:
    """Add marks that are sound, answers of every kind, and answers that are none."""
    for name, mark in marks().items():
        for kind in ("labels", "scores") if mark.classes else ("numbers",):
            for how, reason in SAYS.items():
                kit.add(f"mark-{name}-{kind}-{how}", f"{reason}.", "mark",
                        {"mark": mark.to_bytes()}, answers=answered(mark, kind, how))  # fmt: skip
    small = make_mark(4, n_classes=4)
    files = {"mark": small.to_bytes()}
    wrong = {
        "short": ("labels", [0, 1, 2], "An answer is missing in the list."),
        "long": ("labels", [0] * 5, "There is one answer too many."),
        "no-class": ("labels", [0, 1, 2, 4], "A label is beyond the classes."),
        "width": ("scores", [[0.5, 0.5]] * 4, "Scores have other classes than the mark."),
        "numbers": ("numbers", [0.5] * 4, "Numbers answer a mark of classes."),
    }
    for name, (kind, values, reason) in wrong.items():
        asked = {"kind": kind, "values": values}
        kit.add(f"answers-{name}", reason, "mark", files, answers=asked, refused="answers")
    _add_sealed(kit, small)


def _add_sealed(kit: Kit, small: Mark) -> None:
    # Encrypted files differ in each run; this one was made once.
    kept = Path(__file__).resolve().parents[1] / "tests/ownership/fixtures/mark-4-sealed.mark"
    sealed = {"mark": kept.read_bytes()}
    kit.add("sealed", "An encrypted mark opens by its passphrase.", "mark", sealed,
            passphrase=PASSPHRASE)  # fmt: skip
    kit.add("sealed-wrong", "The passphrase is another.", "mark", sealed, passphrase="open",
            refused="passphrase")  # fmt: skip
    kit.add("sealed-none", "An encrypted mark needs a passphrase.", "mark", sealed,
            refused="passphrase")  # fmt: skip
    kit.add("sealed-needless", "A mark that is not encrypted takes no passphrase.", "mark",
            {"mark": small.to_bytes()}, passphrase="open", refused="passphrase")  # fmt: skip


def add_containers(kit: Kit, kind: str, data: bytes, more: dict[str, bytes]) -> None:
    """Add what is refused whatever the container holds."""
    meta, members = unpacked(data)
    first, checksum, payload = data.split(b"\n", 2)
    again = json.dumps(meta)
    twice = (again[:-1] + ', "protocol": 3}').encode().replace(b"{", b'{"protocol": 3, ', 1)
    version = first.rsplit(b" ", 1)[0]
    broken = {
        "empty": (b"", "The file is empty."),
        "foreign": (b"PK\3\4" + data, "The file does not begin with the line of a container."),
        "other-kind": (signed(b"timbermark note 1\n", payload), "It is of another kind."),
        "newer": (signed(version + b" 99\n", payload), "Its format is newer."),
        "older": (signed(version + b" 1\n", payload), "Its format is older than any that is read."),
        "truncated": (data[: len(data) * 2 // 3], "The file ends too early."),
        "flipped": (_flip(data, -200), "A bit was flipped after the checksum was made."),
        "checksum": (first + b"\n" + checksum[::-1] + b"\n" + payload, "The checksum is another."),
        "no-archive": (signed(first + b"\n", b"x" * 100), "The payload is no zip archive."),
        "not-json": (container(kind, b"{", members), "The metadata are no JSON."),
        "constant": (container(kind, {**meta, "x": float("nan")}, members),
                     "The metadata hold NaN, which JSON does not have."),
        "key-twice": (container(kind, twice, members), "A key of the metadata is there twice."),
        "list": (container(kind, [meta], members), "The metadata are a list."),
        "strange-member": (container(kind, meta, {**members, "a.txt": b""}),
                           "The archive holds a file that is no array."),
        "objects": (container(kind, meta, {**members, "a.npy": _objects()}),
                    "An array holds pickled objects."),
    }  # fmt: skip
    if members:
        name = sorted(members)[0]
        cut = {**members, name: members[name][:-3]}
        broken["short-array"] = (container(kind, meta, cut), "An array ends too early.")
    for name, (bad, reason) in broken.items():
        kit.add(f"{kind}-container-{name}", reason, kind, {**more, kind: bad}, refused="container")


def _flip(data: bytes, place: int) -> bytes:
    found = bytearray(data)
    found[place] ^= 1
    return bytes(found)


def _objects() -> bytes:
    file = BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    return file.getvalue()


def add_contents(kit: Kit) -> None:
    """Add marks whose container is right and whose content is not."""
    both = make_both(6, 6)
    data = both.to_bytes()
    meta = unpacked(data)[0]
    changes: dict[str, tuple[Change, str]] = {
        f"no-{name}": (put(name, ...), f"{name} is missing.") for name in sorted(meta)
    }
    changes |= {
        "more": (put("extra", 1), "There is a key that marks do not have."),
        "protocol": (put("protocol", 2), "The protocol is another."),
        "owner-empty": (put("owner", ""), "The owner has no name."),
        "owner-number": (put("owner", 7), "The owner's name is no text."),
        "owner-control": (put("owner", "Ann\x1b[2J"), "The owner's name would steer a terminal."),
        "digest-short": (put("model_digest", "ab"), "A digest has 64 digits."),
        "draws-none": (put("draws", 0), "A mark was drawn at least once."),
        "draws-part": (put("draws", 1.5), "Draws are counted."),
        "answers": (put("answers", "odds"), "Answers are classes or numbers."),
        "classes-twice": (put("classes", [0, 1, 2, 3, 4, 4]), "Two classes are the same."),
        "classes-one": (put("classes", [0]), "One class decides nothing."),
        "classes-mixed": (put("classes", [0, 1, 2, 3, 4, "5"]), "Labels are of two types."),
        "secret-short": (put("secret", "ab" * 31), "The secret has 32 bytes."),
        "secret-digits": (put("secret", "xy" * 32), "The secret is in hexadecimal digits."),
        "key-short": (put("claim_key", "ab"), "The key has 32 bytes."),
        "created": (put("created", "yesterday"), "The time has another form."),
        "names": (put("feature_names", ["a", "b"]), "There are more columns than names."),
        "names-twice": (put("feature_names", ["a", "b", "a"]), "Two columns have one name."),
        "kinds": (put("kinds", ["numbers", "numbers", "dates"]), "A column is of no known kind."),
        "no-seal": (put("texts", {}), "There is no seal."),
        "texts": (put("texts", {"leaves": [["a"] * 6], "splits": []}), "A column is too many."),
        "alphabet-beyond": (array("leaves.alphabets", at((0, 0), 6)), "A symbol is no class."),
        "alphabet-twice": (array("leaves.alphabets", lambda a: a * 0), "A symbol is there twice."),
        "alphabet-three": (array("leaves.alphabets", lambda a: a[:, :3]), "q is 2 or 4."),
        "alphabet-type": (array("leaves.alphabets", lambda a: a.astype("i8")), "It is int32."),
        "reference-high": (array("leaves.reference", at((0, 0), 1.5)), "A score is above 1."),
        "reference-nan": (array("leaves.reference", at((0, 0), np.nan)), "A score is missing."),
        "reference-rows": (array("leaves.reference", lambda a: a[:5]), "A trigger has no scores."),
        "rows-infinite": (array("leaves.rows", at((0, 0), np.inf)), "A value is infinite."),
        "rows-twice": (array("leaves.rows", lambda a: a * 0), "Two triggers are the same row."),
        "feature-beyond": (array("splits.features", at(0, 3)), "There is no such column."),
        "gap-empty": (array("splits.values", lambda a: a * 0), "The three values must rise."),
        "gap-falls": (array("splits.values", lambda a: a[:, ::-1]), "The three values must rise."),
        "strata": (array("splits.strata", lambda a: a[:5]), "A trigger is in no stratum."),
        "array-more": (lambda _, m: m.update({"leaves.x.npy": npy_bytes(np.zeros(1))}),
                       "There is an array that seals do not have."),
        "array-less": (lambda _, m: m.pop("leaves.reference.npy") and None,
                       "An array of a seal is missing."),
    }  # fmt: skip
    for name, (change, reason) in changes.items():
        files = {"mark": changed("mark", data, change)}
        kit.add(f"mark-content-{name}", reason, "mark", files, refused="content")


def add_claims(kit: Kit) -> None:
    """Add claims: signed, changed, of another mark or key."""
    mark = marks()["both"]
    made = make_claim(mark)
    data = made.to_bytes()
    files = {"claim": data, "mark": mark.to_bytes()}
    kit.add("claim", "A claim is signed by the key in it.", "claim", {"claim": data})
    kit.add("claim-of-mark", "A claim names a mark by its digest.", "claim", files)
    for name, value in {"owner": "Bob", "claimed": "2029-01-03T04:05:06Z", "draws": 2,
                        "marked_digest": "00" * 32, "marked_file": None, "n_splits": 25,
                        "mark_digest": "00" * 32}.items():  # fmt: skip
        bad = changed("claim", data, put("statement", name, value))
        kit.add(f"claim-changed-{name}", f"{name} was changed after the claim was signed.", "claim",
                {"claim": bad}, refused="signature")  # fmt: skip
    bad = changed("claim", data, put("signature", made.signature[:-1].hex() + "00"))
    kit.add("claim-signature", "The signature is another.", "claim", {"claim": bad},
            refused="signature")  # fmt: skip
    for name in ("signature", "stamps", "statement"):
        bad = changed("claim", data, put(name, ...))
        kit.add(f"claim-no-{name}", f"{name} is missing.", "claim", {"claim": bad},
                refused="content")  # fmt: skip
    for name in ("key", "claimed", "q"):
        bad = changed("claim", data, put("statement", name, ...))
        kit.add(f"claim-statement-no-{name}", f"{name} is missing in the statement.", "claim",
                {"claim": bad}, refused="content")  # fmt: skip
    kit.add("claim-other-mark", "The claim is about another mark.", "claim",
            {"claim": data, "mark": marks()["leaves"].to_bytes()}, refused="binding")  # fmt: skip
    other = OwnerKey(bytes(32))
    stolen = make_both(24, 24, claim_key=other.claim_key)
    kit.add("claim-second-key", "A mark that names another key has another digest.", "claim",
            {"claim": data, "mark": stolen.to_bytes()}, refused="binding")  # fmt: skip
    add_containers(kit, "claim", data, {})


def add_openings(kit: Kit) -> None:
    """Add openings and packs."""
    mark = marks()["both"]
    claim = make_claim(mark)
    opening = open_mark(mark, claim, judge=JUDGE, share=0.5, force=True)
    data, opened = opening.to_bytes(), opening.check(claim)
    files = {"claim": claim.to_bytes(), "opening": data}
    for kind in ("labels", "scores"):
        for how, reason in SAYS.items():
            kit.add(f"opening-{kind}-{how}", f"Of an opened half: {reason}.", "opening", files,
                    answers=answered(opened, kind, how), **{"for": JUDGE})  # fmt: skip
    for name in ("strong", "numbers"):
        one = marks()[name]
        its = make_claim(one)
        whole = open_mark(one, its, judge=JUDGE, share=1.0, force=True)
        kind = "labels" if one.classes else "numbers"
        kit.add(f"opening-whole-{name}", "All triggers are opened: no price for a part.", "opening",
                {"claim": its.to_bytes(), "opening": whole.to_bytes()},
                answers=answered(whole.check(its), kind, "copy"))  # fmt: skip
    changes: dict[str, tuple[Change, str, str]] = {
        "salt": (array("salts", at((0, 0), 7)), "A salt is another.", "binding"),
        "path": (array("paths", at((0, 0), 7)), "A hash of a path is another.", "binding"),
        "row": (array("leaves.rows", at((0, 0), 7.0)), "A trigger was changed.", "binding"),
        "reference": (
            array("leaves.reference", at((0, 0), 0.5)),
            "A score was changed.",
            "binding",
        ),
        "gap": (array("splits.values", at((0, 0), -99.0)), "A gap was changed.", "binding"),
        "judge": (put("for", "Judge Jim"), "Another name stands in the opening.", "binding"),
        "claim": (put("claim", "00" * 32), "It opens another claim.", "binding"),
        "root": (put("head", "root", "00" * 32), "The root is another.", "binding"),
        "draws": (put("head", "draws", 2), "The head counts other draws.", "binding"),
        "owner": (put("head", "owner", "Bob"), "The head names another owner.", "binding"),
        "no-places": (put("places", []), "Nothing is opened.", "content"),
        "places-twice": (put("places", [0] * len(opening.places)), "A place is twice.", "content"),
        "no-head": (put("head", ...), "The head is missing.", "content"),
        "head-less": (put("head", "q", ...), "The head lacks a word.", "content"),
        "judge-empty": (put("for", ""), "It is for nobody.", "content"),
        "paths-short": (array("paths", lambda a: a[:-1]), "A path ends too early.", "content"),
        "paths-type": (array("paths", lambda a: a.astype("i4")), "Hashes are bytes.", "content"),
        "salts-short": (array("salts", lambda a: a[:-1]), "A salt is missing.", "content"),
    }
    for name, (change, reason, refused) in changes.items():
        bad = {**files, "opening": changed("opening", data, change)}
        kit.add(f"opening-{name}", reason, "opening", bad, refused=refused)
    kit.add("opening-other-judge", "It was opened for somebody else.", "opening", files,
            refused="binding", **{"for": "Judge Jim"})  # fmt: skip
    its = make_claim(marks()["leaves"]).to_bytes()
    kit.add("opening-other-claim", "The claim is another.", "opening", {**files, "claim": its},
            refused="binding")  # fmt: skip
    picked = open_mark(mark, claim, judge=JUDGE, share=0.625, force=True)
    kit.add("opening-picked", "Places that the draw does not give.", "opening",
            {**files, "opening": _picked(picked, mark, claim)}, refused="binding")  # fmt: skip
    add_containers(kit, "opening", data, {"claim": files["claim"]})
    _add_packs(kit, files, answered(opened, "labels", "copy"))


def _picked(opening: Any, mark: Mark, claim: Any) -> bytes:
    """Return an opening of places that somebody chose, right in everything else."""
    from dataclasses import replace

    from timbermark.ownership.symbols import merkle_paths

    whole = open_mark(mark, claim, judge=JUDGE, share=1.0, force=True)
    places = tuple(range(opening.n_opened))
    seals = {
        one.name: type(one)(
            columns=tuple(column[:n] for column in one.columns),
            **{part: getattr(one, part)[:n] for part in one.types},
        )
        for one in mark.seals
        if (n := min(len(places) - (mark.n_leaves if one.name == "splits" else 0),
                     mark.n_leaves if one.name == "leaves" else mark.n_splits)) > 0
    }  # fmt: skip
    paths = tuple(merkle_paths(mark.hashes, places))
    salts = tuple(mark.salts[: len(places)])
    return replace(whole, places=places, salts=salts, paths=paths, **seals).to_bytes()


def _add_packs(kit: Kit, files: dict[str, bytes], answers: dict[str, Any]) -> None:
    parts = {CLAIM: files["claim"], OPENING: files["opening"]}
    manifest = _manifest(parts)
    whole = {**parts, MANIFEST: manifest}
    listed = json.loads(manifest)["files"]
    kit.add("pack", "Claim and opening in one archive.", "pack", {"pack": _zip(whole)},
            answers=answers)  # fmt: skip
    bad = {
        "no-manifest": (_zip(parts), "The manifest is missing."),
        "other-file": (_zip({**whole, CLAIM: parts[OPENING]}), "A file is not the one listed."),
        "unlisted": (_zip({**whole, "page.html": b""}), "A file is not listed."),
        "missing": (_zip({CLAIM: parts[CLAIM], MANIFEST: manifest}), "A listed file is missing."),
        "strange": (_zip({**whole, "../x": b""}), "A name leads elsewhere."),
        "format": (_zip({**whole, MANIFEST: manifest.replace(b"evidence 2", b"evidence 9")}),
                   "The pack has another format."),
        "not-json": (_zip({**whole, MANIFEST: b"{"}), "The manifest is no JSON."),
        "truncated": (_zip(whole)[:-30], "The archive ends too early."),
        "compressed": (_deflated(whole), "A pack is not compressed."),
        "empty": (b"", "The file is empty."),
    }  # fmt: skip
    for name, (data, reason) in bad.items():
        kit.add(f"pack-{name}", reason, "pack", {"pack": data}, refused="container")
    for name, kept in (("no-claim", OPENING), ("no-opening", CLAIM)):
        one = {kept: parts[kept], MANIFEST: _manifest_bytes({kept: listed[kept]})}
        kit.add(f"pack-{name}", "A part that a judge needs is missing.", "pack",
                {"pack": _zip(one)}, refused="binding")  # fmt: skip


def stamps() -> dict[str, bytes]:
    """Return time stamps and roots. Each run of an authority gives others, so these are kept.

    Remove the file to have them made again, where a format changes before its first release.
    """
    if not STAMPS.exists():
        claim, entries = make_claim(marks()["both"]), guard_chain().entries
        other = make_claim(marks()["leaves"])
        found = {}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            good = Authority(folder / "good", "Kit")
            stranger = Authority(folder / "stranger", "Stranger")
            between = Authority(folder / "between", "Between", between=2)
            expired = Authority(folder / "expired", "Expired", days=(-20, -10))
            found["roots"] = good.root + between.root + expired.root
            whose = {"good": good, "stranger": stranger, "between": between, "expired": expired}
            for who, authority in whose.items():
                found[who] = authority.stamp(make_query(claim))
            found["other"] = good.stamp(make_query(other))
            for count in (0, 4):
                found[f"head {count}"] = good.stamp(make_query(guard_chain().head(count)))
            rotated = replace(guard_chain(), first=9, entries=entries[4:])
            found["head rotated"] = good.stamp(make_query(rotated.head(11)))
        text = json.dumps({name: data.hex() for name, data in found.items()}, indent=1)
        STAMPS.write_text(text + "\n", "utf-8")
    known = json.loads(STAMPS.read_text(encoding="utf-8"))
    return {name: bytes.fromhex(text) for name, text in known.items()}


def add_stamps(kit: Kit) -> None:
    """Add stamps beside a claim: those that cannot be verified are dropped, and harm nothing."""
    known = stamps()
    claim, good, junk = make_claim(marks()["both"]), known["good"], b"no response"
    at = good.index(b"\x30\x03\x02\x01\x00") + 4
    cases: dict[str, tuple[str, tuple[bytes, ...]]] = {
        "good": ("A stamp of this claim under a given root is verified.", (good,)),
        "between": ("Certificates stand between the stamp and its root.", (known["between"],)),
        "modified": ("The status is granted with modifications, which is not signed.",
                     (good[:at] + b"\1" + good[at + 1 :],)),
        "refused": ("The authority refused: the status is no stamp.",
                    (good[:at] + b"\2" + good[at + 1 :],)),
        "other": ("A stamp of another claim is dropped.", (known["other"],)),
        "unreadable": ("What cannot be read is dropped.", (junk,)),
        "stranger": ("The authority's root is none of the given ones.", (known["stranger"],)),
        "expired": ("The certificate was not valid at the time of the stamp.",
                    (known["expired"],)),
        "flipped": ("A bit of the signature was flipped.", (_flip(good, -5),)),
        "cut": ("The stamp ends too early.", (good[:-40],)),
        "among-others": ("Seven stamps that are dropped beside a good one.",
                         (known["other"], known["stranger"], junk, b"0", b"\x30\x80", b"x" * 99,
                          known["expired"], good)),
        "two": ("Two are verified, and the first time counts.", (known["between"], good)),
    }  # fmt: skip
    for name, (reason, given) in cases.items():
        data = replace(claim, stamps=given).to_bytes()
        kit.add(f"stamp-{name}", reason, "claim", {"claim": data, "roots": known["roots"]})
    kit.add("stamp-no-roots", "Without roots no stamp is verified.", "claim",
            {"claim": replace(claim, stamps=(good,)).to_bytes()})  # fmt: skip
    bad: dict[str, tuple[Any, str]] = {
        "too-many": ([f"{i:02x}" for i in range(9)], "A claim has 8 stamps at most."),
        "digits": (["xy"], "A stamp is in hexadecimal digits."),
        "empty": ([""], "A stamp is empty."),
        "number": ([7], "A stamp is a number."),
        "no-list": ("00", "The stamps are no list."),
    }
    for name, (value, reason) in bad.items():
        data = changed("claim", claim.to_bytes(), put("stamps", value))
        kit.add(f"stamp-{name}", reason, "claim", {"claim": data}, refused="content")


def add_transcripts(kit: Kit) -> None:
    """Add packs that are judged by their transcript: prices, limits and journals count."""
    mark = marks()["both"]
    claim = make_claim(mark)
    opening = open_mark(mark, claim, judge=JUDGE, share=1.0, force=True)
    opened = opening.check(claim)
    asked = {"url": "http://host/invocations", "protocol": "mlflow"}
    plain = Context("endpoint http://host/invocations", "http", request=asked)
    half = {**asked, "from_journal": 31, "journal_since": SINCE}
    missing = carried(opened, "labels")
    missing.values[np.r_[1:4, 30:33]] = -2
    contexts: dict[str, tuple[str, Context, Any]] = {
        "plain": ("Answers are those of the transcript.", plain, carried(opened, "labels")),
        "scores": ("Scores keep all their digits.", plain, loosened(opened, "scores")),
        "missing": ("Answers that are missing among others have a price.", plain, missing),
        "prices": ("What was chosen by hand is subtracted.",
                   replace(plain, prices=(Price("batch", 5.0, {"rows": 8}), Price("path", 10.0))),
                   carried(opened, "labels")),
        "capped": ("A condition without a price limits the level.",
                   replace(plain, conditions=(Note("headers", {"names": "X", "caps": True}),)),
                   carried(opened, "labels")),
        "journal": ("Answers from a journal are counted and stated.",
                    replace(plain, request=half), carried(opened, "labels")),
    }  # fmt: skip
    parts = {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()}
    texts = {}
    for name, (reason, context, answers) in contexts.items():
        texts[name] = Transcript(context, answers).to_json(opened, SINCE).encode()
        kit.add(f"transcript-{name}", reason, "pack", {"pack": _packed(parts, texts[name])})
    record = json.loads(texts["journal"])
    bad: dict[str, tuple[Change, str]] = {
        "format": (put("format", "timbermark transcript 1"), "The format is another."),
        "mark": (put("mark_digest", "00" * 32), "It is about another mark."),
        "places": (put("places", 0, 1), "It is about other triggers."),
        "short": (put("answers", record["answers"][:-1]), "An answer is missing in the list."),
        "class": (put("answers", 0, "class", "1"), "A class number is a text."),
        "key": (put("answers", 0, {"score": 1}), "An answer has another key."),
        "price": (put("context", "prices", [["path", -5.0, {}]]), "A price is negative."),
        "context": (put("context", "suspect", ...), "It does not say who was asked."),
        "terminal": (put("context", "suspect", "\x1b[2J"), "A name would steer a terminal."),
        "more": (put("extra", 1), "There is a key that transcripts do not have."),
    }
    for name, (change, reason) in bad.items():
        given = json.loads(texts["journal"])
        change(given, {})
        data = _packed(parts, json.dumps(given).encode())
        kit.add(f"transcript-{name}", reason, "pack", {"pack": data}, refused="content")
    kit.add("transcript-not-json", "It is no JSON.", "pack",
            {"pack": _packed(parts, b"{")}, refused="content")  # fmt: skip
    kit.add("transcript-none", "Without a transcript there are no answers.", "pack",
            {"pack": _zip({**parts, MANIFEST: _manifest(parts)})}, refused="binding")  # fmt: skip


def _packed(parts: dict[str, bytes], transcript: bytes) -> bytes:
    whole = {**parts, TRANSCRIPT: transcript}
    return _zip({**whole, MANIFEST: _manifest(whole)})


def add_journals(kit: Kit) -> None:
    """Add journals: how many answers they hold, and since when."""
    start = {"mark_digest": "ab" * 32, "suspect": "http://host", "created": SINCE}
    records: list[dict[str, Any]] = [
        {"start": start}, {"asking": ["q1", "q2"]}, {"answers": [["q1", [0.5, 0.5]], ["q2", "é"]]},
        {"asking": ["q3"]}, {"failed": ["q3"]}, {"skipped": ["q3"]}, {"asking": ["q4"]},
    ]  # fmt: skip
    lines = _chained(records)
    data = b"".join(lines)
    answer = lines[3].replace(b"0.5,0.5", b"0.9,0.1")
    good = {
        "whole": (data, "A skipped question counts as answered with nothing."),
        "torn": (data + b'["00', "A last line that a crash left unfinished is cut off."),
        "reserved": (data + bytes(512), "Room that was set aside for an answer is cut off."),
        "begun": (b"".join(lines[:2]), "It holds no answer yet."),
    }
    for name, (content, reason) in good.items():
        kit.add(f"journal-{name}", reason, "journal", {"journal": content})
    bad = {
        "changed": (b"".join([*lines[:3], answer, *lines[4:]]), "An answer was changed."),
        "removed": (b"".join(lines[:2] + lines[3:]), "A line was taken out."),
        "moved": (b"".join([lines[0], lines[1], lines[3], lines[2]]), "Two lines were exchanged."),
        "twice": (b"".join(_chained([*records, records[2]])), "A question is answered twice."),
        "kind": (b"".join(_chained([*records, {"news": []}])), "A record is of no known kind."),
        "second-start": (b"".join(_chained([*records, records[0]])), "It is begun twice."),
        "version": (data.replace(b"journal 2", b"journal 9", 1), "Its format is newer."),
        "foreign": (b"PK\3\4" + data, "It does not begin with the line of a journal."),
        "blank": (data.replace(b",", b", ", 1), "A line is written otherwise."),
    }
    for name, (content, reason) in bad.items():
        kit.add(f"journal-{name}", reason, "journal", {"journal": content}, refused="container")


def _chained(records: list[dict[str, Any]]) -> list[bytes]:
    check, lines = "", [journals.FIRST_LINE]
    for record in records:
        check, line = journals._line(check, record)
        lines.append(line)
    return lines


QUESTIONS: list[dict[str, Any]] = [
    {"numbers": [i / 4, -0.0], "texts": ["grün", None][i % 2 :][:1], "alphabet": [0, i % 3 + 1],
     "symbol": i % 2, "reference": [0.5, i / 16, 0.25, 0.0], "link": f"{i:02x}" * 32}
    for i in range(6)
]  # fmt: skip


@functools.cache
def guard_chain() -> chains.Chain:
    """Return a guard's chain of six questions, without stamps."""
    guard, chain_id = chains.commit_guard({"owner": "Ann Owner"}), bytes(range(16))
    first = chains.first_head(guard, chain_id)
    return chains.Chain(
        guard,
        chain_id,
        0,
        first,
        tuple(bytes([i % 2 + 1]) * 8 + one for i, one in enumerate(commit(QUESTIONS))),
    )


def add_chains(kit: Kit) -> None:
    """Add chains of a guard's ledger: which questions a verified stamp covers."""
    known, plain = stamps(), guard_chain()
    stamped = replace(plain, stamps=((0, known["head 0"]), (4, known["head 4"])))
    more = {"guard": plain.commitment.hex(), "questions": QUESTIONS}
    changed_entries = (bytes(32), *plain.entries[1:])
    rotated = replace(plain, first=9, entries=plain.entries[4:])
    rotated = replace(rotated, stamps=((11, known["head rotated"]),))
    good: dict[str, tuple[str, list[chains.Chain]]] = {
        "stamped": ("Questions before a verified stamp are covered.", [stamped]),
        "unstamped": ("Without a stamp nothing is covered.", [plain]),
        "rotated": ("Old entries are gone; the chain begins later.", [rotated]),
        "two": ("A file holds the chains of two replicas.",
                [replace(plain, chain_id=bytes(16)), stamped]),
        "entry-changed": ("Another entry gives another head, which no stamp is about.",
                          [replace(stamped, entries=changed_entries)]),
        "count-changed": ("The stamp is about the head after another number of entries.",
                          [replace(stamped, stamps=((5, known["head 4"]),))]),
        "start-changed": ("Another start gives another head.",
                          [replace(stamped, start=bytes(32))]),
        "other-guard": ("The chain of another guard covers nothing.",
                        [replace(stamped, commitment=bytes(32))]),
        "foreign-stamps": ("Stamps of something else are dropped.",
                           [replace(stamped, stamps=((4, known["good"]), (4, b"x"), (99, b"")))]),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain"
        files = {}
        for name, (reason, given) in good.items():
            chains.save_chains(path, given)
            files[name] = path.read_bytes()
            kit.add(f"chain-{name}", reason, "chain",
                    {"chain": files[name], "roots": known["roots"]}, **more)  # fmt: skip
    kit.add("chain-no-roots", "Without roots no stamp is verified.", "chain",
            {"chain": files["stamped"]}, **more)  # fmt: skip
    data = files["stamped"]
    bad: dict[str, tuple[Change, str]] = {
        "no-chains": (put("chains", ...), "The list of chains is missing."),
        "array-less": (lambda _, m: m.clear(), "A chain has no entries."),
        "first": (put("chains", 0, "first", -1), "Entries are counted from 0 on."),
        "guard-short": (put("chains", 0, "guard", "ab"), "A commitment has 32 bytes."),
        "start-digits": (put("chains", 0, "start", "xy" * 32), "It is in hexadecimal digits."),
        "stamp-alone": (put("chains", 0, "stamps", ["00"]), "A stamp has no count."),
        "stamp-digits": (put("chains", 0, "stamps", [[0, "x"]]), "A stamp is in digits."),
        "many-stamps": (put("chains", 0, "stamps", [[0, "00"]] * 4097), "There are too many."),
        "more": (put("chains", 0, "extra", 1), "There is a key that chains do not have."),
        "wide": (array("entries.0", lambda a: a.reshape(-1, 64)), "An entry has 32 bytes."),
        "type": (array("entries.0", lambda a: a.astype("i4")), "Entries are bytes."),
    }
    for name, (change, reason) in bad.items():
        kit.add(f"chain-{name}", reason, "chain", {"chain": changed("chain", data, change)},
                refused="content", **more)  # fmt: skip
    for name, content, reason in (
        ("flipped", _flip(data, -200), "A bit was flipped after the checksum was made."),
        ("newer", signed(b"timbermark guard-chain 2\n", data.split(b"\n", 2)[2]), "It is newer."),
    ):
        kit.add(f"chain-{name}", reason, "chain", {"chain": content}, refused="container", **more)


def add_ledgers(kit: Kit) -> None:
    """Add ledgers of a guard: every entry must follow from the one before."""
    changes = {
        "whole": ("", "", "Every entry follows from the one before."),
        "rotated": ("", "DELETE FROM entries WHERE seq < 3; INSERT INTO cuts SELECT chain, 2, "
                    "x'{head}', 2 FROM entries LIMIT 1", "Old entries are gone."),
        "entry": ("binding", "UPDATE entries SET entry = zeroblob(32) WHERE seq = 3",
                  "An entry was changed."),
        "head": ("binding", "UPDATE entries SET head = zeroblob(32) WHERE seq = 8",
                 "The last head was changed."),
        "removed": ("binding", "DELETE FROM entries WHERE seq = 3", "An entry was taken out."),
        "moved": ("binding", "UPDATE entries SET seq = -seq; "
                  "UPDATE entries SET seq = 1 - seq", "The entries begin later."),
        "record": ("binding", "UPDATE entries SET content = x'7b7d' WHERE kind = 1",
                   "A record is not the one in the chain."),
        "guard": ("binding", "UPDATE about SET value = '{{}}' WHERE name = 'statement'",
                  "It is the ledger of another guard."),
        "format": ("container", "UPDATE about SET value = '9' WHERE name = 'format'",
                   "Its format is newer."),
        "statement": ("container", "UPDATE about SET value = '[' WHERE name = 'statement'",
                      "What it says about its guard is no JSON."),
        "no-table": ("container", "DROP TABLE entries", "A table is missing."),
    }  # fmt: skip
    for name, (refused, change, reason) in changes.items():
        kit.add(f"ledger-{name}", reason, "ledger", {"ledger": _ledger(change)},
                **({"refused": refused} if refused else {}))  # fmt: skip
    kit.add("ledger-foreign", "It is no database.", "ledger", {"ledger": b"x" * 600},
            refused="container")  # fmt: skip


def _ledger(change: str) -> bytes:
    """Return a ledger after a change in SQL, small and without what tells SQLite's version."""
    plain = guard_chain()
    begin, end = b'{"begin": "00", "pid": 1}', b'{"end": "00"}'
    rows, head, heads = [], plain.start, []
    contents = [(1, begin), *((0, b"sealed") for _ in QUESTIONS), (1, end)]
    for seq, (kind, content) in enumerate(contents, start=1):
        entry = chains.commit_record(content) if kind else plain.entries[seq - 2]
        head = chains.next_head(head, entry)
        heads.append(head)
        rows.append((plain.chain_id.hex(), seq, kind, "", float(seq), b"", entry, head, content))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.db"
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA page_size = 512")
            file.executescript(ledger_file._SCHEMA)
            file.executemany("INSERT INTO about VALUES (?,?)", [
                ("format", "1"), ("statement", '{"owner": "Ann Owner"}'),
                ("chain", plain.chain_id.hex())])  # fmt: skip
            file.executemany("INSERT INTO entries VALUES (?,?,?,?,?,?,?,?,?)", rows)
            file.executescript(change.format(head=heads[1].hex()))
            file.commit()
            file.execute("VACUUM")
        data = bytearray(path.read_bytes())
    data[96:100] = bytes(4)
    return bytes(data)


def _deflated(files: dict[str, bytes]) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return file.getvalue()


def main() -> None:
    """Write all cases and the accumulated vector."""
    kit = Kit()
    add_marks(kit)
    add_containers(kit, "mark", make_mark(4, n_classes=4).to_bytes(), {})
    add_contents(kit)
    add_claims(kit)
    add_openings(kit)
    add_stamps(kit)
    add_transcripts(kit)
    add_journals(kit)
    add_chains(kit)
    add_ledgers(kit)
    wrong = kit.write(KIT)
    print("\n".join(wrong))
    refusals = sum(name.endswith("_fail") for name in kit.cases)
    print(f"{len(kit.cases)} cases, {refusals} refusals, {len(wrong)} wrong")
    if not wrong:
        sums = {str(count): accumulate(count) for count in (1000, COUNT)}
        text = json.dumps({"sha256": sums}, indent=1) + "\n"
        (KIT / "accumulated.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
