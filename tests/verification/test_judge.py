"""The judge on sound evidence, and on evidence that somebody changed."""

import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import timbermark as tm
from tests.verification.staircases import JUDGE, N_STEPS, build_house, staircase
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.ownership import Claim, Opening, OwnerKey
from timbermark.ownership.seals import take_triggers
from timbermark.verification.judge import judge
from timbermark.verification.packs import (
    CLAIM,
    MANIFEST,
    OPENING,
    TRANSCRIPT,
    VERDICT,
    read_pack,
    write_pack,
)


@pytest.fixture(scope="module")
def ann(tmp_path_factory):
    """Ann opened half of 128 triggers."""
    folder = tmp_path_factory.mktemp("judging") / "ann"
    return build_house(folder, "Ann Ltd", staircase(1), seed=2, share=0.5, k=128)


@pytest.fixture
def pack(ann, tmp_path):
    """A complete pack, as a folder."""
    judge(ann.evidence, suspect=ann.marked).save(tmp_path / "pack")
    return tmp_path / "pack"


def test_a_marked_model_is_found_by_half_of_the_triggers(ann):
    found = judge(ann.evidence, suspect=ann.marked, claim=ann.folder / "model.claim")
    assert found.level == "conclusive"
    assert (found.opening.n_opened, found.claim.n_triggers) == (64, 128)
    assert found.verdict.trials == 64
    assert found.is_marked_model is True
    assert found.stamps == ()
    assert found.first_seen is None
    assert [c.code for c in found.checks] == ["signature", "head", "draw", "records", "symbols"]
    assert found.curve[-1] == (64, found.verdict.net_bits)
    shown = str(found)
    for part in ("64 of 128", JUDGE, "Ann Ltd", "time stamp: none", ann.claim.digest.hex()):
        assert part in shown
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_innocent_model_is_not_accused(ann):
    for suspect in (ann.unmarked, lambda X: np.full((len(X), 5), 0.2)):
        found = judge(ann.evidence, suspect=suspect)
        assert found.level == "none"
    assert found.is_marked_model is None


def test_labels_are_enough(ann):
    found = judge(ann.evidence, suspect=ann.marked, answers="labels")
    assert (found.verdict.kind, found.level) == ("labels", "conclusive")
    assert found.curve[-1] == (64, found.verdict.net_bits)


def test_the_judge_learns_nothing_about_the_rest(ann):
    opening = Opening.load(ann.evidence / OPENING)
    assert opening.n_opened == 64
    hidden = set(range(128)) - set(opening.places)
    content = (ann.evidence / OPENING).read_bytes() + (ann.evidence / CLAIM).read_bytes()
    for place in hidden:
        assert ann.mark.salts[place] not in content
        assert ann.mark.rows()[place].tobytes() not in content
        assert ann.mark.rows()[place, :1].tobytes() not in content
    assert ann.mark.secret not in content
    assert ann.mark.secret.hex().encode() not in content


def test_a_claim_says_nothing_about_triggers(ann):
    content = ann.claim.to_bytes()
    for part in (*ann.mark.salts, *ann.mark.hashes, ann.mark.secret, b"height", b"noise"):
        assert part not in content
        assert part.hex().encode() not in content


