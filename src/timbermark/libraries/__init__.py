"""Models of other libraries: opened as an Ensemble, closed around other leaf values, saved.

Importing this package imports none of the libraries.
"""

from timbermark.libraries.closing import close
from timbermark.libraries.contract import Adapter, ForeignModel
from timbermark.libraries.registry import (
    adapter_of,
    is_supported,
    load,
    open,
    open_suspect_file,
    save,
    way_of_asking,
)
from timbermark.libraries.wrappers import WrapperAdapter, is_wrapper

__all__ = [
    "Adapter",
    "ForeignModel",
    "WrapperAdapter",
    "adapter_of",
    "close",
    "is_supported",
    "is_wrapper",
    "load",
    "open",
    "open_suspect_file",
    "save",
    "way_of_asking",
]
