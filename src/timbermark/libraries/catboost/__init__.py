"""CatBoost classifiers, opened, closed and kept in their own files, bit for bit."""

from timbermark.libraries.catboost.files import holds, is_file, open_file, save
from timbermark.libraries.catboost.models import (
    close,
    is_model,
    margins,
    name,
    native_rows,
    open,
    rows,
)

__all__ = [
    "close",
    "holds",
    "is_file",
    "is_model",
    "margins",
    "name",
    "native_rows",
    "open",
    "open_file",
    "rows",
    "save",
]
