"""Arithmetic that the semantics share, over scalars and lane vectors alike: all of it straight vector code.

Two ideas recur. *Round to odd*: a result that is rounded twice is right if the first rounding, at two or more bits more, is to odd
(Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008); that gives a fused multiply-add one size down without a fused
instruction. *Bits*: NaN and sign rules are decided on the bit pattern, where no host instruction has an opinion.
"""

from __future__ import annotations

from tessera import llvm
from tessera.llvmtext import Function, Value, const, element, lanes, like

from .table import FloatMode

_INTEGER_OF = {"float": "i32", "double": "i64"}


def bits_of(b: Function, x: Value) -> Value:
    """A float's bit pattern."""
    return b.bitcast(x, like(x.type, _INTEGER_OF[element(x.type)]))


def as_float(b: Function, x: Value) -> Value:
    """A 32- or 64-bit pattern's float."""
    return b.bitcast(x, like(x.type, "float" if element(x.type) == "i32" else "double"))


def constant(x: Value, value: float | int) -> Value:
    """`value` in the type of `x`."""
    return const(x.type, value)


def fadd(b: Function, x: Value, y: Value) -> Value:
    return b.binary("fadd", x, y)


def fsub(b: Function, x: Value, y: Value) -> Value:
    return b.binary("fsub", x, y)


def fmul(b: Function, x: Value, y: Value) -> Value:
    return b.binary("fmul", x, y)


def fdiv(b: Function, x: Value, y: Value) -> Value:
    return b.binary("fdiv", x, y)


def fabs(b: Function, x: Value) -> Value:
    return b.intrinsic("fabs", [x])


def intrinsic(b: Function, name: str, *operands: Value) -> Value:
    """An intrinsic overloaded on its operands' common type."""
    return b.intrinsic(name, operands)


def extend(b: Function, x: Value, to: str, signed: bool) -> Value:
    """Widen an integer to element type `to`."""
    return b.cast("sext" if signed else "zext", x, like(x.type, to))


def truncate(b: Function, x: Value, to: str) -> Value:
    return b.cast("trunc", x, like(x.type, to))


def widen(b: Function, x: Value) -> Value:
    """float to double."""
    return b.cast("fpext", x, like(x.type, "double"))


def narrow(b: Function, x: Value) -> Value:
    """double to float, to nearest even."""
    return b.cast("fptrunc", x, like(x.type, "float"))


# ---- fused multiply-add --------------------------------------------------------------------------------------------------------


def two_sum(b: Function, x: Value, y: Value) -> tuple[Value, Value]:
    """The rounded sum and its error: together exactly x + y (Knuth)."""
    s = fadd(b, x, y)
    back = fsub(b, s, x)
    return s, fadd(b, fsub(b, x, fsub(b, s, back)), fsub(b, y, back))


def multiply_add_to_odd(b: Function, x: Value, y: Value, z: Value) -> Value:
    """x*y + z rounded to odd, where x*y is exact in this type."""
    return to_odd(b, *two_sum(b, fmul(b, x, y), z))


def to_odd(b: Function, s: Value, error: Value) -> Value:
    """`s`, the nearest to s + error, made odd if it is inexact."""
    raw, err = bits_of(b, s), bits_of(b, error)
    sign_bit = 31 if element(s.type) == "float" else 63
    step = b.or_(b.ashr(b.xor(raw, err), sign_bit), 1)  # away from zero if the error has s's sign
    even = b.icmp("eq", b.and_(raw, 1), 0)
    inexact = b.fcmp("one", error, constant(error, 0.0))
    return as_float(b, b.select(b.and_(even, inexact), b.add(raw, step), raw))


def narrow_to_odd(b: Function, x: Value) -> Value:
    """double to float, to odd: what is rounded again to f16 or bf16 is then rounded right."""
    near = narrow(b, x)
    error = fsub(b, x, widen(b, near))
    inexact = b.fcmp("one", error, constant(error, 0.0))
    raw = bits_of(b, near)
    toward = b.ashr(b.xor(raw, truncate(b, b.lshr(bits_of(b, error), 32), "i32")), 31)
    even = b.icmp("eq", b.and_(raw, 1), 0)
    return as_float(b, b.select(b.and_(even, inexact), b.add(raw, b.or_(toward, 1)), raw))


