"""The table of refusals: every code that is raised is in it, with the facts that it speaks of."""

import ast
import string
from pathlib import Path

import pytest

import timbermark
from timbermark.errors import FileFormatError
from timbermark.verification.refusals import REFUSALS, refusal

SOURCES = [*(Path(timbermark.__file__).parent / "verification").glob("*.py")]
PREFIXES = {"FailureError": ("server:", 1), "_changed": ("file.pack:", 0), "refusal": ("", 0)}
COMMON = {"_changed": {"name"}, "FailureError": set(), "refusal": set()}


def find_raised():
    """Yield the code and the names of the facts of every refusal in the source."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(getattr(node, "func", None), "id", None)
            if name not in PREFIXES:
                continue
            prefix, place = PREFIXES[name]
            facts = {keyword.arg for keyword in node.keywords} | COMMON[name]
            for part in ast.walk(node.args[place]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield prefix + part.value, facts


RAISED = [(code, facts) for code, facts in find_raised() if code in REFUSALS]


def test_every_code_that_is_raised_is_known_and_every_known_one_is_raised():
    assert {code for code, _ in RAISED} == REFUSALS.keys()


@pytest.mark.parametrize(("code", "facts"), RAISED, ids=[code for code, _ in RAISED])
def test_sentences_speak_of_the_facts_that_are_given(code, facts):
    parsed = [part for text in REFUSALS[code] for part in string.Formatter().parse(text)]
    wanted = {name for _, name, _, _ in parsed if name is not None}
    assert None in facts or wanted <= facts
    assert None in facts or facts - {"wait"} <= wanted


def test_lists_are_cut_and_labels_quoted():
    error = refusal("classes.twice", own=(1, "b", 3, 4, 5, 6))
    assert "1, 'b', 3, 4, 5, …" in error.message
    assert refusal("journal.foreign", FileFormatError, name="x").code == "journal.foreign"
    assert refusal("columns.by-hand:unfit").code == "columns.by-hand"
