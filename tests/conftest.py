import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# No deadline: the first call of a kernel compiles it. The blob replays a failure seen elsewhere.
settings.register_profile("timbermark", deadline=None, max_examples=60, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "timbermark"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the data sets, which are not part of the project."""
    folder = Path(os.environ.get("TIMBERMARK_DATA", ROOT.parent / "shared" / "datasets"))
    if not folder.is_dir():
        pytest.skip("the data sets are not here; TIMBERMARK_DATA can name their folder")
    return folder