def fma(b: Function, x: Value, y: Value, z: Value) -> Value:
    """Fused multiply-add of floats or doubles, rounded once, whatever the host has."""
    if llvm.host().has_fma or element(x.type) == "double":
        return b.intrinsic("fma", [x, y, z])
    return narrow(b, multiply_add_to_odd(b, widen(b, x), widen(b, y), widen(b, z)))


def fma16(b: Function, x: Value, y: Value, z: Value) -> Value:
    """x*y + z of f16 values held as float: float rounded to odd, so that the final rounding to f16 is the only one."""
    return multiply_add_to_odd(b, x, y, z)


# ---- half and bfloat conversions -----------------------------------------------------------------------------------------------


def half_to_float(b: Function, h: Value) -> Value:
    """i16 patterns of f16 to float, exactly."""
    if llvm.host().has_f16c:
        return b.cast("fpext", b.bitcast(h, like(h.type, "half")), like(h.type, "float"))
    wide = extend(b, h, "i32", False)
    sign = b.shl(b.and_(wide, 0x8000), 16)
    shifted = b.shl(b.and_(wide, 0x7FFF), 13)
    # The exponent is too small by 112 (127 - 15); a multiplication corrects it, and normalises subnormals on the way.
    finite = bits_of(b, fmul(b, as_float(b, shifted), const(like(h.type, "float"), 2.0**112)))
    special = b.icmp("uge", shifted, 0x7C00 << 13)
    return as_float(b, b.or_(b.select(special, b.or_(shifted, 0x7F800000), finite), sign))


def float_to_half(b: Function, x: Value) -> Value:
    """float to i16 patterns of f16, to nearest even."""
    if llvm.host().has_f16c:
        return b.bitcast(b.cast("fptrunc", x, like(x.type, "half")), like(x.type, "i16"))
    raw = bits_of(b, x)
    size = b.and_(raw, 0x7FFFFFFF)
    odd = b.and_(b.lshr(size, 13), 1)
    normal = b.lshr(b.add(b.add(size, odd), 0xC8000FFF), 13)
    # Adding 0.5 puts the f16 subnormal's last bit at the float's last bit.
    tiny = b.sub(bits_of(b, fadd(b, as_float(b, size), constant(x, 0.5))), 0x3F000000)
    result = b.select(b.icmp("ult", size, 0x38800000), tiny, normal)
    nan = b.or_(b.and_(b.lshr(size, 13), 0x3FF), 0x7E00)
    special = b.select(b.icmp("ugt", size, 0x7F800000), nan, constant(size, 0x7C00))
    result = b.select(b.icmp("uge", size, 0x47800000), special, result)
    return truncate(b, b.or_(result, b.and_(b.lshr(raw, 16), 0x8000)), "i16")


def float_to_half_toward_zero(b: Function, x: Value) -> Value:
    """float to i16 patterns of f16, toward zero: finite values never become infinite."""
    raw = bits_of(b, x)
    size = b.and_(raw, 0x7FFFFFFF)
    normal = b.lshr(b.sub(size, 0x38000000), 13)
    # |x| < 2^-14: the significand with its hidden bit, shifted down to units of 2^-24.
    shift = b.sub(constant(size, 126), b.lshr(size, 23))
    shift = b.select(b.icmp("ugt", shift, 31), constant(size, 31), shift)
    tiny = b.lshr(b.or_(b.and_(size, 0x7FFFFF), 0x800000), shift)
    result = b.select(b.icmp("ult", size, 0x38800000), tiny, normal)
    result = b.select(b.icmp("ugt", size, 0x477FFFFF), constant(size, 0x7BFF), result)
    result = b.select(b.icmp("eq", size, 0x7F800000), constant(size, 0x7C00), result)
    nan = b.or_(b.and_(b.lshr(size, 13), 0x3FF), 0x7E00)
    result = b.select(b.icmp("ugt", size, 0x7F800000), nan, result)
    return truncate(b, b.or_(result, b.and_(b.lshr(raw, 16), 0x8000)), "i16")


def bfloat_to_float(b: Function, h: Value) -> Value:
    """i16 patterns of bf16 to float, exactly."""
    return as_float(b, b.shl(extend(b, h, "i32", False), 16))


