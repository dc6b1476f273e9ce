"""Run verifiers through the conformance kit in conformance/.

    ./dev conformance                        our verifier and the independent one of the tests
    ./dev conformance --program "my-verifier"  yours, by the protocol of conformance/README.md
    ./dev conformance --accumulated 100000   the accumulated vector, too

The last line is the number of cases on which all agree; the exit code is 1 if there is another.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.errors import EvidenceError, PassphraseError, TimbermarkError
from timbermark.guard.ledger_file import read_chains
from timbermark.ownership import Answers, Claim, Mark, Opening, weigh
from timbermark.ownership.columns import freeze_columns
from timbermark.ownership.encoding import encode
from timbermark.ownership.evidence import (
    UNANSWERED,
    label_bits,
    level,
    mean_bits,
    round_bits,
    split_gains,
    sum_prices,
    total_bits,
)
from timbermark.ownership.symbols import derive_symbols, hash_leaf, merkle_root, query_numbers
from timbermark.verification.chain import TAG_BYTES, Chain, commit_questions, load_chains
from timbermark.verification.journal import read_journal
from timbermark.verification.judge import find_parts, judge
from timbermark.verification.packs import read_pack
from timbermark.verification.stamps import check_stamps, first_time

KIT = Path(__file__).resolve().parents[1] / "conformance"
NEAR = 1.1e-3  # two ways to add logarithms may differ in the last thousandth
_DOMAIN = b"timbermark/conformance/1"
_CONTAINER = (
    *("file.changed", "file.content", "file.empty", "file.foreign", "file.kind", "file.pack"),
    *("file.truncated", "file.version", "ledger.foreign"),
)


def run(folder: Path) -> dict[str, Any]:
    """Return what timbermark says about a case, as the protocol wants it."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    try:
        return {"result": "accepted", **_DO[case["do"]](folder, case)}
    except TimbermarkError as error:
        return {"result": "refused", "class": classify(error)}


def classify(error: TimbermarkError) -> str:
    """Return the class of a refusal.

    >>> classify(EvidenceError("x", code="merkle.path"))
    'binding'
    """
    if isinstance(error, PassphraseError):
        return "passphrase"
    if error.code in ("claim.signature", "claim.key"):
        return "signature"
    if error.code.startswith("answers."):
        return "answers"
    if error.code in _CONTAINER or error.code.startswith("journal."):
        return "container"
    if isinstance(error, EvidenceError) or error.code.startswith(("pack.", "claim.other")):
        return "binding"
    return "content"


