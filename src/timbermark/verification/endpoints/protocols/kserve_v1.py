"""Version 1 of the Open Inference Protocol: :predict with instances and predictions."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from timbermark.verification.endpoints.protocols.contract import (
    Batch,
    check_paths,
    follow,
    list_replies,
    parse_path,
)

_OWN_STEPS = ("predictions",)
_MODEL = re.compile(r"/v1/models/[^/:]+/?")


class KServeV1:
    """``answer``: a path to the answers, by default "predictions"."""

    options: ClassVar[tuple[str, ...]] = ("answer",)
    one_at_a_time = False
    sends_names = False

    def __init__(self, answer: str = "predictions") -> None:
        self._steps = parse_path(answer)

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path is that of a model or of its predictions."""
        return path.endswith(":predict") or _MODEL.search(path) is not None

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path of predictions where it is that of the model."""
        match = _MODEL.search(path)
        whole = match is not None and path.endswith(match[0])
        return path.rstrip("/") + ":predict" if whole else path

    def make_body(self, batch: Batch) -> Any:
        """Return {"instances": …}."""
        return {"instances": [list(row) for row in batch.rows]}

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return the predictions."""
        if self._steps != _OWN_STEPS:
            check_paths(reply, n)
        return list_replies(follow(reply, self._steps), n)
