"""Floor division and modulo of integers, as NumPy has them: the remainder takes the sign of the divisor, and division by zero gives 0."""

from __future__ import annotations

from ....llvmtext import Value, const, element
from .context import Context


def _power(y: Value) -> int | None:
    """log2 of a constant divisor that is a power of two."""
    text = y.text[:-1].rsplit(" ", 1)[1] if y.text.startswith("splat (i") else y.text
    known = Value(element(y.type), text).integer
    return known.bit_length() - 1 if known is not None and known > 0 and known & (known - 1) == 0 else None


def floor_divide(cx: Context, x: Value, y: Value, signed: bool) -> Value:
    """`x // y` rounded down; 0 for y = 0; the lowest integer // -1 is itself."""
    f = cx.f
    if (power := _power(y)) is not None:
        return f.ashr(x, power) if signed else f.lshr(x, power)
    zero = f.icmp("eq", y, 0)
    if not signed:
        quotient = f.binary("udiv", x, f.select(zero, const(y.type, 1), y))
        return f.select(zero, const(x.type, 0), quotient)
    negates = f.icmp("eq", y, -1)
    quotient, rest = _truncated(cx, x, f.select(f.or_(zero, negates), const(y.type, 1), y))
    down = f.and_(f.icmp("ne", rest, 0), f.icmp("slt", f.xor(rest, y), 0))
    quotient = f.select(down, f.sub(quotient, 1), quotient)
    return f.select(zero, const(x.type, 0), f.select(negates, f.sub(const(x.type, 0), x), quotient))


def remainder(cx: Context, x: Value, y: Value, signed: bool) -> Value:
    """`x % y` with the sign of y; 0 for y = 0."""
    f = cx.f
    if (power := _power(y)) is not None:
        return f.and_(x, (1 << power) - 1)
    zero = f.icmp("eq", y, 0)
    if not signed:
        rest = f.binary("urem", x, f.select(zero, const(y.type, 1), y))
        return f.select(zero, const(x.type, 0), rest)
    negates = f.icmp("eq", y, -1)
    _, rest = _truncated(cx, x, f.select(f.or_(zero, negates), const(y.type, 1), y))
    wrong = f.and_(f.icmp("ne", rest, 0), f.icmp("slt", f.xor(rest, y), 0))
    return f.select(wrong, f.add(rest, y), rest)


def _truncated(cx: Context, x: Value, y: Value) -> tuple[Value, Value]:
    """Quotient and remainder rounded toward zero; y is neither 0 nor -1."""
    quotient = cx.f.binary("sdiv", x, y)
    return quotient, cx.f.sub(x, cx.f.mul(quotient, y))
