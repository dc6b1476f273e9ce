"""Every line of tests/slow.txt names a test that exists, so that the list does not rot."""

import re

from tests.conftest import ROOT, SLOW


def exists(place):
    path, _, name = place.partition("::")
    if not (ROOT / path).is_file():
        return False
    # A doctest is named by its module and its function.
    function = re.split(r"::|\.", name)[-1]
    source = (ROOT / path).read_text(encoding="utf-8")
    return not name or re.search(rf"\b(def|class) {function}\b", source) is not None


def test_what_is_listed_exists():
    assert len(SLOW) > 100
    assert [place for place in sorted(SLOW) if not exists(place)] == []
