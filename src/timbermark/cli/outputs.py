"""What a command puts out: files, results on stdout, notes and errors on stderr.

Files are refused before the long work, and written whole or not at all. Results are text or JSON,
errors are in the words of flags.

An error of Python mentions a parameter as ``name=value``, or as the first word of its message where
it is the error's own ``parameter``. Here the same parameter is a flag.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from timbermark.cli.options import FLAGS, VARIABLE, Force, Json
from timbermark.cli.tables import is_pattern
from timbermark.errors import InputError, PassphraseNeededError, TimbermarkError
from timbermark.files import atomic_write, will_write

if TYPE_CHECKING:
    from timbermark.libraries.contract import ForeignModel
    from timbermark.marking.embedding import EmbedResult


_CLOSING = {"{": "}", "[": "]", "(": ")", "'": "'", '"': '"'}


def say_error(error: TimbermarkError) -> tuple[str, str]:
    """Return the message and the hint of an error, with flags in place of parameters.

    >>> from timbermark.errors import InputError
    >>> say_error(InputError("decoys is for endpoints.", hint="leave it out.", parameter="decoys"))
    ('--decoys is for endpoints.', 'leave it out.')
    """
    if isinstance(error, PassphraseNeededError):
        return error.message, f"set {VARIABLE}, or answer the question on a terminal."
    from timbermark.cli import app  # noqa: F401 - commands say what their flags are

    message, own = error.message, error.parameter
    if own in FLAGS and message.startswith(own + " "):
        message = FLAGS[own] + message.removeprefix(own)
    return use_flags(message), use_flags(error.hint)


def use_flags(text: str) -> str:
    """Return a text in which every ``name=value`` of a known parameter is a flag.

    >>> use_flags("share=0.5 is too little; give label_map={theirs: yours}, or force=True.")
    '--share 0.5 is too little; give --label-map theirs=yours, or --force.'
    >>> use_flags("turn it round: label_map={'no': 'a', 'yes': 'b c'}.")
    'turn it round: --label-map "no=a,yes=b c".'
    """
    from timbermark.cli import app  # noqa: F401 - commands say what their flags are

    pieces, at = [], 0
    while (equals := text.find("=", at)) >= 0:
        start = equals
        while start > at and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
        name = text[start:equals]
        is_word = start == 0 or text[start - 1] in " ('\"\n"
        if name not in FLAGS or not is_word:
            pieces.append(text[at : equals + 1])
            at = equals + 1
            continue
        end = _end_of_value(text, equals + 1)
        pieces += [text[at:start], _flag(name, text[equals + 1 : end])]
        at = end
    return "".join([*pieces, text[at:]])


def _end_of_value(text: str, start: int) -> int:
    closing = _CLOSING.get(text[start : start + 1])
    if closing is not None and (end := text.find(closing, start + 1)) >= 0:
        return end + 1
    end = start
    while end < len(text) and text[end] not in " ,;)":
        end += 1
    # A full stop ends the sentence, not the value.
    return end - 1 if text[start:end].endswith(".") else end


def _flag(name: str, value: str) -> str:
    if value == "True":
        return FLAGS[name]
    if name == "label_map":
        bare = value.strip("{}").replace("'", "").replace(": ", "=").replace(", ", ",")
        return f'{FLAGS[name]} "{bare}"' if " " in bare else f"{FLAGS[name]} {bare}"
    bare = value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value
    shown = f"'{bare}'" if name == "body" else bare
    return f"{FLAGS[name]} {shown}"


def show(text: str) -> None:
    """Print a result on stdout; a reader that has gone away does not change the exit code."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        # The descriptor itself, because Python flushes the old stream once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_json(facts: Mapping[str, Any]) -> None:
    """Print facts as one line of JSON; numbers that JSON does not have become null."""
    show(json.dumps(_plain(facts), allow_nan=False))


def show_facts(facts: Mapping[str, Any], shown_as: Mapping[str, str] | None = None) -> None:
    """Print one line for each fact that there is; ``shown_as``: other names for people."""
    names = {name: (shown_as or {}).get(name, name.replace("_", " ")) for name in facts}
    width = max(map(len, names.values())) + 2
    for name, value in facts.items():
        if value is None or value == []:
            continue
        if isinstance(value, bool):
            value = "yes" if value else "no"
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        show(f"{names[name]:{width}}{value}")


