"""Reciprocals, roots, exponentials, logarithms, sines.

The hardware's results are within 1 ulp (f32, f16; f64 reciprocals and roots are coarser still) and their last bit is not documented.
These are computed in double, without host instructions that differ between hosts, and rounded once: within `ULP_BOUND` of the true value,
so that what differs from hardware is at most the hardware's own error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessera.llvmtext import Function, Value, const, like

from .numeric import as_float, bits_of, constant, fabs, fadd, fdiv, flush, fmul, fsub, intrinsic, narrow, widen
from .table import rows

ULP_BOUND = 0.51  # of f32 results below; f16 results are correctly rounded but for ties within 2^-12 ulp
HARDWARE_ULP = 1.0  # what the ISA document promises of the same instructions

_MAGIC = 1.5 * 2.0**52  # a double plus this has the nearest integer in its low bits


def polynomial(b: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme, from the highest coefficient down."""
    total = constant(x, coefficients[0])
    for c in coefficients[1:]:
        total = fadd(b, fmul(b, total, x), constant(x, c))
    return total


def nearest_integer(b: Function, x: Value) -> tuple[Value, Value]:
    """The nearest integer of a double below 2^51 in size, as a double and as i64."""
    shifted = fadd(b, x, constant(x, _MAGIC))
    number = b.sub(bits_of(b, shifted), bits_constant(shifted, _MAGIC))
    return fsub(b, shifted, constant(x, _MAGIC)), number


def bits_constant(x: Value, value: float) -> Value:
    """The bit pattern of a double constant, in the integer type of x's shape."""
    import struct

    return const(like(x.type, "i64"), int.from_bytes(struct.pack("<d", value), "little"))


def to_double(b: Function, n: Value) -> Value:
    """Small i64 to double by bits: hosts without a vector conversion are many."""
    pattern = b.add(n, bits_constant(n, _MAGIC))
    return fsub(b, as_float(b, pattern), const(like(n.type, "double"), _MAGIC))


_EXP2 = [math.log(2) ** k / math.factorial(k) for k in range(11, -1, -1)]


def exp2_double(b: Function, x: Value) -> Value:
    """2**x of doubles within float's range of results; relative error 2^-44."""
    for limit, predicate in ((200.0, "ogt"), (-200.0, "olt")):
        x = b.select(b.fcmp(predicate, x, constant(x, limit)), constant(x, limit), x)
    whole, n = nearest_integer(b, x)
    part = polynomial(b, fsub(b, x, whole), _EXP2)
    return fmul(b, part, as_float(b, b.shl(b.add(n, 1023), 52)))


_LOG2 = [2 / math.log(2) / (2 * k + 1) for k in range(9, -1, -1)]


def log2_double(b: Function, x: Value) -> Value:
    """The binary logarithm of positive finite normal doubles; relative error 2^-46."""
    raw = bits_of(b, x)
    exponent = b.ashr(b.sub(raw, bits_constant(x, math.sqrt(0.5))), 52)
    m = as_float(b, b.sub(raw, b.shl(exponent, 52)))  # in [sqrt(1/2), sqrt(2))
    one = constant(x, 1.0)
    z = fdiv(b, fsub(b, m, one), fadd(b, m, one))
    return fadd(b, fmul(b, polynomial(b, fmul(b, z, z), _LOG2), z), to_double(b, exponent))


_TURN = 2 * math.pi
_SIN = [(-1) ** k * _TURN ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(8, -1, -1)]
_COS = [(-1) ** k * _TURN ** (2 * k) / math.factorial(2 * k) for k in range(9, -1, -1)]


