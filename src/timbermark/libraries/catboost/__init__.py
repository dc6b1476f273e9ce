"""CatBoost classifiers, opened, closed and kept in their own files, bit for bit."""

from timbermark.libraries.catboost.models import (
    close,
    holds,
    is_file,
    is_model,
    margins,
    name,
    native_rows,
    open,
    open_file,
    rows,
    save,
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