def test_a_pack_is_judged_years_later_without_anybody(ann, pack, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", None)
    first = judge(ann.evidence, suspect=ann.marked)
    again = judge(pack)
    assert not again.asked_again
    assert again.verdict == first.verdict
    assert "answers taken from the transcript" in str(again)
    again.save(tmp_path / "pack.zip")
    third = judge(tmp_path / "pack.zip")
    assert third.verdict == first.verdict
    assert {**third.to_dict(), "notes": []} == {**again.to_dict(), "notes": []}


@pytest.mark.parametrize("kind", ["labels", "scores"])
def test_missing_answers_survive_the_transcript(ann, tmp_path, kind):
    def forgetful(X):
        if kind == "labels":
            return [None if row[0] < 100 else "c1" for row in X.tolist()]
        return np.where(X[:, :1] < 100, np.nan, np.full((len(X), 5), 0.2))

    first = judge(ann.evidence, suspect=forgetful)
    assert first.verdict.answered < 64
    first.save(tmp_path / "pack")
    assert judge(tmp_path / "pack").verdict == first.verdict


def test_equal_packs_have_equal_bytes(ann, tmp_path):
    found = judge(ann.evidence, suspect=ann.marked)
    for name in ("a.zip", "b.zip"):
        found.save(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def refused(*args, **kwargs):
    with pytest.raises((EvidenceError, FileFormatError, InputError)) as caught:
        judge(*args, **kwargs)
    assert caught.value.message
    return caught.value


# Every byte of every file, in steps that are prime so that all kinds of bytes are met.
@pytest.mark.parametrize("part", [CLAIM, OPENING, TRANSCRIPT, VERDICT, MANIFEST])
def test_every_flipped_byte_of_a_folder_is_refused(pack, part):
    good = (pack / part).read_bytes()
    step = 3 if len(good) < 10_000 else 41
    for position in range(0, len(good), step):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        (pack / part).write_bytes(bytes(bad))
        refused(pack)
    (pack / part).write_bytes(good)
    judge(pack)


def test_every_flipped_byte_of_an_archive_is_refused(ann, tmp_path):
    path = tmp_path / "pack.zip"
    judge(ann.evidence, suspect=ann.marked).save(path)
    good = path.read_bytes()
    for position in [*range(0, len(good), 101), *range(len(good) - 400, len(good), 3)]:
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        path.write_bytes(bytes(bad))
        refused(path)


def test_every_cut_is_refused(ann, pack, tmp_path):
    path = tmp_path / "pack.zip"
    judge(ann.evidence, suspect=ann.marked).save(path)
    good = path.read_bytes()
    for length in range(0, len(good), 487):
        path.write_bytes(good[:length])
        refused(path)
    for part in (CLAIM, OPENING, TRANSCRIPT, VERDICT, MANIFEST):
        whole = (pack / part).read_bytes()
        (pack / part).write_bytes(whole[: len(whole) // 2])
        refused(pack)
        (pack / part).unlink()
        assert part in refused(pack).message
        (pack / part).write_bytes(whole)


def test_swapped_files_are_refused(pack):
    parts = [CLAIM, OPENING, TRANSCRIPT, VERDICT, MANIFEST]
    content = {part: (pack / part).read_bytes() for part in parts}
    for one in parts:
        for other in parts:
            if one < other:
                (pack / one).write_bytes(content[other])
                (pack / other).write_bytes(content[one])
                refused(pack)
                (pack / one).write_bytes(content[one])
                (pack / other).write_bytes(content[other])


def test_swapped_files_behind_a_right_manifest_are_refused(pack, tmp_path):
    """A forger who knows the format writes the manifest anew."""
    parts = [CLAIM, OPENING, TRANSCRIPT, VERDICT]
    content = {part: (pack / part).read_bytes() for part in parts}
    for i, one in enumerate(parts):
        for other in parts[i + 1 :]:
            swapped = {**content, one: content[other], other: content[one]}
            write_pack(tmp_path / "forged", swapped, force=True)
            refused(tmp_path / "forged")


def forged(pack, tmp_path, part, change):
    """The pack with one part changed and its manifest repaired."""
    content = {name: (pack / name).read_bytes() for name in (CLAIM, OPENING, TRANSCRIPT, VERDICT)}
    content[part] = change(content[part])
    write_pack(tmp_path / "forged", content, force=True)
    return tmp_path / "forged"


def reordered(text):
    record = json.loads(text)
    record["answers"] = record["answers"][1:] + record["answers"][:1]
    return json.dumps(record).encode()


def shortened(text):
    record = json.loads(text)
    record["answers"].pop()
    return json.dumps(record).encode()


def answered_otherwise(text):
    record = json.loads(text)
    for answer in record["answers"][:8]:
        answer["scores"] = answer["scores"][::-1]
    return json.dumps(record).encode()


def claimed_more(text):
    record = json.loads(text)
    record["verdict"]["bits"] += 10
    return json.dumps(record).encode()


def recorded_otherwise(**changes):
    """Other entries of the recorded judgment, each a function of the old one."""

    def change(text):
        record = json.loads(text)
        for name, new in changes.items():
            record[name] = new(record[name])
        return json.dumps(record).encode()

    return change


STAMP = {"status": "verified", "time": "2001-01-01T00:00:00Z", "authority": "CN=X", "reason": ""}
LIES = {
    "a stamp": recorded_otherwise(
        stamps=lambda _: [STAMP], first_seen=lambda _: "2001-01-01T00:00:00Z"
    ),
    "a time": recorded_otherwise(first_seen=lambda _: "2001-01-01T00:00:00Z"),
    "a check": recorded_otherwise(checks=lambda old: [*old, {"code": "stamps", "verified": 1}]),
    "no checks": recorded_otherwise(checks=lambda _: []),
    "a note": recorded_otherwise(notes=lambda old: [*old, {"code": "confessed"}]),
    "a seal": recorded_otherwise(
        verdict=lambda old: {**old, "seals": [{**old["seals"][0], "matched": 63}]}
    ),
    "a price": recorded_otherwise(verdict=lambda old: {**old, "prices": []}),
    "no notes": recorded_otherwise(notes=lambda _: []),
    "a curve": recorded_otherwise(curve=lambda old: [*old[:-1], [64, 500.0]]),
    "references": recorded_otherwise(references=lambda _: [{"kind": "x"}]),
    "references of too many digits": recorded_otherwise(
        references=lambda _: [{"kind": "x", "bits": 10**400, "matched": 0, "trials": 1}]
    ),
    "references without end": recorded_otherwise(
        references=lambda _: [{"kind": "x", "bits": 1e999, "matched": 0, "trials": 1}]
    ),
    "more": lambda text: json.dumps({**json.loads(text), "more": 1}).encode(),
}
FORGERIES = {
    **{name: (VERDICT, lie, "pack.verdict-changed") for name, lie in LIES.items()},
    "answers in another order": (TRANSCRIPT, reordered, "pack.verdict-changed"),
    "an answer left out": (TRANSCRIPT, shortened, "transcript.not-sound"),
    "other answers": (TRANSCRIPT, answered_otherwise, "pack.verdict-changed"),
    "more bits": (VERDICT, claimed_more, "pack.verdict-changed"),
    "no verdict": (VERDICT, lambda _: b"{}", "pack.verdict-changed"),
    "no JSON": (VERDICT, lambda _: b"\xff", "pack.verdict-changed"),
    "no transcript": (TRANSCRIPT, lambda _: b"[]", "transcript.not-sound"),
    "NaN": (TRANSCRIPT, lambda text: text.replace(b"0.", b"NaN, 0.", 1), "transcript.unreadable"),
    "deep": (TRANSCRIPT, lambda _: b"[" * 100_000, "transcript.unreadable"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_forged_packs_are_refused(pack, tmp_path, case):
    part, change, code = FORGERIES[case]
    assert refused(forged(pack, tmp_path, part, change)).code == code


def rewritten(**changes):
    """A transcript whose context is another, each entry a function of the old one."""

    def change(text):
        record = json.loads(text)
        for name, new in changes.items():
            record["context"][name] = new(record["context"][name])
        return json.dumps(record).encode()

    return change


STRANGE_CONTEXTS = {
    "a terminal's command": rewritten(suspect=lambda _: "\x1b]0;x"),
    "a note that is none": rewritten(warnings=lambda _: ["x"]),
    "facts that are lists of lists": rewritten(request=lambda _: {"a": [[1]]}),
    "a negative price": rewritten(prices=lambda _: [["kind", -5.0, {}]]),
    "a price without end": rewritten(prices=lambda _: [["kind", 1e999, {}]]),
    "a price that no choice has": rewritten(prices=lambda _: [["kind", 1e306, {}]]),
    "a time that is none": lambda text: json.dumps(
        {**json.loads(text), "asked": "2030-01-02T03:04:05Z\x1b[2J"}
    ).encode(),
    "a digest that is none": rewritten(suspect_digest=lambda _: "\ud800"),
    "a code that is no text": rewritten(warnings=lambda _: [["\ud800", {}]]),
    "a fact without a sound name": rewritten(request=lambda _: {"\ud800": 1}),
    "another part": lambda text: text.replace(b'"through"', b'"trough"'),
}


@pytest.mark.parametrize("case", STRANGE_CONTEXTS)
def test_transcripts_that_nobody_writes_are_refused(pack, tmp_path, case):
    error = refused(forged(pack, tmp_path, TRANSCRIPT, STRANGE_CONTEXTS[case]))
    assert error.code.startswith("transcript.")


def test_strange_facts_of_a_transcript_harm_no_terminal(pack, tmp_path):
    """Whoever wrote the pack chose them; the sentences hold whatever they say."""
    facts = {"seal": "\x1b[2J", "matched": "{0.__class__}", "counted": "many", "q": 0}
    change = rewritten(
        warnings=lambda _: [["few-matches", facts], ["\x1bnews", {"self": 1}]],
        reading=lambda _: {"kind": "scores", "scale": "\x1b"},
        conditions=lambda _: [["template", {"caps": True}]],
        request=lambda _: {"from_journal": "\x1b"},
    )
    path = forged(pack, tmp_path, TRANSCRIPT, change)
    parts = {p: (path / p).read_bytes() for p in (CLAIM, OPENING, TRANSCRIPT)}
    write_pack(tmp_path / "alone", parts)
    found = judge(tmp_path / "alone")
    shown = str(found)
    assert "\x1b" not in shown
    assert found.level == "indicative"  # a condition that caps is kept
    json.dumps(found.to_dict(), allow_nan=False)


def test_what_cannot_be_repeated_is_shown_as_recorded(pack, tmp_path):
    """A second opinion needs the judge's rows, which are not in the pack."""
    second = [{"kind": "random forest", "bits": 1.25, "matched": 12, "trials": 64}]
    change = recorded_otherwise(references=lambda _: second)
    found = judge(forged(pack, tmp_path, VERDICT, change))
    assert found.references == ()
    (note,) = [note for note in found.notes if note.code == "recorded-models"]
    assert note.facts == {"models": ["random forest 1.2 bits"]}
    found.save(tmp_path / "again")
    assert judge(tmp_path / "again").verdict == found.verdict


def resigned(data):
    """The same container after somebody repaired its checksum."""
    first, _, payload = data.split(b"\n", 2)
    first += b"\n"
    return first + hashlib.sha256(first + payload).hexdigest().encode() + b"\n" + payload


def test_every_byte_of_an_opening_counts_behind_a_right_checksum(ann):
    """Members are stored as they are, so that each byte of content can be changed alone."""
    good = Opening.load(ann.evidence / OPENING).to_bytes()
    start = good.index(b"\n", good.index(b"\n") + 1) + 1
    survived = []
    for position in range(start, len(good), 23):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        try:
            opening = Opening.from_bytes(resigned(bytes(bad)))
            opening.check(ann.claim)
        except (FileFormatError, EvidenceError):
            continue
        survived.append(opening)
    # A byte of the archive that means nothing leaves the opening as it was.
    assert all(opening.digest == ann.open(share=0.5).digest for opening in survived)


def changed_openings(opening):
    leaves, head = opening.leaves, opening.head
    moved, doubted = np.array(leaves.alphabets), np.array(leaves.reference)
    moved[3] = moved[3][::-1]
    doubted[5, 0] += 1e-9
    rows = (np.array(leaves.columns[0]), leaves.columns[1])
    rows[0][2] += 1e-9
    salt = bytes([opening.salts[4][0] ^ 1]) + opening.salts[4][1:]
    path = (bytes(32), *opening.paths[1][1:])
    part = slice(0, opening.n_opened - 1)
    fewer = {
        "places": opening.places[part], "salts": opening.salts[part],
        "leaves": take_triggers(leaves, range(opening.n_opened - 1)),
        "paths": opening.paths[part],
    }  # fmt: skip
    return {
        "alphabet": {"leaves": replace(leaves, alphabets=moved)},
        "reference": {"leaves": replace(leaves, reference=doubted)},
        "row": {"leaves": replace(leaves, columns=rows)},
        "one salt": {"salts": (*opening.salts[:4], salt, *opening.salts[5:])},
        "exchanged salts": {"salts": opening.salts[::-1]},
        "path": {"paths": (opening.paths[0], path, *opening.paths[2:])},
        "picked": fewer,
        "name": {"judge": "Somebody else"},
        "claim": {"claim_digest": bytes(32)},
        "columns": {"head": replace(head, feature_names=("noise", "height"))},
        "classes": {"head": replace(head, classes=head.classes[::-1])},
        "key": {"head": replace(head, claim_key=OwnerKey(bytes(32)).claim_key)},
        "draws": {"head": replace(head, draws=2)},
        "root": {"head": replace(head, root=bytes(32))},
        "number of triggers": {"head": replace(head, n_leaves=64)},
    }


def test_a_changed_opening_is_refused(ann):
    opening = ann.open(share=0.5)
    opening.check(ann.claim)
    for change in changed_openings(opening).values():
        with pytest.raises(EvidenceError):
            replace(opening, **change).check(ann.claim)


def test_every_field_of_a_claim_is_signed(ann):
    changes = {
        "owner": "Eve", "key": OwnerKey(bytes(32)).claim_key, "mark_id": bytes(16),
        "mark_digest": bytes(32),
        "model_digest": "0" * 64, "marked_digest": "0" * 64, "marked_file": None, "q": 2,
        "n_leaves": 1, "n_splits": 1, "draws": 7, "mark_created": "2001-01-01T00:00:00Z",
        "claimed": "2001-01-01T00:00:00Z", "signature": bytes(64),
    }  # fmt: skip
    assert changes.keys() | {"protocol", "answers", "stamps"} == set(Claim.__dataclass_fields__)
    for name, value in changes.items():
        with pytest.raises(EvidenceError):
            replace(ann.claim, **{name: value})


def test_every_flipped_byte_of_a_claim_is_refused(ann):
    good = ann.claim.to_bytes()
    for repair in (bytes, resigned):
        for position in range(0, len(good), 3):
            bad = bytearray(good)
            bad[position] ^= 1 << position % 8
            try:
                found = Claim.from_bytes(repair(bytes(bad)))
            except (FileFormatError, EvidenceError, ValueError):
                continue
            assert repair is resigned
            assert found == ann.claim  # a byte of the archive that means nothing


def test_an_opening_for_another_judge_is_refused(ann):
    message = refused(ann.evidence, suspect=ann.marked, judge="Judge Dredd").message
    assert "Judge Judy" in message
    assert "Judge Dredd" in message
    found = judge(ann.evidence, suspect=ann.marked, judge=f" {JUDGE} ")
    assert "named" in [check.code for check in found.checks]


def test_a_claim_without_its_opening_is_refused(ann, tmp_path):
    assert refused(ann.folder / "model.claim").code == "pack.no-opening"
    write_pack(tmp_path / "half", {CLAIM: ann.claim.to_bytes()})
    assert refused(tmp_path / "half", suspect=ann.marked).code == "pack.no-opening"


def test_an_opening_needs_a_claim(ann, tmp_path):
    write_pack(tmp_path / "half", {OPENING: (ann.evidence / OPENING).read_bytes()})
    assert refused(tmp_path / "half", suspect=ann.marked).code == "pack.no-claim"
    found = judge(tmp_path / "half", suspect=ann.marked, claim=ann.claim)
    assert found.level == "conclusive"
    again = judge(ann.evidence / OPENING, suspect=ann.marked, claim=ann.claim)
    assert again.verdict == found.verdict


def test_another_claim_than_the_published_one_is_refused(ann):
    other = Claim.make(ann.mark, ann.key, marked_digest="1" * 64)
    assert refused(ann.evidence, suspect=ann.marked, claim=other).code == "claim.other"


def test_without_answers_and_without_a_suspect_there_is_nothing_to_judge(ann):
    error = refused(ann.evidence)
    assert (error.code, error.parameter) == ("pack.no-answers", "suspect")


def test_a_suspect_that_does_not_answer_is_no_verdict(ann, tmp_path):
    def silent(X):
        raise ConnectionError("gone")

    assert refused(ann.evidence, suspect=silent).code == "suspect.failed"
    with pytest.raises(FileNotFoundError):
        judge(ann.evidence, suspect=tmp_path / "none")


STRANGE = {
    "no pack": (lambda path: path.write_text("hello"), "no evidence pack"),
    "empty": (lambda path: path.write_bytes(b""), "no evidence pack"),
    "empty folder": (lambda path: path.mkdir(), "no evidence pack"),
    "foreign zip": (lambda path: zipped(path, {"a.txt": b"x"}), "as timbermark writes it"),
    "climbing zip": (lambda path: zipped(path, {"../model.claim": b"x"}), "as timbermark writes"),
    "absolute": (lambda path: zipped(path, {"/model.claim": b"x"}), "as timbermark writes"),
    "bomb": (lambda path: zipped(path, {CLAIM: bytes(50 << 20)}, True), "more than is allowed"),
    "compressed": (lambda path: zipped(path, {CLAIM: bytes(1000)}, True), "as timbermark writes"),
    "half a zip": (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(50)), "damaged archive"),
}


def zipped(path, files, compress=False):
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("case", STRANGE)
def test_what_is_no_pack_is_refused(tmp_path, case):
    make, reason = STRANGE[case]
    make(tmp_path / "evidence")
    assert reason in refused(tmp_path / "evidence").message


def test_other_files_in_a_folder_are_not_looked_at(pack):
    (pack / ".DS_Store").write_bytes(b"x")
    found = judge(pack)
    assert "ignored-files" in [note.code for note in found.notes]
    assert read_pack(pack).ignored == (".DS_Store",)


def test_a_part_that_the_manifest_does_not_list_is_refused(ann, tmp_path):
    write_pack(tmp_path / "pack", {CLAIM: ann.claim.to_bytes()})
    (tmp_path / "pack" / OPENING).write_bytes((ann.evidence / OPENING).read_bytes())
    assert OPENING in refused(tmp_path / "pack", suspect=ann.marked).message


def test_existing_packs_are_kept(ann, pack, tmp_path):
    found = judge(ann.evidence, suspect=ann.marked)
    before = {path.name: path.read_bytes() for path in pack.iterdir()}
    for target in (pack, tmp_path / "no" / "pack", ann.marked):
        with pytest.raises(InputError):
            found.save(target)
    assert before == {path.name: path.read_bytes() for path in pack.iterdir()}
    assert found.save(pack, force=True)
    page = read_pack(pack).page
    assert page is not None
    assert b"carries the mark of" in page


def test_a_pack_without_what_draws_pages_lacks_only_the_page(ann, tmp_path, monkeypatch):
    found = judge(ann.evidence, suspect=ann.marked)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert not found.save(tmp_path / "pack")
    assert read_pack(tmp_path / "pack").page is None
    assert judge(tmp_path / "pack").verdict == found.verdict


def test_a_dangling_link_in_a_pack_leads_nothing_elsewhere(ann, pack, tmp_path):
    """save(force=True) wrote through a link called page.html, outside of the folder."""
    found = judge(ann.evidence, suspect=ann.marked)
    outside = tmp_path / "outside.html"
    for name in ("page.html", MANIFEST, CLAIM):
        (pack / name).unlink()
        (pack / name).symlink_to(outside)
        found.save(pack, force=True)
        assert not outside.exists()
        assert not (pack / name).is_symlink()
    (tmp_path / "pack.zip").symlink_to(outside)
    with pytest.raises(InputError):
        found.save(tmp_path / "pack.zip")
    assert not outside.exists()


def test_a_second_opinion_shows_innocent_models_beside_the_suspect(ann):
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(0, N_STEPS, 600), rng.normal(size=600)])
    y = np.array([f"c{int(x) % 5}" for x in X[:, 0]])
    found = judge(ann.evidence, suspect=ann.marked, rows=(X, y))
    assert len(found.references) == 5
    assert max(model.bits for model in found.references) < 20 < found.bits
    assert "second opinion" in str(found)
    assert "random forest" in str(found)


BAD_ROWS = {
    "columns": (np.zeros((9, 3)), ["c1"] * 9, "mark has 2 columns"),
    "texts": (np.full((9, 2), "x"), ["c1"] * 9, "not numbers"),
    "labels": (np.zeros((9, 2)), ["c1"] * 8, "9 rows .* have 8 labels"),
    "classes": (np.zeros((9, 2)), ["c1"] * 9, "not two or more classes"),
    "no classes": (np.zeros((9, 2)), ["x", "y", "z"] * 3, "not two or more classes"),
    "few": (np.zeros((9, 2)), ["c1", "c2", "c3"] * 3, "9 rows with answers are too few"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_do_not_fit_are_refused(ann, case):
    X, y, reason = BAD_ROWS[case]
    with pytest.raises(InputError, match=reason):
        judge(ann.evidence, suspect=ann.marked, rows=(X, y))


def test_the_judge_needs_neither_numba_nor_scikit_learn(ann, tmp_path):
    """In a process of its own, with the real scrypt: so the house is built in there."""
    code = f"""
import sys
class Barrier:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "sklearn", "scipy", "pandas", "xgboost", "lightgbm"):
            raise ImportError(name)
sys.meta_path.insert(0, Barrier())
from pathlib import Path
from tests.verification.staircases import build_house, staircase
from timbermark.cli import main
house = build_house(Path({str(tmp_path)!r}) / "ann", "Ann", staircase(1), seed=2)
code = main(["judge", str(house.evidence), "--claim", str(house.folder / "model.claim"),
             "--suspect", str(house.marked), "--out", str(house.folder / "pack.zip")])
again = main(["judge", str(house.folder / "pack.zip")])
sys.exit(10 * code + again)
"""
    here = {"PYTHONPATH": f"{tm.__path__[0]}/..:.", "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=here
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("conclusive: the suspect carries the mark of Ann") == 2
