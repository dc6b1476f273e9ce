"""CatBoost classifiers: read, written back and kept in their own files, bit for bit.

`timbermark.libraries.reading` says what each function is for.
"""

from timbermark.libraries.catboost.files import is_file, load, save
from timbermark.libraries.catboost.reading import NAME, is_model, margins, native_rows, read, rows
from timbermark.libraries.catboost.writing import conform, write

__all__ = [
    "NAME",
    "conform",
    "is_file",
    "is_model",
    "load",
    "margins",
    "native_rows",
    "read",
    "rows",
    "save",
    "write",
]
