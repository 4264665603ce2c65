"""What is known of integer scalars when a kernel is compiled: their range, and a power of two that divides them.

Vector widths follow from divisors, 32-bit arithmetic and the absence of checks from ranges. Both are conservative: unknown means any value
of the dtype, and a divisor of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dtypes import DType
from ....ir.core import Op
from ....ir.core import Value as IRValue
from ....ir.ops import arith
from ....ir.ops.control import For
from ....ir.ops.memory import Extent, NumPrograms, ProgramId
from ....ir.types import ArrayType
from ....llvmtext import Value, const
from .context import Context

Range = tuple[int, int]

_LARGEST = 1 << 20  # no use is made of a divisor beyond


def full_range(dtype: DType) -> Range:
    """All values of an integer dtype."""
    if not dtype.is_integer:
        return 0, 1
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)


# ---- divisors ----------------------------------------------------------------------------------------------------------------


def divisor(cx: Context, value: IRValue) -> int:
    """A power of two that divides an integer scalar, at most 2**20."""
    key = ("divisor", value)
    if key not in cx.facts:
        cx.facts[key] = 1  # what a value that depends on itself gets
        cx.facts[key] = _divisor(cx, value)
    return int(cx.facts[key])


def _divisor(cx: Context, value: IRValue) -> int:
    def of(v: IRValue) -> int:
        return divisor(cx, v)

    match value.owner:
        case arith.Const(value=number):
            whole = int(number)
            return min(whole & -whole, _LARGEST) if whole else _LARGEST
        case arith.Mul() as op:
            return min(of(op.lhs) * of(op.rhs), _LARGEST)
        case arith.Add() | arith.Sub() | arith.Maximum() | arith.Minimum() as op:
            return min(of(op.lhs), of(op.rhs))
        case arith.Select() as op:
            return min(of(op.then), of(op.orelse))
        case arith.Shl(rhs=IRValue(owner=arith.Const(value=count))) as op if 0 <= count < 64:
            return min(of(op.lhs) << int(count), _LARGEST)
        case arith.Cast() as op if op.source.tile.dtype.is_integer:
            return min(of(op.source), 1 << op.to.bits - 1)
        case _:
            loop = cx.counters.get(value)
            return min(of(loop.start), of(loop.step)) if loop is not None else 1


# ---- ranges ------------------------------------------------------------------------------------------------------------------


def value_range(cx: Context, value: IRValue) -> Range:
    """Bounds (both inclusive) of an integer scalar."""
    key = ("range", value)
    if key not in cx.facts:
        limits = full_range(value.tile.dtype)
        cx.facts[key] = limits
        low, high = _range(cx, value)
        cx.facts[key] = (low, high) if limits[0] <= low and high <= limits[1] else limits  # beyond, it wraps
    return cx.facts[key]


def _corners(apply: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    def both(x: Range, y: Range) -> Range:
        found = [apply(a, b) for a in x for b in y]
        return min(found), max(found)

    return both


_RANGES: dict[type[Op], Callable[[Range, Range], Range]] = {
    arith.Add: _corners(int.__add__),
    arith.Sub: _corners(int.__sub__),
    arith.Mul: _corners(int.__mul__),
    arith.Maximum: lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    arith.Minimum: lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
}


def _range(cx: Context, value: IRValue) -> Range:
    op: Any = value.owner
    anything = full_range(value.tile.dtype)

    def of(v: IRValue) -> Range:
        return value_range(cx, v)

    match op:
        case arith.Const():
            return int(op.value), int(op.value)
        case ProgramId() | NumPrograms():
            # Limits of a launch: blocks times threads stay below 2**32 along x, y and z have at most 65,535 blocks.
            most = ((1 << 32) - 1) // (cx.num_waves * cx.arch.wave_size) if op.axis == 0 else 65_535
            return (0, most - 1) if isinstance(op, ProgramId) else (1, most)
        case Extent():
            small = isinstance(op.array.type, ArrayType) and op.array.type.small
            return 0, (1 << 31) - 1 if small else (1 << 63) - 1
        case arith.Add() | arith.Sub() | arith.Mul() | arith.Maximum() | arith.Minimum():
            return _RANGES[type(op)](of(op.lhs), of(op.rhs))
        case arith.FloorDiv():
            divided, by = of(op.lhs), of(op.rhs)
            return _corners(int.__floordiv__)(divided, by) if by[0] > 0 else anything
        case arith.Mod():
            by = of(op.rhs)
            return (0, min(by[1] - 1, of(op.lhs)[1]) if of(op.lhs)[0] >= 0 else by[1] - 1) if by[0] > 0 else anything
        case arith.Select():
            then, orelse = of(op.then), of(op.orelse)
            return min(then[0], orelse[0]), max(then[1], orelse[1])
        case arith.Cast() if op.source.tile.dtype.is_integer:
            return of(op.source)
        case _:
            loop = cx.counters.get(value)
            return _counter_range(of, loop) if loop is not None else anything


def _counter_range(of: Callable[[IRValue], Range], loop: For) -> Range:
    start, stop, step = of(loop.start), of(loop.stop), of(loop.step)
    if step[0] > 0:
        return start[0], max(start[0], stop[1] - 1)
    if step[1] < 0:
        return min(start[1], stop[0] + 1), start[1]
    return full_range(loop.start.tile.dtype)


# ---- offsets in 32 bits ------------------------------------------------------------------------------------------------------


def low_half(cx: Context, value: IRValue) -> Value:
    """The lower 32 bits of an i64 scalar, computed in 32 bits as far as may be; built where the scalar is known."""
    f, owner = cx.f, value.owner

    def build() -> Value:
        match owner:
            case arith.Add() | arith.Sub() | arith.Mul():
                return f.binary(owner.name, low_half(cx, owner.lhs), low_half(cx, owner.rhs))
            case arith.Cast() if owner.source.tile.dtype.bits == 32 and owner.source.tile.dtype.is_integer:
                return cx.get(owner.source)
            case _:
                short = cx.short_counters.get(value)
                return short if short is not None else f.cast("trunc", cx.get(value), "i32")

    return cx.cached(cx.depth(value), ("low half", value), build)


def narrow(cx: Context, value: IRValue) -> Value:
    """An i64 offset as i32, built where the offset is known.

    One that doesn't fit becomes a number that, with a tile's extent added, isn't inside any array below 2**31 elements: the largest where
    the offset is known not to be negative, the lowest otherwise.
    """

    def build() -> Value:
        f, low, high = cx.f, *value_range(cx, value)
        short = low_half(cx, value)
        if low >= -(1 << 31) and high < 1 << 31:
            return short
        largest = const("i32", (1 << 31) - 1)
        if low >= 0 and high < 1 << 32:
            return f.intrinsic("umin", [short, largest])
        # The upper 33 bits are all 0 or all 1: compared for equality, which scalar instructions can do in 64 bits.
        wide = cx.get(value)
        same = f.icmp("eq", f.cast("sext", short, "i64"), wide) if low < 0 else f.icmp("eq", f.lshr(wide, 31), 0)
        return f.select(same, short, largest if low >= 0 else const("i32", -(1 << 31)))

    return cx.cached(cx.depth(value), ("narrow", value), build)
