"""`timbermark keygen`: a new owner key."""

from pathlib import Path
from typing import Annotated

import typer

from timbermark.cli.app import app
from timbermark.cli.printing import show
from timbermark.cli.secrets import new_passphrase


@app.command()
def keygen(
    path: Annotated[Path, typer.Argument(help="Where the key goes; keep it and back it up.")],
    passphrase: Annotated[bool, typer.Option("--passphrase", help="Encrypt the file.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Make the 32 secret bytes from which all your marks derive."""
    from timbermark.ownership.keys import OwnerKey

    key = OwnerKey.generate()
    key.save(path, new_passphrase(passphrase), force=force)
    show(f"{path}: owner key {key.fingerprint}")
