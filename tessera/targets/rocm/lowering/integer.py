"""Floor division and modulo of integers, as NumPy has them: the remainder takes the sign of the divisor, and division by zero gives 0."""

from __future__ import annotations

from ....llvmtext import Value, const
from .context import Context


def _power(y: Value) -> int | None:
    """log2 of a constant divisor that is a power of two."""
    known = y.splat_integer
    return known.bit_length() - 1 if known is not None and known > 0 and known & (known - 1) == 0 else None


def floor_divide(cx: Context, x: Value, y: Value, signed: bool) -> Value:
    """`x // y` rounded down; 0 for y = 0; the lowest integer // -1 is itself."""
    f = cx.f
    if (power := _power(y)) is not None:
        return f.ashr(x, power) if signed else f.lshr(x, power)
    a, b = (_size(cx, x), _size(cx, y)) if signed else (x, y)
    zero = f.icmp("eq", y, 0)
    b = f.select(zero, const(y.type, 1), b)
    quotient = f.binary("udiv", a, b)
    if signed:
        inexact = f.cast("zext", f.icmp("ne", f.mul(quotient, b), a), x.type)
        quotient = f.select(f.icmp("slt", f.xor(x, y), 0), f.sub(const(x.type, 0), f.add(quotient, inexact)), quotient)
    return f.select(zero, const(x.type, 0), quotient)


def remainder(cx: Context, x: Value, y: Value, signed: bool) -> Value:
    """`x % y` with the sign of y; 0 for y = 0."""
    f = cx.f
    if (power := _power(y)) is not None:
        return f.and_(x, (1 << power) - 1)
    a, b = (_size(cx, x), _size(cx, y)) if signed else (x, y)
    zero, none = f.icmp("eq", y, 0), const(x.type, 0)
    rest = f.binary("urem", a, f.select(zero, const(y.type, 1), b))
    if signed:
        rest = f.select(f.icmp("slt", x, 0), f.sub(none, rest), rest)
        wrong = f.and_(f.icmp("ne", rest, 0), f.icmp("slt", f.xor(x, y), 0))
        rest = f.select(wrong, f.add(rest, y), rest)
    return f.select(zero, none, rest)


def _size(cx: Context, x: Value) -> Value:
    """|x| as an unsigned number, which the lowest integer's is too."""
    known = x.splat_integer
    return cx.f.intrinsic("abs", [x, const("i1", 0)]) if known is None else const(x.type, abs(known))
