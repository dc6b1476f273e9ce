"""Pages in a real browser, at the widths of a telephone and of a desk, in light and dark."""

import pytest

from tests.report.browser import look_at


def brightness(colour: str) -> float:
    return sum(map(int, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 3


# The others have the same parts.
LOOKED_AT = ("with attacks", "regressor", "verdict", "judgment", "dispute", "attacks")


@pytest.mark.parametrize("kind", LOOKED_AT)
def test_a_page_fits_says_nothing_and_loads_nothing(made, tmp_path, kind):
    for width, dark in ((360, False), (1280, True)):
        found = look_at(made[1][kind], tmp_path / str(width), width, dark)
        assert found["client"] == width
        assert found["scroll"] <= width
        assert found["wide"] == []
        assert found["errors"] == []
        assert found["console"] == []
        assert found["loaded"] == []
        assert all(height > 100 for height in found["plots"])
        # Readable in both: text of pages and plots stands out from the paper.
        inks = {found["ink"], *found["texts"]}
        assert (brightness(found["paper"]) < 60) == dark
        assert all(abs(brightness(ink) - brightness(found["paper"])) > 100 for ink in inks)


def test_the_probe_sees_what_is_wrong(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        '<html><head></head><body><div style="width:900px">x</div>'
        '<img src="not-there.png"><img src="https://example.org/x.png"><script>undefined_thing()</script></body></html>'
    )
    found = look_at(page, tmp_path / "look", 360)
    assert found["scroll"] > 360
    assert found["errors"]
    assert "/not-there.png" in found["loaded"]
    assert "https://example.org/x.png" in found["loaded"]
    assert found["console"]
