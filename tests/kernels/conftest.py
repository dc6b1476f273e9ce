"""Parts are compiled for kernels alone; the tests here call them from Python, too."""

import importlib
import pkgutil

from timbermark import kernels

for module in pkgutil.iter_modules(kernels.__path__):
    for found in vars(importlib.import_module(f"timbermark.kernels.{module.name}")).values():
        # What Numba makes of a function; without compilation there is none.
        options = getattr(found, "targetoptions", {})
        for wrapper in ("no_cpython_wrapper", "no_cfunc_wrapper"):
            options.pop(wrapper, None)
