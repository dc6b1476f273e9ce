"""What it costs to choose by hand what an endpoint is sent, and which part of its reply counts.

Evidence is worth less by log₂ of the number of possibilities. What cannot be counted stands in the
verdict as a condition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from timbermark.ownership.verdict import Price
from timbermark.verification.endpoints.endpoint import Endpoint
from timbermark.verification.endpoints.protocols.contract import MOST_PATHS
from timbermark.verification.endpoints.protocols.json_template import is_placeholder

_PATH_BITS = float(MOST_PATHS.bit_length() - 1)
_MOST_OUTPUTS = 1024
_STANDARD_OUTPUTS = ("predict", "predict_proba", "decision_function", "predict_log_proba")
"""What servers of scikit-learn's interface call their outputs."""
_KIND_BITS = 2.0  # null, true, false, or something else
_BITS_PER_BYTE = 8.0
_LONGEST_SHOWN = 200


def price_request(endpoint: Endpoint) -> tuple[Price, ...]:
    """Return the prices of what was chosen by hand about requests and replies.

    A path to the answers is one of 1,024 at most, which is checked against each reply. An output is
    one of four standard names, or one of 1,024. Constants in a template cost what it takes to
    write them down: 2 bits each, and 8 bits for each byte of a number or a text and its end.

    >>> price_request(Endpoint("http://host/invocations", answer="results.*.label"))
    (Price(reason='a path to the answers given by hand', bits=10.0),)
    """
    prices = []
    if _chooses_path(endpoint):
        prices.append(Price("a path to the answers given by hand", _PATH_BITS))
    if endpoint.output is not None:
        standard = endpoint.output in _STANDARD_OUTPUTS
        count = len(_STANDARD_OUTPUTS) if standard else _MOST_OUTPUTS
        prices.append(Price("an output chosen by hand", float(count.bit_length() - 1)))
    constants = [] if endpoint.body is None else list(_constants(endpoint.body))
    if constants:
        bits = sum(_price_constant(constant) for constant in constants)
        plural = "s" if len(constants) > 1 else ""
        prices.append(
            Price(f"{len(constants)} constant{plural} in the template of the request", bits)
        )
    return tuple(prices)


def list_conditions(endpoint: Endpoint) -> tuple[str, ...]:
    """Return what the evidence depends on because the request or the reading was made by hand.

    >>> list_conditions(Endpoint("http://host/invocations"))
    ()
    """
    found = []
    if endpoint.body is not None:
        body = json.dumps(endpoint.body, ensure_ascii=False)
        found.append(
            f"Requests follow the template {_shorten(body)}: the evidence holds only if that is "
            "what the server takes, and was not chosen for its answers."
        )
    if _chooses_path(endpoint):
        found.append(
            f"Answers were taken from {_shorten(endpoint.answer or '')} in each reply: the "
            "evidence holds only if these are the answers of the suspect."
        )
    if endpoint.output is not None:
        found.append(
            f"Answers are the output {_shorten(endpoint.output)}: the evidence holds only if "
            f"these are the answers of the suspect, which has {_MOST_OUTPUTS:,} outputs at most."
        )
    if urlsplit(endpoint.url).query:
        found.append(
            "The address goes on after its question mark, which is not shown: the evidence holds "
            "only if that does not choose among answers."
        )
    if endpoint.headers:
        names = _shorten(", ".join(endpoint.headers))
        found.append(
            f"Headers were sent ({names}): the evidence holds only if they do not choose among "
            "answers."
        )
    return tuple(found)


def _chooses_path(endpoint: Endpoint) -> bool:
    # These protocols read the same without being told.
    own = "predictions" if endpoint.protocol in ("mlflow", "kserve-v1") else ""
    return endpoint.answer not in (None, own)


def _constants(template: Any) -> Iterator[Any]:
    if isinstance(template, dict | list):
        for part in template.values() if isinstance(template, dict) else template:
            yield from _constants(part)
    elif not is_placeholder(template):
        yield template


def _price_constant(constant: Any) -> float:
    if constant is None or isinstance(constant, bool):
        return _KIND_BITS
    written = constant if isinstance(constant, str) else json.dumps(constant)
    return _KIND_BITS + _BITS_PER_BYTE * (len(written.encode(errors="replace")) + 1)


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
