"""Every script in examples/ runs as it stands, and its assertions hold."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_every_example_is_in_the_docs():
    index = (EXAMPLES[0].parents[1] / "docs" / "how-to.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if f"examples/{path.name}" not in index] == []
