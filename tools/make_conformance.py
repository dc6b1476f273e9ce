"""Make the cases of conformance/ again: `python -m tools.make_conformance`.

Equal runs write equal files. Each case states what it expects by the rules of docs/; both verifiers
must say so before anything is written. Run it when a format changes before its first release.
"""

from __future__ import annotations

import functools
import json
import shutil
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from tests.ownership import independent_kit
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
from tools.conformance import KIT, accumulate, is_same, run

from timbermark.ownership import Mark, OwnerKey, open_mark
from timbermark.verification.packs import CLAIM, MANIFEST, OPENING, _manifest, _manifest_bytes, _zip

LINES = {"mark": b"timbermark mark 4\n", "claim": b"timbermark claim 2\n",
         "opening": b"timbermark opening 3\n"}  # fmt: skip
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
        endings = {"mark": "m.mark", "claim": "c.claim", "opening": "o.opening", "pack": "p.zip"}
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
