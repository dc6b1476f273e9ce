"""Files that a command writes: refused before the long work, and written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from timbermark.cli.large_tables import is_pattern
from timbermark.errors import InputError
from timbermark.files import atomic_write

if TYPE_CHECKING:
    from timbermark.libraries.contract import ForeignModel
    from timbermark.marking.embedding import EmbedResult


_STATE = "training state"


def check_outputs(
    outputs: Mapping[str, Path], inputs: Mapping[str, Path | None], force: bool
) -> None:
    """Raise InputError for files that cannot or must not be written; keys are flags.

    Refused are folders, files in folders that do not exist or are closed, one file under two
    flags, a file that is also read, and, unless ``force``, files that exist.
    """
    taken = {flag: path for flag, path in inputs.items() if path is not None}
    for flag, path in outputs.items():
        folder = Path(os.path.realpath(path)).parent
        if path.is_dir():
            raise InputError(f"{flag} {path} is a folder.", hint="give the name of a file.")
        if not folder.is_dir():
            raise InputError(
                f"The folder {folder} of {flag} does not exist.", hint="make it first."
            )
        if not os.access(folder, os.W_OK):
            raise InputError(
                f"The folder {folder} of {flag} cannot be written to.",
                hint="choose another, or change its permissions.",
            )
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
    for flag, path in outputs.items():
        if os.path.lexists(path) and not force:
            raise InputError(
                f"{flag} {path} exists already.",
                hint="choose another name, or use --force to overwrite it.",
            )


def check_report(report: Path | None, inputs: Mapping[str, Path | None], force: bool) -> None:
    """Raise InputError for a page that cannot or must not be written, or not be drawn here."""
    if report is None:
        return
    from timbermark.report import check_packages

    check_packages()
    check_outputs({"--report": report}, inputs, force)


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
