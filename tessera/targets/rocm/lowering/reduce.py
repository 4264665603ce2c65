"""Reductions along an axis: first a thread's own registers as a tree, then the lanes of a wave that differ along the axis.

Lanes are reduced by exchanging with lane ^ 1, lane ^ 2, … : each step is symmetric, so that all lanes end with the same bits. Lanes that
hold copies of the same elements do not take part. Partial results of several waves have been brought together before (expand.py).

float16 and bfloat16 add up in float32 and are rounded once; integers of 8 bits are computed in 32, which wraps alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ....dtypes import DType, Kind
from ....errors import CompilerBug
from ....ir.ops.shape import Max, Min, Reduce, Sum
from ....llvmtext import Value, const, element, lanes, like, mangle, vector
from ..layout import Layout, slice_axis
from .context import Context, lowers
from .elementwise import extreme, round_to, to_float, widen
from .lanes import from_words, to_words, xor_lanes
from .lds_access import concatenate


@lowers(Sum, Max, Min)
def reduce(cx: Context, op: Reduce) -> None:
    """Reduce along an axis; a scalar result is uniform."""
    layout: Layout = op.source.layout
    if any(basis is not None and basis[0] == op.axis for basis in layout.waves):
        raise CompilerBug(f"{op.name} along axis {op.axis} of {layout} crosses waves")
    target = slice_axis(layout, op.axis)
    if op.result.tile.shape and op.result.layout != target:
        raise CompilerBug(f"{op.name} along axis {op.axis} of {layout} gives {target}, not {op.result.layout}")
    dtype = op.source.tile.dtype
    wide = _widen(cx, cx.get(op.source), dtype, isinstance(op, Sum))
    held, order = _in_thread(cx, op, wide, _groups(layout, op.axis))
    for b, basis in enumerate(layout.lanes):
        if basis is not None and basis[0] == op.axis:
            held = _combine(cx, op, held, _exchange(cx, held, 1 << b))
    held = _narrow(cx, cx.f.shuffle(held, None, order), dtype)
    cx.set(op.result, held if op.result.tile.shape else cx.uniform(cx.f.extract(held, 0)))


@cache
def _groups(layout: Layout, axis: int) -> tuple[tuple[int, ...], ...]:
    """For each register of the result, the registers that it is the sum of."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for register, point in enumerate(layout.register_offsets):
        groups.setdefault((*point[:axis], *point[axis + 1 :]), []).append(register)
    return tuple(tuple(groups[point]) for point in slice_axis(layout, axis).register_offsets)


def _in_thread(cx: Context, op: Reduce, value: Value, groups: Sequence[Sequence[int]]) -> tuple[Value, list[int]]:
    """Reduce each group of registers. Returns a vector with an element per group, and where in it each group's is.

    All groups have one size. In each step one half of every group is combined with the other, as two wide vectors in which the elements
    keep the order of the registers: halves are then often whole, and need no moves.
    """
    f = cx.f
    nan: Value | None = None
    left = [list(group) for group in groups]
    quick = op.source.tile.dtype.is_float and not isinstance(op, Sum) and len(left[0]) in (4, 8, 16, 32, 64, 128, 256)
    while len(left[0]) > 1:
        half = len(left[0]) // 2
        pairs = sorted((group[i], group[i + half], g) for g, group in enumerate(left) for i in range(half))
        odd = [(group[-1], g) for g, group in enumerate(left)] if len(left[0]) % 2 else []
        low, high = (f.shuffle(value, None, [pair[side] for pair in pairs]) for side in (0, 1))
        if quick:
            if nan is None:
                nan = f.fcmp("uno", low, high)
            else:
                nan = f.or_(*(f.shuffle(nan, None, [pair[side] for pair in pairs]) for side in (0, 1)))
            combined = _ordered_extreme(cx, low, high, isinstance(op, Max))
        else:
            combined = _combine(cx, op, low, high)
        left = [list[int]() for _ in groups]
        for place, (_, _, g) in enumerate(pairs):
            left[g].append(place)
        if odd:
            combined = concatenate(cx, [combined, f.shuffle(value, None, [register for register, _ in odd])])
            for place, (_, g) in enumerate(odd):
                left[g].append(len(pairs) + place)
        value = combined
    if nan is not None:
        value = f.select(nan, const(value.type, float("nan")), value)
    return value, [group[0] for group in left]


def _ordered_extreme(cx: Context, x: Value, y: Value, largest: bool) -> Value:
    """The larger (or smaller) of values that aren't NaN: one instruction, or half of a three-operand one. Any value where one is NaN."""
    name = f"llvm.{'maxnum' if largest else 'minnum'}.{mangle(x.type)}"
    cx.module.declare(name, x.type, [x.type, y.type])
    return cx.f.emit(x.type, f"call nnan {x.type} @{name}({x}, {y})")


def _combine(cx: Context, op: Reduce, x: Value, y: Value) -> Value:
    if isinstance(op, Sum):
        return cx.f.binary("fadd" if op.source.tile.dtype.is_float else "add", x, y)
    dtype = op.source.tile.dtype
    if dtype.kind is Kind.BOOL:
        return cx.f.or_(x, y) if isinstance(op, Max) else cx.f.and_(x, y)
    return extreme(cx, x, y, dtype, isinstance(op, Max))


def _exchange(cx: Context, value: Value, mask: int) -> Value:
    """The same registers of lane ^ mask."""
    return from_words(cx, [xor_lanes(cx, word, mask) for word in to_words(cx, value)], value.type)


def _widen(cx: Context, value: Value, dtype: DType, summed: bool) -> Value:
    """In the type that is computed in."""
    if dtype.is_float:
        return to_float(cx, value) if summed else widen(cx, value)
    if dtype.bits == 8:
        return cx.f.cast("sext" if dtype.is_signed else "zext", value, like(value.type, "i32"))
    return value


def _narrow(cx: Context, value: Value, dtype: DType) -> Value:
    type_ = vector(lanes(value.type), dtype.llvm)
    return (
        value if element(value.type) == dtype.llvm else round_to(cx, value, type_) if dtype.is_float else cx.f.cast("trunc", value, type_)
    )
