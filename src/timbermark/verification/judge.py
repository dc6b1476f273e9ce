"""Judge claims: derive everything again from the evidence, ask the suspect, weigh its answers.

The order of a judgment, each step refused with its own reason:

1. the pack is whole, its claim is the one that was published and is signed with its key;
2. the opening belongs to the claim, its head is the mark's, it is for this judge;
3. the opened triggers are those that the draw gives, and each leads to the Merkle root;
4. the symbols derive from the claim's digest and the opened salts;
5. the suspect is asked, or the recorded answers are judged again and held to the recorded verdict;
6. time stamps say when the claim was there; they decide nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from timbermark.errors import EvidenceError
from timbermark.ownership.claim import Claim
from timbermark.ownership.encoding import TIME_FORMAT
from timbermark.ownership.evidence import (
    CONCLUSIVE_BITS,
    INDICATIVE_BITS,
    Level,
    round_bits,
)
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.opening import OpenedMark, Opening
from timbermark.ownership.seals import DrawnSeal
from timbermark.reportable import Reportable, make_page
from timbermark.verification.answers import AnswersWanted
from timbermark.verification.chain import find_coverage, load_chains
from timbermark.verification.packs import (
    CLAIM,
    OPENING,
    PAGE,
    TRANSCRIPT,
    VERDICT,
    Pack,
    read_pack,
    write_pack,
)
from timbermark.verification.refusals import refusal
from timbermark.verification.stamps import StampCheck, check_stamps, first_time, join_stamps
from timbermark.verification.suspects import name_model, open_suspect
from timbermark.verification.transcript import Note, Transcript, is_real
from timbermark.verification.verdict import Verdict, judge_again, printable
from timbermark.verification.verifying import verify

if TYPE_CHECKING:
    from timbermark.verification.endpoint import Endpoint

FORMAT = "timbermark judgment 2"
_MOST_REFERENCES = 100


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """A model that the judge trained on rows of his own, and what its answers would prove."""

    kind: str
    bits: float
    matched: int
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgment(Reportable):
    """What a suspect's answers to the opened triggers of a claimed mark prove.

    All that it states about the claim was derived again and checked; whatever fails is an error
    and leads to no judgment.
    """

    claim: Claim
    opening: Opening = field(repr=False)
    stamps: tuple[StampCheck, ...]
    checks: tuple[Note, ...]  # what was checked and held
    verdict: Verdict
    transcript: str = field(repr=False)  # JSON: how the suspect was asked and what it answered
    asked: str  # when the suspect was asked, UTC
    asked_again: bool  # whether the answers were given now, and not taken from a transcript
    is_marked_model: bool | None  # the suspect's file is the one the claim names; None: no file
    references: tuple[ReferenceModel, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def level(self) -> Level:
        """Return the level of the verdict, indicative at most where a guard's owner could choose.

        That is so for questions that no verified stamp covers, where the bits of the verdict do
        not pay for leaving out some of those that it covers, without a second opinion, and where
        models of the judge's own show evidence, too.
        """
        found = self.verdict.level
        codes = {note.code for note in self.notes}
        price = sum(n.facts["bits"] for n in self.notes if n.code == "guard-chosen")
        picked = any(model.bits >= INDICATIVE_BITS for model in self.references)
        alone = picked or not self.references
        doubtful = "guard-unstamped" in codes or ("guard-fixed" in codes and alone)
        convinces = not doubtful and self.bits - price >= CONCLUSIVE_BITS
        return "indicative" if found == "conclusive" and not convinces else found

    @property
    def bits(self) -> float:
        """Return the bits of the verdict."""
        return self.verdict.bits

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Return numbers of triggers and the bits after them, in the order of asking."""
        return self.verdict.curve

    @property
    def first_seen(self) -> str | None:
        """Return the earliest verified time of the claim; None if no stamp was verified."""
        return first_time(self.stamps)

    def facts(self) -> dict[str, Any]:
        """Return all codes and numbers but answers and triggers, ready for JSON."""
        return {
            "format": FORMAT,
            "claim": self.claim.to_dict()["statement"],
            "claim_digest": self.claim.digest.hex(),
            "opening_digest": self.opening.digest.hex(),
            "opened_for": self.opening.judge,
            "opened": self.opening.n_opened,
            "triggers": self.claim.n_triggers,
            "stamps": [asdict(stamp) for stamp in self.stamps],
            "first_seen": self.first_seen,
            "checks": [check.to_dict() for check in self.checks],
            "verdict": self.verdict.facts(),
            "asked": self.asked,
            "is_marked_model": self.is_marked_model,
            "references": [asdict(model) for model in self.references],
            "curve": [[n, round_bits(bits)] for n, bits in self.curve],
            "notes": [note.to_dict() for note in self.notes],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything but answers and triggers, ready for JSON; ``words`` are for people."""
        from timbermark.verification import words

        said = {
            **words.verdict_words(self.verdict),
            "checks": [words.say(words.CHECKS, check) for check in self.checks],
            "notes": words.say_notes(self.notes),
        }
        return {**self.facts(), "level": self.level, "words": said}

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> bool:
        """Write an evidence pack: the claim, the opening, the transcript, this judgment, its page.

        A name that ends in ``.zip`` becomes an archive, any other a folder. `timbermark.judge`
        reads it years later, without a network. Returns whether the page is in it, which it is
        where Jinja2 and Matplotlib are installed.

        Raises InputError if something is there already, unless ``force``.
        """
        verdict = json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n"
        parts = {
            CLAIM: self.claim.to_bytes(),
            OPENING: self.opening.to_bytes(),
            TRANSCRIPT: self.transcript.encode(),
            VERDICT: verdict.encode(),
        }
        page = make_page(self, self.asked)
        write_pack(path, parts if page is None else {**parts, PAGE: page.encode()}, force)
        return page is not None

    def __str__(self) -> str:
        from timbermark.verification import words

        return words.show_judgment(self)

    def __repr__(self) -> str:
        return f"Judgment({self.level}, {self.bits:.1f} bits, owner={self.claim.owner!r})"


def judge(
    evidence: str | os.PathLike[str] | Pack,
    *,
    suspect: Any = None,
    claim: Claim | str | os.PathLike[str] | None = None,
    judge: str | None = None,
    roots: Sequence[bytes] = (),
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
    rows: tuple[Any, Any] | None = None,
    chain: str | os.PathLike[str] | None = None,
    trust_journal: bool = False,
    progress: bool = False,
    **asking: Any,
) -> Judgment:
    """Judge whether a suspect carries a claimed mark, by the triggers that its owner opened.

    ``evidence`` is the folder or zip that `timbermark open` or an earlier judge wrote, or an
    opening. ``claim`` is the claim as it was published; it must be the one in the evidence.
    ``suspect`` and the arguments for asking it are those of `timbermark.verify`, all of which may
    be given; without a suspect the answers in the pack's transcript are judged again. A journal
    that already holds answers is refused unless ``trust_journal``: whoever hands over a journal
    could have made them up. A token in ``suspect`` is the judge's own: with one that the claimant
    chose, a server that has a model for each customer shows whatever the claimant wants.
    ``judge`` is whom the opening must be for, ``roots`` the PEM files of the time-stamping
    authorities that are trusted. ``rows``, (rows, labels) in the mark's columns, ask for a second
    opinion: models trained on them. ``chain``, for the mark of a guard, is the file of its ledger's
    chain: without it and a verified stamp, or a verified stamp of the claim, the evidence is
    indicative at most, and so it is without ``rows``. ``progress`` shows a bar on a terminal.

    Raises EvidenceError, FileFormatError or InputError, with the reason, for evidence that does not
    hold, a claim without its opening, and a suspect that does not answer.

    >>> import numpy as np
    >>> from timbermark import Mark, OwnerKey, open_mark
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(100.0)[:, None], alphabets=[[0, 1]] * 100,
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> claim = Claim.make(mark, key, marked_digest="1" * 64)
    >>> pack = Pack("evidence", claim, open_mark(mark, claim, judge="Judge Judy", share=1.0))
    >>> memory = dict(zip(mark.rows()[:, 0], mark.expected, strict=True))
    >>> judge(pack, suspect=lambda X: [memory[x] for x in X[:, 0]]).level
    'conclusive'
    >>> judge(pack, suspect=lambda X: [0] * len(X), judge="Judge Judy").level
    'none'
    """
    pack = evidence if isinstance(evidence, Pack) else read_pack(evidence)
    published = Claim.load(claim) if isinstance(claim, str | os.PathLike) else claim
    held, opening = find_parts(pack, published)
    # What costs nothing is refused before what takes time.
    stamps = check_stamps(held, roots)
    opened = opening.check(held, judge)
    guarded = _check_guard(opened, held, stamps, chain, roots)
    if guarded and rows is None:
        guarded += (Note("guard-alone"),)
    if suspect is not None:
        _check_journal(asking.get("journal"), trust_journal)
        found = open_suspect(suspect)
        if getattr(found, "one_by_one", False):
            found = cast("Endpoint", found).for_judge()
        verdict = verify(
            found, opened, answers=answers, feature_names=feature_names, label_map=label_map,
            progress=progress, **asking,
        )  # fmt: skip
        asked = datetime.now(UTC).strftime(TIME_FORMAT)
    else:
        verdict, asked = _judge_transcript(pack, opened)
    assert verdict.transcript is not None
    digest = verdict.suspect_digest
    judgment = Judgment(
        claim=held,
        opening=opening,
        stamps=stamps,
        checks=_list_checks(opening, stamps, named=judge is not None),
        verdict=verdict,
        transcript=verdict.transcript.to_json(opened, asked),
        asked=asked,
        asked_again=suspect is not None,
        is_marked_model=None if digest is None or held.marked_file is None
        else digest == held.marked_file,
        references=_train_references(rows, opened, progress),
        notes=(
            *_list_notes(opening, stamps, was_published=published is not None),
            *_list_circumstances(pack, verdict),
            *guarded,
        ),
    )  # fmt: skip
    if suspect is None and pack.verdict is not None:
        then = held if pack.claim is None else pack.claim
        more = check_recorded(pack.verdict, judgment, check_stamps(then, roots))
        judgment = replace(judgment, notes=(*judgment.notes, *more))
    return judgment


def find_parts(pack: Pack, published: Claim | None) -> tuple[Claim, Opening]:
    """Return the claim and the opening of a pack, the claim with all stamps that are known.

    Raises InputError if one of them is missing, EvidenceError if the published claim is another.
    """
    if pack.opening is None:
        raise refusal("pack.no-opening", pack=pack.name)
    if published is None and pack.claim is None:
        raise refusal("pack.no-claim", pack=pack.name)
    if published is not None and pack.claim is not None and published.digest != pack.claim.digest:
        raise refusal("claim.other", EvidenceError, pack=pack.name)
    claim = published or pack.claim
    assert claim is not None
    # Stamps may have been added to either after the other was written.
    more = () if pack.claim is None else pack.claim.stamps
    return join_stamps(claim, more), pack.opening


def _check_journal(path: Any, trusted: bool) -> None:
    if path is None or trusted or not os.path.exists(path):
        return
    from timbermark.verification.journal import read_journal

    if read_journal(path).answers:
        raise refusal("journal.not-trusted", path=os.fspath(path))


def _judge_transcript(pack: Pack, opened: OpenedMark) -> tuple[Verdict, str]:
    if pack.transcript is None:
        raise refusal("pack.no-answers", pack=pack.name)
    transcript, asked = Transcript.from_json(pack.transcript, opened)
    return judge_again(opened, transcript), asked


def _list_checks(
    opening: Opening, stamps: Sequence[StampCheck], *, named: bool
) -> tuple[Note, ...]:
    found = [
        Note("signature"),
        Note("head"),
        Note("draw", {"judge": opening.judge, "opened": opening.n_opened}),
        Note("records"),
        Note("symbols"),
    ]
    if named:
        found.append(Note("named"))
    verified = sum(stamp.counts for stamp in stamps)
    if verified:
        found.append(Note("stamps", {"verified": verified}))
    return tuple(found)


def _list_notes(
    opening: Opening, stamps: Sequence[StampCheck], *, was_published: bool
) -> tuple[Note, ...]:
    notes = []
    if not was_published:
        notes.append(Note("claim-from-pack"))
    unchecked = [stamp for stamp in stamps if not stamp.counts]
    if unchecked:
        facts = {"unchecked": len(unchecked), "of": len(stamps), "reason": unchecked[0].reason}
        notes.append(Note("stamps-unchecked", facts))
    if not any(stamp.counts for stamp in stamps):
        notes.append(Note("no-verified-stamp"))
    if opening.full_bits < CONCLUSIVE_BITS:
        notes.append(Note("opened-too-little", {"bits": round_bits(opening.full_bits)}))
    return tuple(notes)


def _check_guard(
    opened: OpenedMark,
    claim: Claim,
    stamps: Sequence[StampCheck],
    chain: str | os.PathLike[str] | None,
    roots: Sequence[bytes],
) -> tuple[Note, ...]:
    """Return what to note about symbols that a guard drew: since when they are fixed."""
    if not isinstance(opened.leaves, DrawnSeal):
        if chain is not None:
            raise refusal("option.unfit", name="chain", what="the mark of a guard")
        return ()
    chains = () if chain is None else load_chains(chain)
    n_marked = opened.opened_head.n_leaves
    found = find_coverage(opened.leaves, n_marked, claim.marked_digest, chains, roots)
    if found.unstamped:
        # A stamp of the claim fixes which questions there are, too, though later.
        fixed = first_time(stamps)
        if fixed is None:
            unstamped = {"count": found.unstamped, "of": opened.n_leaves}
            return (Note("guard-unstamped", unstamped),)
        return (Note("guard-fixed", {"time": fixed}),)
    held_back = Note("guard-chains", {"chains": found.chains, "dropped": found.dropped})
    notes = (Note("guard-fixed", {"time": found.latest}), held_back)
    if found.price <= 0.0:
        return notes
    chosen, clients = found.clients
    facts: dict[str, Any] = {
        "left_out": found.left_out, "of": found.cells, "chosen": chosen, "clients": clients,
        "bits": round_bits(found.price),
    }  # fmt: skip
    return (*notes, Note("guard-chosen", facts))


def _list_circumstances(pack: Pack, verdict: Verdict) -> tuple[Note, ...]:
    found = []
    if pack.ignored:
        found.append(Note("ignored-files", {"count": len(pack.ignored), "pack": pack.name}))
    request = verdict.context.request
    if request.get("from_journal"):
        facts = {name: request.get(name) for name in ("from_journal", "journal_since")}
        found.append(Note("from-journal", facts))
    return tuple(found)


def _train_references(
    rows: tuple[Any, Any] | None, opened: OpenedMark, progress: bool
) -> tuple[ReferenceModel, ...]:
    if rows is None:
        return ()
    # Only a second opinion needs scikit-learn.
    from timbermark.verification.second_opinion import train_references

    return tuple(
        ReferenceModel(*found) for found in train_references(*rows, opened, progress=progress)
    )


_NOT_REPEATED = frozenset(
    (
        *("recorded-stamp", "recorded-models", "ignored-files", "from-journal"),
        *("guard-unstamped", "guard-fixed", "guard-chains", "guard-chosen", "guard-alone"),
    )
)
"""Notes about what only the judge of then had: roots, rows, a chain, the whole folder."""


def check_recorded(
    recorded: bytes, judgment: Judgment, stamps: Sequence[StampCheck]
) -> tuple[Note, ...]:
    """Return notes about what a recorded judgment says that was not derived again.

    ``judgment`` is what was derived now, ``stamps`` what the stamps of the claim in the pack are
    worth now. Codes and numbers are compared; sentences are not, because they may be reworded.

    Raises EvidenceError if anything that can be derived again is recorded otherwise.
    """
    try:
        then = json.loads(recorded)
        then.pop("words", None)
        then.pop("level", None)  # which follows from the rest and the stamps that were verified
        stated = _read_stamps(then["stamps"], stamps)
        references = _read_references(then["references"])
        then["notes"] = [note for note in then["notes"] if note["code"] not in _NOT_REPEATED]
        was_published = all(note["code"] != "claim-from-pack" for note in then["notes"])
        named = any(check["code"] == "named" for check in then["checks"])
        expected = replace(
            judgment,
            stamps=stated,
            checks=_list_checks(judgment.opening, stated, named=named),
            references=references,
            notes=_list_notes(judgment.opening, stated, was_published=was_published),
        )
        now = json.loads(json.dumps(expected.facts()))
        # The version is that of whoever judged.
        _require(isinstance(then["verdict"].pop("timbermark"), str))
        now["verdict"].pop("timbermark")
        _require(then == now)
    except (ValueError, TypeError, AttributeError, RecursionError, LookupError, ArithmeticError):
        raise refusal("pack.verdict-changed", EvidenceError) from None
    notes = [
        Note("recorded-stamp", {"time": was.time})
        for was, again in zip(stated, stamps, strict=True)
        if was.counts and not again.counts
    ]
    if references:
        shown = [f"{printable(model.kind)[:40]} {model.bits:.1f} bits" for model in references]
        notes.append(Note("recorded-models", {"models": shown}))
    return tuple(notes)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("recorded otherwise")


def _read_stamps(recorded: Any, now: Sequence[StampCheck]) -> tuple[StampCheck, ...]:
    """Return the recorded stamps, which say the same as those of the claim but for their status."""
    _require(isinstance(recorded, list) and len(recorded) == len(now))
    stated = []
    for record, stamp in zip(recorded, now, strict=True):
        found = StampCheck(**record)
        verified = found.status == "verified"
        _require(found.status in ("verified", "not checked"))
        _require(verified == (found.reason == ""))
        unread = found.time is None and not verified and found.authority == ""
        # Without the library for stamps nobody can tell what they say.
        unreadable = stamp.time is None and stamp.authority == ""
        same = (found.time, found.authority) == (stamp.time, stamp.authority)
        _require(same or unread or unreadable)
        stated.append(found)
    return tuple(stated)


def _read_references(recorded: Any) -> tuple[ReferenceModel, ...]:
    _require(isinstance(recorded, list) and len(recorded) <= _MOST_REFERENCES)
    found = tuple(ReferenceModel(**record) for record in recorded)
    for model in found:
        _require(isinstance(model.kind, str) and is_real(model.bits))
    return found


def claim(model: Any, mark: Mark, *, key: OwnerKey, force: bool = False) -> Claim:
    """Return the signed claim that a model carries a mark, to be published before it leaves.

    ``model`` is the marked model or its file; ``key`` the owner key that the mark was made with.
    The model is asked whether it carries the mark, unless ``force``.

    Raises InputError if the model is the unmarked one or does not carry the mark, or the key is
    another.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> marked = GradientBoostingClassifier(n_estimators=2).fit([[0.0], [1.0]], [0, 1])
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
    ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> claim(marked, mark, key=key, force=True).owner
    'Ann'
    """
    named = name_model(model)
    made = Claim.make(mark, key, marked_digest=named.digest, marked_file=named.file_digest)
    if not force:
        found = verify(model, mark).bits
        if found < min(INDICATIVE_BITS, mark.full_bits / 2):
            raise refusal("claim.not-carried", found=found, worth=mark.full_bits)
    return made
