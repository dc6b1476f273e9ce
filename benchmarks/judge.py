"""The judge on an evidence pack: the whole command, in a process of its own. Target: 2 s.

Two models of the digits are marked and claimed, and all of their triggers are opened. Then a pack
is judged again from its transcript, and both models' files are asked anew.
"""

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from common import alternate, finish, show
from sklearn.datasets import load_digits
from xgboost import XGBClassifier

import timbermark as tm
from timbermark.verification.packs import CLAIM, OPENING, write_pack

JUDGE = "Judge"
ROUNDS = 5


def run(*words: object) -> None:
    command = [sys.executable, "-m", "timbermark", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def prepare(model: object, ending: str, place: Path) -> Path:
    """Mark, claim, open, judge once; returns the folder with all of it."""
    X, y = load_digits(return_X_y=True)
    key = tm.OwnerKey.generate()
    result = tm.embed(model.fit(X, y), X, y, key=key, owner="Ann")
    place.mkdir()
    tm.save(result.model, place / f"marked.{ending}")
    claim = tm.claim(place / f"marked.{ending}", result.mark, key=key)
    opening = tm.open_mark(result.mark, claim, judge=JUDGE, share=1.0)
    parts = {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()}
    write_pack(place / "evidence", parts)
    run(*asked(place, ending), "--out", place / "pack.zip")
    return place


def asked(place: Path, ending: str) -> list[object]:
    return ["judge", place / "evidence", "--for", JUDGE, "--suspect", place / f"marked.{ending}"]


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        ours = prepare(
            tm.TimberClassifier(max_iter=50, random_state=0), "timber", Path(folder) / "ours"
        )
        theirs = prepare(XGBClassifier(n_estimators=50, n_jobs=2), "json", Path(folder) / "theirs")
        best = alternate(
            {
                "pack, from its transcript": partial(run, "judge", ours / "pack.zip"),
                "timbermark's file asked": partial(run, *asked(ours, "timber")),
                "XGBoost's file asked": partial(run, *asked(theirs, "json")),
            },
            ROUNDS,
        )
    show("timbermark judge, whole command", ["what", "s"], [list(row) for row in best.items()])
    return best


if __name__ == "__main__":
    finish({"judge": main()})
