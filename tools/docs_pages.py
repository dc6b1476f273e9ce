"""Pages of the documentation that are made from the source: a hook of MkDocs.

The commands are taken from the command line itself, the functions from the names in
``timbermark.__all__``; the pages at the root of the repository are taken over with their links put
right.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from typer.models import ArgumentInfo

ROOT = Path(__file__).resolve().parents[1]
_FROM_ROOT = {
    "SECURITY.md": "threat-model.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_IN_CHECKOUT = {
    **{f"../{name}": target for name, target in _FROM_ROOT.items()},
    "../src/timbermark/__init__.py": "reference/functions.md",
    "../src/timbermark/cli/app.py": "reference/commands.md",
}
"""What pages link to in a checkout, and the pages that are made of it."""
_LOADED = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(https?://[^"' >]+)"""
)
_GROUPS = {
    "Mark": ["embed", "plan", "rotate", "Budget", "attack", "load", "save"],
    "Verify": ["verify", "Endpoint", "Mark"],
    "A copy for each customer": ["copies", "trace", "Roll"],
    "Guard a served model": ["Guard"],
    "Claim and judge": [
        *("OwnerKey", "Claim", "claim", "Opening", "open_mark", "judge", "Party", "judge_dispute")
    ],
    "Train": ["TimberClassifier", "TimberRegressor", "warmup"],
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    pages = {"reference/commands.md": commands_page(), "reference/functions.md": functions_page()}
    for name, target in _FROM_ROOT.items():
        pages[target] = take_over((ROOT / name).read_text(encoding="utf-8"))
    for path in sorted((ROOT / "examples").glob("*.py")):
        pages[f"examples/{path.stem}.md"] = example_page(path)
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, **about: Any) -> str:
    """Return a page whose links into the checkout are links to pages.

    >>> on_page_markdown("[limits](../SECURITY.md#keys)")
    '[limits](threat-model.md#keys)'
    """
    for there, here in _IN_CHECKOUT.items():
        markdown = markdown.replace(f"]({there}", f"]({here}")
    return markdown


def on_post_build(config: Any) -> None:
    """Refuse pages that would load something from elsewhere."""
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        found = _LOADED.search(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path} loads {found[1]}; the pages must need no network.")


def take_over(text: str) -> str:
    """Return a page of the root with links as they are seen from docs/.

    >>> take_over("[a](docs/evidence.md), [b](SECURITY.md), [c](src/timbermark/cli)")
    '[a](evidence.md), [b](threat-model.md), `src/timbermark/cli`'
    """

    def relink(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        if "://" in target or target.startswith("#"):
            return match[0]
        if target in _FROM_ROOT:
            return f"[{label}]({_FROM_ROOT[target]})"
        if target.startswith("docs/"):
            return f"[{label}]({target.removeprefix('docs/')})"
        return f"`{target}`"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", relink, text).replace("](docs/", "](")


def example_page(path: Path) -> str:
    """Return a script as a page."""
    code = path.read_text(encoding="utf-8")
    title = path.stem.replace("_", " ").capitalize()
    return f"# {title}\n\n`examples/{path.name}`; the tests run it.\n\n```python\n{code}```\n"


def functions_page() -> str:
    """Return the page of all public functions and classes, in the order of their use."""
    import timbermark

    homes = timbermark._HOME
    missing = {*homes} - {name for names in _GROUPS.values() for name in names}
    if missing:
        raise KeyError(f"tools/docs_pages.py puts these public names nowhere: {sorted(missing)}")
    lines = [
        "# Functions and classes",
        "",
        "Import it from `timbermark` itself: `import timbermark as tm`, then `tm.embed`. "
        "Nothing else is public, and [versions](../changelog.md#what-versions-promise) promise "
        "nothing about it.",
        "",
    ]
    for group, names in _GROUPS.items():
        lines += [f"## {group}", ""]
        lines += [f"::: {homes[name]}.{name}\n" for name in names]
    lines += [
        "## MLflow",
        "",
        "These are in `timbermark.mlflow`.",
        "",
        *(f"::: timbermark.mlflow.{name}\n" for name in ("log_model", "fetch_mark", "Evaluator")),
        "## Errors",
        "",
        "::: timbermark.errors",
        "    options:",
        "      members_order: source",
    ]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Return the page of all commands, from the functions behind them."""
    from timbermark.cli.app import app
    from timbermark.cli.exit_codes import EXIT_CODES

    groups = [("", app), *((f"{g.name} ", g.typer_instance) for g in app.registered_groups)]
    commands = sorted(
        (group + (info.name or str(info.callback.__name__)), info.callback)
        for group, part in groups
        if part is not None
        for info in part.registered_commands
        if info.callback is not None
    )
    lines = ["# Commands", "", EXIT_CODES, "", "| command | |", "|---|---|"]
    for name, function in commands:
        first = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"| [`timbermark {name}`](#timbermark-{name.replace(' ', '-')}) | {first} |")
    for name, function in commands:
        params = list(_parameters(function))
        taken = [param.shown for param in params if param.is_argument]
        usage = " ".join(["timbermark", name, *taken, "[OPTIONS]"])
        lines += ["", f"## timbermark {name}", "", inspect.getdoc(function) or "", ""]
        lines += ["```sh", usage, "```", "", "| | default | |", "|---|---|---|"]
        lines += [f"| `{one.shown}` | {one.default} | {one.about} |" for one in params]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One line of a command's table."""

    shown: str
    default: str
    about: str
    is_argument: bool


def _parameters(function: Any) -> Iterator[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    for name, param in inspect.signature(function).parameters.items():
        kind, info = get_args(hints.get(name, param.annotation))[:2]
        about = (info.help or "").replace("\n", " ").replace("|", "\\|")
        if isinstance(info, ArgumentInfo):
            yield Parameter(name.upper(), "", about, True)
            continue
        # Typer keeps the first flag where other frameworks keep the default.
        given = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str)]
        flags = ", ".join(given or [f"--{name.replace('_', '-')}"])
        default = _default(param.default, info.show_default)
        yield Parameter(f"{flags}{_kind(kind)}", default, about, False)


def _kind(kind: Any) -> str:
    """Return what follows a flag: nothing, its choices, or the kind of its value."""
    inner = [one for one in get_args(kind) if one is not type(None)]
    if inner:
        return _kind(inner[0]) + (" …" if get_origin(kind) is list else "")
    if kind is bool:
        return ""
    if issubclass(kind, Enum):
        return " " + "\\|".join(str(one.value) for one in kind)
    return " " + {int: "INTEGER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _default(value: Any, stated: bool | str) -> str:
    if isinstance(stated, str):
        return stated
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or value is False or value == "":
        return ""
    return f"`{getattr(value, 'value', value)}`"
