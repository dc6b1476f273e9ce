"""Print how large the house is: modules, lines of code, small modules, modules with one importer.

Lines of code are those with a token that is neither a comment nor part of a docstring. Run it as
``python tools/house.py``, or with names of packages to count these alone.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
SMALL = 60
_SKIPPED = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER, tokenize.ENCODING,
)  # fmt: skip


def count_lines(text: str) -> int:
    """Return the lines of a module without blank lines, comments and docstrings.

    >>> count_lines('def f():\\n    "Return 1."\\n    return 1  # one\\n')
    2
    """
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            told |= set(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SKIPPED:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - told)


def name_of(path: Path) -> str:
    """Return the name of a module by its path."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str, known: set[str]) -> set[str]:
    """Return the modules of the house that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found & known


def main(packages: list[str]) -> None:
    """Print the table."""
    texts = {name_of(path): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    sizes = {name: count_lines(text) for name, text in texts.items()}
    importers: Counter[str] = Counter()
    for name, text in texts.items():
        importers.update(imported(text, set(texts)) - {name})
    rooms = packages or sorted({".".join(name.split(".")[:2]) for name in texts})
    print(f"{'room':32}{'modules':>8}{'lines':>8}{'small':>8}{'one importer':>14}")
    for room in [*(room for room in rooms if room != "timbermark"), "timbermark"]:
        mine = [n for n in texts if n == room or n.startswith(room + ".")]
        small = [n for n in mine if sizes[n] < SMALL]
        single = [n for n in mine if importers[n] == 1]
        total = sum(sizes[n] for n in mine)
        print(f"{room:32}{len(mine):8}{total:8}{len(small):8}{len(single):14}")


if __name__ == "__main__":
    main(sys.argv[1:])
