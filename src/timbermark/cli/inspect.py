"""`timbermark inspect`: what a file is."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from timbermark.cli.app import app


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what a model file holds: library, objective, classes, trees, leaves, features."""
    from timbermark.marking.models import is_ours

    facts = {"file": str(path), **(_own(path) if is_ours(path) else _foreign(path))}
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if value is not None and value != []:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            typer.echo(f"{name.replace('_', ' '):14}{shown}")


def _own(path: Path) -> dict[str, Any]:
    from timbermark.estimator import TimberClassifier

    model = TimberClassifier.load(path)
    names = getattr(model, "feature_names_in_", None)
    return {
        "library": "timbermark",
        "kind": "TimberClassifier",
        "classes": model.classes_.tolist(),
        "iterations": model.n_iter_,
        **_trees(model.ensemble_),
        "feature_names": None if names is None else list(names),
        "notes": [],
        "can_be_marked": "with its training rows, or with the state that was saved beside it",
    }


def _foreign(path: Path) -> dict[str, Any]:
    from timbermark.libraries.registry import load_model, module_of

    model = load_model(path)
    reading = module_of(model).read(model)
    trees = reading.ensemble
    return {
        "library": reading.library,
        "kind": reading.kind,
        "classes": reading.classes.tolist(),
        "iterations": trees.n_trees // (1 if (trees.tree_output < 0).any() else trees.n_outputs),
        **_trees(trees),
        "feature_names": None if reading.feature_names is None else list(reading.feature_names),
        "notes": list(reading.notes),
        "can_be_marked": "with its training rows",
    }


def _trees(trees: Any) -> dict[str, Any]:
    from timbermark.trees.ensemble import digest

    return {
        "objective": trees.objective,
        "trees": trees.n_trees,
        "leaves": trees.n_leaves,
        "features": trees.n_features,
        "digest": digest(trees),
    }
