"""`timbermark inspect`: what a file is."""

import json
from pathlib import Path
from typing import Annotated

import typer

from timbermark.cli.app import app


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what a model file holds: objective, classes, trees, leaves, features."""
    from timbermark.estimator import TimberClassifier
    from timbermark.trees.ensemble import digest

    model = TimberClassifier.load(path)
    trees = model.ensemble_
    names = getattr(model, "feature_names_in_", None)
    facts = {
        "file": str(path),
        "library": "timbermark",
        "objective": trees.objective,
        "classes": model.classes_.tolist(),
        "iterations": model.n_iter_,
        "trees": trees.n_trees,
        "leaves": trees.n_leaves,
        "features": trees.n_features,
        "feature_names": None if names is None else list(names),
        "digest": digest(trees),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if value is not None:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            typer.echo(f"{name.replace('_', ' '):14}{shown}")
