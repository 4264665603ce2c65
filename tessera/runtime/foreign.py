"""Launching code objects that Tessera didn't compile: their metadata says what they take.

Pointers take arrays, by-value arguments take numbers. What the compiler calls hidden arguments is filled in as HIP does.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from ..errors import LaunchError
from .arguments import BoundArguments, Buffer
from .artifact import ArrayParameter, Parameter
from .registry import Grid
from .simulator.loader import Argument, CodeObject, Kernel
from .views import ArrayView, view


def find_kernel(code: object, name: str | None) -> tuple[CodeObject, Kernel]:
    """The kernel of a foreign code object; `name` may be left out where there is one only. Raises LaunchError."""
    if not isinstance(code, CodeObject):
        raise LaunchError(f"launch takes an Artifact, or a code object from simulator.load, not {type(code).__name__}")
    if name is None and len(code.kernels) == 1:
        name = next(iter(code.kernels))
    if name is None or name not in code.kernels:
        asked = f"no kernel {name!r}" if name is not None else "several kernels; say which by kernel="
        raise LaunchError(f"the code object has {asked}; it has {', '.join(code.kernels) or 'none'}")
    return code, code.kernels[name]


def workgroup(kernel: Kernel, asked: Grid | None) -> Grid:
    """Threads per workgroup. Raises LaunchError where the metadata doesn't fix them and the caller doesn't say, or they disagree."""
    fixed = kernel.workgroup_size
    if asked is None:
        if fixed is None:
            raise LaunchError(
                f"kernel {kernel.name!r} doesn't fix its workgroup size (at most {kernel.max_workgroup_size} threads); pass block="
            )
        return fixed
    if min(asked) < 1 or asked[0] * asked[1] * asked[2] > kernel.max_workgroup_size:
        raise LaunchError(f"block {asked} doesn't fit kernel {kernel.name!r}, which takes up to {kernel.max_workgroup_size} threads")
    if fixed is not None and asked != fixed:
        raise LaunchError(f"kernel {kernel.name!r} was compiled for workgroups of {fixed} threads, not {asked}")
    return asked


def bind_foreign(kernel: Kernel, args: Sequence[object] | Mapping[str, object], grid: Grid, block: Grid) -> BoundArguments:
    """Check and pack arguments by the kernel's metadata; the result lists the arrays alone. Raises LaunchError naming the argument.

    The metadata gives numbers no type but a size: Python ints and floats are packed as such, NumPy scalars as their bytes.
    """
    takes = [argument for argument in kernel.arguments if not argument.kind.startswith("hidden_")]
    names = [argument.name or f"argument {i}" for i, argument in enumerate(takes)]
    if isinstance(args, Mapping):
        if set(args) != set(names):
            raise LaunchError(f"kernel {kernel.name!r} takes {', '.join(names)}; given {', '.join(map(str, args))}")
        args = [args[name] for name in names]
    if len(args) != len(takes):
        raise LaunchError(f"kernel {kernel.name!r} takes {len(takes)} arguments ({', '.join(names)}), not {len(args)}")
    kernarg = bytearray(max([kernel.descriptor.kernarg_size, *(argument.offset + argument.size for argument in kernel.arguments)]))
    parameters: list[Parameter] = []
    arrays: list[ArrayView] = []
    buffers: list[Buffer] = []
    for name, argument, value in zip(names, takes, args, strict=True):
        array = view(value)
        where = f"{name} of kernel {kernel.name!r}"
        if argument.is_pointer:
            if value is None:
                continue  # a null pointer: kernels take some that they never use
            if array is None:
                raise LaunchError(f"{where} is a pointer and takes an array, not {value!r:.60}")
            writes = argument.access != "read_only"
            if argument.access in ("write_only", "read_write") and not array.writable:
                raise LaunchError(f"{where} is written, but the array is read-only")
            struct.pack_into("<Q", kernarg, argument.offset, array.address)
            writes = writes and array.writable
            parameters.append(
                ArrayParameter(name, array.dtype, 0, array.dtype.bytes, disjoint=False, writes=writes, offset=argument.offset)
            )
            arrays.append(array)
            buffers.append(Buffer(name, *array.span(), writes))
            continue
        if array is not None or not isinstance(value, (bool, int, float, np.generic)):
            raise LaunchError(f"{where} is a number of {argument.size} bytes, not {type(value).__name__}")
        kernarg[argument.offset : argument.offset + argument.size] = _number(cast(object, value), argument, where)
    for argument in kernel.arguments:
        if argument.kind.startswith("hidden_"):
            hidden = _hidden(argument, grid, block)
            kernarg[argument.offset : argument.offset + argument.size] = hidden.to_bytes(argument.size, "little")
    return BoundArguments(tuple(parameters), tuple(arrays), bytes(kernarg), tuple(buffers))


_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def _number(value: object, argument: Argument, where: str) -> bytes:
    size = argument.size
    try:
        if isinstance(value, np.generic):
            data = cast(Any, value).tobytes()
            if len(data) != size:
                raise LaunchError(f"{where} is a number of {size} bytes, not NumPy's {cast(Any, value).dtype}")
            return data
        if isinstance(value, float):
            return struct.pack(_FLOATS[size], value)
        number = int(cast(int, value))
        return number.to_bytes(size, "little", signed=number < 0)
    except (KeyError, OverflowError, struct.error):
        raise LaunchError(f"{where} is a number of {size} bytes; {value!r:.60} doesn't fit") from None


_GEOMETRY = {"hidden_block_count": "grid", "hidden_group_size": "block"}


def _hidden(argument: Argument, grid: Grid, block: Grid) -> int:
    """A hidden argument's value. Grids are whole workgroups, so remainders and offsets are 0, and so is what services would need
    (printf, host calls, heaps, queues): a kernel that uses one faults at address 0."""
    name, _, axis = argument.kind.rpartition("_")
    if name in _GEOMETRY and axis in ("x", "y", "z"):
        return (grid if _GEOMETRY[name] == "grid" else block)["xyz".index(axis)]
    if argument.kind == "hidden_grid_dims":
        return 3 if grid[2] > 1 or block[2] > 1 else 2 if grid[1] > 1 or block[1] > 1 else 1
    return 0
