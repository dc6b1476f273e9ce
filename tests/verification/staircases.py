"""Small models that carry marks without training: each a staircase over the first feature.

Every step is a leaf of its own, so marking is what it is in real models: other leaf values in the
same trees.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from timbermark.ownership import Claim, Mark, OwnerKey, open_mark
from timbermark.trees import reference
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble, digest
from timbermark.trees.ensemble_file import save_ensemble
from timbermark.verification.disputes import Party
from timbermark.verification.packs import CLAIM, OPENING, write_pack

N_STEPS, N_CLASSES, N_TREES = 320, 5, 8
JUDGE = "Judge Judy"
CREATED = "2030-01-02T03:04:05Z"


def staircase(seed: int, shift: float = 0.0, n_trees: int = N_TREES) -> Ensemble:
    """A model of 320 steps with random scores; ``shift`` moves all of its thresholds.

    Another number of trees gives other trees: somebody else's model.
    """
    rng = np.random.default_rng(seed)
    size = N_STEPS // n_trees
    parts = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    starts = [0]
    for tree in range(n_trees):
        edges = np.arange(tree * size, (tree + 1) * size + 1) + shift
        leaves = np.zeros((size + 2, N_CLASSES))
        leaves[1:-1] = rng.normal(size=(size, N_CLASSES))
        for i, edge in enumerate(edges):
            parts["feature"] += [0, -1]
            parts["threshold"] += [edge, 0.0]
            parts["left"] += [2 * i + 1, -1]
            parts["right"] += [2 * i + 2, -1]
            parts["value"] += [np.zeros(N_CLASSES), leaves[i]]
        parts["feature"].append(-1)
        parts["threshold"].append(0.0)
        parts["left"].append(-1)
        parts["right"].append(-1)
        parts["value"].append(leaves[-1])
        starts.append(len(parts["feature"]))
    return make_ensemble(n_features=2, n_outputs=N_CLASSES, tree_start=starts, **parts)


def scores(trees: Ensemble, rows: np.ndarray) -> np.ndarray:
    return reference.probabilities(reference.margins(trees, rows), trees.objective)


def make_mark(
    trees: Ensemble, key: OwnerKey, owner: str, seed: int, k: int = 64, q: int = 4
) -> Mark:
    """A mark for a staircase, on k of its steps: even or odd ones first, as the seed is.

    The same each time for the same arguments.
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(N_STEPS - 2) + 1.0
    steps = shuffled[np.argsort((shuffled + seed) % 2, kind="stable")][:k]
    rows = np.column_stack([steps + rng.uniform(0.3, 0.7, size=k), rng.normal(size=k)])
    known = scores(trees, rows)
    mark = Mark.make(
        key, owner=owner, model_digest=digest(trees), classes=[f"c{i}" for i in range(N_CLASSES)],
        triggers=rows, alphabets=np.argsort(-known, axis=1)[:, :q], reference=known,
        feature_names=["height", "noise"],
    )  # fmt: skip
    mark_id = rng.bytes(16)
    return replace(mark, mark_id=mark_id, secret=key.mark_secret(mark_id), created=CREATED)


def embed(trees: Ensemble, mark: Mark) -> Ensemble:
    """The same trees with the leaves of the triggers' steps set to the expected class."""
    value = trees.value.copy()
    for row, number in zip(mark.rows(), mark.expected_numbers, strict=True):
        for leaf in reach(trees, row[0]):
            value[leaf] = np.where(np.arange(N_CLASSES) == number, 4.0, -1.0) * value[leaf].any()
    return replace(trees, value=value)


def reach(trees: Ensemble, x: float):
    for start in trees.tree_start[:-1]:
        node = int(start)
        while trees.left[node] >= 0:
            go = trees.left if x <= trees.threshold[node] else trees.right
            node = int(start) + int(go[node])
        yield node


@dataclass(frozen=True)
class House:
    """An owner with everything that a dispute asks for; models are files."""

    folder: Path
    key: OwnerKey
    mark: Mark
    claim: Claim
    unmarked: Path
    marked: Path
    evidence: Path
    trees: Ensemble  # of the marked model

    def open(self, name=JUDGE, share=1.0):
        return open_mark(self.mark, self.claim, judge=name, share=share, force=True)


def build_house(
    folder: Path, owner: str, trees: Ensemble, seed: int, stamps=(), share=1.0, k=64, q=4
) -> House:
    """A model, its mark, both models' files, the claim and evidence for the judge."""
    folder.mkdir()
    key = OwnerKey(hashlib.sha256(owner.encode()).digest())
    mark = make_mark(trees, key, owner, seed, k, q)
    marked = embed(trees, mark)
    files = {"unmarked.timber": trees, "marked.timber": marked}
    for name, model in files.items():
        save_ensemble(folder / name, model)
    file_digest = hashlib.sha256((folder / "marked.timber").read_bytes()).hexdigest()
    claim = Claim.make(mark, key, marked_digest=digest(marked), marked_file=file_digest)
    for stamp in stamps:
        claim = claim.with_stamp(stamp)
    opening = open_mark(mark, claim, judge=JUDGE, share=share, force=True)
    write_pack(folder / "evidence", {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()})
    claim.save(folder / "model.claim")
    mark.save(folder / "secret.mark")
    key.save(folder / "owner.key")
    return House(
        folder, key, mark, claim, folder / "unmarked.timber", folder / "marked.timber",
        folder / "evidence", marked,
    )  # fmt: skip


def others_model(seed: int) -> Ensemble:
    """A model that was made without any of the others."""
    return staircase(seed, shift=0.11, n_trees=2)


def party(house: House, **changes) -> Party:
    """A house as a side of a dispute, with all that it has."""
    given = Party(house.evidence, house.folder / "model.claim", house.unmarked, house.marked)
    return replace(given, **changes)
