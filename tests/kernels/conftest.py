"""Parts are compiled for kernels alone; the tests here call them from Python, too.

Their machine code is kept on disk like that of kernels, until a source of any kernel changes:
those of test_renewing.py alone took 37 seconds of every run.
"""

import importlib
import pkgutil

from timbermark import kernels
from timbermark.kernels.compile import _stamped

for module in pkgutil.iter_modules(kernels.__path__):
    for found in vars(importlib.import_module(f"timbermark.kernels.{module.name}")).values():
        # What Numba makes of a function; without compilation there is none.
        options = getattr(found, "targetoptions", {})
        if "no_cpython_wrapper" in options:
            for wrapper in ("no_cpython_wrapper", "no_cfunc_wrapper"):
                del options[wrapper]
            found.enable_caching()
            _stamped(found)
