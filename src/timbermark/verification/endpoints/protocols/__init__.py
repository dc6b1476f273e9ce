"""What servers speak: how rows become a request, and where the answers are in a reply.

Each protocol has a module of its own and knows only rows, names and JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from timbermark.errors import InputError
from timbermark.verification.endpoints.protocols.contract import Batch, Dialect, ReplyError
from timbermark.verification.endpoints.protocols.json_template import JsonTemplate
from timbermark.verification.endpoints.protocols.kserve_v1 import KServeV1
from timbermark.verification.endpoints.protocols.kserve_v2 import KServeV2
from timbermark.verification.endpoints.protocols.mlflow import MLflow

__all__ = ["PROTOCOLS", "Batch", "Dialect", "ReplyError", "complete_url", "open_dialect"]

PROTOCOLS: dict[str, type[Dialect]] = {
    "mlflow": MLflow,
    "kserve-v1": KServeV1,
    "kserve-v2": KServeV2,
    "json": JsonTemplate,
}


def complete_url(url: str, protocol: str) -> tuple[str, str]:
    """Return the address that questions go to, and the protocol; "auto" follows from the address.

    Raises InputError if the protocol is unknown or does not follow from the address.

    >>> complete_url("http://host:5000", "mlflow")
    ('http://host:5000/invocations', 'mlflow')
    >>> complete_url("http://host/v2/models/churn", "auto")
    ('http://host/v2/models/churn/infer', 'kserve-v2')
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if protocol == "auto":
        found = [name for name, dialect in PROTOCOLS.items() if dialect.speaks_at(path)]
        if len(found) != 1:
            raise InputError(
                f"The address {urlunsplit(parts._replace(query=''))} does not tell the protocol.",
                hint=f'name it: {", ".join(PROTOCOLS)}, as in protocol="mlflow".',
            )
        protocol = found[0]
    if protocol not in PROTOCOLS:
        raise InputError(
            f"protocol={protocol!r} is not known.", hint=f"use one of {', '.join(PROTOCOLS)}."
        )
    path = PROTOCOLS[protocol].complete_path(parts.path)
    return urlunsplit(parts._replace(path=path, fragment="")), protocol


def open_dialect(protocol: str, options: Mapping[str, Any]) -> Dialect:
    """Return a protocol with its options, those of `Endpoint`: body, answer, output.

    Raises InputError if an option does not belong to the protocol or is missing.

    >>> open_dialect("kserve-v1", {}).make_body(Batch([[1.0]], None))
    {'instances': [[1.0]]}
    """
    dialect = PROTOCOLS[protocol]
    given = {name: value for name, value in options.items() if value is not None}
    strange = sorted(set(given) - set(dialect.options))
    if strange:
        raise InputError(
            f"{strange[0]} is no option of protocol={protocol!r}.",
            hint=f"it takes {', '.join(dialect.options)}.",
        )
    return dialect(**given)