def float_to_bfloat(b: Function, x: Value) -> Value:
    """float to i16 patterns of bf16, to nearest even."""
    raw = bits_of(b, x)
    odd = b.and_(b.lshr(raw, 16), 1)
    rounded = b.add(b.add(raw, odd), 0x7FFF)
    quiet = b.or_(raw, 0x400000)
    return truncate(b, b.lshr(b.select(b.fcmp("uno", x, x), quiet, rounded), 16), "i16")


# ---- rounding to integers ------------------------------------------------------------------------------------------------------


def _sign_of(b: Function, size: Value, x: Value) -> Value:
    return b.intrinsic("copysign", [size, x])


def round_even(b: Function, x: Value) -> Value:
    """To the nearest integer, ties to even. Hosts without an instruction would call a library function that not every system has."""
    if llvm.host().has_f16c:  # implies SSE 4.1 on x86
        return b.intrinsic("roundeven", [x])
    size = fabs(b, x)
    whole = constant(x, 2.0**52 if element(x.type) == "double" else 2.0**23)  # from here on every float is an integer
    rounded = fsub(b, fadd(b, size, whole), whole)
    return _sign_of(b, b.select(b.fcmp("olt", size, whole), rounded, size), x)


def trunc(b: Function, x: Value) -> Value:
    """Toward zero."""
    if llvm.host().has_f16c:
        return b.intrinsic("trunc", [x])
    size = fabs(b, x)
    near = round_even(b, size)
    return _sign_of(b, b.select(b.fcmp("ogt", near, size), fsub(b, near, constant(x, 1.0)), near), x)


def floor(b: Function, x: Value) -> Value:
    if llvm.host().has_f16c:
        return b.intrinsic("floor", [x])
    near = round_even(b, x)
    return _sign_of(b, b.select(b.fcmp("ogt", near, x), fsub(b, near, constant(x, 1.0)), near), x)


def ceil(b: Function, x: Value) -> Value:
    return b.intrinsic("ceil", [x]) if llvm.host().has_f16c else b.fneg(floor(b, b.fneg(x)))


# ---- NaN, sign and subnormal rules ---------------------------------------------------------------------------------------------


def is_nan(b: Function, x: Value) -> Value:
    return b.fcmp("uno", x, x)


def is_signalling(b: Function, x: Value) -> Value:
    """Whether x is a signalling NaN."""
    raw = bits_of(b, x)
    wide = element(x.type) == "double"
    doubled = b.shl(raw, 1)
    first, count = (0xFFE0_0000_0000_0001, 0x000F_FFFF_FFFF_FFFF) if wide else (0xFF00_0001, 0x007F_FFFF)
    return b.icmp("ult", b.sub(doubled, first), count)


def quiet(b: Function, x: Value) -> Value:
    raw = bits_of(b, x)
    return as_float(b, b.or_(raw, 1 << (51 if element(x.type) == "double" else 22)))


def flush(b: Function, x: Value, when: Value | None = None) -> Value:
    """Subnormals to zeros of their sign; only where the scalar `when` holds, if given."""
    raw = bits_of(b, x)
    wide = element(x.type) == "double"
    exponent = b.and_(raw, 0x7FF0_0000_0000_0000 if wide else 0x7F80_0000)
    small = b.icmp("eq", exponent, 0)
    if when is not None:
        small = b.and_(small, b.splat(when, lanes(x.type)) if x.type[0] == "<" else when)
    sign = b.and_(raw, 1 << (63 if wide else 31))
    return as_float(b, b.select(small, sign, raw))


def maximum_number(b: Function, m: FloatMode, x: Value, y: Value) -> Value:
    """The larger number: a NaN loses against a number, unless it signals and the IEEE mode is on; +0 is above -0."""
    larger = b.select(b.fcmp("ogt", x, y), x, y)
    zeros = b.and_(bits_of(b, x), bits_of(b, y))  # equals differ at most in sign
    return _number(b, m, x, y, b.select(b.fcmp("oeq", x, y), as_float(b, zeros), larger))


def minimum_number(b: Function, m: FloatMode, x: Value, y: Value) -> Value:
    """The smaller number, by the rules of `maximum_number`."""
    smaller = b.select(b.fcmp("olt", x, y), x, y)
    zeros = b.or_(bits_of(b, x), bits_of(b, y))
    return _number(b, m, x, y, b.select(b.fcmp("oeq", x, y), as_float(b, zeros), smaller))


