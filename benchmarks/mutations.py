"""Read structured mutations of every format: none may crash, hang, grow or pass as something else.

    ./dev bench mutations [--count 200000] [--formats mark,claim,…] [--seed 0]

A mutation changes bytes, JSON values or arrays of a sound file; where a checksum guards it, the
checksum is made again for three of four, so that what is behind it is reached. Files are read in
processes with 1 GiB to spare. *Passes as something else*: a claim, an opening or a pack that is
accepted although its digest is another, a mark with other content and the same digest, a question
of a guard's ledger that nobody drew, an entry of a chain that no stamp covers.
"""

import argparse
import hashlib
import io
import json
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from common import finish, show

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.ownership.authority import Authority  # noqa: E402
from tests.ownership.make_vectors import JUDGE, make_claim  # noqa: E402
from tests.ownership.making import (  # noqa: E402
    KEY,
    carried,
    make_both,
    make_mark,
    make_mixed_mark,
    npy_bytes,
    signed,
)

from timbermark import libraries  # noqa: E402
from timbermark.errors import TimbermarkError  # noqa: E402
from timbermark.guard import ledger_file  # noqa: E402
from timbermark.guard.drawing import Drawn  # noqa: E402
from timbermark.guard.ledger import Ledger  # noqa: E402
from timbermark.ownership import Claim, Mark, Opening, open_mark, symbols  # noqa: E402
from timbermark.tracing import codes  # noqa: E402
from timbermark.tracing.roll import EDGES, Roll  # noqa: E402
from timbermark.tracing.showing import RollClaim, RollOpening, open_roll  # noqa: E402
from timbermark.trees import reference  # noqa: E402
from timbermark.verification import chain, journal, records  # noqa: E402
from timbermark.verification.judge import find_parts  # noqa: E402
from timbermark.verification.packs import CLAIM, MANIFEST, OPENING, _manifest, _zip, read_pack  # noqa: E402
from timbermark.verification.stamps import make_query  # noqa: E402
from timbermark.verification.transcript import Context, Transcript  # noqa: E402
from timbermark.verification.verdict import judge_again  # noqa: E402

