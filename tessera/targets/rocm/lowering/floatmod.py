"""Floor division and modulo of floats, exactly as NumPy computes them (`npy_divmod` in numpy/core/src/npymath/npy_math_internal.h.src).

fmod is exact whatever the quotient, which may have 277 binary digits in float32 and 2,098 in float64. So it goes as long division does,
some digits at a time, on the significands: with |x| = a 2^i and |y| = b 2^j (a and b in [1/2, 1)), i - j digits are brought down by scaling
a, and after each scaling a - round(a / b) b is again below b. It is a multiple of the last place of b (or, if y is subnormal, of the
smallest number), hence exact in a fused multiply-add. All elements go through one loop, which mostly ends after its first round.
"""

from __future__ import annotations

from ....llvmtext import Value, const, element, like
from .context import Context
from .parts import copysign, each

DIGITS = {"float": 20, "double": 42}
"""Brought down at a time. v_rcp_f32 is within 1 ulp (2^-23 here) and v_rcp_f64, after a step of Newton, within 2^-45: a / b, below
2^(digits + 1), is then wrong by less than 1/2, and so rounded to an integer less than 1 away."""


def float_divmod(cx: Context, x: Value, y: Value, *, quotient: bool) -> Value:
    """`x // y` (if `quotient`) or `x % y` of floats or doubles. Begins a new block."""
    return _floor_divide(cx, x, y) if quotient else _remainder(cx, x, y)


def _floor_divide(cx: Context, x: Value, y: Value) -> Value:
    """npy_floor_divide: the nearest integer to (x - fmod(x, y)) / y, which rounding has put near to one; less 1 where the signs differ."""
    f, zero, one = cx.f, const(x.type, 0.0), const(x.type, 1.0)
    rest = _fmod(cx, x, y)
    exact = f.binary("fdiv", f.binary("fsub", x, rest), y)
    exact = f.select(_wrong_sign(cx, rest, y), f.binary("fsub", exact, one), exact)
    floor = f.intrinsic("floor", [exact])
    floor = f.select(f.fcmp("ogt", f.binary("fsub", exact, floor), const(x.type, 0.5)), f.binary("fadd", floor, one), floor)
    plain = f.binary("fdiv", x, y)
    result = f.select(f.fcmp("une", exact, zero), floor, copysign(cx, zero, plain))
    return f.select(f.fcmp("oeq", y, zero), plain, result)


def _remainder(cx: Context, x: Value, y: Value) -> Value:
    """npy_remainder: fmod, plus y where its sign differs from that of y; a zero has the sign of y."""
    f, zero = cx.f, const(x.type, 0.0)
    rest = _fmod(cx, x, y)
    moved = f.select(_wrong_sign(cx, rest, y), f.binary("fadd", rest, y), rest)
    return f.select(f.fcmp("oeq", rest, zero), copysign(cx, zero, y), moved)


def _wrong_sign(cx: Context, rest: Value, y: Value) -> Value:
    """Where the remainder is not 0 and its sign isn't that of y."""
    f, zero = cx.f, const(y.type, 0.0)
    return f.and_(f.fcmp("une", rest, zero), f.xor(f.fcmp("olt", y, zero), f.fcmp("olt", rest, zero)))


def _fmod(cx: Context, x: Value, y: Value) -> Value:
    """C's fmod, but for the sign of a zero result. NaN where x is infinite or NaN, or y is 0 or NaN."""
    f, scalar = cx.f, element(x.type)
    integer, digits = like(x.type, "i32"), DIGITS[scalar]
    zero, nan = const(x.type, 0.0), const(x.type, float("nan"))

    def scaled(value: Value, by: Value) -> Value:
        return f.intrinsic("ldexp", [value, by], value.type, [value.type, by.type])

    a, b = f.intrinsic("fabs", [x]), f.intrinsic("fabs", [y])
    smaller = f.fcmp("olt", a, b)
    a, i = each(cx, "amdgcn.frexp.mant", a), each(cx, "amdgcn.frexp.exp", a, "i32", ["i32", scalar])
    b, j = each(cx, "amdgcn.frexp.mant", b), each(cx, "amdgcn.frexp.exp", b, "i32", ["i32", scalar])
    negative, inverse = f.fneg(b), each(cx, "amdgcn.rcp", b)
    if scalar == "double":
        error = f.intrinsic("fma", [negative, inverse, const(x.type, 1.0)])
        inverse = f.intrinsic("fma", [error, inverse, inverse])
    count = f.intrinsic("smax", [f.sub(i, j), const(integer, 0)])
    most = count if integer == "i32" else f.intrinsic("vector.reduce.smax", [count], "i32")

    before, loop, after = f.current, f.label("fmod"), f.label("fmod_end")
    f.branch(loop)
    f.position(loop)
    left, a_now, count_now = f.phi("i32"), f.phi(x.type), f.phi(integer)
    step = f.intrinsic("smin", [count_now.value, const(integer, digits)])
    grown = scaled(a_now.value, step)
    whole = f.intrinsic("rint", [f.binary("fmul", grown, inverse)])
    rest = f.intrinsic("fma", [f.fneg(whole), b, grown])
    rest = f.select(f.fcmp("olt", rest, zero), f.binary("fadd", rest, b), rest)
    left_then, count_then = f.sub(left.value, digits), f.sub(count_now.value, step)
    f.branch_if(f.icmp("sgt", left_then, 0), loop, after)
    for phi, first, then in ((left, most, left_then), (a_now, a, rest), (count_now, count, count_then)):
        phi.add(first, before)
        phi.add(then, loop)
    f.position(after)

    result = f.select(smaller, x, copysign(cx, scaled(rest, j), x))
    regular = f.and_(f.fcmp("olt", f.intrinsic("fabs", [x]), const(x.type, float("inf"))), f.fcmp("one", y, zero))
    return f.select(regular, result, nan)
