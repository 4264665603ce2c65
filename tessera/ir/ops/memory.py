"""Global memory and the program's place in the grid.

Offsets count elements and may lie anywhere: outside reads give `other`, outside writes are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import numerics
from ..core import IRError, Op, Program, Trait, Value, attr, operand, operands
from ..types import INDEX, ArrayType, NDArray, Tile, Type


def array_type(op: Op, array: Value) -> ArrayType:
    """The type of an operand that must be an array."""
    if not isinstance(array.type, ArrayType):
        raise IRError(f"{op.name}: takes an array, not {array.type}", op)
    return array.type


def _check_offsets(op: Op, array: Value, offsets: tuple[Value, ...], shape: tuple[int, ...]) -> ArrayType:
    type_ = array_type(op, array)
    if len(offsets) != type_.ndim or len(shape) != type_.ndim:
        raise IRError(f"{op.name}: an array of rank {type_.ndim} gets {len(offsets)} offsets and a tile of rank {len(shape)}", op)
    if any(o.type != INDEX for o in offsets):
        raise IRError(f"{op.name}: offsets are {INDEX} scalars", op)
    return type_


class ProgramId(Op, name="program_id", traits=Trait.PURE):
    """The program's index along a grid axis."""

    axis: int = attr()

    def infer(self) -> Sequence[Type]:
        if self.axis not in (0, 1, 2):
            raise IRError(f"program_id: a grid has axes 0, 1 and 2, not {self.axis}", self)
        return (INDEX,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.asarray(program.ids[self.axis], np.int64),)


class NumPrograms(Op, name="num_programs", traits=Trait.PURE):
    """The grid's extent along an axis."""

    axis: int = attr()

    def infer(self) -> Sequence[Type]:
        if self.axis not in (0, 1, 2):
            raise IRError(f"num_programs: a grid has axes 0, 1 and 2, not {self.axis}", self)
        return (INDEX,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.asarray(program.counts[self.axis], np.int64),)


class Extent(Op, name="extent", traits=Trait.PURE):
    """The number of elements of an array along an axis."""

    array: Value = operand()
    axis: int = attr()

    def infer(self) -> Sequence[Type]:
        if not 0 <= self.axis < array_type(self, self.array).ndim:
            raise IRError(f"extent: axis {self.axis} of {self.array.type}", self)
        return (INDEX,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.asarray(args[0].shape[self.axis], np.int64),)


class Stride(Op, name="stride", traits=Trait.PURE):
    """The distance in bytes between neighbours along an axis of an array."""

    array: Value = operand()
    axis: int = attr()

    def infer(self) -> Sequence[Type]:
        if not 0 <= self.axis < array_type(self, self.array).ndim:
            raise IRError(f"stride: axis {self.axis} of {self.array.type}", self)
        return (INDEX,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.asarray(args[0].strides[self.axis], np.int64),)


class Load(Op, name="load", traits=Trait.READS):
    """The tile of `shape` at `offsets` of an array; elements outside the array are the scalar `other`."""

    array: Value = operand()
    offsets: tuple[Value, ...] = operands()
    other: Value = operand()
    shape: tuple[int, ...] = attr()

    def infer(self) -> Sequence[Type]:
        type_ = _check_offsets(self, self.array, self.offsets, self.shape)
        if self.other.type != Tile((), type_.dtype):
            raise IRError(f"load: `other` is {self.other.type}, not a scalar {type_.dtype}", self)
        return (Tile(self.shape, type_.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        array, *offsets, other = args
        return (numerics.load_tile(array, tuple(map(int, offsets)), self.shape, other),)


class Store(Op, name="store", traits=Trait.WRITES):
    """Write a tile at `offsets` of an array of the same dtype."""

    array: Value = operand()
    offsets: tuple[Value, ...] = operands()
    source: Value = operand()

    def infer(self) -> Sequence[Type]:
        type_ = _check_offsets(self, self.array, self.offsets, self.source.tile.shape)
        if self.source.tile.dtype != type_.dtype:
            raise IRError(f"store: a tile of {self.source.tile.dtype} into an array of {type_.dtype}", self)
        return ()

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        array, *offsets, source = args
        numerics.store_tile(array, tuple(map(int, offsets)), source)
        return ()
