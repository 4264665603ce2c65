"""Exponentials, logarithms and reciprocal square roots. docs/accuracy.md has the bounds.

float32 uses the hardware's `v_exp_f32`, `v_log_f32` and `v_rsq_f32`, whose results are within 1 ulp (RDNA3 and CDNA3 ISA documents) but
which take subnormal numbers for zero: LLVM's expansions of `llvm.exp`, `exp2`, `log` and `log2` scale around them, and carry the product
with log2(e) or ln(2) in two parts. float16 and bfloat16 are computed in float32 and rounded once; there, one rounded product will do.

float64 has only coarse hardware functions and no expansion in LLVM, so that it is all here: the classic reductions (Tang, Table-driven
implementation of the exponential function, 1989; Cody and Waite, 1980; the logarithm as in Sun's fdlibm), with fused multiply-adds and
polynomials of our own. Theirs and all other error terms are in ulps of the result, the final rounding's 0.5 included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ....ir.ops import arith
from ....llvmtext import Value, const, element, like
from .context import Context, lowers
from .elementwise import round_to, to_float
from .parts import each, in_parts

LOG2_E = math.log2(math.e)
LN_2 = math.log(2.0)
SQRT_HALF = math.sqrt(0.5)
DOUBLES_AT_ONCE = 4  # 8 registers for each intermediate


@lowers(arith.Exp, arith.Exp2, arith.Log, arith.Log2, arith.Rsqrt)
def lower_function(cx: Context, op: arith.Unary) -> None:
    x = cx.get(op.source)
    scalar = element(x.type)
    if scalar == "double":
        result = in_parts(cx, _DOUBLE[type(op)], x, count=DOUBLES_AT_ONCE)
    elif scalar == "float":
        result = _rsqrt(cx, x) if isinstance(op, arith.Rsqrt) else cx.f.intrinsic(op.name, [x])
    else:
        result = round_to(cx, _NARROW[type(op)](cx, to_float(cx, x), scalar == "half"), x.type)
    cx.set(op.result, result)


def _rsqrt(cx: Context, x: Value) -> Value:
    """v_rsq_f32, with subnormals scaled by 2^24 and their results by 2^12."""
    f, one = cx.f, const(x.type, 1.0)
    small = f.fcmp("olt", x, const(x.type, 2.0**-126))
    root = each(cx, "amdgcn.rsq", f.binary("fmul", x, f.select(small, const(x.type, 2.0**24), one)))
    return f.binary("fmul", root, f.select(small, const(x.type, 2.0**12), one))


# ---- float16 (`half`) and bfloat16, as float32 -------------------------------------------------------------------------------
#
# The product x log2(e) is at most 2^7.1 where the result is neither 0 nor infinite, and wrong by 2^-23 of itself: the result is wrong
# by 2^-16.4 of itself, 0.003 ulp of bfloat16. The numbers of float16 are normal in float32.


def _exp2_narrow(cx: Context, x: Value, half: bool) -> Value:
    return cx.f.intrinsic("exp2", [x], flags="afn" if half else "")  # afn: what v_exp_f32 flushes is 0 in float16 too


def _exp_narrow(cx: Context, x: Value, half: bool) -> Value:
    return _exp2_narrow(cx, cx.f.binary("fmul", x, const(x.type, LOG2_E)), half)


def _log2_narrow(cx: Context, x: Value, half: bool) -> Value:
    return cx.f.intrinsic("log2", [x], flags="afn" if half else "")


def _log_narrow(cx: Context, x: Value, half: bool) -> Value:
    return cx.f.binary("fmul", _log2_narrow(cx, x, half), const(x.type, LN_2))


def _rsqrt_narrow(cx: Context, x: Value, half: bool) -> Value:
    return each(cx, "amdgcn.rsq", x) if half else _rsqrt(cx, x)


_NARROW: dict[type[arith.Unary], Callable[[Context, Value, bool], Value]] = {
    arith.Exp: _exp_narrow,
    arith.Exp2: _exp2_narrow,
    arith.Log: _log_narrow,
    arith.Log2: _log2_narrow,
    arith.Rsqrt: _rsqrt_narrow,
}

# ---- float64 -----------------------------------------------------------------------------------------------------------------

LN_2_HIGH, LN_2_LOW = float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")
"""ln(2) as a number of 42 bits, whose products with exponents are exact, and the rest."""

LN_2_REST = float.fromhex("0x1.abc9e3b39803fp-56")  # ln(2) - LN_2
LOG2_E_REST = float.fromhex("0x1.777d0ffda0d24p-56")  # log2(e) - LOG2_E

EXP = tuple(
    map(
        float.fromhex,
        (
            "0x1.af38a9b0ec855p-26", "0x1.289185613a3d6p-22", "0x1.71de0dae63bb3p-19", "0x1.a019b90d2ae7ap-16", "0x1.a01a01a7c41d5p-13",
            "0x1.6c16c1788bd90p-10", "0x1.11111111109b3p-7", "0x1.5555555553d63p-5", "0x1.5555555555556p-3", "0x1.0000000000001p-1",
        ),
    )
)  # fmt: skip
"""(exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2, highest power first: interpolated at Chebyshev's nodes, exp(r) within 2^-55.7 of itself."""

LOG = tuple(
    map(
        float.fromhex,
        (
            "0x1.2b5900de53b32p-3", "0x1.39fe51a7c18f9p-3", "0x1.7462b51cb66b1p-3", "0x1.c71c62e3f11e6p-3", "0x1.2492492df281ap-2",
            "0x1.99999999952d7p-2", "0x1.5555555555558p-1",
        ),
    )
)  # fmt: skip
"""(2 atanh(s) - 2 s) / s^3 as a polynomial in s^2 for s <= (sqrt(2) - 1) / (sqrt(2) + 1), made likewise: the logarithm within 2^-57.5."""


def _fma(cx: Context, x: Value, y: Value, z: Value) -> Value:
    return cx.f.intrinsic("fma", [x, y, z])


def _horner(cx: Context, x: Value, coefficients: Sequence[float]) -> Value:
    total = const(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        total = _fma(cx, total, x, const(x.type, coefficient))
    return total


def _nearest(cx: Context, x: Value, factor: float) -> tuple[Value, Value]:
    """The integer nearest to x * factor, as doubles and as i32: in the low bits of the sum with 1.5 2^52. Good below 2^31."""
    f, magic = cx.f, const(x.type, 1.5 * 2.0**52)
    shifted = _fma(cx, x, const(x.type, factor), magic)
    number = f.cast("trunc", f.bitcast(shifted, like(x.type, "i64")), like(x.type, "i32"))
    return f.binary("fsub", shifted, magic), number


def _exp_reduced(cx: Context, r: Value, number: Value) -> Value:
    """exp(r) 2^number. Wrong by the rounding of 1 + r (...) and, at most 0.35, of what is in the parentheses, besides that of r."""
    one = const(r.type, 1.0)
    total = _fma(cx, _fma(cx, _horner(cx, r, EXP), r, one), r, one)
    return cx.f.intrinsic("ldexp", [total, number], r.type, [r.type, number.type])


def _within(cx: Context, x: Value, result: Value, low: float, high: float) -> Value:
    """`result`, but infinity above `high` and 0 below `low`."""
    f = cx.f
    result = f.select(f.fcmp("ogt", x, const(x.type, high)), const(x.type, math.inf), result)
    return f.select(f.fcmp("olt", x, const(x.type, low)), const(x.type, 0.0), result)


def _exp(cx: Context, x: Value) -> Value:
    """x = k ln(2) + r. The high part's product and its difference from x are exact, r is within half its own ulp: 0.25. In all 1.2."""
    k, number = _nearest(cx, x, LOG2_E)
    r = _fma(cx, k, const(x.type, -LN_2_LOW), _fma(cx, k, const(x.type, -LN_2_HIGH), x))
    return _within(cx, x, _exp_reduced(cx, r, number), -746.0, 710.0)


def _exp2(cx: Context, x: Value) -> Value:
    """x = k + r / ln(2), where x - k is exact and r within half its own ulp."""
    k, number = _nearest(cx, x, 1.0)
    part = cx.f.binary("fsub", x, k)
    r = _fma(cx, part, const(x.type, LN_2), cx.f.binary("fmul", part, const(x.type, LN_2_REST)))
    return _within(cx, x, _exp_reduced(cx, r, number), -1076.0, 1024.0)


def _log_reduced(cx: Context, x: Value) -> tuple[Value, Value, Value, Value]:
    """k (as a double), f, h and t, where x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f) = f - (h - t).

    h = f^2 / 2 and t = s (h + s^2 LOG(s^2)), s = f / (2 + f): fdlibm's way of keeping the large terms exact. t is within 2^-57: s may be an
    ulp or two off, so that two steps of Newton from v_rcp_f64, which has at least 23 bits, take the place of a division.
    """
    f, one = cx.f, const(x.type, 1.0)
    mantissa, exponent = each(cx, "amdgcn.frexp.mant", x), each(cx, "amdgcn.frexp.exp", x, "i32", ["i32", "double"])
    low = f.fcmp("olt", mantissa, const(x.type, SQRT_HALF))
    mantissa = f.binary("fmul", mantissa, f.select(low, const(x.type, 2.0), one))
    exponent = f.sub(exponent, f.cast("zext", low, exponent.type))
    part = f.binary("fsub", mantissa, one)
    divisor = f.binary("fadd", part, const(x.type, 2.0))
    negative, inverse = f.fneg(divisor), each(cx, "amdgcn.rcp", divisor)
    inverse = _fma(cx, _fma(cx, negative, inverse, one), inverse, inverse)
    s = f.binary("fmul", part, inverse)
    s = _fma(cx, _fma(cx, negative, s, part), inverse, s)
    square = f.binary("fmul", s, s)
    half = f.binary("fmul", part, f.binary("fmul", part, const(x.type, 0.5)))
    rest = f.binary("fmul", s, _fma(cx, square, _horner(cx, square, LOG), half))
    return f.cast("sitofp", exponent, x.type), part, half, rest


def _log_special(cx: Context, x: Value, result: Value) -> Value:
    """-inf at ±0, NaN below and at NaN, infinity at infinity."""
    f = cx.f
    outside = f.select(f.fcmp("oeq", x, const(x.type, 0.0)), const(x.type, -math.inf), const(x.type, math.nan))
    result = f.select(f.fcmp("ogt", x, const(x.type, 0.0)), result, outside)
    return f.select(f.fcmp("oeq", x, const(x.type, math.inf)), x, result)


def _log(cx: Context, x: Value) -> Value:
    """fdlibm's sum, smallest terms first, below 1 ulp: k LN_2_HIGH is exact."""
    f = cx.f
    k, part, half, rest = _log_reduced(cx, x)
    small = f.binary("fsub", half, _fma(cx, k, const(x.type, LN_2_LOW), rest))
    return _log_special(cx, x, _fma(cx, k, const(x.type, LN_2_HIGH), f.binary("fsub", part, small)))


def _log2(cx: Context, x: Value) -> Value:
    """log(1 + f) as a sum of two doubles, times log2(e) as a sum of two doubles, plus k."""
    f = cx.f
    k, part, half, rest = _log_reduced(cx, x)
    high = f.binary("fsub", part, half)
    low = f.binary("fadd", f.binary("fsub", f.binary("fsub", part, high), half), rest)
    product = f.binary("fmul", high, const(x.type, LOG2_E))
    error = _fma(cx, high, const(x.type, LOG2_E), f.fneg(product))
    error = _fma(cx, low, const(x.type, LOG2_E), _fma(cx, high, const(x.type, LOG2_E_REST), error))
    total = f.binary("fadd", k, product)  # k is 0 or larger than the product: the rounding error is what is left
    left = f.binary("fadd", f.binary("fsub", k, total), product)
    return _log_special(cx, x, f.binary("fadd", total, f.binary("fadd", left, error)))


def _rsqrt_double(cx: Context, x: Value) -> Value:
    """One step of third order from v_rsq_f64, which has at least 22 bits: y + y e (1/2 + 3/8 e), e = 1 - x y^2 to twice the precision."""
    f, one = cx.f, const(x.type, 1.0)
    y = each(cx, "amdgcn.rsq", x)
    root = f.binary("fmul", x, y)
    e = _fma(cx, f.fneg(root), y, one)
    e = _fma(cx, f.fneg(_fma(cx, x, y, f.fneg(root))), y, e)
    better = _fma(cx, f.binary("fmul", y, e), _fma(cx, e, const(x.type, 0.375), const(x.type, 0.5)), y)
    return f.select(f.fcmp("uno", better, better), y, better)  # NaN also where x is 0 or infinite, of which y is right


_DOUBLE: dict[type[arith.Unary], Callable[[Context, Value], Value]] = {
    arith.Exp: _exp,
    arith.Exp2: _exp2,
    arith.Log: _log,
    arith.Log2: _log2,
    arith.Rsqrt: _rsqrt_double,
}