def _mark(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    mark = Mark.from_bytes((folder / case["mark"]).read_bytes(), case.get("passphrase"))
    return {"digest": mark.digest.hex(), **_weigh(mark, case)}


def _claim(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    claim = Claim.load(folder / case["claim"])
    if "mark" in case:
        claim.check_head(Mark.from_bytes((folder / case["mark"]).read_bytes()).head)
    if not claim.stamps:
        return {"digest": claim.digest.hex()}
    checks = check_stamps(claim, _roots(folder, case))
    verified = sum(check.counts for check in checks)
    stamps = {"verified": verified, "others": len(checks) - verified, "first": first_time(checks)}
    return {"digest": claim.digest.hex(), "stamps": stamps}


def _roots(folder: Path, case: dict[str, Any]) -> list[bytes]:
    return [(folder / case["roots"]).read_bytes()] if "roots" in case else []


def _opening(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    claim = Claim.load(folder / case["claim"])
    return _judge(claim, Opening.load(folder / case["opening"]), case)


def _pack(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    if "answers" in case:
        return _judge(*find_parts(read_pack(folder / case["pack"]), None), case)
    found = judge(folder / case["pack"])
    bits = {seal.seal: round_bits(seal.bits) for seal in found.verdict.seals}
    said = found.verdict.context.request
    journal = {"answers": said.get("from_journal", 0), "since": said.get("journal_since")}
    return {
        "digest": found.opening.digest.hex(),
        "opened": found.opening.n_opened,
        "bits": {**bits, "reported": found.bits},
        "level": found.level,
        **({"journal": journal} if journal["answers"] else {}),
    }


def _journal(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    found = read_journal(folder / case["journal"])
    journal = {"answers": len(found.answers), "since": found.start["created"]}
    return {"digest": found.start["mark_digest"], "journal": journal}


def _chain(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    chains, roots = load_chains(folder / case["chain"]), _roots(folder, case)
    stamped: dict[bytes, str] = {}
    for chain in chains:
        if chain.commitment.hex() == case["guard"]:
            stamped |= chain.stamped_entries(roots)
    known = {entry[TAG_BYTES:]: time for entry, time in stamped.items()}
    times = [known[one] for one in commit(case["questions"]) if one in known]
    return {**_heads(chains), "covered": len(times), "latest": max(times, default=None)}


def commit(questions: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return the commitments of a guard's questions, as a case has them."""
    entries: list[bytes] = []
    for one in questions:
        numbers = freeze_columns([[x] for x in one["numbers"]])
        columns = [*numbers, *((text,) for text in one["texts"])]
        names = ("alphabet", "symbol", "reference")
        drawn = (np.array([one[name]]) for name in names)
        entries += commit_questions(columns, *drawn, [bytes.fromhex(one["link"])])
    return entries


def _ledger(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    return _heads(read_chains(folder / case["ledger"]))


def _heads(chains: Sequence[Chain]) -> dict[str, Any]:
    last = b"".join(chain.head(chain.first + len(chain.entries)).head for chain in chains)
    entries = sum(len(chain.entries) for chain in chains)
    return {"digest": hashlib.sha256(last).hexdigest(), "entries": entries}


def _judge(claim: Claim, opening: Opening, case: dict[str, Any]) -> dict[str, Any]:
    opened = opening.check(claim, case.get("for"))
    return {"digest": opening.digest.hex(), "opened": opening.n_opened, **_weigh(opened, case)}


def _weigh(mark: Mark, case: dict[str, Any]) -> dict[str, Any]:
    asked = case.get("answers")
    if asked is None:
        return {}
    found = {one.seal: one.bits for one in weigh(mark, read_answers(asked, len(mark.classes)))}
    both = total_bits(list(found.values()), len(mark.seals))
    reported = max(0.0, round_bits(both - sum_prices(mark.prices)))
    bits = {seal: round_bits(value) for seal, value in found.items()}
    return {"bits": {**bits, "reported": reported}, "level": level(reported)}


def read_answers(asked: dict[str, Any], n_classes: int) -> Answers:
    """Return the answers of a case.

    >>> read_answers({"kind": "labels", "values": [1, None]}, 2).values.tolist()
    [1, -2]
    """
    kind, values = asked["kind"], asked["values"]
    if kind == "labels":
        return Answers(kind, np.array([UNANSWERED if v is None else v for v in values]))
    empty = [np.nan] * n_classes if kind == "scores" else np.nan
    try:
        given = np.array([empty if v is None else v for v in values], dtype=float)
    except ValueError:  # rows of several lengths
        given = np.zeros((len(values), 0))
    return Answers(kind, given)


_DO: dict[str, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {
    "mark": _mark,
    "claim": _claim,
    "opening": _opening,
    "pack": _pack,
    "journal": _journal,
    "chain": _chain,
    "ledger": _ledger,
}


def is_same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether a program says what a case expects; bits may differ by a thousandth.

    >>> is_same({"result": "accepted", "bits": {"reported": 1.0}}, {"result": "accepted"})
    False
    """
    plain = {key: value for key, value in found.items() if key != "bits"}
    if plain != {key: value for key, value in expected.items() if key != "bits"}:
        return False
    bits, wanted = found.get("bits", {}), expected.get("bits", {})
    return bits.keys() == wanted.keys() and all(
        abs(bits[seal] - wanted[seal]) <= NEAR for seal in wanted
    )


def list_cases(kit: Path = KIT) -> list[Path]:
    """Return the folders of all cases, by name."""
    return sorted(path.parent for path in (kit / "cases").glob("*/case.json"))


def draw_case(number: int) -> tuple[str, dict[str, Any]]:
    """Return the kind and the content of a case of the accumulated vector.

    All of it comes from SHAKE-256("timbermark/conformance/1" ‖ number, 8 bytes, little-endian).

    >>> draw_case(3)[0]
    'labels'
    """
    stream = hashlib.shake_256(_DOMAIN + number.to_bytes(8, "little")).digest(2048)
    kind = ("encoding", "merkle", "symbols", "labels", "splits")[number % 5]
    n = 1 + stream[0] % 12
    if kind == "encoding":
        return kind, {"value": _value(stream[1:])}
    blocks = [stream[32 * i + 1 : 32 * i + 33] for i in range(n + 1)]
    if kind == "merkle":
        return kind, {"leaves": blocks[:n]}
    q = 2 + stream[-1] % 2 * 2
    if kind == "symbols":
        counts = {"n_leaves": stream[-2] % (n + 1), "q": q}
        return kind, {"seed": blocks[n], "salts": blocks[:n], **counts}
    if kind == "labels":
        # 0 is the symbol, other numbers are symbols or, from q on, no class of the alphabet.
        return kind, {"q": q, "labels": [byte % (q + 1) for byte in stream[1 : n + 1]]}
    n = 1 + n % 4
    numbers = [int.from_bytes(stream[2 * i + 1 : 2 * i + 3], "little") / 256 for i in range(5 * n)]
    reference = [(a, b) for a, b in zip(numbers[3 * n :: 2], numbers[3 * n + 1 :: 2], strict=True)]
    symbols = [byte % 2 for byte in stream[-n:]]
    return kind, {"rows": numbers[: 3 * n], "reference": reference, "symbols": symbols}


def _value(stream: bytes, depth: int = 0) -> Any:
    kind, number = stream[0] % (8 if depth < 2 else 6), int.from_bytes(stream[1:8], "little")
    if kind < 3:
        return (None, False, True)[kind]
    if kind == 3:
        return number - (1 << 55)
    if kind == 4:
        return (number - (1 << 55)) / 1024
    if kind == 5:
        return "".join(chr(0x20 + byte * 7 % 0x2000) for byte in stream[1 : 1 + stream[8] % 9])
    inside = [_value(stream[16 * (i + 1) :], depth + 1) for i in range(stream[9] % 4)]
    return inside if kind == 6 else {f"k{i}{'é' * (i % 2)}": one for i, one in enumerate(inside)}


def accumulated(kind: str, draw: dict[str, Any]) -> str:
    """Return the line of a case of the accumulated vector, by timbermark."""
    if kind == "encoding":
        return hashlib.sha256(encode(draw["value"])).hexdigest()
    if kind == "merkle":
        return merkle_root([hash_leaf(leaf) for leaf in draw["leaves"]]).hex()
    if kind == "symbols":
        places = range(len(draw["salts"]))
        sizes = [draw["q"] if place < draw["n_leaves"] else 2 for place in places]
        found = derive_symbols(draw["seed"], places, draw["salts"], sizes)
        order = np.argsort(query_numbers(draw["seed"], places, draw["salts"]), kind="stable")
        return json.dumps([found.tolist(), order.tolist()])
    if kind == "labels":
        q, labels = draw["q"], draw["labels"]
        counted = [label for label in labels if label < q]
        return _thousandths(label_bits(counted.count(0), len(counted), q))
    rows = np.array(draw["rows"]).reshape(-1, 3)
    reference = np.array(draw["reference"])[..., np.newaxis]
    gains = split_gains(rows, reference, np.array(draw["symbols"]), "numbers")
    return _thousandths(mean_bits(gains.sum(axis=1)))


def _thousandths(bits: float) -> str:
    return str(int(np.floor(bits * 1000 + 1e-6)))


def accumulate(count: int, line: Callable[[str, dict[str, Any]], str] = accumulated) -> str:
    """Return SHA-256 over the lines of the first ``count`` cases, each with a newline.

    >>> accumulate(0)[:8]
    'e3b0c442'
    """
    found = hashlib.sha256()
    for number in range(count):
        found.update(line(*draw_case(number)).encode() + b"\n")
    return found.hexdigest()


def _programs(given: list[str]) -> Iterator[tuple[str, Callable[[Path], dict[str, Any]]]]:
    yield "timbermark", run
    from tests.ownership import independent_kit

    yield "independent", independent_kit.run
    for command in given:
        yield command, functools.partial(_ask, shlex.split(command))


def _ask(words: list[str], folder: Path) -> dict[str, Any]:
    done = subprocess.run([*words, str(folder)], capture_output=True, timeout=600)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"result": "crashed", "exit": done.returncode}
    if done.returncode != (0 if answer.get("result") == "accepted" else 1):
        return {"result": "wrong exit code", "exit": done.returncode}
    return answer


def main(arguments: list[str] | None = None) -> int:
    """Run the kit; return 0 if every program says what every case expects."""
    parser = argparse.ArgumentParser(prog="./dev conformance", description=__doc__)
    parser.add_argument("--program", action="append", default=[], help="a verifier of your own")
    parser.add_argument("--accumulated", type=int, default=0, metavar="N", help="cases of it")
    parser.add_argument("--case", help="this one alone, by its name")
    chosen = parser.parse_args(arguments)
    cases = [path for path in list_cases() if chosen.case in (None, path.name)]
    programs = list(_programs(chosen.program))
    wrong = 0
    for folder in cases:
        expected = json.loads((folder / "case.json").read_text(encoding="utf-8"))["expected"]
        for name, ask in programs:
            found = ask(folder)
            if not is_same(found, expected):
                wrong += 1
                print(f"{folder.name}: {name} says {found}, expected is {expected}")
    if chosen.accumulated:
        from tests.ownership import independent_kit

        known = json.loads((KIT / "accumulated.json").read_text(encoding="utf-8"))
        ours = accumulate(chosen.accumulated)
        theirs = accumulate(chosen.accumulated, independent_kit.accumulated)
        right = known["sha256"].get(str(chosen.accumulated), ours)
        wrong += (ours, theirs) != (right, right)
        print(f"accumulated over {chosen.accumulated}: {ours}, independent {theirs}")
    refusals = sum(folder.name.endswith("_fail") for folder in cases)
    print(f"{len(cases)} cases, {refusals} of them refusals; {wrong} answers are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
