"""Compile a kernel in textual IR with plain layouts, run it in the simulator, and compare with the reference interpreter.

No layout pass takes part: every tile lies blocked (or as a test says), so that a failure is the lowering's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import tessera.ir.ops  # noqa: F401  the parser knows ops by their classes
from tessera import dtypes, llvm
from tessera.dtypes import DType
from tessera.ir.core import Block, Kernel, Value
from tessera.ir.interp import run_kernel
from tessera.ir.text import parse_kernel
from tessera.ir.types import ArrayType, Tile
from tessera.ir.verify import verify
from tessera.runtime.simulator import engine
from tessera.targets.rocm import codeobject
from tessera.targets.rocm.arch import arch as arch_row
from tessera.targets.rocm.fences import fences
from tessera.targets.rocm.layout import Layout, blocked
from tessera.targets.rocm.lowering import lower_kernel


def array_type(array: np.ndarray, *, small: bool = True, disjoint: bool = True, axis: int | None = -1, align: int | None = None) -> str:
    """The IR type of the best class that an array is of; `axis` and `align` ask for a worse one."""
    item = array.itemsize
    wide = [a for a in range(array.ndim) if array.shape[a] > 1]
    if axis == -1:
        axis = next((a for a in reversed(range(array.ndim)) if array.strides[a] == item and (a in wide or not wide)), None)
        if axis is None:
            axis = next((a for a in range(array.ndim) if a not in wide), None) if array.ndim else None
    numbers = [array.__array_interface__["data"][0], *(array.strides[a] for a in wide if a != axis)]
    if align is None:
        align = next(n for n in (16, 8, 4, 2, 1) if n <= max(item, 16) and all(x % n == 0 for x in numbers))
    align = max(align, item)
    where = "" if axis is None else f"axis={axis},"
    flags = [word for word, on in (("small", small), ("disjoint", disjoint)) if on]
    return f"array<{dtypes.from_numpy(array.dtype).short},{array.ndim},align={align},{where}{','.join(flags)}>".replace(",>", ">")


def blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for nested in op.blocks:
            yield from blocks(nested)


def assign(kernel: Kernel, *, vector: int = 4, wave_size: int = 32, layouts: dict[tuple[int, ...], Layout] | None = None) -> Kernel:
    """Give every tile a blocked layout, or the one that `layouts` has for its shape."""
    waves = 1 << kernel.num_waves.bit_length() - 1

    def lay(value: Value) -> None:
        if isinstance(value.type, Tile) and value.type.shape:
            shape = value.type.shape
            given = (layouts or {}).get(shape)
            value.layout = given if given is not None else blocked(shape, vector=vector, num_waves=waves, wave_size=wave_size)

    for block in blocks(kernel.body):
        for param in block.params:
            lay(param)
        for op in block.ops:
            for result in op.results:
                lay(result)
    fences(kernel, arch_row("gfx1151"))
    verify(kernel)
    return kernel


def parse(text: str) -> Kernel:
    kernel = parse_kernel(text)
    verify(kernel)
    return kernel


def compile_code(kernel: Kernel, arch: str = "gfx1151") -> bytes:
    return codeobject.link(llvm.compile_device(lower_kernel(kernel, arch_row(arch)), arch))


def extent(array: np.ndarray) -> tuple[int, int]:
    """The address of the lowest byte of an array, and how many bytes there are up to the highest."""
    if array.size == 0:
        return array.__array_interface__["data"][0], 0
    ends = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low = sum(min(0, e) for e in ends)
    return array.__array_interface__["data"][0] + low, sum(abs(e) for e in ends) + array.itemsize


def simulate(
    kernel: Kernel,
    grid: tuple[int, int, int],
    args: Sequence[Any],
    *,
    arch: str = "gfx1151",
    code: bytes | None = None,
    checking: bool = False,
) -> None:
    """Run in the simulator, in place, if asked for in its checking mode. Each array's bytes are all that may be touched."""
    program = engine.prepare(code if code is not None else compile_code(kernel, arch))
    kernarg, buffers = bytearray(), []
    for index, (param, arg) in enumerate(zip(kernel.params, args, strict=True)):
        if isinstance(param.type, ArrayType):
            kernarg += bytes(-len(kernarg) % 8)
            kernarg += struct.pack(f"<Q{2 * arg.ndim}q", arg.__array_interface__["data"][0], *arg.shape, *arg.strides)
            address, size = extent(arg)
            if size:
                buffers.append(engine.Buffer(f"p{index}", address, size))
        else:
            dtype = param.tile.dtype
            kernarg += bytes(-len(kernarg) % dtype.bytes)
            kernarg += np.asarray(arg, dtype.numpy).tobytes()
    kernarg += bytes(-len(kernarg) % 8)
    program.run(grid, (kernel.num_waves * arch_row(arch).wave_size, 1, 1), bytes(kernarg), buffers, check=checking)


def poison(shape: Sequence[int], dtype: DType, *, value: float = np.nan) -> np.ndarray:
    """An array full of NaN (or of a telling integer)."""
    return np.full(tuple(shape), value if dtype.is_float else 0x5A if dtype.is_integer else True, dtype.numpy)


def same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where two arrays are equal bit for bit, any NaN equalling any NaN."""
    raw = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.itemsize]
    bits = np.ascontiguousarray(x).view(raw) == np.ascontiguousarray(y).view(raw)
    return bits | ((x != x) & (y != y)) if x.dtype.kind not in "biu" else bits


def check(kernel: Kernel, grid: tuple[int, int, int], args: Sequence[Any], **options: Any) -> None:
    """The simulator's result is the reference's, bit for bit, for all arrays and for what lies around them in their base arrays."""

    def copy(arg: Any) -> Any:
        if not isinstance(arg, np.ndarray) or (arg.ndim == 0 and arg.base is None):
            return arg
        base = arg
        while isinstance(base.base, np.ndarray):
            base = base.base
        fresh = base.copy()
        start = arg.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return np.ndarray(arg.shape, arg.dtype, fresh.reshape(-1).view(np.uint8).data, start, arg.strides) if arg.size else arg.copy()

    expected, got = [copy(a) for a in args], [copy(a) for a in args]
    run_kernel(kernel, grid, expected)
    simulate(kernel, grid, got, **options)
    for index, (want, have) in enumerate(zip(expected, got, strict=True)):
        if isinstance(want, np.ndarray):
            whole_want = np.asarray(want.base) if want.base is not None and want.size else want
            whole_have = np.asarray(have.base) if have.base is not None and have.size else have
            equal = same(whole_want.view(), whole_have.view()) if whole_want.dtype == want.dtype else whole_want == whole_have
            if not np.all(equal):
                where = np.argwhere(~np.asarray(equal))[:4].tolist()
                raise AssertionError(f"argument {index} differs at {where} of {np.shape(equal)}: {want} != {have}")
