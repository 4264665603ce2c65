"""Ops that move elements without computing, and reductions along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import numerics
from ..core import IRError, Op, Program, Trait, Value, attr, operand
from ..types import NDArray, Tile, Type
from .arith import ANY, NUMERIC, require


class Splat(Op, name="splat", traits=Trait.PURE):
    """A tile whose every element is the scalar `source`."""

    source: Value = operand()
    shape: tuple[int, ...] = attr()

    def infer(self) -> Sequence[Type]:
        if not self.source.tile.is_scalar:
            raise IRError(f"splat: takes a scalar, not {self.source.type}", self)
        return (Tile(self.shape, self.source.tile.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.broadcast_to(args[0], self.shape),)


class Broadcast(Op, name="broadcast", traits=Trait.PURE):
    """Repeat axes of extent 1; the rank stays."""

    source: Value = operand()
    shape: tuple[int, ...] = attr()

    def infer(self) -> Sequence[Type]:
        old = self.source.tile
        if len(old.shape) != len(self.shape) or any(a not in (1, b) for a, b in zip(old.shape, self.shape, strict=False)):
            raise IRError(f"broadcast: {old.shape} does not stretch to {self.shape}", self)
        return (Tile(self.shape, old.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.broadcast_to(args[0], self.shape),)


class Reshape(Op, name="reshape", traits=Trait.PURE):
    """The same elements in row-major order under another shape (also adds and drops axes of extent 1)."""

    source: Value = operand()
    shape: tuple[int, ...] = attr()

    def infer(self) -> Sequence[Type]:
        old = self.source.tile
        if math.prod(self.shape) != old.size:
            raise IRError(f"reshape: {old.shape} has {old.size} elements, {self.shape} has {math.prod(self.shape)}", self)
        return (Tile(self.shape, old.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.reshape(args[0], self.shape),)


class Transpose(Op, name="transpose", traits=Trait.PURE):
    """Axis i of the result is axis `order[i]` of the operand."""

    source: Value = operand()
    order: tuple[int, ...] = attr()

    def infer(self) -> Sequence[Type]:
        old = self.source.tile
        if sorted(self.order) != list(range(len(old.shape))):
            raise IRError(f"transpose: {self.order} is not a permutation of the axes of {old.shape}", self)
        return (Tile(tuple(old.shape[i] for i in self.order), old.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.transpose(args[0], self.order),)


class Reduce(Op):
    """A reduction along `axis`, which disappears."""

    source: Value = operand()
    axis: int = attr()

    def infer(self) -> Sequence[Type]:
        tile = require(self, self.source.tile, *ANY)
        if not 0 <= self.axis < len(tile.shape):
            raise IRError(f"{self.name}: axis {self.axis} is outside a tile of rank {len(tile.shape)}", self)
        return (Tile(tile.shape[: self.axis] + tile.shape[self.axis + 1 :], tile.dtype),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        with numerics.quiet():
            return (np.asarray(self.apply(args[0])).astype(args[0].dtype),)

    def apply(self, x: NDArray) -> Any:
        raise NotImplementedError


class Sum(Reduce, name="sum", traits=Trait.PURE):
    """The sum, in the operand's dtype: integers wrap; float16 and bfloat16 accumulate in float32 and round once."""

    def infer(self) -> Sequence[Type]:
        require(self, self.source.tile, *NUMERIC)
        return super().infer()

    def apply(self, x: NDArray) -> Any:
        wide = self.source.tile.dtype.is_float
        return np.sum(x.astype(np.float64) if wide else x, axis=self.axis, dtype=np.float64 if wide else x.dtype)


class Max(Reduce, name="max", traits=Trait.PURE):
    """The largest element; NaN if any is."""

    def apply(self, x: NDArray) -> Any:
        return _fold(numerics.maximum, x, self.axis)


class Min(Reduce, name="min", traits=Trait.PURE):
    """The smallest element; NaN if any is."""

    def apply(self, x: NDArray) -> Any:
        return _fold(numerics.minimum, x, self.axis)


def _fold(combine: Any, x: NDArray, axis: int) -> NDArray:
    while x.shape[axis] > 1:
        half = x.shape[axis] // 2
        low, high, rest = (np.take(x, range(a, b), axis) for a, b in ((0, half), (half, 2 * half), (2 * half, x.shape[axis])))
        x = np.concatenate([combine(low, high), rest], axis)
    return np.squeeze(x, axis)
