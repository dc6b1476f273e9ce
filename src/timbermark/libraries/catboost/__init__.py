"""CatBoost's classifiers, regressors and rankers, opened, closed and kept in files, bit for bit."""

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