def sine_double(b: Function, x: Value, quarter: int) -> Value:
    """sin(2 pi (x + quarter/4)) of doubles below 2^50 in size: error below 2^-48. Larger ones, infinities and NaN give nothing useful."""
    turns, _ = nearest_integer(b, x)
    r = fsub(b, x, turns)
    _, q = nearest_integer(b, fmul(b, r, constant(r, 4.0)))
    t = fsub(b, r, fmul(b, to_double(b, q), constant(r, 0.25)))
    q = b.add(q, quarter)
    square = fmul(b, t, t)
    sine = fmul(b, polynomial(b, square, _SIN), t)
    cosine = polynomial(b, square, _COS)
    chosen = b.select(b.icmp("ne", b.and_(q, 1), 0), cosine, sine)
    return as_float(b, b.xor(bits_of(b, chosen), b.shl(b.and_(q, 2), 62)))


# ---- f32: subnormal inputs and results are flushed whatever the mode (but by sine and cosine) ------------------------------------


def exp2_f32(b: Function, x: Value) -> Value:
    return flush(b, narrow(b, exp2_double(b, widen(b, x))))


def _log2_special(b: Function, x: Value, result: Value) -> Value:
    infinity, zero = constant(x, float("inf")), constant(x, 0.0)
    result = b.select(b.fcmp("oeq", x, infinity), infinity, result)
    result = b.select(b.fcmp("oeq", x, zero), b.fneg(infinity), result)
    return b.select(b.fcmp("ult", x, zero), constant(x, float("nan")), result)


def log2_f32(b: Function, x: Value) -> Value:
    x = flush(b, x)
    return _log2_special(b, x, narrow(b, log2_double(b, widen(b, x))))


def sine(b: Function, x: Value, quarter: int) -> Value:
    """Of x revolutions. Every float of 2^24 or more is whole; infinities give NaN. Zero results are positive, but for the sine of -0."""
    zero = constant(x, 0.0)
    held = b.select(b.fcmp("olt", fabs(b, x), constant(x, 2.0**24)), x, fsub(b, x, x))
    result = fadd(b, narrow(b, sine_double(b, widen(b, held), quarter)), zero)
    return result if quarter else b.select(b.fcmp("oeq", x, zero), x, result)


def reciprocal(b: Function, x: Value) -> Value:
    return fdiv(b, constant(x, 1.0), x)


def rsqrt(b: Function, x: Value) -> Value:
    wide = widen(b, x)
    return narrow(b, reciprocal(b, intrinsic(b, "sqrt", wide)))


def sqrt(b: Function, x: Value) -> Value:
    return intrinsic(b, "sqrt", x)


rows(
    "f32 -> f32",
    v_rcp_f32=lambda b, x: flush(b, reciprocal(b, flush(b, x))),
    v_rcp_iflag_f32=lambda b, x: flush(b, reciprocal(b, flush(b, x))),
    v_rsq_f32=lambda b, x: rsqrt(b, flush(b, x)),
    v_sqrt_f32=lambda b, x: sqrt(b, flush(b, x)),
    v_exp_f32=exp2_f32,
    v_log_f32=log2_f32,
    v_sin_f32=lambda b, x: sine(b, x, 0),
    v_cos_f32=lambda b, x: sine(b, x, 1),
)

# ---- f16, in float: neither its inputs nor its results are ever subnormal there ---------------------------------------------------


def exp2_f16(b: Function, x: Value) -> Value:
    return narrow(b, exp2_double(b, widen(b, x)))


def log2_f16(b: Function, x: Value) -> Value:
    return _log2_special(b, x, narrow(b, log2_double(b, widen(b, x))))


rows(
    "f16 -> f16",
    v_rcp_f16=reciprocal,
    v_rsq_f16=rsqrt,
    v_sqrt_f16=sqrt,
    v_exp_f16=exp2_f16,
    v_log_f16=log2_f16,
    v_sin_f16=lambda b, x: sine(b, x, 0),
    v_cos_f16=lambda b, x: sine(b, x, 1),
)

# ---- f64 ------------------------------------------------------------------------------------------------------------------------

rows(
    "f64 -> f64",
    v_rcp_f64=reciprocal,
    v_rsq_f64=lambda b, x: reciprocal(b, sqrt(b, x)),
    v_sqrt_f64=sqrt,
)
