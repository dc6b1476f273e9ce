"""Pages: how long the first one takes in a process of its own, and how large it is.

Targets: 1 s, the import of what draws included, and 400 KB.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from common import finish, show
from sklearn.datasets import load_digits

import timbermark as tm
from timbermark.verification.packs import CLAIM, OPENING, write_pack

ROUNDS = 5
_FIRST = """
import sys, time
import timbermark as tm
result = tm.judge(sys.argv[1])
start = time.perf_counter()
result.report(sys.argv[2], force=True)
print(time.perf_counter() - start)
"""
_LATER = """
import sys, time
from sklearn.datasets import load_digits
import timbermark as tm
X, y = load_digits(return_X_y=True)
model = tm.TimberClassifier(max_iter=50, random_state=0).fit(X[:1200], y[:1200])
key = tm.OwnerKey.generate()
result = tm.embed(model, X[:1200], y[:1200], key=key, owner="Ann", validation=(X[1200:], y[1200:]))
tried = ["round-answers", "refit"]
attacks = tm.attack(result.model, result.mark, X[1200:], y[1200:], attacks=tried)
start = time.perf_counter()
result.report(sys.argv[2], attacks=attacks, force=True)
print(time.perf_counter() - start)
"""


def measure(code: str, pack: Path, page: Path, rounds: int) -> tuple[float, float]:
    """Seconds, the best of some processes, and the size in KB."""
    command = [sys.executable, "-c", code, pack, page]
    seconds = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(rounds)
    ]
    return min(seconds), page.stat().st_size / 1000


def prepare(place: Path) -> Path:
    """A pack of a marked model of the digits, all of whose triggers are opened."""
    X, y = load_digits(return_X_y=True)
    key = tm.OwnerKey.generate()
    model = tm.TimberClassifier(max_iter=50, random_state=0).fit(X, y)
    result = tm.embed(model, X, y, key=key, owner="Ann")
    claim = tm.claim(result.model, result.mark, key=key)
    opening = tm.open_mark(result.mark, claim, judge="Judge", share=1.0)
    write_pack(place / "evidence", {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()})
    tm.judge(place / "evidence", suspect=result.model).save(place / "pack.zip")
    return place / "pack.zip"


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pack = prepare(place)
        judged = measure(_FIRST, pack, place / "judge.html", ROUNDS)
        embedded = measure(_LATER, pack, place / "embed.html", 2)
    rows = [["judge", *judged], ["embed, with attacks", *embedded]]
    show("pages", ["page", "s", "KB"], rows)
    return {"judge": judged[0], "embed": embedded[0]}


if __name__ == "__main__":
    finish({"report": main()})
