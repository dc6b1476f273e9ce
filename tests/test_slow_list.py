"""The list of slow tests names tests that exist."""

import re

import pytest

from tests.conftest import ROOT, SLOW


@pytest.mark.parametrize("place", sorted(SLOW))
def test_it_exists(place):
    path, _, name = place.partition("::")
    source = (ROOT / path).read_text(encoding="utf-8")
    # A doctest is named by the module it is in.
    function = name.rpartition(".")[2] if path.startswith("src/") else name.rpartition("::")[2]
    assert (
        not name
        or re.search(rf"(def|class) {function}\b", source)
        or path.endswith(f"{name.rpartition('.')[2]}.py")
    )
