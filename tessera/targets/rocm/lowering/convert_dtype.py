"""Casts between dtypes, by the rules of `ir/numerics.cast_array`."""

from __future__ import annotations

from ....dtypes import DType, Kind
from ....ir import core
from ....ir.ops.arith import Cast, Div, Mul, Neg, Select
from ....ir.ops.control import For, If, While
from ....ir.ops.shape import Broadcast, Reshape, Splat, Transpose
from ....llvmtext import Value, const, like
from ..ops import ConvertLayout
from .context import Context, lowers

_MOVES = (Neg, Select, Splat, Broadcast, Reshape, Transpose, ConvertLayout)


@lowers(Cast)
def lower_cast(cx: Context, op: Cast) -> None:
    x, source = cx.get(op.source), op.source.tile.dtype
    if (source.short, op.to.short) == ("f32", "f16") and may_be_product(op.source):
        x = unfused(cx, x)
    cx.set(op.result, convert(cx, x, source, op.to))


def unfused(cx: Context, x: Value) -> Value:
    """A float32 product that is to be rounded to float16.

    LLVM would select v_fma_mixlo_f16 with an addend of +0 for both at once, which turns -0 into +0. A product is canonical already, so that
    asking for that costs nothing and hides it.
    """
    return cx.f.intrinsic("canonicalize", [x])


def may_be_product(value: core.Value, seen: frozenset[core.Value] = frozenset()) -> bool:
    """Whether LLVM may see a multiplication where this value comes from. Quotients by constants are among them."""
    owner = value.owner
    if value in seen:
        return False
    if not isinstance(owner, core.Op):
        return True  # of a block: the trip before is not known here
    seen |= {value}
    if isinstance(owner, _MOVES):
        return any(may_be_product(each, seen) for each in owner.operands)
    if isinstance(owner, (For, If, While)):
        at = owner.results.index(value)
        blocks = (owner.then, owner.orelse) if isinstance(owner, If) else (owner.body,)
        sources = [block.terminator.operands[at] for block in blocks]
        if not isinstance(owner, If):
            sources.append(owner.init[at])
        return any(may_be_product(each, seen) for each in sources)
    return isinstance(owner, (Mul, Div))


def convert(cx: Context, x: Value, source: DType, to: DType) -> Value:
    """`x`, a scalar or the registers of a tile, as another dtype."""
    f = cx.f
    if source == to:
        return x
    target = like(x.type, to.llvm)
    if to.kind is Kind.BOOL:
        return f.fcmp("une", x, const(x.type, 0.0)) if source.is_float else f.icmp("ne", x, 0)
    if to.is_float:
        if source.is_float:
            return _resize_float(cx, x, source, to, target)
        middle = like(x.type, "float") if to.bits == 16 else target  # 16-bit floats are reached by way of float32
        signed = source.kind is Kind.INT
        return f.cast("fptrunc", _from_integer(cx, x, signed, middle), target) if middle != target else _from_integer(cx, x, signed, target)
    if source.is_float:
        return _saturate(cx, x, source, to, target)
    if to.bits > source.bits or source.kind is Kind.BOOL:
        return f.cast("sext" if source.kind is Kind.INT else "zext", x, target)
    return f.cast("trunc", x, target) if to.bits < source.bits else x


def _from_integer(cx: Context, x: Value, signed: bool, target: str) -> Value:
    if x.integer is not None:
        known = x.integer if signed or x.type == "i1" else x.integer & ((1 << int(x.type[1:])) - 1)
        if abs(known) < 1 << 24:  # exact in every type that comes here
            return const(target, float(known))
    return cx.f.cast("sitofp" if signed else "uitofp", x, target)


def _resize_float(cx: Context, x: Value, source: DType, to: DType, target: str) -> Value:
    f = cx.f
    if (source.bits == 16 and to.bits == 16) or (source.bits == 64 and to.short == "bf16"):
        x = f.cast("fpext" if source.bits == 16 else "fptrunc", x, like(x.type, "float"))
        return f.cast("fptrunc", x, target)
    return f.cast("fpext" if to.bits > source.bits else "fptrunc", x, target)


def _saturate(cx: Context, x: Value, source: DType, to: DType, target: str) -> Value:
    """Toward zero; out of range is the nearest end of the range, NaN is 0."""
    f = cx.f
    if source.bits == 16:
        x = f.cast("fpext", x, like(x.type, "float"))
    wide = like(x.type, "i32") if to.bits < 32 else target
    signed = to.kind is Kind.INT
    whole = f.intrinsic("fptosi.sat" if signed else "fptoui.sat", [x], wide, [wide, x.type])
    if wide == target:
        return whole
    low, high = (-(1 << to.bits - 1), (1 << to.bits - 1) - 1) if signed else (0, (1 << to.bits) - 1)
    if signed:
        whole = f.intrinsic("smax", [whole, const(wide, low)])
    whole = f.intrinsic("smin" if signed else "umin", [whole, const(wide, high)])
    return f.cast("trunc", whole, target)