# Of 100 mutations: the files of skops take twenty times as long as the others.
SHARES = {
    "mark": 16,
    "claim": 16,
    "opening": 10,
    "pack": 8,
    "transcript": 8,
    "journal": 8,
    "ledger": 8,
    "roll": 8,
    "roll-claim": 4,
    "roll-opening": 4,
    "guard-ledger": 4,
    "chain": 4,
    "skops": 2,
}
SPARE, SECONDS, BATCH = 1 << 30, 20, 5000
STRANGE = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 1e-320),
    *("", "x", "é" * 300, "\0", "\ud800", "00" * 32, "ab" * 16, "1" * 5000),
    *([], [[]], [None], {}, {"a": {}}, [0] * 1000),
)
DTYPES = ("<f8", "<f4", "<i4", "<i8", "|u1", "|b1", "<U4", ">f8", "<c16", "|S3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--formats", default=",".join(SHARES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", nargs=3, help="format, first number, count; for itself")
    chosen = parser.parse_args()
    if chosen.worker:
        work(chosen.worker[0], chosen.seed, int(chosen.worker[1]), int(chosen.worker[2]))
        return
    formats = chosen.formats.split(",")
    whole = sum(SHARES[name] for name in formats)
    rows, results = [], {}
    for name in formats:
        start, said, megabytes = time.perf_counter(), Counter(), 0
        count = chosen.count * SHARES[name] // whole
        for first in range(0, count, BATCH):
            found, most = ask(name, chosen.seed, first, min(BATCH, count - first))
            said, megabytes = said + found, max(megabytes, most)
        results[name] = {**said, "MiB": megabytes, "seconds": round(time.perf_counter() - start)}
        rows.append([name, sum(said.values()), said["refused"], said["read"], said["other"],
                     said["error"], said["hung"], said["crashed"], megabytes])  # fmt: skip
    header = ["format", "mutations", "refused", "read", "passes as other", "other error", "hung"]
    show("Mutations of files", [*header, "crashed", "most MiB"], rows)
    finish(results)


def ask(name: str, seed: int, first: int, count: int) -> tuple[Counter, int]:
    """Run one batch in a process; after a crash, go on behind the mutation that did it.

    Returns how many came to what, and the most MiB that the process took, libraries included.
    """
    found: Counter = Counter()
    while count:
        words = ["--seed", str(seed), "--worker", name, str(first), str(count)]
        done = subprocess.run(
            [sys.executable, __file__, *words], capture_output=True, text=True, check=False
        )
        lines = done.stdout.splitlines()
        if done.returncode == 0:
            batch = json.loads(lines[-1])
            sys.stderr.write(done.stderr)
            megabytes = batch.pop("MiB")
            return found + Counter(batch), megabytes
        if not lines:
            raise SystemExit(f"{name} cannot be made: {done.stderr[-2000:]}")
        last = max(int(line) for line in lines if line.isdigit())
        print(f"{name} {last} (seed {seed}): {done.returncode} {done.stderr[-500:]}", flush=True)
        found["crashed"] += 1
        count, first = first + count - last - 1, last + 1
    return found, 0


def work(name: str, seed: int, first: int, count: int) -> None:
    warnings.simplefilter("ignore")
    said: Counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        kind = FORMATS[name](Path(folder))
        kind.read(kind.data)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + SPARE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.signal(signal.SIGALRM, _hang)
        for number in range(first, first + count):
            print(number, flush=True)
            data = kind.mutate(random.Random(f"{name} {seed} {number}"))
            signal.alarm(SECONDS)
            try:
                outcome = kind.read(data)
            except TimbermarkError:
                outcome = "refused"
            except TimeoutError:
                outcome = "hung"
            except Exception as error:
                outcome = "error"
                sys.stderr.write(f"{name} {number}: {type(error).__name__}: {error}\n")
            finally:
                signal.alarm(0)
            said[outcome] += 1
            if outcome in ("hung", "other", "error"):
                Path(tempfile.gettempdir(), f"mutation-{name}-{seed}-{number}").write_bytes(data)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**said, "MiB": most >> 10}))


def _hang(*_: Any) -> None:
    raise TimeoutError


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at, length = rng.randrange(len(found) + 1), rng.choice((1, 1, 4, 64))
        how = rng.randrange(5)
        if how == 0 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif how == 1:
            del found[at : at + length]
        elif how == 2:
            found[at:at] = rng.randbytes(length)
        elif how == 3:
            found[at:at] = found[at : at + length]
        else:
            found[at : at + length] = bytes([rng.choice((0, 255, 48))]) * length
    return bytes(found)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Return JSON after one change somewhere in it."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        places += [(one, key) for key in keys]
        waiting += [one[key] for key in keys if isinstance(one[key], dict | list)]
    if not places:
        return rng.choice(STRANGE)
    holder, key = rng.choice(places)
    other, other_key = rng.choice(places)
    how = rng.randrange(5)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[rng.choice(("x", key + " ", ""))] = holder[key]
    elif how == 2:
        holder[key] = json.loads(json.dumps(other[other_key]))
    elif how == 3 and isinstance(holder[key], str) and holder[key]:
        holder[key] = mutate_bytes(holder[key].encode(), rng).decode("latin-1")
    else:
        holder[key] = rng.choice(STRANGE)
    return value


def mutate_array(raw: bytes, rng: random.Random) -> bytes:
    how = rng.randrange(5)
    if how == 0:
        return mutate_bytes(raw, rng)
    array = np.load(io.BytesIO(raw))
    if how == 1:
        with np.errstate(all="ignore"):
            plain = np.zeros(array.shape, np.uint8) if array.dtype.names else array
            array = plain.astype(rng.choice(DTYPES))
    elif how == 2:
        array = array.reshape(rng.choice(((-1,), (1, *array.shape), (*array.shape, 1))))
    elif how == 3 or not array.size:
        array = array[: rng.randrange(len(array) + 1)] if array.ndim else array
    else:
        flat = array.reshape(-1).view(np.uint8).copy()
        flat[rng.randrange(len(flat))] = rng.choice((0, 1, 127, 128, 255))
        array = flat.view(array.dtype).reshape(array.shape)
    return npy_bytes(array)


