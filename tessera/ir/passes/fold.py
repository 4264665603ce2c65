"""Folding: constants are computed, neutral operations vanish, and what is the same for every element is computed once, as a scalar.

Contract: only PURE ops are replaced; floats fold by the same NumPy functions that define the ops, and no identity is used that does not
hold for NaN, infinities and signed zeros.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ...errors import at
from ..core import Block, Kernel, Op, Program, Trait, Value, replace_uses
from ..ops.arith import Add, Cast, Const, FloorDiv, Mul, Select, Shl, Shr, Sub
from ..ops.control import If
from ..ops.shape import Broadcast, Reshape, Splat, Transpose
from ..types import NDArray, Tile


@dataclass
class _Folder:
    """`known` maps values to what replaces them; `before` collects ops to be inserted ahead of the one at hand."""

    known: dict[Value, Value] = field(default_factory=dict[Value, Value])
    before: list[Op] = field(default_factory=list[Op])

    def make(self, op: Op) -> Value:
        self.before.append(op)
        return op.result

    def constant(self, tile: Tile, array: NDArray) -> Value:
        scalar = _first(array)
        value = float(scalar) if tile.dtype.is_float else bool(scalar) if tile.dtype.short == "bool" else int(scalar)
        return self.make(Const(type=tile, value=value))

    def block(self, block: Block) -> None:
        ops, block.ops = block.ops, []
        for op in ops:
            op.replace_operands(self.known)
            with at(op.location):
                inlined = self.branch(op)
                if inlined is not None:
                    block.ops += inlined
                    continue
                for nested in op.blocks:
                    self.block(nested)
                new = self.simplify(op) if op.has(Trait.PURE) else None
            block.ops += self.before
            self.before = []
            if new is None:
                block.ops.append(op)
            else:
                self.known[op.result] = new

    def branch(self, op: Op) -> list[Op] | None:
        """The ops that replace an `if` whose condition is known."""
        if not isinstance(op, If) or not isinstance(op.cond.owner, Const):
            return None
        taken = op.then if op.cond.owner.value else op.orelse
        self.block(taken)
        self.known.update(zip(op.results, taken.terminator.operands, strict=True))
        return taken.ops[:-1]

    def simplify(self, op: Op) -> Value | None:
        """The value that can stand for the result of a pure op, or None."""
        if op.has(Trait.ELEMENTWISE):
            return self.elementwise(op) or _identity(op)
        match op:
            case Splat(source=Value(owner=Const() as const)):
                return self.make(Const(type=op.result.tile, value=const.value))
            case Splat(shape=()):
                return op.source
            case Broadcast() | Reshape() | Transpose():
                return self.rearranged(op)
            case _:
                return None

    def rearranged(self, op: Broadcast | Reshape | Transpose) -> Value | None:
        shape, source = op.result.tile.shape, op.source
        match source.owner:
            case Const() as const:
                return self.make(Const(type=op.result.tile, value=const.value))
            case Splat(source=scalar):
                return self.make(Splat(scalar, shape=shape)) if shape else scalar
            case Reshape(source=inner) if isinstance(op, Reshape):
                return inner if inner.tile.shape == shape else self.make(Reshape(inner, shape=shape))
            case Transpose(source=inner, order=first) if isinstance(op, Transpose):
                order = tuple(first[i] for i in op.order)
                return inner if order == tuple(range(len(order))) else self.make(Transpose(inner, order=order))
            case _:
                pass
        if isinstance(op, Transpose):
            return source if op.order == tuple(range(len(op.order))) else None
        return source if source.tile.shape == shape else None

    def elementwise(self, op: Op) -> Value | None:
        """A constant, or the splat of a scalar op, where all operands are constants or splats."""
        owners = [v.owner for v in op.operands]
        tile = op.result.tile
        if all(isinstance(o, Const) for o in owners):
            args = [_first(o.evaluate((), _NOTHING)[0]) for o in owners if isinstance(o, Const)]
            return self.constant(tile, np.asarray(op.evaluate(args, _NOTHING)[0]))
        if tile.shape and all(isinstance(o, (Const, Splat)) for o in owners):
            scalars = [
                o.source if isinstance(o, Splat) else self.make(Const(type=Tile((), v.tile.dtype), value=cast(Const, o).value))
                for o, v in zip(owners, op.operands, strict=True)
            ]
            scalar = copy.copy(op)
            scalar.replace_operands(dict(zip(op.operands, scalars, strict=True)))
            scalar.__post_init__()
            return self.make(Splat(self.make(scalar), shape=tile.shape))
        return None


_NOTHING = cast(Program, None)  # constants and elementwise ops never ask for the program


def _first(array: NDArray) -> Any:
    """The first element, as an array of rank 0."""
    return np.asarray(cast(Any, array).flat[0])


def _constant(value: Value) -> Any:
    return value.owner.value if isinstance(value.owner, Const) else None


def _identity(op: Op) -> Value | None:
    """An operand that equals the result, by rules that hold for every value of the dtype."""
    match op:
        case Cast(source=source, to=to):
            if source.tile.dtype == to:
                return source
            # Widening an integer and narrowing it again gives it back.
            if isinstance(source.owner, Cast) and source.owner.source.tile.dtype == to and to.is_integer:
                middle = source.tile.dtype
                if middle.is_integer and middle.bits > to.bits:
                    return source.owner.source
            return None
        case Select(then=then, orelse=orelse):
            known = _constant(op.cond)
            return then if then is orelse or known else orelse if known is not None else None
        case Add() | Sub() | Mul() | FloorDiv() | Shl() | Shr() if op.lhs.tile.dtype.is_integer:
            neutral = 1 if isinstance(op, (Mul, FloorDiv)) else 0
            if _constant(op.rhs) == neutral:
                return op.lhs
            if isinstance(op, (Add, Mul)) and _constant(op.lhs) == neutral:
                return op.rhs
            if isinstance(op, Mul):
                return next((v for v in (op.lhs, op.rhs) if _constant(v) == 0), None)
            return None
        case _:
            return None


def fold(kernel: Kernel) -> None:
    """Fold a kernel in place."""
    folder = _Folder()
    folder.block(kernel.body)
    replace_uses(kernel.body, folder.known)
