"""The pages of verdicts, judgments, disputes and traces.

Nothing in the page of a verdict is secret: neither triggers nor the answers to them. The opened
triggers are known to the judge, so the page of a judgment shows the answers. The page of a trace
names customers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

import timbermark
from timbermark.report import pages
from timbermark.report.pages import Page, Section, Table, facts, section
from timbermark.report.plots import Curve, evidence_plot
from timbermark.verification import words
from timbermark.verification.verdict import printable

if TYPE_CHECKING:
    from timbermark.ownership.evidence import Price
    from timbermark.tracing.tracing import Trace
    from timbermark.verification.disputes import Dispute, PartyFinding
    from timbermark.verification.judge import Judgment
    from timbermark.verification.stamps import StampCheck
    from timbermark.verification.verdict import Verdict

_MOST_STEPS, _FEWEST_AT_ONCE = 24, 4
_LONGEST_SHOWN = 2000
_MOST_ANSWERS = 512
_MOST_CUSTOMERS = 20
_LEVELS = "none below 20 bits, indicative from 20, conclusive from 64"


def describe_verdict(verdict: Verdict) -> Page:
    """Return the page of what `timbermark verify` found."""
    by_hand = any(price.code == "kind" for price in verdict.prices)
    answers = f" --answers {verdict.kind}" if by_hand else ""
    return Page(
        what="verdict",
        headline=_headline(verdict),
        level=verdict.level,
        lead=_lead(verdict),
        figures=_figures(verdict),
        sections=(
            _evidence_section(verdict, blur_curve(verdict.curve)),
            section("The suspect", _suspect_facts(verdict)),
            section("The mark", _mark_facts(verdict)),
            *pages.note_section("Warnings", _warnings(verdict)),
            section(
                "How to recompute it",
                "Asking again takes the suspect and the secret mark, and gives the same bits if "
                "the suspect answers as it did.",
                "This page shows neither a question nor an answer, so that the mark stays good. To "
                "convince somebody else, open a part of the mark to a judge: timbermark open.",
                _ask_again(verdict, f"timbermark verify {{}} secret.mark{answers}"),
            ),
        ),
        version=verdict.version,
    )


def describe_judgment(judgment: Judgment) -> Page:
    """Return the page of what `timbermark judge` found about one suspect."""
    verdict = judgment.verdict
    checks = (pages.capitalized(words.say(words.CHECKS, check)) for check in judgment.checks)
    told = (
        ("asked", judgment.asked),
        (
            "by whom",
            "by this judge" if judgment.asked_again else "taken from the transcript in the pack",
        ),
        ("the claimed model itself", _is_claimed(judgment)),
    )
    return Page(
        what=f"judgment for {judgment.opening.judge}",
        headline=_headline(verdict),
        level=judgment.level,
        lead=_lead(verdict),
        figures=(
            *_figures(verdict),
            (
                judgment.first_seen or "no time",
                "at which the claim existed, by a verified time stamp",
            ),
        ),
        sections=(
            _evidence_section(verdict, verdict.curve),
            _claim_section(judgment),
            section(
                "What was checked",
                "All of this was derived again from the files. If one of these did not hold, there "
                "would be no verdict.",
                pages.Notes(tuple(checks)),
            ),
            section("The suspect", _suspect_facts(verdict), facts(*told)),
            section("The mark", _mark_facts(verdict)),
            *_second_opinion(judgment),
            *pages.note_section("Notes", (*words.say_notes(judgment.notes), *_warnings(verdict))),
            _answers_section(judgment),
            _judge_again(judgment),
        ),
        version=verdict.version,
    )


def describe_dispute(dispute: Dispute) -> Page:
    """Return the page of what `timbermark judge --against` found."""
    headline = "it is undecided who was first"
    if dispute.owner is not None:
        headline = f"{dispute.owner} was first"
    return Page(
        what="dispute between two claims",
        headline=pages.capitalized(headline),
        lead=tuple(
            pages.capitalized(words.say(words.REASONS, reason)) for reason in dispute.reasons
        ),
        figures=tuple(
            (party.first_seen or "no time", f"of the claim of {party.owner}, by a verified stamp")
            for party in dispute.parties
        ),
        sections=(
            _marks_section(dispute),
            *map(_party_section, dispute.parties),
            *pages.note_section("Notes", words.say_notes(dispute.notes)),
            _dispute_again(dispute),
        ),
        version=timbermark.__version__,
    )


def describe_trace(trace: Trace) -> Page:
    """Return the page of what `timbermark trace` found; it names customers."""
    from timbermark.tracing.tracing import LIMITS

    asked, best = trace.asked, trace.best
    roll = "customer.opening --claim roll.claim" if trace.accused else "secret.roll"
    conditions = words.list_conditions(asked) if trace.level != "none" else []
    figures = [
        (f"{trace.bits:.1f} bits", "of evidence, after all prices"),
        (pages.chance_of(trace.bits), "chance of accusing anybody wrongly, at most"),
    ]
    if best.matched is not None:
        figures.append((f"{best.matched} of {best.counted}", "boundaries lie as in this copy"))
    return Page(
        what="trace",
        headline=pages.capitalized(trace.finding),
        level=trace.level,
        lead=(trace.meaning, *conditions),
        figures=tuple(figures),
        sections=(
            _customers_section(trace),
            section("What this does not say", pages.Notes(LIMITS)),
            section("How it works", _explain_copies(trace)),
            section("The suspect", _suspect_facts(asked)),
            section("The roll", _roll_facts(trace)),
            *pages.note_section("Warnings", _warnings(asked)),
            section(
                "How to recompute it",
                "This page shows neither a question nor an answer. To convince somebody else, open "
                "the part of the accused customer to a judge: timbermark roll open.",
                _ask_again(asked, f"timbermark trace {{}} {roll}"),
            ),
        ),
        version=asked.version,
    )


def _headline(verdict: Verdict) -> str:
    return pages.capitalized(words.FINDINGS[verdict.level].format(owner=verdict.owner))


def _lead(verdict: Verdict) -> tuple[str, ...]:
    """Return what the level means, and on what conditions."""
    conditions = words.list_conditions(verdict) if verdict.level != "none" else []
    return (words.say_meaning(verdict), *conditions)


def _warnings(verdict: Verdict) -> list[str]:
    return [words.say(words.WARNINGS, note) for note in verdict.warnings]


def _figures(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    return (
        (f"{verdict.bits:.1f} bits", "of evidence"),
        (pages.chance_of(verdict.bits), "chance of coincidence, at most"),
        *(
            (
                f"{seal.matched} of {seal.counted}",
                f"symbols in {seal.seal} match; chance gives about {seal.counted / seal.q:.0f}",
            )
            for seal in verdict.seals
            if seal.counted
        ),
    )


def _evidence_section(verdict: Verdict, curve: Curve) -> Section:
    """Return how much evidence there is and where it comes from."""
    rows = [
        ("from", f"{verdict.kind} of {verdict.answered} of {verdict.trials} triggers"),
        ("before prices", f"{verdict.raw_bits:.1f} bits"),
        *_list_prices(verdict.prices),
        ("evidence", f"{verdict.bits:.1f} bits"),
        ("levels", _LEVELS),
    ]
    seals = Table(
        "Evidence of each seal of the mark, before prices",
        ("seal", "bits", "triggers", "answered", "tell a symbol", "match", "by chance"),
        tuple(
            (
                seal.seal,
                f"{seal.bits:.1f}",
                *map(str, (seal.triggers, seal.answered, seal.counted, seal.matched)),
                f"{seal.counted / seal.q:.0f}",
            )
            for seal in verdict.seals
        ),
    )
    plot = evidence_plot(curve) if curve else None
    return section("The evidence", pages.chance_in_words(verdict.bits), facts(*rows), seals, plot)


def _list_prices(prices: Iterable[Price]) -> list[tuple[str, str]]:
    return [("minus", f"{price.bits:.1f} bits for {words.say_price(price)}") for price in prices]


def _customers_section(trace: Trace) -> Section:
    rows = [
        ("from", f"{trace.kind} at {trace.answered} of {trace.n_boundaries} boundaries"),
        *_list_prices(trace.prices),
        ("levels", _LEVELS),
    ]
    if trace.group is not None:
        names = ", ".join(trace.group.names)
        rows.append(("at least one of", f"{names}: {trace.group.bits:.1f} bits"))
    shown = trace.customers[:_MOST_CUSTOMERS]
    table = Table(
        f"Evidence against each customer, {len(shown)} of {trace.n_customers}",
        ("customer", "bits", "level", "boundaries that match", "of"),
        tuple(
            (f.names[0], f"{f.bits:.1f}", f.level, str(f.matched), str(f.counted)) for f in shown
        ),
    )
    return section("The evidence", facts(*rows), table)


def _claim_section(judgment: Judgment) -> Section:
    claim, opening = judgment.claim, judgment.opening
    shown = facts(
        ("owner", claim.owner),
        ("made, by its own word", claim.claimed),
        ("SHA-256", claim.digest.hex()),
        ("signed with the key", claim.key.hex()),
        ("digest of the marked model's trees", claim.marked_digest),
        ("opened", f"{opening.n_opened} of {claim.n_triggers} triggers, for {opening.judge}"),
        ("SHA-256 of the opening", opening.digest.hex()),
    )
    if not judgment.stamps:
        return section("The claim", "No time stamp shows when the claim was made.", shown)
    return section("The claim", shown, _stamps_table(judgment.stamps))


def _stamps_table(stamps: tuple[StampCheck, ...]) -> Table:
    """Return what the time stamps of a claim are worth."""
    return Table(
        "Time stamps of the claim",
        ("status", "time", "authority", "reason"),
        tuple(
            (s.status, s.time or "", s.authority, words.STAMP_REASONS.get(s.reason, ""))
            for s in stamps
        ),
        texts=4,
    )


def _second_opinion(judgment: Judgment) -> tuple[Section, ...]:
    if not judgment.references:
        return ()
    rows = [(r.kind, f"{r.bits:.1f}", f"{r.matched} of {r.trials}") for r in judgment.references]
    verdict = judgment.verdict
    rows.append(("the suspect", f"{verdict.bits:.1f}", f"{verdict.matched} of {verdict.trials}"))
    table = Table(
        "Evidence in models that were trained on the judge's own rows, and in the suspect",
        ("model", "bits", "matches"),
        tuple(rows),
        marked=(len(rows) - 1,),
    )
    said = "These models have nothing to do with the mark: they show what innocence looks like."
    return (section("Second opinion", said, table),)


def _answers_section(judgment: Judgment) -> Section:
    answers, places = judgment.verdict.table(), judgment.opening.places
    rows = tuple(
        (
            str(places[answer.trigger]),
            answer.seal,
            _show(answer.expected),
            "nothing" if answer.response is None else _show(answer.response),
            "yes" if answer.matched else "no",
        )
        for answer in answers[:_MOST_ANSWERS]
    )
    left = f"These are the first {len(rows)} of {len(answers)}; transcript.json has all."
    return section(
        "The answers",
        "The opened triggers were shown to the judge, so these answers are no secret to the judge; "
        "whoever else sees them learns which answers to avoid. Give this page to nobody who may "
        "not see the opening.",
        left if len(answers) > len(rows) else None,
        Table(
            "What the mark asks for and what the suspect's answers say: labels in leaves, in "
            "splits the end of the gap that the middle is answered like",
            ("place in the mark", "seal", "asked for", "answered", "match"),
            rows,
            texts=5,
            marked=tuple(i for i, row in enumerate(rows) if row[4] == "no"),
        ),
    )


def _marks_section(dispute: Dispute) -> Section:
    sides = ("first", "second")
    rows = []
    for model in dict.fromkeys(cell.model for cell in dispute.cells):
        found = {cell.mark_of: cell for cell in dispute.cells if cell.model == model}
        shown = (
            f"{found[side].bits:.1f} ({found[side].level})" if side in found else "not asked"
            for side in sides
        )
        rows.append((model, *shown))
    named = zip(dispute.parties, sides, strict=True)
    shares = dispute.in_common.items()
    common = Table(
        "Thresholds in common, columns matched by them: a fact that decides nothing",
        ("thresholds of", "found in", "share"),
        tuple((*pair.split(" | "), f"{share:.0%}") for pair, share in shares),
        texts=2,
    )
    return section(
        "Whose mark is in whose model",
        "A model that was taken from the first owner's and marked again carries both marks; the "
        "first owner's carries one.",
        Table(
            "Bits of each side's mark in each model",
            ("model", *(f"mark of {party.owner} ({side})" for party, side in named)),
            tuple(rows),
        ),
        common if shares else None,
    )


def _party_section(party: PartyFinding) -> Section:
    claim = party.claim
    shown = facts(
        ("owner", party.owner),
        ("evidence", f"refused: {party.refused}" if party.refused else "holds"),
        ("opened triggers are worth", f"{party.full_bits:.0f} bits at most"),
        ("claim, SHA-256", None if claim is None else claim.digest.hex()),
        ("made, by its own word", None if claim is None else claim.claimed),
        ("unmarked model, digest of the trees", None if claim is None else claim.model_digest),
        ("marked model, digest of the trees", None if claim is None else claim.marked_digest),
    )
    stamps = _stamps_table(party.stamps) if party.stamps else None
    return section(f"The {party.side} side", shown, stamps)


def _explain_copies(trace: Trace) -> pages.Notes:
    return pages.Notes(
        (
            f"Every customer of {trace.owner} has a copy of one model. The copies give the same "
            "answers to nearly all rows, but at some places between two training values, called "
            "boundaries, each copy decides in its own way, drawn at random when the copy was made.",
            "The suspect was asked on both sides and in the middle of each boundary. How often it "
            "decides as a customer's copy does is compared with how often any other model would.",
            "Twenty bits are one chance in a million, 64 bits one in 2·10¹⁹. The price of looking "
            f"at {trace.n_customers} customers is already subtracted.",
        )
    )


def _suspect_facts(verdict: Verdict) -> pages.Facts:
    """Return the facts about the suspect and how it was asked."""
    context = verdict.context
    return facts(
        ("suspect", verdict.suspect),
        ("asked through", words.say_through(verdict)),
        ("columns matched", context.columns.replace("-", " ")),
        ("answers read", words.say_reading(context.reading)),
        ("SHA-256 of its file", verdict.suspect_digest),
        *(
            (f"request: {name.replace('_', ' ')}", _show_request(value))
            for name, value in context.request.items()
        ),
    )


def _show_request(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    said = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return printable(said)[:_LONGEST_SHOWN]


def _mark_facts(verdict: Verdict) -> pages.Facts:
    """Return the facts about the mark."""
    return facts(
        ("owner", verdict.owner),
        ("mark", verdict.mark_id),
        ("made, by its own word", verdict.created),
        ("SHA-256 of the mark without its secret", verdict.mark_digest),
        ("digest of the unmarked model's trees", verdict.model_digest),
        ("timbermark", verdict.version),
    )


def _roll_facts(trace: Trace) -> pages.Facts:
    asked = trace.asked
    return facts(
        ("owner", trace.owner),
        ("customers", str(trace.n_customers)),
        ("accused before a judge", trace.accused),
        ("judge", trace.judge),
        *(("time stamp of the claim", words.say_stamp(stamp)) for stamp in trace.stamps),
        ("roll", asked.mark_id),
        ("made, by its own word", asked.created),
        ("SHA-256 of its boundaries", asked.mark_digest),
        ("digest of the unmarked model's trees", asked.model_digest),
    )


def _suspect_path(verdict: Verdict) -> str:
    """Return the suspect as the command line takes it, as far as the verdict knows it."""
    kind, _, path = verdict.suspect.partition(" ")
    is_named = kind in ("file", "answers") and verdict.suspect_digest is not None
    return shlex.quote(path if is_named or kind == "endpoint" else "SUSPECT")


def install_line(version: str, extra: str = "") -> str:
    """Return the command that installs the version that a page was made with.

    >>> install_line("0.1.0")
    'pip install "timbermark==0.1.0"'
    """
    return f'pip install "timbermark{extra}=={version}"'


def _ask_again(
    verdict: Verdict, command: str, extra: str = "", before: tuple[str, ...] = ()
) -> pages.Commands:
    """Return the lines that ask a suspect again; ``command`` has {} where the suspect goes."""
    path, digest = _suspect_path(verdict), verdict.suspect_digest
    check = () if digest is None else (f"sha256sum {path}   # {digest}",)
    asked = command.format(path)
    return pages.Commands((install_line(verdict.version, extra), *before, *check, asked))


def _judge_again(judgment: Judgment) -> Section:
    name = shlex.quote(judgment.opening.judge).replace("{", "{{").replace("}", "}}")
    roots = " --roots authority.pem" if any(s.counts for s in judgment.stamps) else ""
    before = (
        "# from the pack alone, offline; its answers are weighed again:",
        f"timbermark judge pack.zip{roots}",
        "# asking the suspect again:",
    )
    again = f"timbermark judge evidence --claim model.claim --for {name} --suspect {{}}{roots}"
    extra = "[stamps]" if judgment.stamps else ""
    return section(
        "How to recompute it",
        "Compare the claim's SHA-256 with that of the claim as its owner published it. The "
        "formulae are in docs/mark-format.md and docs/claim-format.md, completely enough to "
        "write a program of one's own.",
        _ask_again(judgment.verdict, again, extra, before),
    )


def _dispute_again(dispute: Dispute) -> Section:
    models = {cell.model for cell in dispute.cells}
    typed = ["timbermark", "judge", "a-evidence", "--claim", "a.claim"]
    for name in ("unmarked", "marked"):
        if f"first {name}" in models:
            typed += [f"--{name}", f"a-{name}.model"]
    typed += ["--against", "b-evidence", "--against-claim", "b.claim"]
    for name in ("unmarked", "marked"):
        if f"second {name}" in models:
            typed += [f"--against-{name}", f"b-{name}.model"]
    if "suspect" in models:
        typed += ["--suspect", "disputed.model"]
    if any(stamp.counts for party in dispute.parties for stamp in party.stamps):
        typed += ["--roots", "authority.pem"]
    lines = (install_line(timbermark.__version__, "[stamps]"), shlex.join(typed))
    return section("How to recompute it", pages.Commands(lines))


def blur_curve(curve: Curve) -> Curve:
    """Return a curve in steps of at least four questions, 24 at most.

    Whoever runs the suspect has a record of all questions; single steps could tell them which of
    those were triggers.

    >>> blur_curve([(n, float(n)) for n in range(1, 11)])
    [(4, 4.0), (8, 8.0), (10, 10.0)]
    """
    if not curve:
        return []
    step = max(_FEWEST_AT_ONCE, -(-curve[-1][0] // _MOST_STEPS))
    found: list[tuple[int, float]] = []
    for n, bits in curve[:-1]:
        if n >= (found[-1][0] if found else 0) + step:
            found.append((n, bits))
    return [*found, curve[-1]]


def _is_claimed(judgment: Judgment) -> str:
    found = judgment.is_marked_model
    if found is None or judgment.verdict.context.through != "file":
        return "not known, because no file of a model was asked"
    return "yes, it is the very file that the claim names" if found else "no, it is another file"


def _show(answer: object) -> str:
    return f"{answer:.6g}" if isinstance(answer, float) else str(answer)
