"""Wide tiles in parts: intrinsics that take scalars only, and long computations that would keep several tiles in registers at once."""

from __future__ import annotations

from collections.abc import Callable

from ....llvmtext import Value, bits, element, lanes, vector
from .context import Context, concatenate


def each(cx: Context, name: str, x: Value, returns: str | None = None, overloads: list[str] | None = None) -> Value:
    """An intrinsic that takes scalars only, of a scalar or of each element of a vector. `returns` and `overloads` are types of scalars."""
    if element(x.type) == x.type:
        return cx.f.intrinsic(name, [x], returns, overloads)
    return cx.join([cx.f.intrinsic(name, [item], returns, overloads) for item in cx.split(x)])


def copysign(cx: Context, x: Value, sign: Value) -> Value:
    """`x` with the sign of `sign`. LLVM 22 aborts on the intrinsic for vectors of one double."""
    if x.type != "<1 x double>":
        return cx.f.intrinsic("copysign", [x, sign])
    return cx.join([cx.f.intrinsic("copysign", [cx.split(x)[0], cx.split(sign)[0]])])


def in_parts(cx: Context, build: Callable[..., Value], *operands: Value, count: int) -> Value:
    """`build(cx, …)` of the operands, elementwise; vectors of more than `count` elements go `count` elements at a time.

    LLVM computes a chain of operations on wide vectors operation by operation, so that each intermediate takes as many registers as the
    tile: in parts it takes a few.
    """
    width = lanes(operands[0].type)
    if width <= count:
        return build(cx, *operands)
    starts = range(0, width, count)
    parts = [[_part(cx, x, range(start, min(start + count, width))) for x in operands] for start in starts]
    return concatenate(cx.f, [_settled(cx, build(cx, *part)) for part in parts])


def _part(cx: Context, x: Value, places: range) -> Value:
    if x.text == "zeroinitializer" or x.text.startswith("splat"):
        return Value(vector(len(places), element(x.type)), x.text)
    return cx.f.shuffle(x, None, places)


def _settled(cx: Context, x: Value) -> Value:
    """`x`, computed here: LLVM would sink the last steps of all parts to where the whole is used, and keep their operands till then."""
    size = bits(x.type)
    if size % 32:
        return x
    words = "i32" if size == 32 else vector(size // 32, "i32")
    return cx.f.bitcast(cx.f.emit(words, f'call {words} asm sideeffect "", "=v,0"({cx.f.bitcast(x, words)})'), x.type)
