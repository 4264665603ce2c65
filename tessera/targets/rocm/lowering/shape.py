"""Ops that make or rearrange tiles within each thread: layouts do the moving, so these are bookkeeping of registers."""

from __future__ import annotations

from ....errors import CompilerBug
from ....ir.core import Op
from ....ir.ops.arith import Arange, Const
from ....ir.ops.shape import Broadcast, Reshape, Splat, Transpose
from ....llvmtext import Value, const, element, lanes, vector_const
from .. import layout as layouts
from ..layout import Layout, bit_groups, register_map
from .context import Context, lowers


def thread_part(cx: Context, layout: Layout, axis: int) -> tuple[Value, Value]:
    """What a thread adds to the coordinate along `axis`: the part of its lane, and the uniform part of its wave (both i32)."""

    def term(number: Value, weights: tuple[int, ...], count: int) -> Value:
        total = const("i32", 0)
        for shift, mask, factor in bit_groups(weights):
            bits = cx.f.lshr(number, shift)
            if (count - 1) >> shift > mask:  # more bits lie above
                bits = cx.f.and_(bits, mask)
            total = cx.f.add(total, cx.f.shl(bits, factor.bit_length() - 1))
        return total

    lanes, waves = layout.weights(layout.lanes, axis), layout.weights(layout.waves, axis)
    return (
        cx.cached(1, ("lane part", lanes), lambda: term(cx.lane, lanes, cx.arch.wave_size)) if any(lanes) else const("i32", 0),
        cx.once(("wave part", waves), lambda: term(cx.wave, waves, cx.num_waves)) if any(waves) else const("i32", 0),
    )


@lowers(Const)
def lower_const(cx: Context, op: Const) -> None:
    cx.set(op.result, const(cx.llvm_type(op.result), op.value))


@lowers(Splat)
def lower_splat(cx: Context, op: Splat) -> None:
    value = cx.get(op.source)
    cx.set(op.result, cx.f.splat(value, cx.registers(op.result)) if op.shape else value)


@lowers(Arange)
def lower_arange(cx: Context, op: Arange) -> None:
    f, layout, type_ = cx.f, op.result.layout, cx.llvm_type(op.result)
    lane, wave = thread_part(cx, layout, 0)
    first = f.cast("trunc" if op.type.dtype.bits < 32 else "zext", f.add(lane, wave), element(type_))
    steps = vector_const(element(type_), [offset[0] for offset in layout.register_offsets])
    cx.set(op.result, f.add(f.splat(first, lanes(type_)), steps))


def _lies(op: Op, want: Layout | None, found: Layout) -> None:
    if want != found:
        raise CompilerBug(f"{op.name}: the result lies in {found}, its operand's elements in {want}", op.location)


@lowers(Broadcast)
def lower_broadcast(cx: Context, op: Broadcast) -> None:
    value = cx.get(op.source)
    if not op.shape:
        cx.set(op.result, value)
        return
    taken = register_map(op.source.layout, op.result.layout)
    if taken is None:
        raise CompilerBug(f"broadcast: {op.source.layout} does not stretch to {op.result.layout}", op.location)
    cx.set(op.result, cx.f.shuffle(value, None, taken))


@lowers(Transpose)
def lower_transpose(cx: Context, op: Transpose) -> None:
    value = cx.get(op.source)
    if op.order:
        _lies(op, layouts.transpose(op.source.layout, op.order), op.result.layout)
        value = cx.f.shuffle(value, None, layouts.transpose_registers(op.source.layout, op.order))
    cx.set(op.result, value)


@lowers(Reshape)
def lower_reshape(cx: Context, op: Reshape) -> None:
    value = cx.get(op.source)
    if op.source.tile.shape and op.shape:
        _lies(op, layouts.reshape(op.source.layout, op.shape), op.result.layout)
    elif op.source.tile.shape:  # a tile of one element, which every thread holds
        value = cx.uniform(cx.f.extract(value, 0))
    elif op.shape:
        value = cx.f.splat(value, cx.registers(op.result))
    cx.set(op.result, value)
