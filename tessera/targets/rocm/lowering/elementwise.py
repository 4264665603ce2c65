"""Elementwise arithmetic, comparisons and selection on whole tiles (or scalars), with the meanings of `ir/numerics.py`.

float16 is computed natively where one rounding of the exact result is what the hardware gives, else in float32 (which has more than twice
its digits and two, so that rounding twice is rounding once); bfloat16 always in float32. No operation carries fast-math flags, so that
LLVM neither fuses nor reorders, unless contraction was asked for.
"""

from __future__ import annotations

from ....dtypes import DType, Kind
from ....ir.ops import arith
from ....llvmtext import Value, bits, const, element, like
from .context import Context, lowers
from .convert_dtype import unfused
from .floatmod import float_divmod
from .integer import floor_divide, remainder
from .parts import in_parts


def widen(cx: Context, x: Value) -> Value:
    """bfloat as float; anything else as it is."""
    return cx.f.cast("fpext", x, like(x.type, "float")) if element(x.type) == "bfloat" else x


def to_float(cx: Context, x: Value) -> Value:
    """half and bfloat as float; anything else as it is."""
    return cx.f.cast("fpext", x, like(x.type, "float")) if bits(element(x.type)) == 16 else x


def round_to(cx: Context, x: Value, type_: str) -> Value:
    """Back to `type_` after `widen` or `to_float`."""
    return cx.f.cast("fptrunc", x, type_) if x.type != type_ else x


# ---- one operand -------------------------------------------------------------------------------------------------------------


@lowers(arith.Neg)
def lower_neg(cx: Context, op: arith.Neg) -> None:
    x = cx.get(op.source)
    cx.set(op.result, cx.f.fneg(x) if op.source.tile.dtype.is_float else cx.f.sub(const(x.type, 0), x))


@lowers(arith.Abs)
def lower_abs(cx: Context, op: arith.Abs) -> None:
    x, dtype = cx.get(op.source), op.source.tile.dtype
    if dtype.is_float:
        x = cx.f.intrinsic("fabs", [x])
    elif dtype.is_signed:
        x = cx.f.intrinsic("abs", [x, const("i1", 0)])
    cx.set(op.result, x)


@lowers(arith.Not)
def lower_not(cx: Context, op: arith.Not) -> None:
    cx.set(op.result, cx.f.not_(cx.get(op.source)))


@lowers(arith.Floor, arith.Ceil)
def lower_round(cx: Context, op: arith.Floor | arith.Ceil) -> None:
    x = cx.get(op.source)
    cx.set(op.result, round_to(cx, cx.f.intrinsic(op.name, [widen(cx, x)]), x.type))


@lowers(arith.Sqrt)
def lower_sqrt(cx: Context, op: arith.Sqrt) -> None:
    x = cx.get(op.source)
    cx.set(op.result, round_to(cx, cx.f.intrinsic("sqrt", [to_float(cx, x)]), x.type))


# ---- two operands ------------------------------------------------------------------------------------------------------------

_ARITHMETIC: dict[type[arith.Binary], tuple[str, str]] = {
    arith.Add: ("add", "fadd"),
    arith.Sub: ("sub", "fsub"),
    arith.Mul: ("mul", "fmul"),
}


@lowers(*_ARITHMETIC)
def lower_arithmetic(cx: Context, op: arith.Binary) -> None:
    x, y = cx.get(op.lhs), cx.get(op.rhs)
    integer, floating = _ARITHMETIC[type(op)]
    if not op.lhs.tile.dtype.is_float:
        cx.set(op.result, cx.f.binary(integer, x, y))
        return
    flags = "contract" if cx.fp_contract else ""
    cx.set(op.result, round_to(cx, cx.f.binary(floating, widen(cx, x), widen(cx, y), flags), x.type))


@lowers(arith.Div)
def lower_div(cx: Context, op: arith.Div) -> None:
    x, y = cx.get(op.lhs), cx.get(op.rhs)
    quotient = cx.f.binary("fdiv", to_float(cx, x), to_float(cx, y))
    if element(x.type) == "half" and y.is_constant:  # by a constant, LLVM multiplies
        quotient = unfused(cx, quotient)
    cx.set(op.result, round_to(cx, quotient, x.type))


