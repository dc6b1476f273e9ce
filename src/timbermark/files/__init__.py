"""Files that are whole or not there, and the one container that holds everything we write.

A container is two lines of text and a zip archive::

    timbermark KIND VERSION
    SHA256 of the first line and the payload, as 64 hexadecimal digits
    payload: a zip archive of meta.json and one NAME.npy per array

Nothing in it is ever executed: no pickle, no object arrays, no evaluated text. A reader checks
everything before it builds anything, and each way of being wrong has its own message.
docs/model-format.md says the same for those who write their own reader.
"""

from timbermark.files.reading import container_kind, read_container
from timbermark.files.writing import (
    atomic_write,
    container_bytes,
    watch_writes,
    will_write,
    write_container,
    write_public,
)

__all__ = [
    "atomic_write",
    "container_bytes",
    "container_kind",
    "read_container",
    "watch_writes",
    "will_write",
    "write_container",
    "write_public",
]
