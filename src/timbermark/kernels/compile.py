"""How kernels are compiled, and the few operations that Numba cannot say by itself.

A kernel is serial and releases the interpreter lock; threads come from Python. Those that work in
step meet in :mod:`timbermark.kernels.workers`, where one that fails stops them all.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])


def _sources_stamp() -> str:
    """Return a digest of all kernels' sources."""
    total = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        total.update(source.read_bytes())
    return total.hexdigest()


_STAMP = _sources_stamp()


def _stamped(compiled: Any) -> Any:
    """Tie a kernel's machine code on disk to the sources of all kernels.

    Numba looks only at the file a function is in. A kernel that has another one inlined from a
    file that changed would be taken from disk as it was, without a warning.
    """
    cache = getattr(compiled, "_cache", None)
    file = getattr(cache, "_cache_file", None)
    if file is not None:
        cache._source_stamp = file._source_stamp = _STAMP  # type: ignore[union-attr]
    return compiled


def kernel(function: Function) -> Function:
    """Compile ``function`` on first use, keep the machine code on disk, release the lock."""
    return cast(Function, _stamped(njit(cache=True, nogil=True, error_model="numpy")(function)))


_INNER: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    # What Python and C would call: nobody does, and it takes a quarter of the time to compile.
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
# Without Numba's counts of references the caller holds all arrays. With them every array of every
# tuple is counted up and down at each call, in steps that threads must wait for.
_COUNTING: dict[str, Any] = _INNER | {"_nrt": True}
_BORROWING: dict[str, Any] = _INNER | {"_nrt": False}


def part(function: Function) -> Function:
    """Compile a function that only kernels call: its machine code lies on disk within theirs.

    It cannot make arrays, and returns none except to another part.
    """
    return cast(Function, njit(**_BORROWING)(function))


def allocating(function: Function) -> Function:
    """Compile a part that makes arrays for itself."""
    return cast(Function, njit(**_COUNTING)(function))


def inlined(function: Function) -> Function:
    """Compile a small helper inside a loop: LLVM must see through the call to vectorise."""
    return cast(Function, njit(**_BORROWING | {"forceinline": True})(function))


def is_cold(compiled: Any) -> bool:
    """Return whether the first call of a kernel will have to compile it."""
    cache = getattr(compiled, "_cache", None)
    index = getattr(getattr(cache, "_cache_file", None), "_index_path", None)
    loaded = bool(getattr(compiled, "signatures", True))
    return index is not None and not loaded and not Path(index).exists()


def notice_if_cold(compiled: Any) -> None:
    """Tell a person at a terminal or in a notebook why the first call takes longer."""
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    if watched and is_cold(compiled):
        print(
            "timbermark: compiling its kernels, once; `timbermark warmup` does it ahead.",
            file=sys.stderr,
        )


if getattr(config, "DISABLE_JIT"):  # noqa: B009 (made at import, unknown to type checkers)

    def add_pair(out: Any, index: Any, first: Any, second: Any) -> None:
        """Add ``first`` and ``second`` to ``out[index]`` and ``out[index + 1]``."""
        out[index] += first
        out[index + 1] += second

    def prefetch(array: Any, index: Any) -> None:
        """Ask for the cache line of ``array[index]``, counted over the flat array."""

    def load_shared(array: Any, index: Any) -> Any:
        """Return ``array[index]``, which another thread may write at any time."""
        return array[index]

    def add_shared(array: Any, index: Any, amount: Any) -> Any:
        """Add to ``array[index]``; returns what was there. (Without compilation: one thread.)"""
        before = array[index]
        array[index] += amount
        return before

    def yield_core() -> None:
        """Let other threads run."""

    def bits_to_float(bits: Any) -> Any:
        """Return the float32 whose bits are the int32 ``bits``."""
        return np.int32(bits).view(np.float32)

    def float_to_bits(value: Any) -> Any:
        """Return the bits of a float32, as an int32."""
        return np.float32(value).view(np.int32)

    def wrapping(function: Function) -> Function:
        """Let integers overflow in ``function``, where that is meant, without a warning."""
        silenced: Function = np.errstate(over="ignore")(function)
        return silenced

else:
    from llvmlite import ir
    from numba.core import cgutils

    @intrinsic
    def add_pair(typingctx, out, index, first, second):
        """Add ``first`` and ``second`` to ``out[index]`` and ``out[index + 1]``.

        One 128-bit load, add and store. Numba leaves LLVM's superword vectoriser off, and without
        it the two sums cost twice the time of the whole histogram loop.
        """

        def codegen(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            pair = ir.VectorType(ir.IntType(64), 2)
            lane = [ir.Constant(ir.IntType(32), i) for i in range(2)]
            pointer = builder.bitcast(builder.gep(array.data, [args[1]]), pair.as_pointer())
            added = ir.Constant(pair, ir.Undefined)
            added = builder.insert_element(added, args[2], lane[0])
            added = builder.insert_element(added, args[3], lane[1])
            builder.store(builder.add(builder.load(pointer, align=8), added), pointer, align=8)
            return context.get_dummy_value()

        return types.none(out, types.uint64, types.int64, types.int64), codegen

    @intrinsic
    def prefetch(typingctx, array, index):
        """Ask for the cache line of ``array[index]``, counted over the flat array.

        Rows of a node lie scattered in memory, and a processor cannot foresee which come next.
        """

        def codegen(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            place = builder.bitcast(builder.gep(data, [args[1]]), byte)
            # For reading, to be kept in all caches, data.
            builder.call(call, [place, *(ir.Constant(number, x) for x in (0, 3, 1))])
            return context.get_dummy_value()

        return types.none(array, types.int64), codegen

    @intrinsic
    def load_shared(typingctx, array, index):
        """Return ``array[index]``, read anew each time: another thread may write to it."""

        def codegen(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            return builder.load_atomic(builder.gep(data, [args[1]]), "acquire", 8)

        return types.int64(array, types.int64), codegen

    @intrinsic
    def add_shared(typingctx, array, index, amount):
        """Add to ``array[index]`` in one indivisible step; returns what was there before."""

        def codegen(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            return builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "seq_cst")

        return types.int64(array, types.int64, types.int64), codegen

    @intrinsic
    def yield_core(typingctx):
        """Let other threads run, where the system has a call for that."""

        def codegen(context, builder, signature, args):
            if os.name == "posix":
                kind = ir.FunctionType(ir.IntType(32), [])
                builder.call(
                    cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), []
                )
            return context.get_dummy_value()

        return types.none(), codegen

    @intrinsic
    def bits_to_float(typingctx, bits):
        """Return the float32 whose bits are the int32 ``bits``."""

        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], ir.FloatType())

        return types.float32(types.int32), codegen

    @intrinsic
    def float_to_bits(typingctx, value):
        """Return the bits of a float32, as an int32."""

        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], ir.IntType(32))

        return types.int32(types.float32), codegen

    def wrapping(function: Function) -> Function:
        """Return ``function`` as it is: compiled integers wrap silently."""
        return function