@lowers(arith.FloorDiv, arith.Mod)
def lower_floor_division(cx: Context, op: arith.FloorDiv | arith.Mod) -> None:
    dtype = op.lhs.tile.dtype
    wants_quotient = isinstance(op, arith.FloorDiv)

    def divide(cx: Context, x: Value, y: Value) -> Value:
        if dtype.is_float:
            return round_to(cx, float_divmod(cx, to_float(cx, x), to_float(cx, y), quotient=wants_quotient), x.type)
        return (floor_divide if wants_quotient else remainder)(cx, x, y, dtype.is_signed)

    cx.set(op.result, in_parts(cx, divide, cx.get(op.lhs), cx.get(op.rhs), count=2 if dtype.bits == 64 else 4))


@lowers(arith.Maximum, arith.Minimum)
def lower_extreme(cx: Context, op: arith.Maximum | arith.Minimum) -> None:
    cx.set(op.result, extreme(cx, cx.get(op.lhs), cx.get(op.rhs), op.lhs.tile.dtype, isinstance(op, arith.Maximum)))


def extreme(cx: Context, x: Value, y: Value, dtype: DType, largest: bool) -> Value:
    """The larger (or smaller) of two values: NaN wins, +0 is larger than -0, False is smaller than True."""
    if dtype.kind is Kind.BOOL:
        return cx.f.or_(x, y) if largest else cx.f.and_(x, y)
    if dtype.is_float:
        return round_to(cx, cx.f.intrinsic("maximum" if largest else "minimum", [widen(cx, x), widen(cx, y)]), x.type)
    return cx.f.intrinsic(f"{'s' if dtype.is_signed else 'u'}{'max' if largest else 'min'}", [x, y])


@lowers(arith.And, arith.Or, arith.Xor)
def lower_bits(cx: Context, op: arith.Binary) -> None:
    cx.set(op.result, cx.f.binary(op.name, cx.get(op.lhs), cx.get(op.rhs)))


@lowers(arith.Shl, arith.Shr)
def lower_shift(cx: Context, op: arith.Shl | arith.Shr) -> None:
    f, x, count = cx.f, cx.get(op.lhs), cx.get(op.rhs)
    width = bits(element(x.type))
    signed = isinstance(op, arith.Shr) and op.lhs.tile.dtype.is_signed
    if (known := count.splat_integer) is not None:
        known &= (1 << width) - 1
        if signed:
            result = f.ashr(x, min(known, width - 1))
        elif known >= width:
            result = const(x.type, 0)
        else:
            result = f.shl(x, known) if isinstance(op, arith.Shl) else f.lshr(x, known)
    elif signed:
        result = f.ashr(x, f.intrinsic("umin", [count, const(x.type, width - 1)]))
    else:
        inside = f.icmp("ult", count, width)
        masked = f.and_(count, width - 1)
        shifted = f.shl(x, masked) if isinstance(op, arith.Shl) else f.lshr(x, masked)
        result = f.select(inside, shifted, const(x.type, 0))
    cx.set(op.result, result)


# ---- comparisons and choice --------------------------------------------------------------------------------------------------

_PREDICATES: dict[type[arith.Compare], tuple[str, str, str]] = {  # signed, unsigned, float
    arith.Equal: ("eq", "eq", "oeq"),
    arith.NotEqual: ("ne", "ne", "une"),
    arith.Less: ("slt", "ult", "olt"),
    arith.LessEqual: ("sle", "ule", "ole"),
    arith.Greater: ("sgt", "ugt", "ogt"),
    arith.GreaterEqual: ("sge", "uge", "oge"),
}


@lowers(*_PREDICATES)
def lower_compare(cx: Context, op: arith.Compare) -> None:
    x, y, dtype = cx.get(op.lhs), cx.get(op.rhs), op.lhs.tile.dtype
    signed, unsigned, floating = _PREDICATES[type(op)]
    if dtype.is_float:
        cx.set(op.result, cx.f.fcmp(floating, widen(cx, x), widen(cx, y)))
    else:
        cx.set(op.result, cx.f.icmp(signed if dtype.is_signed else unsigned, x, y))


@lowers(arith.Select)
def lower_select(cx: Context, op: arith.Select) -> None:
    cx.set(op.result, cx.f.select(cx.get(op.cond), cx.get(op.then), cx.get(op.orelse)))
