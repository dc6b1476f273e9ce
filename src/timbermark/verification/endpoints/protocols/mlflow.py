"""MLflow's scoring server: /invocations with a table in pandas' split orientation."""

from __future__ import annotations

from typing import Any, ClassVar

from timbermark.verification.endpoints.protocols.contract import (
    Batch,
    check_paths,
    follow,
    list_replies,
    parse_path,
)

_OWN_STEPS = ("predictions",)


class MLflow:
    """``answer``: a path to the answers, by default "predictions" or the whole reply."""

    options: ClassVar[tuple[str, ...]] = ("answer",)
    one_at_a_time = False
    sends_names = True

    def __init__(self, answer: str | None = None) -> None:
        self._steps = None if answer is None else parse_path(answer)

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path is that of invocations."""
        return path.endswith("/invocations")

    @staticmethod
    def complete_path(path: str) -> str:
        """Return /invocations where there is no path."""
        return path if path.rstrip("/") else "/invocations"

    def make_body(self, batch: Batch) -> Any:
        """Return {"dataframe_split": …}."""
        split: dict[str, Any] = {"data": [list(row) for row in batch.rows]}
        if batch.names is not None:
            split = {"columns": batch.columns, **split}
        return {"dataframe_split": split}

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return the predictions; old servers answer with the bare list."""
        steps = self._steps
        if steps not in (None, _OWN_STEPS):
            check_paths(reply, n)
        if steps is None:
            steps = () if isinstance(reply, list) else _OWN_STEPS
        return list_replies(follow(reply, steps), n)
