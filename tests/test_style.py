"""How the source is written, as far as a machine can tell."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import timbermark

SOURCE = Path(timbermark.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(SOURCE.rglob("*.py"))

# A verb that is missing here is added; a noun, an article or a question word is not.
VERBS = frozenset(
    """
    Add Answer Append Ask Attack Average Call Carry Check Claim Close Collect Compare Compile
    Compute Copy Count Decide Declare Derive Divide Do Draw Drop Edit Encode Estimate Fill Find
    Fit Flip Forget Give Go Grow Hash Import Join Judge Keep Learn Let List Log Make Mark Measure
    Move Number Open Pad Prefetch Prepare Print Put Raise Read Rebuild Refit Refuse Rehearse
    Remove Replace Return Round Route Run Search Send Serve Set Show Split Start Sum Take Tell
    Tie Train Try Update Wait Walk Warn Write Yield
    """.split()  # noqa: SIM905 - words read better than a column of strings
)


def list_docstrings(module):
    """Every function of a module that has a docstring, with its line."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and (text := ast.get_docstring(node)):
            yield f"{module.relative_to(SOURCE)}:{node.lineno} {node.name}", text


def begins_with_a_verb(text):
    return text.split()[0].rstrip(".,:;") in VERBS


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Return the sum.", True), ("The sum.", False), ("Whether it is.", False), ("K.", False)],
)
def test_what_counts_as_a_verb(text, expected):
    assert begins_with_a_verb(text) == expected


def test_docstrings_of_functions_begin_with_a_verb():
    found = [place for m in MODULES for place, text in list_docstrings(m)]
    wrong = [
        f"{place}: {text.splitlines()[0]}"
        for module in MODULES
        for place, text in list_docstrings(module)
        if not begins_with_a_verb(text)
    ]
    assert len(found) > 900
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["benchmarks", "tools", "examples"])
def test_what_stands_beside_the_source_imports_what_is_there(folder):
    checked = 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("timbermark"):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    assert hasattr(module, alias.name) or find_spec(submodule), (path, submodule)
                    checked += 1
    assert checked or folder == "examples"
