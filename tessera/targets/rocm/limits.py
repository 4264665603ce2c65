"""Refuse tiles that no register file can hold, before LLVM spends minutes on spilling them.

A thread has `arch.addressable_vgprs` registers. A tile of up to twice that many still compiles (LLVM keeps a part in scratch memory, and a
warning says so); beyond, compile time explodes and the kernel would crawl.
"""

from __future__ import annotations

from ...errors import ResourceError
from ...ir.core import Kernel, Op, Value
from ...ir.types import Tile
from .arch import Arch

SPILLED = 2
"""Register files' worth of one tile that are still compiled."""


def limits(kernel: Kernel, arch: Arch) -> None:
    """Raises ResourceError at the line of the first tile that takes too many registers, with what would fit."""
    for op in kernel.body.walk():
        for value in op.results:
            if isinstance(value.type, Tile) and value.layout is not None:
                _check(kernel, arch, op, value, value.type)


def _check(kernel: Kernel, arch: Arch, op: Op, value: Value, tile: Tile) -> None:
    bits = 1 if tile.dtype.short == "bool" else max(tile.dtype.bits, 16)
    taken = int(value.layout.count) * bits // 32
    if taken <= SPILLED * arch.addressable_vgprs:
        return
    waves = kernel.num_waves
    while waves * 2 <= arch.max_waves and taken * kernel.num_waves > arch.addressable_vgprs * waves:
        waves *= 2
    fits = taken * kernel.num_waves <= arch.addressable_vgprs * waves
    shape = "x".join(map(str, tile.shape))
    larger = f", or give the kernel more waves: @ts.jit(num_waves={waves})" if fits else ""
    raise ResourceError(
        f"a tile of {shape} {tile.dtype.name} takes {taken:,} registers of each thread with num_waves={kernel.num_waves}; a thread on "
        f"{arch} has {arch.addressable_vgprs}. Make the tile smaller{larger}",
        op.location,
    )