def _number(b: Function, m: FloatMode, x: Value, y: Value, chosen: Value) -> Value:
    chosen = b.select(is_nan(b, y), x, chosen)
    if m.ieee:
        chosen = b.select(is_signalling(b, y), quiet(b, y), chosen)
        chosen = b.select(is_signalling(b, x), quiet(b, x), chosen)
    return chosen


def maximum(b: Function, x: Value, y: Value) -> Value:
    """IEEE 754-2019 maximum: NaN wins, +0 is above -0."""
    larger = b.select(b.fcmp("ogt", x, y), x, y)
    both = as_float(b, b.and_(bits_of(b, x), bits_of(b, y)))
    larger = b.select(b.fcmp("oeq", x, y), both, larger)
    return b.select(is_nan(b, x), x, larger)


def minimum(b: Function, x: Value, y: Value) -> Value:
    """IEEE 754-2019 minimum."""
    smaller = b.select(b.fcmp("olt", x, y), x, y)
    both = as_float(b, b.or_(bits_of(b, x), bits_of(b, y)))
    smaller = b.select(b.fcmp("oeq", x, y), both, smaller)
    return b.select(is_nan(b, x), x, smaller)


# The same for f16 as i16 patterns: flipping the lower bits of negatives makes their order that of signed integers, -0 below +0.


def _ordered16(b: Function, x: Value) -> Value:
    return b.xor(x, b.and_(b.ashr(x, 15), 0x7FFF))


def is_nan16(b: Function, x: Value) -> Value:
    return b.icmp("sgt", b.and_(x, 0x7FFF), 0x7C00)


def _number16(b: Function, m: FloatMode, x: Value, y: Value, chosen: Value) -> Value:
    chosen = b.select(is_nan16(b, x), y, chosen)
    chosen = b.select(is_nan16(b, y), x, chosen)
    if m.ieee:
        for operand in (y, x):
            signals = b.icmp("ult", b.sub(b.shl(operand, 1), 0xF802 - 1), 0x3FE)
            chosen = b.select(signals, b.or_(operand, 0x200), chosen)
    return chosen


def maximum_number16(b: Function, m: FloatMode, x: Value, y: Value) -> Value:
    return _number16(b, m, x, y, b.select(b.icmp("sgt", _ordered16(b, x), _ordered16(b, y)), x, y))


def minimum_number16(b: Function, m: FloatMode, x: Value, y: Value) -> Value:
    return _number16(b, m, x, y, b.select(b.icmp("slt", _ordered16(b, x), _ordered16(b, y)), x, y))


def maximum16(b: Function, x: Value, y: Value) -> Value:
    larger = b.select(b.icmp("sgt", _ordered16(b, x), _ordered16(b, y)), x, y)
    return b.select(is_nan16(b, x), x, b.select(is_nan16(b, y), y, larger))


def minimum16(b: Function, x: Value, y: Value) -> Value:
    smaller = b.select(b.icmp("slt", _ordered16(b, x), _ordered16(b, y)), x, y)
    return b.select(is_nan16(b, x), x, b.select(is_nan16(b, y), y, smaller))


def to_integer(b: Function, x: Value, to: str, signed: bool) -> Value:
    """Toward zero to element type `to` (at most 32 bits), saturating; NaN gives 0. LLVM's own saturating conversions go lane by lane."""
    width = int(to[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    exact = element(x.type) == "double" or width < 32
    top = float(high) if exact else float(high + 1 - (128 if signed else 256))  # the highest float in range
    inside = b.select(b.fcmp("olt", x, constant(x, top)), x, constant(x, top))
    inside = b.select(b.fcmp("ogt", inside, constant(x, float(low))), inside, constant(x, float(low)))
    number = b.cast("fptosi" if signed or width < 32 else "fptoui", inside, like(x.type, "i32"))
    if not exact:
        number = b.select(b.fcmp("oge", x, constant(x, float(high + 1))), constant(number, high), number)
    number = b.select(is_nan(b, x), constant(number, 0), number)
    return number if width == 32 else truncate(b, number, to)
