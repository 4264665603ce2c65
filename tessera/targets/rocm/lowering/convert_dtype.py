"""Casts between dtypes, by the rules of `ir/numerics.cast_array`."""

from __future__ import annotations

from ....dtypes import DType, Kind
from ....ir.ops.arith import Cast
from ....llvmtext import Value, const, element, like
from .context import Context, lowers


@lowers(Cast)
def lower_cast(cx: Context, op: Cast) -> None:
    cx.set(op.result, convert(cx, cx.get(op.source), op.source.tile.dtype, op.to))


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
        return narrow(cx, _from_integer(cx, x, signed, middle), target) if middle != target else _from_integer(cx, x, signed, target)
    if source.is_float:
        return _saturate(cx, x, source, to, target)
    if to.bits > source.bits or source.kind is Kind.BOOL:
        return f.cast("sext" if source.kind is Kind.INT else "zext", x, target)
    return f.cast("trunc", x, target) if to.bits < source.bits else x


def narrow(cx: Context, x: Value, target: str) -> Value:
    """A narrower float, rounded to nearest even.

    Of a product of floats and its conversion to half, LLVM would make one v_fma_mixlo_f16 with an addend of +0, which turns -0 into +0. The
    fence, which is no instruction, keeps them apart.
    """
    if element(target) == "half" and element(x.type) == "float":
        x = cx.f.intrinsic("arithmetic.fence", [x])
    return cx.f.cast("fptrunc", x, target)


def _from_integer(cx: Context, x: Value, signed: bool, target: str) -> Value:
    if x.integer is not None:
        known = x.integer if signed or x.type == "i1" else x.integer & ((1 << int(x.type[1:])) - 1)
        if abs(known) < 1 << 24:  # exact in every type that comes here
            return const(target, float(known))
    return cx.f.cast("sitofp" if signed else "uitofp", x, target)


def _resize_float(cx: Context, x: Value, source: DType, to: DType, target: str) -> Value:
    if (source.bits == 16 and to.bits == 16) or (source.bits == 64 and to.short == "bf16"):
        single = like(x.type, "float")
        x = cx.f.cast("fpext", x, single) if source.bits == 16 else narrow(cx, x, single)
        return narrow(cx, x, target)
    return cx.f.cast("fpext", x, target) if to.bits > source.bits else narrow(cx, x, target)


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
