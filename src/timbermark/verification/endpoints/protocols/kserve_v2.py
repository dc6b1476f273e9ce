"""Version 2 of the Open Inference Protocol: /infer with tensors, as MLServer and Triton take."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

from timbermark.verification.endpoints.protocols.contract import Batch, ReplyError, list_replies

_MODEL = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/?")
_INPUT = "input-0"


class KServeV2:
    """``output``: the name of the output to ask for; by default the only one that there is."""

    options: ClassVar[tuple[str, ...]] = ("output",)
    one_at_a_time = False
    sends_names = True  # where a column holds texts

    def __init__(self, output: str | None = None) -> None:
        self._output = output

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path is that of a model or of its inference."""
        return _MODEL.search(path) is not None

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path of inference where it is that of the model."""
        match = _MODEL.search(path)
        whole = match is not None and path.endswith(match[0])
        return path.rstrip("/") + "/infer" if whole else path

    def make_body(self, batch: Batch) -> Any:
        """Return one tensor of all rows; one for each column where a column holds texts."""
        texts = any(isinstance(value, str) for row in batch.rows for value in row)
        body: dict[str, Any] = _columns(batch) if texts else _matrix(batch)
        if self._output is not None:
            body["outputs"] = [{"name": self._output}]
        return body

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return one output, cut into rows by its shape."""
        outputs = reply.get("outputs") if isinstance(reply, dict) else None
        if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
            raise ReplyError("there are no 'outputs' in it")
        names = [str(one.get("name")) for one in outputs]
        if self._output is None and len(outputs) != 1:
            raise ReplyError(f"it holds the outputs {', '.join(names)}, and none was asked for")
        if self._output is not None and self._output not in names:
            raise ReplyError(f"there is no output '{self._output}' in it, but {', '.join(names)}")
        chosen = outputs[0 if self._output is None else names.index(self._output)]
        return list_replies(_cut(chosen.get("data"), chosen.get("shape")), n)


def _matrix(batch: Batch) -> dict[str, Any]:
    data = [value if value is None else float(value) for row in batch.rows for value in row]
    shape = [len(batch.rows), len(batch.rows[0])]
    return {"inputs": [{"name": _INPUT, "shape": shape, "datatype": "FP64", "data": data}]}


def _columns(batch: Batch) -> dict[str, Any]:
    inputs = []
    for name, column in zip(batch.columns, zip(*batch.rows, strict=True), strict=True):
        texts = any(isinstance(value, str) for value in column)
        kind = {"datatype": "BYTES" if texts else "FP64", "data": list(column)}
        inputs.append({"name": name, "shape": [len(column), 1], **kind})
    return {"parameters": {"content_type": "pd"}, "inputs": inputs}


def _cut(data: Any, shape: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ReplyError("an output has no data")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ReplyError("an output has no shape")
    if data and isinstance(data[0], list):
        return data  # rows already, as the protocol allows
    if not shape or math.prod(shape) != len(data):
        raise ReplyError(f"an output of the shape {shape} holds {len(data)} values")
    width = math.prod(shape[1:])
    if len(shape) == 1 or width == 1:
        return data
    return [data[at : at + width] for at in range(0, len(data), width)] if width else []
