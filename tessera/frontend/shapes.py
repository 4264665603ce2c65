"""Shape operations, reductions and the matrix product."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, cast

from .. import dtypes
from ..dtypes import DType, Kind
from ..errors import KernelTypeError, KernelValueError
from ..ir.ops import shape as ops
from ..ir.ops.matrix import Dot
from . import arithmetic, memory, promotion, values

# ---- shapes ----------------------------------------------------------------------------------------------------------------------


def _tile(x: Any, name: str) -> values.TileValue:
    return arithmetic.scalar(x, f"the operand of {name}")


def _axis(axis: Any, rank: int, name: str) -> int:
    number = memory.static_int(axis, f"axis of {name}")
    if not -rank <= number < rank:
        allowed = f"it has axes {-rank} … {rank - 1}" if rank else "a scalar has none"
        raise KernelValueError(f"{name}: axis {number} is outside the tile: {allowed}")
    return number % rank


def reshape(x: Any, shape: Any) -> values.TileValue:
    """The same elements in row-major order under another shape; one extent may be -1."""
    x = _tile(x, "reshape")
    items = list(cast("Sequence[Any]", shape)) if isinstance(shape, (tuple, list)) else [shape]
    wanted = [memory.static_int(item, "an extent of reshape") for item in items]
    if wanted.count(-1) > 1:
        raise KernelValueError(f"reshape: only one extent of {tuple(wanted)} can be -1")
    if -1 in wanted:
        rest = math.prod(extent for extent in wanted if extent != -1)
        if rest < 1 or x.size % rest:
            raise KernelValueError(f"reshape: a tile of shape {x.shape} has {x.size} elements, which {tuple(wanted)} can't hold")
        wanted[wanted.index(-1)] = x.size // rest
    extents = memory.tile_shape(wanted)
    if math.prod(extents) != x.size:
        raise KernelValueError(f"reshape: a tile of shape {x.shape} has {x.size} elements, {extents} has {math.prod(extents)}")
    return _reshaped(x, extents)


def _reshaped(x: values.TileValue, shape: tuple[int, ...]) -> values.TileValue:
    return x if x.shape == shape else arithmetic.emit(ops.Reshape(x.value, shape=shape))


def expand_dims(x: Any, axis: Any) -> values.TileValue:
    """Insert axes of extent 1 at `axis` (an int or several) of the result."""
    x = _tile(x, "expand_dims")
    items: Sequence[Any] = cast("Sequence[Any]", axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = x.ndim + len(items)
    axes = {_axis(item, rank, "expand_dims") for item in items}
    if len(axes) != len(items):
        raise KernelValueError(f"expand_dims: an axis is repeated in {tuple(items)}")
    old = iter(x.shape)
    return _reshaped(x, tuple(1 if axis in axes else next(old) for axis in range(rank)))


def index(x: values.TileValue, key: Any) -> values.TileValue:
    """`x[:, None]` and its like: new axes, and nothing else. Raises KernelTypeError with what would work."""
    items = list(cast("tuple[Any, ...]", key)) if isinstance(key, tuple) else [key]
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if dots:
        spanned = x.ndim - builtins.sum(1 for item in items if item is not None and item is not Ellipsis)
        items[dots[0] : dots[0] + 1] = [slice(None)] * spanned
    shape: list[int] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
        elif isinstance(item, slice) and item == slice(None):
            if axis >= x.ndim:
                raise KernelTypeError(f"too many indices for {values.describe(x)}")
            shape.append(x.shape[axis])
            axis += 1
        else:
            raise KernelTypeError(
                "tiles are indexed only by `:` and `None`, which add axes; load the part that is needed from the array, "
                "or pick elements with ts.where and a reduction"
            )
    return _reshaped(x, (*shape, *x.shape[axis:]))


def broadcast_to(x: Any, shape: Any) -> values.TileValue:
    """Stretch axes of extent 1, and add leading axes, to reach `shape`."""
    x = _tile(x, "broadcast_to")
    extents = memory.tile_shape(shape)
    if len(extents) < x.ndim or arithmetic.common_shape("broadcast_to", x.shape, extents) != extents:
        raise KernelTypeError(f"broadcast_to: a tile of shape {x.shape} doesn't broadcast to {extents}")
    return arithmetic.stretch(values.TileValue(x.value), extents)


def transpose(x: Any, axes: Any = None) -> values.TileValue:
    """Permute the axes: axis i of the result is axis `axes[i]` of the tile. Without `axes` their order is reversed."""
    x = _tile(x, "transpose")
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        items: Sequence[Any] = cast("Sequence[Any]", axes) if isinstance(axes, (tuple, list)) else (axes,)
        order = tuple(_axis(item, x.ndim, "transpose") for item in items)
        if sorted(order) != list(range(x.ndim)):
            raise KernelValueError(f"transpose: {tuple(items)} is not a permutation of the {x.ndim} axes")
    return x if order == tuple(range(x.ndim)) else arithmetic.emit(ops.Transpose(x.value, order=order))


# ---- reductions ------------------------------------------------------------------------------------------------------------------


def _reduce(op: type[ops.Reduce], x: values.TileValue, axis: Any, keepdims: bool, name: str) -> values.TileValue:
    """Reduce along one axis, several, or (None) all."""
    if axis is None:
        axes = list(range(x.ndim))
    else:
        items: Sequence[Any] = cast("Sequence[Any]", axis) if isinstance(axis, (tuple, list)) else (axis,)
        axes = [_axis(item, x.ndim, name) for item in items]
        if len(set(axes)) != len(axes):
            raise KernelValueError(f"{name}: an axis is repeated in {tuple(items)}")
    kept = tuple(1 if i in axes else extent for i, extent in enumerate(x.shape))
    result = x
    for i in sorted(axes, reverse=True):
        result = arithmetic.emit(op(result.value, axis=i))
    return _reshaped(result, kept) if keepdims else result


def sum(x: Any, axis: Any = None, *, keepdims: bool = False, dtype: object = None) -> values.TileValue:
    """The sum along `axis` (an int, several, or None for all).

    Bools and integers widen to 64 bits, as in NumPy, unless `dtype` says otherwise. float16 and bfloat16 accumulate in float32 and round
    once.
    """
    x = _tile(x, "sum")
    to = promotion.sum_dtype(x.dtype) if dtype is None else promotion.as_dtype(dtype)
    if to is dtypes.bool_:
        raise KernelTypeError("sum has no dtype bool: for `any` write ts.max(mask, axis), for `all` ts.min(mask, axis)")
    narrow = to.is_float and to.bits == 16
    held: DType = dtypes.float32 if narrow and x.ndim > 1 else to
    result = _reduce(ops.Sum, arithmetic.astype(x, held), axis, keepdims, "sum")
    return arithmetic.astype(result, to)


def max(x: Any, axis: Any = None, *, keepdims: bool = False) -> values.TileValue:
    """The largest element along `axis` (an int, several, or None for all); NaN where there is one."""
    return _reduce(ops.Max, _strong(_tile(x, "max")), axis, keepdims, "max")


def min(x: Any, axis: Any = None, *, keepdims: bool = False) -> values.TileValue:
    """The smallest element along `axis` (an int, several, or None for all); NaN where there is one."""
    return _reduce(ops.Min, _strong(_tile(x, "min")), axis, keepdims, "min")


def _strong(x: values.TileValue) -> values.TileValue:
    return values.TileValue(x.value) if x.weak else x


# ---- the matrix product ----------------------------------------------------------------------------------------------------------

FALLBACKS = ("upcast", "vector")


def dot(a: Any, b: Any, acc: Any = None, *, fallback: Any = None, instruction: Any = None) -> values.TileValue:
    """`a @ b + acc` for tiles of shapes (M, K), (K, N) and (M, N); the result has the accumulator's dtype.

    Without `acc` it starts from zeros of float32 for floats, int32 for 8-bit integers, and the operands' dtype for float64 and wider
    integers. `fallback` ("upcast" or "vector") says what may be done where no matrix instruction takes the operands; `instruction` names
    the one to use. Which dtypes an arch takes is checked when the kernel is compiled for it.
    """
    for name, side in (("a", a), ("b", b)):
        if not isinstance(side, values.TileValue) or side.ndim != 2:
            raise KernelTypeError(f"dot takes tiles of two axes; {name} is {values.describe(side)}{_two_axes(name, side)}")
        if side.dtype.kind is Kind.BOOL:
            raise KernelTypeError(f"dot takes numbers; {name} is {values.describe(side)}: cast it with .astype(ts.int8)")
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2:
        hint = ": b.T has the right shape" if b.shape[1] == k else ""
        raise KernelTypeError(f"dot: a is {a.shape} and b is {b.shape}; the columns of a must be as many as the rows of b{hint}")
    if a.dtype.is_float != b.dtype.is_float:
        raise KernelTypeError(f"dot: a is {a.dtype.name} and b is {b.dtype.name}; cast one to the other's kind")
    arithmetic.check_size((m, n))
    if acc is None:
        acc = arithmetic.constant(0, _accumulator(a.dtype, b.dtype), (m, n))
    if not isinstance(acc, values.TileValue) or acc.shape != (m, n):
        raise KernelTypeError(f"dot: the accumulator is {values.describe(acc)}; it must be a tile of shape {(m, n)}: ts.zeros({(m, n)}, …)")
    if acc.dtype.is_float != a.dtype.is_float or acc.dtype.kind is Kind.BOOL:
        wanted = _accumulator(a.dtype, b.dtype)
        raise KernelTypeError(f"dot: the accumulator is {acc.dtype.name} for operands of {a.dtype.name}; {wanted.name} would do")
    if fallback not in (None, *FALLBACKS):
        raise KernelValueError(f"dot: there is no fallback {fallback!r}; there are {', '.join(map(repr, FALLBACKS))}")
    if instruction is not None and not isinstance(instruction, str):
        raise KernelTypeError(f"dot: instruction is a name, not {values.describe(instruction)}")
    return arithmetic.emit(Dot(a.value, b.value, acc.value, fallback=fallback or "", instruction=instruction or ""))


def _two_axes(name: str, side: Any) -> str:
    """How an operand of dot gets two axes."""
    if not isinstance(side, values.TileValue) or not side.ndim:
        return ""
    if side.ndim == 1:
        new = f"{name}[None, :] is a row" if name == "a" else f"{name}[:, None] is a column"
        return f": {new}, which a matrix instruction may want padded; ts.sum(m * v, axis=1) is the product with a vector, too"
    if side.ndim == 3 and side.shape[0] == 1:
        return f": write {name}.reshape({side.shape[1:]})"
    return ": there is no batched dot; give each program one of the batch, load it with an extent of 1 there, and reshape it to two axes"


def _accumulator(a: DType, b: DType) -> DType:
    widest = a if a.bits >= b.bits else b
    if widest.is_float:
        return widest if widest.bits == 64 else dtypes.float32
    return widest if widest.bits >= 32 else dtypes.int32