def tell(notes: Iterable[str]) -> None:
    """Print notes on stderr, in the words of the command line."""
    for note in notes:
        typer.echo(f"note: {use_flags(note)}", err=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


_STATE = "training state"


@dataclass(frozen=True, kw_only=True)
class Output:
    """How a command puts out what it made: over existing files or not, for people or machines."""

    force: Force = False
    as_json: Json = False

    def check(self, outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
        """Raise InputError for files that cannot or must not be written; keys are flags.

        None is no file. Refused are folders, files in folders that do not exist or are closed, one
        file under two flags, a file that is also read, and, unless ``force``, files that exist.
        """
        taken = {flag: path for flag, path in inputs.items() if path is not None}
        written = {flag: path for flag, path in outputs.items() if path is not None}
        for flag, path in written.items():
            if path.is_dir():
                raise InputError(f"{flag} {path} is a folder.", hint="give the name of a file.")
            check_folder(Path(os.path.realpath(path)).parent, flag)
            for other, also in taken.items():
                if _same(path, also):
                    raise InputError(
                        f"{other} and {flag} are the same file, {path}.", hint="give each its own."
                    )
                if is_pattern(also) and any(_same(path, Path(read)) for read in _files_of(also)):
                    raise InputError(
                        f"{flag} {path} is one of the files of {other} {also}.",
                        hint="give it a name of its own.",
                    )
            taken[flag] = path
        for flag, path in written.items():
            self.check_absent(f"{flag} {path}", path)

    def check_absent(self, name: str, path: Path) -> None:
        """Raise InputError for a file that exists, unless ``force``; ``name`` is for people."""
        if os.path.lexists(path) and not self.force:
            raise InputError(
                f"{name} exists already.",
                hint="choose another name, or use --force to overwrite it.",
                code="file.exists",
            )

    def check_report(self, report: Path | None, inputs: Mapping[str, Path | None]) -> None:
        """Raise InputError for a page that cannot or must not be written, or not be drawn here."""
        if report is None:
            return
        from timbermark.report import check_packages

        check_packages()
        self.check({"--report": report}, inputs)

    def show(self, facts: Mapping[str, Any], *lines: str) -> None:
        """Print what a command did: facts as one line of JSON for machines, or lines for people."""
        if self.as_json:
            show_json(facts)
            return
        for line in lines:
            show(line)

    def finish(
        self,
        result: Any,
        report: Path | None = None,
        facts: Mapping[str, Any] | None = None,
        lines: Iterable[str] = (),
    ) -> None:
        """Write the page of a result, if there shall be one, and print the result.

        ``facts``: more of it for JSON; ``lines``: more of it for people.
        """
        if report is not None:
            result.report(report, force=self.force)
        page = [] if report is None else [f"{report}: the page"]
        self.show({**result.to_dict(), **(facts or {})}, str(result), *lines, *page)


def check_folder(folder: Path, flag: str) -> None:
    """Raise InputError unless files can be written to a folder; ``flag`` is whose it is."""
    if not folder.is_dir():
        raise InputError(
            f"The folder {folder} of {flag} does not exist.", hint="make it first.",
            code="folder.none",
        )  # fmt: skip
    if not os.access(folder, os.W_OK):
        raise InputError(
            f"The folder {folder} of {flag} cannot be written to.",
            hint="choose another, or change its permissions.",
            code="folder.closed",
        )


def check_ending(model: ForeignModel, out: Path) -> None:
    """Raise InputError if the model's library does not write such a file as ``out``.

    The unmarked model is written to a temporary folder under the same name, so that the library's
    own rule decides.
    """
    with tempfile.TemporaryDirectory(prefix="timbermark-") as folder:
        model.adapter.save(model.native, Path(folder) / out.name)


def write_both(
    result: EmbedResult,
    out: Path,
    mark: Path,
    passphrase: str | None,
    force: bool,
    state: Path | None = None,
) -> Path | None:
    """Write the mark and the model, or neither: a model without its mark would prove nothing.

    ``state``: where the training state of a model goes that was marked in place.

    A mark that was there is kept under another name, which is returned: models that carry it may be
    in use, and nothing else proves whose they are.

    The model is written and checked under another name first, so that whoever is killed before
    the last moment leaves nothing behind, and whoever is killed in it has lost nothing.
    """
    from timbermark.marking.models import save
    from timbermark.verification.records import ledger_path

    target = Path(os.path.realpath(out))
    with tempfile.TemporaryDirectory(prefix=".timbermark-", dir=target.parent) as folder:
        draft = Path(folder) / target.name
        save(result.model, draft)
        if state is not None:
            result.model.save_state(Path(folder) / _STATE)
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o777)
        old = mark.read_bytes() if mark.exists() else None
        kept = _keep_mark(mark, old)
        result.mark.save(mark, passphrase, force=force)
        try:
            if state is not None:
                # It may be on another disk, to which a file cannot be renamed.
                atomic_write(state, (Path(folder) / _STATE).read_bytes(), mode=0o600)
            will_write(target)
            draft.replace(target)
        except BaseException:
            if old is None:
                mark.unlink(missing_ok=True)
            else:
                atomic_write(mark, old)
            if kept is not None:
                kept.unlink()
                ledger_path(kept).unlink(missing_ok=True)
            raise
        return kept


def _keep_mark(path: Path, old: bytes | None) -> Path | None:
    """Copy a mark, and the record of its openings, to the next free name beside it."""
    if old is None or not old.startswith(b"timbermark mark "):
        return None
    from timbermark.verification.records import ledger_path

    numbered = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in count(1))
    kept = next(free for free in numbered if not os.path.lexists(free))
    atomic_write(kept, old, mode=0o600)
    ledger = ledger_path(path)
    if ledger.exists():
        atomic_write(ledger_path(kept), ledger.read_bytes(), mode=0o600)
    return kept


def _files_of(pattern: Path) -> list[str]:
    """Return the files that a pattern or a folder stands for, possibly none."""
    from timbermark.partitions.parquet import find_files

    try:
        return find_files(pattern)
    except InputError:
        return []


def _same(path: Path, other: Path) -> bool:
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    return path.exists() and other.exists() and path.samefile(other)
