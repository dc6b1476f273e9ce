import gc
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

# Threads of OpenMP that wait for each other keep a core busy: on small data, boosting in
# scikit-learn takes twice the processor time with two. Read when the first library is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from timbermark.ownership import keys, mark, symbols

ROOT = Path(__file__).resolve().parents[1]

# No deadline: the first call of a kernel compiles it. The blob replays a failure seen elsewhere.
settings.register_profile("timbermark", deadline=None, max_examples=60, print_blob=True)
settings.register_profile("fast", deadline=None, max_examples=8, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2000, print_blob=True)
# What was seen to pass is what is asked again; chance looks for more on developers' machines.
settings.register_profile("repeated", parent=settings.get_profile("timbermark"), derandomize=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "repeated" if "CI" in os.environ else "timbermark")
)
# For properties of which an example takes long: fewer of them, in every profile.
heavy = settings(max_examples=max(8, 2 * settings().max_examples // 5))

# Keys and ids of marks come from a seeded stream, so that a red run can be repeated.
_stream = random.Random(0)
keys.secrets = mark.secrets = SimpleNamespace(token_bytes=_stream.randbytes)
# So does the rest: symbols follow from all that a mark holds, the second it was made in included.
mark.datetime = SimpleNamespace(now=datetime(2026, 11, 2, 9, tzinfo=UTC).astimezone)

# The protocol makes symbols cost 64 MiB and a fifth of a second; few tests ask for that.
_SCRYPT_N, symbols.SCRYPT_N = symbols.SCRYPT_N, 2


@pytest.fixture
def real_scrypt(monkeypatch) -> None:
    """Derive symbols as users do: for files of users, and where another process reads a mark."""
    monkeypatch.setattr(symbols, "SCRYPT_N", _SCRYPT_N)


@pytest.fixture(scope="module", autouse=True)
def keys_of_its_own(request) -> None:
    """Start the stream of keys anew for each file of tests: its keys are the same run alone."""
    _stream.seed(request.node.nodeid)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Start the stream before a file is imported, for keys that it makes at its top."""
    if isinstance(collector, pytest.Module):
        _stream.seed(f"top of {collector.nodeid}")


# Tests and files of tests that `./dev test --fast` leaves out.
SLOW = frozenset(
    line
    for line in (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what the list of slow tests names, and put files that have some first.

    Files of quick tests come last: no process ends long before the other one.
    """
    for item in items:
        place = item.nodeid.partition("[")[0]
        if place in SLOW or place.partition("::")[0] in SLOW:
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the walk through thousands of tests and all libraries."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the data sets, which are not part of the project."""
    folder = Path(os.environ.get("TIMBERMARK_DATA", ROOT.parent / "shared" / "datasets"))
    if not folder.is_dir():
        pytest.skip("the data sets are not here; TIMBERMARK_DATA can name their folder")
    return folder
