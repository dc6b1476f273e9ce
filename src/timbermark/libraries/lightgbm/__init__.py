"""LightGBM: `Booster`, `LGBMClassifier` and text model files; see `timbermark.libraries.reading`.

`text` takes the library's text apart and prints it again, `trees` turns its arrays into an ensemble
and back, `models` does the rest. Nothing that was not checked here ever reaches the library, which
ends the process on a file with a wrong length in it.
"""

from timbermark.libraries.lightgbm.models import (
    NAME,
    is_file,
    is_model,
    load,
    margins,
    read,
    rows,
    save,
    write,
)

__all__ = ["NAME", "is_file", "is_model", "load", "margins", "read", "rows", "save", "write"]
