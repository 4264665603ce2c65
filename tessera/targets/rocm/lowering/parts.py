"""Wide tiles in parts: intrinsics that take scalars only, and long computations that would keep several tiles in registers at once."""

from __future__ import annotations

from collections.abc import Callable

from ....llvmtext import Value, element, lanes
from .context import Context, concatenate


def each(cx: Context, name: str, x: Value, returns: str | None = None, overloads: list[str] | None = None) -> Value:
    """An intrinsic that takes scalars only, of a scalar or of each element of a vector. `returns` and `overloads` are types of scalars."""
    if element(x.type) == x.type:
        return cx.f.intrinsic(name, [x], returns, overloads)
    return cx.join([cx.f.intrinsic(name, [item], returns, overloads) for item in cx.split(x)])


def in_parts(cx: Context, build: Callable[..., Value], *operands: Value, count: int) -> Value:
    """`build(cx, …)` of the operands, elementwise; vectors of more than `count` elements go `count` elements at a time.

    LLVM computes a chain of operations on wide vectors operation by operation, so that each intermediate takes as many registers as the
    tile: in parts it takes a few.
    """
    width = lanes(operands[0].type)
    if width <= count:
        return build(cx, *operands)
    starts = range(0, width, count)
    parts = [[cx.f.shuffle(x, None, range(start, min(start + count, width))) for x in operands] for start in starts]
    return concatenate(cx.f, [build(cx, *part) for part in parts])