def mutate_zip(payload: bytes, meta_name: str, rng: random.Random) -> bytes:
    """Return an archive after one change of a member, or of the archive itself."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = sorted(members)
    how = rng.randrange(10)
    if how < 5:
        text = json.dumps(mutate_json(json.loads(members[meta_name]), rng))
        members[meta_name] = text.encode("utf-8", "surrogatepass")
    elif how < 8 and len(names) > 1:
        name = rng.choice([one for one in names if one != meta_name])
        change = mutate_array if name.endswith(".npy") else mutate_bytes
        members[name] = change(members[name], rng)
    elif how == 8:
        name = rng.choice(names)
        members[rng.choice(("x.npy", "../x", name + "~", rng.choice(names)))] = members.pop(name)
    else:
        return mutate_bytes(payload, rng)
    file = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


class Format:
    """A sound file, its mutations, and what reading one comes to: "read", or "other"."""

    data: bytes

    def __init__(self, folder: Path) -> None:
        self.path = folder / "file"

    def mutate(self, rng: random.Random) -> bytes:
        return mutate_bytes(self.data, rng)

    def read(self, data: bytes) -> str:
        raise NotImplementedError


class Container(Format):
    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(4) == 0:
            return mutate_bytes(self.data, rng)
        first, _, payload = self.data.split(b"\n", 2)
        return signed(first + b"\n", mutate_zip(payload, "meta.json", rng))


class MarkFormat(Container):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mark = make_mixed_mark(6, 6)
        self.data = self.mark.to_bytes()

    def read(self, data: bytes) -> str:
        found = Mark.from_bytes(data)
        return "other" if found != self.mark and found.digest == self.mark.digest else "read"


class ClaimFormat(Container):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.claim = make_claim(make_both(6, 6))
        self.data = self.claim.to_bytes()

    def read(self, data: bytes) -> str:
        return "read" if Claim.from_bytes(data).digest == self.claim.digest else "other"


class OpeningFormat(Container):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        mark = make_both(6, 6)
        self.claim = make_claim(mark)
        self.opening = open_mark(mark, self.claim, judge=JUDGE, share=0.5, force=True)
        self.data = self.opening.to_bytes()

    def read(self, data: bytes) -> str:
        return self.judge(Opening.from_bytes(data), self.claim)

    def judge(self, opening: Opening, claim: Claim) -> str:
        opening.check(claim, JUDGE)
        same = opening.digest == self.opening.digest and claim.digest == self.claim.digest
        return "read" if same else "other"


class PackFormat(OpeningFormat):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.parts = {CLAIM: self.claim.to_bytes(), OPENING: self.data}
        self.data = _zip({**self.parts, MANIFEST: _manifest(self.parts)})

    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(2):
            return mutate_zip(self.data, MANIFEST, rng)
        parts = dict(self.parts)
        name = rng.choice(sorted(parts))
        first, _, payload = parts[name].split(b"\n", 2)
        parts[name] = signed(first + b"\n", mutate_zip(payload, "meta.json", rng))
        return _zip({**parts, MANIFEST: _manifest(parts)})

    def read(self, data: bytes) -> str:
        self.path.write_bytes(data)
        claim, opening = find_parts(read_pack(self.path), None)
        return self.judge(opening, claim)


class JournalFormat(Format):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records: list[Any] = [
            {"start": {"mark_digest": "ab" * 32, "suspect": "http://x", "questions": "cd" * 16}},
            {"asking": ["q1", "q2"]},
            {"answers": [["q1", [0.5, 0.5]], ["q2", "no"]]},
            {"skipped": ["q3"]},
            {"ended": {"level": "none", "bits": 0.0}},
        ]
        self.data = self.write(self.records)

    def write(self, given: list[Any]) -> bytes:
        check, found = "", journal.FIRST_LINE
        for record in given:
            text = json.dumps(record, separators=(",", ":"))
            check = hashlib.sha256(f"{check}\n{text}".encode()).hexdigest()[:32]
            found += f'["{check}",{text}]\n'.encode()
        return found

    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(4) == 0:
            return mutate_bytes(self.data, rng)
        changed = mutate_json(json.loads(json.dumps(self.records)), rng)
        return self.write(changed if isinstance(changed, list) else [changed])

    def read(self, data: bytes) -> str:
        self.path.write_bytes(data)
        journal.read_journal(self.path)
        return "read"


class LedgerFormat(Format):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        mark = make_both(6, 6)
        claim = make_claim(mark)
        self.mark = mark
        for judge in ("Judge Judy", "Court of A"):
            opening = open_mark(mark, claim, judge=judge, share=0.5, force=True)
            records.record_opening(self.path, claim, opening)
        self.ledger = records.ledger_path(self.path)
        self.data = self.ledger.read_bytes()

    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(3) == 0:
            return mutate_bytes(self.data, rng)
        first, *lines = self.data.decode().split("\n")[:-1]
        changed = mutate_json([json.loads(line) for line in lines], rng)
        given = changed if isinstance(changed, list) else [changed]
        text = "\n".join([first, *(json.dumps(one, ensure_ascii=False) for one in given), ""])
        return text.encode("utf-8", "surrogatepass")

    def read(self, data: bytes) -> str:
        self.ledger.write_bytes(data)
        records.what_is_left(self.mark, records.read_ledger(self.path))
        return "read"


class TranscriptFormat(Format):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mark = make_both(6, 6)
        asked = {"url": "http://host/invocations", "from_journal": 3, "headers": []}
        context = Context("endpoint", "http", request=asked)
        found = Transcript(context, carried(self.mark, "scores"))
        self.data = found.to_json(self.mark, "2030-01-02T03:04:05Z").encode()

    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(4) == 0:
            return mutate_bytes(self.data, rng)
        text = json.dumps(mutate_json(json.loads(self.data), rng))
        return text.encode("utf-8", "surrogatepass")

    def read(self, data: bytes) -> str:
        transcript, _ = Transcript.from_json(data, self.mark)
        verdict = judge_again(self.mark, transcript)
        json.dumps(verdict.to_dict(), allow_nan=False).encode()
        str(verdict).encode()
        return "read"


class RollFormat(Container):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # What is derived by scrypt is derived for every mutation; its cost is not the matter here.
        symbols.SCRYPT_N = codes.SEED_N = 2
        from sklearn.ensemble import GradientBoostingClassifier

        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(60, 3)), np.arange(60) % 6
        model = GradientBoostingClassifier(n_estimators=2, max_depth=2).fit(X, y)
        self.model = libraries.open(model).ensemble
        n, ends = 6, np.sort(rng.normal(size=(4, 6)), axis=0)
        edges = {"feature": np.arange(n) % 3, "falls": np.arange(n) % 2 == 0,
                 "below": ends[0], "low": ends[1], "high": ends[2], "above": ends[3]}  # fmt: skip
        self.roll = Roll(
            grid=make_mark(0, n_splits=n),
            mark=make_both(6, 6),
            edges={name: np.asarray(edges[name], kind) for name, kind in EDGES.items()},
            blank_digest="cd" * 32,
        ).with_customers(["Bob Ltd", "Zoë & Söhne", "Eve"])
        self.data = self.roll.to_bytes()

    def read(self, data: bytes) -> str:
        roll = Roll.from_bytes(data)
        for name in roll.customers:
            roll.token(name)
        roll.symbols()
        try:
            roll.check_model(self.model)
        except TimbermarkError as error:
            if error.code != "roll.other-model":
                raise
        return "read"


class RollClaimFormat(RollFormat):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.claim = RollClaim.make(self.roll, KEY)
        self.opening = open_roll(self.roll, self.claim, customer="Eve", judge=JUDGE, share=0.5)
        self.data = self.claim.to_bytes()

    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(2):
            return super().mutate(rng)
        # The container inside, with right checksums all the way.
        name, first, payload = self.inside()
        inner = signed(first, mutate_zip(payload, "meta.json", rng))
        line, _, outer = self.data.split(b"\n", 2)
        with zipfile.ZipFile(io.BytesIO(outer)) as archive:
            members = {one: archive.read(one) for one in archive.namelist()}
        members[f"{name}.npy"] = npy_bytes(np.frombuffer(inner, np.uint8))
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for one, content in members.items():
                archive.writestr(zipfile.ZipInfo(one), content)
        return signed(line + b"\n", file.getvalue())

    def inside(self) -> tuple[str, bytes, bytes]:
        first, _, payload = self.claim.claim.to_bytes().split(b"\n", 2)
        return "claim", first + b"\n", payload

    def read(self, data: bytes) -> str:
        return "read" if RollClaim.load(data).digest == self.claim.digest else "other"


class RollOpeningFormat(RollClaimFormat):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data = self.opening.to_bytes()
        self.symbols = self.opening.check(self.claim, JUDGE)[1].tolist()

    def inside(self) -> tuple[str, bytes, bytes]:
        first, _, payload = self.opening.boundaries.to_bytes().split(b"\n", 2)
        return "opening", first + b"\n", payload

    def read(self, data: bytes) -> str:
        opening = RollOpening.load(data)
        found = opening.check(self.claim, JUDGE)[1].tolist()
        own = self.opening
        same = (opening.customer, opening.token, found) == (own.customer, own.token, self.symbols)
        return "read" if same and opening.boundaries.digest == own.boundaries.digest else "other"


class GuardLedgerFormat(Format):
    TABLES = ("about", "entries", "counts", "cuts", "stamps")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made = folder / "made.db"
        ledger = Ledger(self.made, {"owner": "Ann", "guard": "00"}, bytes(32))
        rng = np.random.default_rng(0)
        for client in ("acme", "other"):
            ledger.count(client, 9)
            ledger.add(client, self.draw(rng), rng.normal(size=(4, 3)))
        ledger.close()
        ledger_file.request_stamps(self.made)
        with closing(sqlite3.connect(self.made)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            file.execute("PRAGMA journal_mode = DELETE")
        self.data = self.made.read_bytes()
        self.questions = {repr(one) for one in self.list_questions(self.made)}
        assert len(self.questions) == 8

    def draw(self, rng: np.random.Generator) -> Drawn:
        return Drawn(
            rows=np.arange(4),
            cells=tuple(rng.bytes(32) for _ in range(4)),
            alphabets=np.tile([0, 1], (4, 1)),
            symbols=np.array([0, 1, 1, 0], np.uint8),
            spread=np.ones(4),
            reference=np.full((4, 2), 0.5),
        )

    def list_questions(self, path: Path) -> list[Any]:
        found = ledger_file.read_questions(path, bytes(32))
        return [(q.client, q.time, q.row, q.alphabet, q.symbol, q.reference, q.link) for q in found]

    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(3) == 0:
            return mutate_bytes(self.data, rng)
        path = self.made.with_name("changed.db")
        path.write_bytes(self.data)
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("PRAGMA synchronous = OFF")
            for _ in range(rng.choice((1, 1, 2))):
                self.change(file, rng)
        return path.read_bytes()

    def change(self, file: sqlite3.Connection, rng: random.Random) -> None:
        here = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
        table = rng.choice([name for name in self.TABLES if name in here])
        ids = [i for (i,) in file.execute(f"SELECT rowid FROM {table}")]
        columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
        strange = (-1, 0, 2**62, 0.5, 1e308, "", "x", "[]", "{}", "null", '"é"', b"", b"\xff" * 32)
        how, column = rng.randrange(5), rng.choice(columns)
        if how == 0 or not ids:
            marks = ",".join("?" * len(columns))
            row = [rng.choice(strange) for _ in columns]
            file.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
        elif how == 1:
            file.execute(f"DELETE FROM {table} WHERE rowid = ?", (rng.choice(ids),))
        elif how == 2:
            other = rng.choice(ids)
            (value,) = file.execute(
                f"SELECT {column} FROM {table} WHERE rowid = ?", (other,)
            ).fetchone()
            file.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?",
                         (value, rng.choice(ids)))  # fmt: skip
        elif how == 3:
            file.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?",
                         (rng.choice(strange), rng.choice(ids)))  # fmt: skip
        else:
            name = "x" * rng.randrange(1, 60)
            ways = ("DROP TABLE {0}", "ALTER TABLE {0} RENAME TO {2}",
                    "ALTER TABLE {0} RENAME COLUMN {1} TO {2}")  # fmt: skip
            file.execute(rng.choice(ways).format(table, column, name))

    def read(self, data: bytes) -> str:
        for end in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.path}{end}").unlink(missing_ok=True)
        self.path.write_bytes(data)
        outcome, refusal = "read", None
        for look in (ledger_file.read_summary, ledger_file.read_chains, self.list_questions):
            try:
                found = look(self.path)
            except TimbermarkError as error:
                refusal = error
                continue
            if look == self.list_questions and not {repr(one) for one in found} <= self.questions:
                outcome = "other"
        if outcome == "read" and refusal is not None:
            raise refusal
        return outcome


class ChainFormat(Container):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        authority = Authority(folder / "authority")
        self.roots = [authority.root]
        first = chain.first_head(bytes(32), bytes(16))
        entries = tuple(bytes([i]) * 32 for i in range(6))
        plain = chain.Chain(bytes(32), bytes(16), 0, first, entries)
        stamps = tuple((n, authority.stamp(make_query(plain.head(n)))) for n in (0, 4))
        chain.save_chains(self.path, [chain.Chain(bytes(32), bytes(16), 0, first, entries, stamps)])
        self.data = self.path.read_bytes()
        self.covered = set(entries[:4])

    def read(self, data: bytes) -> str:
        self.path.write_bytes(data)
        covered: set[bytes] = set()
        for one in chain.load_chains(self.path):
            if one.commitment == bytes(32):
                covered |= set(one.stamped_entries(self.roots))
        return "read" if covered <= self.covered else "other"


class SkopsFormat(Format):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import skops.io
        from sklearn.compose import make_column_transformer
        from sklearn.ensemble import GradientBoostingClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        rng = np.random.default_rng(0)
        self.X, y = rng.integers(0, 4, (40, 3)).astype(float), np.arange(40) % 2
        first = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0]),
                                        (StandardScaler(), [1, 2]))  # fmt: skip
        model = make_pipeline(first, GradientBoostingClassifier(n_estimators=1, max_depth=2))
        skops.io.dump(model.fit(self.X, y), self.path)
        self.data = self.path.read_bytes()
        self.path = folder / "file.skops"

    def mutate(self, rng: random.Random) -> bytes:
        if rng.randrange(8) == 0:
            return mutate_bytes(self.data, rng)
        return mutate_zip(self.data, "schema.json", rng)

    def read(self, data: bytes) -> str:
        # Read and asked in this process, which has the limits of a child, so that a crash counts.
        self.path.write_bytes(data)
        foreign = libraries.open(self.path)
        foreign.answers(reference.margins(foreign.ensemble, foreign.rows(self.X)))
        return "read"


FORMATS: dict[str, Any] = {
    "mark": MarkFormat,
    "claim": ClaimFormat,
    "opening": OpeningFormat,
    "pack": PackFormat,
    "transcript": TranscriptFormat,
    "journal": JournalFormat,
    "ledger": LedgerFormat,
    "roll": RollFormat,
    "roll-claim": RollClaimFormat,
    "roll-opening": RollOpeningFormat,
    "guard-ledger": GuardLedgerFormat,
    "chain": ChainFormat,
    "skops": SkopsFormat,
}

if __name__ == "__main__":
    main()
