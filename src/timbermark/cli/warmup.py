"""`timbermark warmup`: compile the kernels ahead of the first use."""

import time

import typer

from timbermark.cli.app import app


@app.command()
def warmup() -> None:
    """Compile all kernels now, so that the first training or marking starts at once."""
    from timbermark.boosting.warmup import warm_up
    from timbermark.editing.warmup import warm_editing

    start = time.perf_counter()
    warm_up()
    warm_editing()
    typer.echo(f"kernels are ready ({time.perf_counter() - start:.1f} s)")
