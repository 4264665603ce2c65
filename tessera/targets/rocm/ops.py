"""The ops of the ROCm level: layouts made explicit, matrix instructions, LDS and barriers.

At this level every tile value carries a `layout` (layout.Layout) in `Value.layout`; LDS values carry an `lds.LdsLayout`. Type rules and
meanings ignore layouts, so that the reference interpreter runs this level too: a pass that changes a result is caught by comparing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import numerics
from ...ir.core import IRError, Op, Program, Trait, Value, attr, operand, operands
from ...ir.types import LdsType, NDArray, Tile, Type


class ConvertLayout(Op, name="rocm.convert_layout", traits=Trait.PURE):
    """The same tile in another layout (that of the result)."""

    source: Value = operand()

    def infer(self) -> Sequence[Type]:
        return (self.source.tile,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (args[0],)


class _Matrix(Op):
    """`a @ b + acc` by repeated use of one matrix instruction; all three lie in that instruction's fragment layouts."""

    a: Value = operand()
    b: Value = operand()
    acc: Value = operand()
    instruction: str = attr()

    def infer(self) -> Sequence[Type]:
        a, b, acc = self.a.tile, self.b.tile, self.acc.tile
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or acc.shape != (a.shape[0], b.shape[1]):
            raise IRError(f"{self.name}: shapes {a.shape} @ {b.shape} + {acc.shape} do not fit", self)
        return (acc,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (numerics.matmul(args[0], args[1], args[2], self.acc.tile),)


class Wmma(_Matrix, name="rocm.wmma", traits=Trait.PURE):
    """By WMMA (RDNA). `instruction` is the mnemonic of a row of matrix.py."""


class LdsAlloc(Op, name="rocm.lds_alloc"):
    """A tile's worth of LDS, uninitialised. `offset` in bytes is set by allocation (-1 before). `purpose` says what for, in messages."""

    shape: tuple[int, ...] = attr()
    dtype: DType = attr()
    purpose: str = attr("")
    offset: int = attr(-1)

    def infer(self) -> Sequence[Type]:
        return (LdsType(self.shape, self.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        poison = np.nan if self.dtype.is_float else 77
        return (np.full(self.shape, poison, self.dtype.numpy),)


def _lds_type(op: Op, buffer: Value) -> LdsType:
    if not isinstance(buffer.type, LdsType):
        raise IRError(f"{op.name}: takes LDS, not {buffer.type}", op)
    return buffer.type


class LdsStore(Op, name="rocm.lds_store", traits=Trait.WRITES):
    """Write a tile into LDS at the constant element `offset`s."""

    buffer: Value = operand()
    source: Value = operand()
    offset: tuple[int, ...] = attr()

    def infer(self) -> Sequence[Type]:
        held, tile = _lds_type(self, self.buffer), self.source.tile
        if held.dtype != tile.dtype or any(o + n > e for o, n, e in zip(self.offset, tile.shape, held.shape, strict=True)):
            raise IRError(f"rocm.lds_store: {tile} at {self.offset} does not fit {held}", self)
        return ()

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        where = tuple(slice(o, o + n) for o, n in zip(self.offset, args[1].shape, strict=True))
        args[0][where] = args[1]
        return ()


class LdsLoad(Op, name="rocm.lds_load", traits=Trait.READS):
    """The tile of `shape` at the constant element `offset`s of LDS, in the result's layout."""

    buffer: Value = operand()
    offset: tuple[int, ...] = attr()
    shape: tuple[int, ...] = attr()

    def infer(self) -> Sequence[Type]:
        held = _lds_type(self, self.buffer)
        if any(o + n > e for o, n, e in zip(self.offset, self.shape, held.shape, strict=True)):
            raise IRError(f"rocm.lds_load: {self.shape} at {self.offset} does not fit {held}", self)
        return (Tile(self.shape, held.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        where = tuple(slice(o, o + n) for o, n in zip(self.offset, self.shape, strict=True))
        return (np.array(args[0][where]),)


class Barrier(Op, name="rocm.barrier", traits=Trait.BARRIER):
    """All waves of the workgroup meet; LDS accesses before it are complete. Global accesses stay in flight."""

    def infer(self) -> Sequence[Type]:
        return ()

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return ()


class MemoryFence(Op, name="rocm.memory_fence", traits=Trait.BARRIER):
    """All waves of the workgroup meet, and see each other's global stores made before it."""

    def infer(self) -> Sequence[Type]:
        return ()

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return ()


class ScheduleFence(Op, name="rocm.schedule_fence", traits=Trait.BARRIER):
    """LLVM's scheduler moves nothing across: it pins prefetching loads in front of the work that hides them."""

    held: tuple[Value, ...] = operands()

    def infer(self) -> Sequence[Type]:
        return ()

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return ()
