"""Sentences about verdicts, judgments and disputes: all of them, and nowhere else.

Results carry codes and numbers; this module says them to people. Nothing reads these sentences
back, so any of them can be reworded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from timbermark.ownership.evidence import Price
from timbermark.verification.transcript import Note
from timbermark.verification.verdict import SealFinding, Verdict, printable

if TYPE_CHECKING:
    from timbermark.verification.disputes import Dispute
    from timbermark.verification.judge import Judgment
    from timbermark.verification.stamps import StampCheck

FINDINGS = {
    "none": "no evidence that the suspect carries the mark of {owner}",
    "indicative": "signs of the mark of {owner}, enough to convince its owner only",
    "conclusive": "the suspect carries the mark of {owner}",
}
MEANINGS = {
    "none": (
        "A model that has nothing to do with the marked one could answer like this by chance; it "
        "may still be a copy whose mark was damaged."
    ),
    "indicative": (
        "A model that has nothing to do with the marked one hardly answers like this by chance, "
        "but a dishonest claimant could have searched for a mark that fits: it convinces only the "
        "owner."
    ),
    "conclusive": (
        "Neither chance nor a search for a mark that fits explains these answers: the suspect "
        "comes from the marked model, or its maker knew the secret of the mark."
    ),
}
CAPPED = (
    "The answers alone would be conclusive, but something about the requests could have been "
    "chosen to make an innocent model agree, and that has no price: it convinces only the owner."
)
PRICES = {
    "draws": "the best of {draws} draws of symbols",
    "part": "one of {parts} parts that could be opened",
    "customers": "one of {customers} customers",
    "columns": "an order of {features} columns given by hand",
    "column-words": "a family of column names given by hand",
    "label-map": "a map of {labels} labels given by hand",
    "class-order": "an order of {classes} classes given by hand",
    "class-numbers": "class numbers in place of labels, chosen by hand",
    "kind": "a kind of answers chosen by hand",
    "scale": "a scale of scores chosen by hand",
    "settled-again": "a reading that a later answer changed",
    "holes": "{left_out} of {of} answers left out",
    "path": "a path to the answers given by hand",
    "output": "an output chosen by hand",
    "template": "a template of the request given by hand, {bytes} bytes",
    "query": "{bytes} bytes behind the question mark of the address",
    "address": "{letters} letters of the address beyond the protocol's own",
    "batch": "{rows} rows in each request",
    "decoys": "{decoys} decoys for each trigger beside others in a request",
}
WARNINGS = {
    "few-matches": (
        "Only {matched} of {counted} answers to the {seal} match, where chance gives about "
        "{by_chance}: the columns or the labels are probably misread, which is a problem of the "
        "input and says nothing about the model."
    ),
    "unlike-numbers": (
        "The suspect's numbers do not rise and fall with those of the unmarked model: the columns "
        "are probably misread, or it is a model of something else."
    ),
    "unknown-labels": "{count} answers are no class of the mark: check what the labels mean.",
    "unanswered": "{count} of {of} triggers got no answer.",
    "hopeless": (
        "Asking stopped after {asked} of {of} triggers: the evidence would hardly reach {limit:g} "
        "bits. With a lower limit it would go on."
    ),
    "odd-answers": (
        "{count} answers are not like the first one, or cannot be read, and count as missing."
    ),
    "strange-classes": "The mark does not know these classes of the suspect: {classes}.",
    "credentials-in-the-open": "Credentials were sent without encryption, over http.",
}
CONDITIONS = {
    "function": (
        "A function can be written to give any answers: the evidence holds only if whoever wrote "
        "it did not know the secret of the mark."
    ),
    "object": (
        "An object runs code of its own: the evidence holds only if whoever made it did not know "
        "the secret of the mark. A model file is read and never runs."
    ),
    "template": (
        "Requests follow the template {body}: the evidence holds only if that is what the server "
        "takes, and was not chosen for its answers."
    ),
    "path": (
        "Answers were taken from {path} in each reply: the evidence holds only if these are the "
        "answers of the suspect."
    ),
    "output": (
        "Answers are the output {output}: the evidence holds only if these are the answers of the "
        "suspect, which has {most:,} outputs at most."
    ),
    "query": (
        "The address goes on after its question mark, which is not shown: the evidence holds only "
        "if that does not choose among answers."
    ),
    "headers": (
        "Headers were sent ({names}): the evidence holds only if they do not choose among answers."
    ),
    "credentials": (
        "Credentials were sent ({names}): a server may have a model for each customer, and whoever "
        "has several credentials can choose; a judge asks with their own."
    ),
    "decoys-from": (
        "Requests held several rows, decoys of a chosen table among them: the evidence holds only "
        "if answers do not depend on the other rows."
    ),
    "guard": (
        "The mark is that of a guard and holds its symbols: the evidence holds only if a key drew "
        "them and nobody picked the questions, of which a judge is shown stamps."
    ),
    "journal": (
        "{from_journal} answers come from a journal that was begun {journal_since}: the evidence "
        "holds only if nobody made them up."
    ),
}
CHECKS = {
    "signature": "the claim is signed with the key that it names",
    "head": "the opened mark is the one that the claim commits to",
    "draw": "the draw for {judge!r} gives exactly these {opened} triggers",
    "records": "each opened trigger leads to the Merkle root under the claim",
    "symbols": "symbols, columns and reading derive from the claim",
    "named": "the opening is for the judge who asks",
    "stamps": "{verified} time stamps hold under the given roots",
}
NOTES = {
    "claim-from-pack": "The claim comes from the pack itself: compare it with the published one.",
    "stamps-unchecked": "{unchecked} of {of} time stamps were not checked: {reason}.",
    "guard-unstamped": (
        "A guard's key drew the symbols, and no verified stamp covers {count} of {of} questions: "
        "its owner could have picked them, so that this counts as indicative at most."
    ),
    "guard-chosen": (
        "The mark leaves out {left_out} of {of} cells with stamped questions and is about {chosen} "
        "of {clients} clients: choosing so is worth {bits:.0f} bits, which the evidence must pay "
        "for to be conclusive."
    ),
    "guard-chains": (
        "Stamped questions come from {chains} chains, at whose beginnings {dropped} entries are "
        "missing. Ask how many replicas there were: whoever keeps chains back, or the beginning of "
        "one, chooses among questions, which no price covers."
    ),
    "guard-fixed": (
        "A guard's key drew the symbols; questions and symbols were fixed by {time}. They say "
        "nothing about a suspect that was there before, and if models that the judge trains show "
        "evidence too, the questions were picked."
    ),
    "guard-alone": (
        "Without a second opinion nobody sees whether every good model answers these questions so: "
        "this counts as indicative at most. Give rows and labels of your own."
    ),
    "no-verified-stamp": "No verified time stamp shows when the claim was made.",
    "opened-too-little": (
        "The opened triggers are worth {bits:.0f} bits at most, which is not conclusive."
    ),
    "ignored-files": "{count} other files in {pack} were not looked at.",
    "recorded-stamp": (
        "Recorded, not repeated: the time stamp of {time} was verified, under roots that were "
        "given then."
    ),
    "recorded-models": "Recorded, not repeated: a second opinion on rows of the judge, {models}.",
    "from-journal": (
        "{from_journal} answers come from a journal that was begun {journal_since}, not from the "
        "suspect now."
    ),
    "left-out": "The {which} model that {owner} hands over is left out: {why}",
    "not-the-named": "it is not the one that the claim names.",
    "cannot-ask": "The mark of the {side} side cannot be asked of the {model} model: {why}",
}
STAMP_REASONS = {
    "no-roots": "no root certificates were given",
    "not-valid": "its certificate leads to none of the given roots or was not valid at that time",
    "foreign": "it is about something else than this claim, or cannot be read",
    "no-library": "rfc3161-client is not installed",
}
REASONS = {
    "refused": "the evidence of {owner} does not hold: {why}",
    "both-refused": "the evidence of neither side holds",
    "unmarked-carries": "the unmarked model of {other} already carries the mark of {owner}",
    "marked-carries": "the marked model of {other} carries the mark of {owner}",
    "same-model": "the unmarked model of {other} is the marked model of {owner}, by its digest",
    "own-missing": "the marked model that {owner} claims does not carry the mark of its claim",
    "suspect-carries": "the suspect carries the mark of {owner} and not the other",
    "own-model": "the suspect is the very model that {owner} claims, which shows nothing",
    "suspect-carries-both": "the suspect carries both marks",
    "each-other": "each side's models carry the other's mark",
    "opened-too-little": (
        "the opened triggers of {owner} are worth {bits:.0f} bits at most: more of them must be "
        "opened"
    ),
    "earlier-stamp": "the claim of {owner} was stamped first, {time}",
    "no-stamps": "not both claims have a verified time stamp, which would show the first",
    "same-time": "both claims were stamped at the same time",
    "nothing-in-common": "no model carries the other side's mark: they are different models",
}


def say(table: Mapping[str, str], note: Note) -> str:
    """Return the sentence of a note; a code that is not known is shown with its facts.

    >>> say(NOTES, Note("ignored-files", {"count": 2, "pack": "evidence"}))
    '2 other files in evidence were not looked at.'
    """
    # Facts may come from a pack that anybody wrote.
    facts: dict[str, Any] = {
        name: printable(", ".join(map(str, value))) if isinstance(value, list | tuple)
        else printable(value) if isinstance(value, str) else value
        for name, value in note.facts.items()
    }  # fmt: skip
    try:
        if "counted" in facts and "q" in facts:
            facts["by_chance"] = f"{facts['counted'] / facts['q']:.0f}"
        return table[note.code].format(**facts)
    except (LookupError, ValueError, TypeError, ArithmeticError):
        shown = ", ".join(f"{name}={value}" for name, value in facts.items())
        return printable(f"{note.code} ({shown})" if shown else note.code)


def say_price(price: Price) -> str:
    """Return what a price is for.

    >>> say_price(Price("draws", 2.0, {"draws": 4}))
    'the best of 4 draws of symbols'
    """
    text = say(PRICES, Note(price.code, price.facts))
    left_out = price.facts.get("left_out") if price.code == "label-map" else None
    return f"{text}, which leaves out {left_out}" if left_out else text


def say_reading(reading: Mapping[str, Any]) -> str:
    """Return how answers were read.

    >>> say_reading({"kind": "labels", "classes": "by-value"})
    'labels, matched by value'
    """
    if reading.get("kind") == "scores":
        order = {
            "second-class": "one number each: that of the second class",
            "by-name": "classes matched by name",
        }.get(str(reading.get("classes")), "in the order of the mark's classes")
        return printable(f"scores as {reading.get('scale')}, {order}")
    if reading.get("kind") == "labels":
        return {
            "by-map": "labels through a map given by hand",
            "by-number": "class numbers in the order of the mark's classes",
        }.get(str(reading.get("classes")), "labels, matched by value")
    return printable(str(reading.get("kind", "")))


def say_meaning(verdict: Verdict) -> str:
    """Return what the level of a verdict means, in one sentence."""
    from timbermark.ownership.evidence import level

    if verdict.level != level(verdict.bits):
        return CAPPED
    return MEANINGS[verdict.level]


def list_conditions(verdict: Verdict) -> list[str]:
    """Return what the evidence depends on, given how the suspect was asked."""
    context = verdict.context
    notes = list(context.conditions)
    if context.through in ("function", "object"):
        notes.insert(0, Note(context.through))
    if context.request.get("from_journal"):
        notes.append(Note("journal", context.request))
    return [say(CONDITIONS, note) for note in notes]


def verdict_words(verdict: Verdict) -> dict[str, Any]:
    """Return the sentences of a verdict, for JSON."""
    return {
        "finding": FINDINGS[verdict.level].format(owner=verdict.owner),
        "meaning": say_meaning(verdict),
        "conditions": list_conditions(verdict),
        "prices": [say_price(price) for price in verdict.prices],
        "reading": say_reading(verdict.context.reading),
        "warnings": [say(WARNINGS, note) for note in verdict.warnings],
    }


def say_through(verdict: Verdict) -> str:
    """Return how a suspect was asked: "file", "HTTP (mlflow)" and so on."""
    protocol = verdict.context.request.get("protocol")
    names = {"http": printable(f"HTTP ({protocol})"), "table": "a table of answers"}
    return names.get(verdict.context.through, verdict.context.through)


def say_seal(seal: SealFinding) -> str:
    """Return what one seal shows, in half a sentence."""
    return (
        f"{seal.matched} of {seal.counted} symbols in {seal.seal}, chance gives about "
        f"{seal.counted / seal.q:.0f}; {seal.bits:.1f} bits"
    )


def show_verdict(verdict: Verdict) -> str:
    """Return a verdict as text for a terminal."""
    context = verdict.context
    lines = [
        f"{verdict.level}: {FINDINGS[verdict.level].format(owner=verdict.owner)}",
        f"  evidence: {verdict.bits:.1f} bits from {verdict.kind}, the chance of coincidence is "
        f"{verdict.chance}",
        *(f"  matches:  {say_seal(seal)}" for seal in verdict.seals),
        *(f"  minus:    {price.bits:.1f} bits for {say_price(price)}" for price in verdict.prices),
        f"  meaning:  {say_meaning(verdict)}",
    ]
    if verdict.level != "none":
        lines += [f"  provided: {condition}" for condition in list_conditions(verdict)]
    how = context.columns.replace("-", " ")
    lines += [
        f"  mark:     {verdict.mark_id} of {verdict.owner}, made {verdict.created}",
        f"            SHA-256 {verdict.mark_digest}",
        f"  unmarked: digest of the trees {verdict.model_digest}",
        f"  suspect:  {context.suspect}, asked through {say_through(verdict)}, columns {how}",
    ]
    if context.suspect_digest is not None:
        lines.append(f"            SHA-256 {context.suspect_digest}")
    if context.reading:
        lines.append(f"  reading:  {say_reading(context.reading)}")
    lines += [f"  warning:  {say(WARNINGS, note)}" for note in verdict.warnings]
    return "\n".join([*lines, f"  timbermark {verdict.version}"])


def say_stamp(stamp: StampCheck) -> str:
    """Return what a time stamp is worth, in half a sentence."""
    said = " by ".join(part for part in (stamp.time, stamp.authority) if part)
    reason = f" ({STAMP_REASONS[stamp.reason]})" if stamp.reason else ""
    return f"{stamp.status}: {said}{reason}"


def say_notes(notes: tuple[Note, ...]) -> list[str]:
    """Return the sentences of a judgment's or dispute's notes."""
    found = []
    for note in notes:
        facts = dict(note.facts)
        if "reason" in facts:
            facts["reason"] = STAMP_REASONS.get(str(facts["reason"]), facts["reason"])
        if facts.get("why") in NOTES:
            facts["why"] = NOTES[str(facts["why"])]
        found.append(say(NOTES, Note(note.code, facts)))
    return found


def show_judgment(judgment: Judgment) -> str:
    """Return a judgment as text for a terminal."""
    claim = judgment.claim
    counted = [] if judgment.level == judgment.verdict.level else [f"counts as:  {judgment.level}"]
    lines = [
        show_verdict(judgment.verdict),
        *counted,
        f"claim:      {claim.digest.hex()}",
        f"            signed with the key {claim.key.hex()}",
        *(f"time stamp: {say_stamp(stamp)}" for stamp in judgment.stamps),
    ]
    if not judgment.stamps:
        lines.append(f"time stamp: none; by its own word the claim was made {claim.claimed}")
    again = "" if judgment.asked_again else ", answers taken from the transcript"
    lines += [
        f"opened:     {judgment.opening.n_opened} of {claim.n_triggers} triggers, for "
        f"{judgment.opening.judge}",
        f"asked:      {judgment.asked}{again}",
        *(f"checked:    {say(CHECKS, check)}" for check in judgment.checks),
    ]
    if judgment.is_marked_model is not None:
        said = "the marked model that the claim names" if judgment.is_marked_model else "another"
        lines.append(f"file:       that of the suspect is {said}")
    if judgment.references:
        lines.append("second opinion, models trained on the judge's rows:")
        lines += [f"  {model.kind:24} {model.bits:7.1f} bits" for model in judgment.references]
        lines.append(f"  {'the suspect':24} {judgment.bits:7.1f} bits")
    lines += [f"note:       {note}" for note in say_notes(judgment.notes)]
    return "\n".join(lines)


def show_dispute(dispute: Dispute) -> str:
    """Return a dispute as text for a terminal."""
    lines = [
        "undecided: the evidence does not show who was first"
        if dispute.owner is None
        else f"{dispute.owner} was first"
    ]
    lines += [f"  because {say(REASONS, reason)}" for reason in dispute.reasons]
    for party in dispute.parties:
        seen = party.first_seen or "no verified time stamp"
        lines.append(f"{party.side} ({party.owner}): {party.refused or seen}")
    models = list(dict.fromkeys(cell.model for cell in dispute.cells))
    if models:
        width = max(map(len, models)) + 2
        lines.append(f"{'bits of the mark of':{width}}" + f"{'first':>12}{'second':>12}")
        for model in models:
            bits = {cell.mark_of: cell.bits for cell in dispute.cells if cell.model == model}
            shown = (f"{bits[s]:.1f}" if s in bits else "-" for s in ("first", "second"))
            lines.append(f"{model:{width}}" + "".join(f"{text:>12}" for text in shown))
    return "\n".join([*lines, *(f"note: {note}" for note in say_notes(dispute.notes))])
