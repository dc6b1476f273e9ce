"""LightGBM: `Booster`, `LGBMClassifier` and text model files.

`text` takes the library's text apart and prints it again, `trees` turns its arrays into an
ensemble, `editing` puts other leaf values and thresholds into it, `models` does the rest.
Nothing that was not checked here ever reaches the library, which ends the process on a file with a
wrong length in it.
"""

from timbermark.libraries.lightgbm.models import (
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
