"""Runs a kernel on the simulator and on the reference executor, and compares what they wrote."""

from __future__ import annotations

from typing import Any

import compare
import numpy as np

import tessera as ts
from tessera.jit import CompiledKernel, JitFunction


def run(kernel: JitFunction, grid: Any, *args: Any, arch: str = "gfx1151", exact: bool = True, **constants: Any) -> CompiledKernel:
    """Launch twice on the same arrays, which keep what the simulator wrote. With `exact`, the reference must have written the same.

    `args` are the arguments at run time, `constants` the constexprs.
    """
    compiled = kernel.compile(*args, **constants, arch=arch)
    launch(compiled, grid, *args, exact=exact)
    return compiled


def launch(compiled: CompiledKernel, grid: Any, *args: Any, exact: bool = True) -> None:
    """The same for a kernel that is compiled already. Arrays beyond 64 MiB are neither kept apart nor compared."""
    arrays = [arg for arg in args if isinstance(arg, np.ndarray) and arg.flags.writeable and arg.nbytes <= 2**26]
    before = [array.copy() for array in arrays]
    ts.runtime.launch(compiled.artifact, grid, args, executor="reference")
    expected = [array.copy() for array in arrays]
    for array, old in zip(arrays, before, strict=True):
        array[...] = old
    ts.runtime.launch(compiled.artifact, grid, args, executor="rocm_sim")
    if exact:
        for array, wanted in zip(arrays, expected, strict=True):
            compare.same(array, wanted)
