"""Models of other libraries: opened as an Ensemble, closed around other leaf values, saved.

Importing this package imports none of the libraries.
"""

from timbermark.libraries.contract import Adapter, ForeignModel
from timbermark.libraries.registry import close, is_supported, load, open, save

__all__ = ["Adapter", "ForeignModel", "close", "is_supported", "load", "open", "save"]
