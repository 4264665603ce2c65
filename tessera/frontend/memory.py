"""Loads and stores, and tiles made from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import KernelError, KernelTypeError, KernelValueError
from ..ir.core import Value
from ..ir.ops import arith
from ..ir.ops import memory as ops
from ..ir.ops.shape import Reshape, Splat
from ..ir.types import Tile
from . import arithmetic, promotion, values
from .tracer import tracer

# ---- shapes ----------------------------------------------------------------------------------------------------------------------


def static_int(x: Any, what: str) -> int:
    """A Python int that is known while tracing. Raises KernelTypeError, for run-time values with what would work."""
    if isinstance(x, values.TileValue):
        raise KernelTypeError(f"{what} must be known while the kernel is traced, and {values.named(x)} is not: pass it as a ts.constexpr")
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)):
        raise KernelTypeError(f"{what} must be an int, not {values.describe(x)}")
    return int(cast(Any, x))


def tile_shape(shape: Any, what: str = "shape") -> tuple[int, ...]:
    """A tile shape as the user gave it: an int or a sequence of ints, each a power of two.

    Raises KernelTypeError, KernelValueError for extents that are no powers of two, ResourceError beyond the limit.
    """
    items: Sequence[Any] = cast("Sequence[Any]", shape) if isinstance(shape, (tuple, list)) else (shape,)
    extents = tuple(static_int(item, f"an extent of {what}") for item in items)
    for axis, extent in enumerate(extents):
        if extent < 1:
            raise KernelValueError(f"{what} {extents}: the extent of axis {axis} is {extent}; tile extents are 1 or more")
        if extent & (extent - 1):
            raise KernelValueError(
                f"{what} {extents}: the extent of axis {axis} is {extent}; tile extents are powers of two: the next one is "
                f"{1 << extent.bit_length()} (loads fill what lies outside the array, stores drop it)"
            )
    arithmetic.check_size(extents)
    return extents


# ---- tiles from nothing ------------------------------------------------------------------------------------------------------------


def zeros(shape: Any, dtype: object) -> values.TileValue:
    """A tile of zeros. `shape` is an int or a tuple of powers of two; () makes a scalar."""
    return full(shape, 0, dtype)


def full(shape: Any, value: Any, dtype: object = None) -> values.TileValue:
    """A tile of one value: a number or a scalar. Without `dtype` it has the value's (int64 or float64 for Python numbers, as in NumPy)."""
    extents = tile_shape(shape)
    value = arithmetic.operand(value, "the value of full")
    if isinstance(value, values.TileValue):
        if value.shape:
            raise KernelTypeError(f"full takes a number or a scalar, not {values.describe(value)}; ts.broadcast_to stretches tiles")
        to = value.dtype if dtype is None else promotion.as_dtype(dtype)
        return arithmetic.stretch(arithmetic.astype(value, to), extents)
    to = promotion.weak_dtype(value) if dtype is None else promotion.as_dtype(dtype)
    if to is dtypes.bool_ and value in (0, 1):
        value = bool(value)
    return arithmetic.constant(value, to, extents)


def arange(*bounds: Any, dtype: object = dtypes.int32) -> values.TileValue:
    """`arange(n)` or `arange(start, stop)`: a tile of rank 1 of consecutive integers. Their count is a power of two known while tracing."""
    if not 1 <= len(bounds) <= 2:
        raise KernelTypeError(
            f"arange takes (n) or (start, stop), not {len(bounds)} arguments; for a step write start + step * ts.arange(n)"
        )
    hint = "; for a run-time start write start + ts.arange(n)" if any(isinstance(b, values.TileValue) for b in bounds) else ""
    if hint:
        raise KernelTypeError(f"the bounds of arange must be known while the kernel is traced{hint}")
    start = static_int(bounds[0], "start") if len(bounds) == 2 else 0
    stop = static_int(bounds[-1], "stop")
    to = promotion.as_dtype(dtype)
    (count,) = tile_shape(stop - start, "arange")
    integer = to if to.is_integer else dtypes.int32
    for bound in (start, stop - 1):
        arithmetic.converted(bound, integer)
    tile = arithmetic.emit(arith.Arange(type=Tile((count,), integer)))
    if start:
        tile = tile + start
    return tile if to is integer else arithmetic.astype(tile, to)


# ---- arguments of loads and stores -----------------------------------------------------------------------------------------------


def _array(a: Any, name: str) -> values.ArrayValue:
    if not isinstance(a, values.ArrayValue):
        raise KernelTypeError(f"{name} takes an array that is a parameter of the kernel, not {values.describe(a)}")
    return a


def _position(a: values.ArrayValue, given: Any, what: str) -> list[values.TileValue | int]:
    """An index or offset per axis, as ints or int64 scalars."""
    items: Sequence[Any] = cast("Sequence[Any]", given) if isinstance(given, (tuple, list)) else (given,)
    if len(items) != a.ndim:
        raise KernelTypeError(f"{what} {_listed(items)} has {len(items)} entries, and {a.name!r} has {a.ndim} axes")
    return [_coordinate(item, what) for item in items]


def _listed(items: Sequence[Any]) -> str:
    return "(" + ", ".join(str(i) if isinstance(i, int) else values.describe(i) for i in items) + ("," if len(items) == 1 else "") + ")"


def _coordinate(item: Any, what: str) -> values.TileValue | int:
    if isinstance(item, slice):
        raise KernelTypeError(f"{what}: slices are not available: ts.load(a, index, shape=…) reads a tile")
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        value = int(cast(Any, item))
        arithmetic.converted(value, dtypes.int64)
        return value
    item = arithmetic.operand(item, what)
    if not isinstance(item, values.TileValue) or not (item.dtype.is_integer or item.weak) or item.dtype.is_float:
        raise KernelTypeError(f"{what} takes integers, not {values.describe(item)}")
    if item.shape:
        raise KernelTypeError(f"{what} takes scalars, not {values.describe(item)}")
    return item if item.dtype is dtypes.int64 else arithmetic.emit(arith.Cast(item.value, to=dtypes.int64), True)


def _value(x: values.TileValue | int) -> Value:
    return x.value if isinstance(x, values.TileValue) else arithmetic.constant(x, dtypes.int64, weak=True).value


def _offsets(a: values.ArrayValue, index: Any, offset: Any, shape: tuple[int, ...], name: str) -> tuple[Value, ...]:
    """The element offsets of a tile: from its index in tiles, or from `offset` in elements."""
    if (index is None) == (offset is None):
        raise KernelTypeError(f"{name} takes the tile's index, or offset=(…) in elements" + ("" if index is None else ", not both"))
    if index is None:
        return tuple(_value(at) for at in _position(a, offset, f"the offset of {name}"))
    found: list[Value] = []
    for at, extent in zip(_position(a, index, f"the index of {name}"), shape, strict=True):
        if isinstance(at, int):
            found.append(_value(at * extent))
        elif extent == 1:
            found.append(at.value)
        else:
            size = arithmetic.constant(extent, dtypes.int64, weak=True)
            found.append(tracer().emit(arith.Mul(at.value, size.value)))
    return tuple(found)


def _fill(other: Any, dtype: DType) -> values.TileValue:
    """`other` as a scalar of the array's dtype."""
    other = arithmetic.operand(other, "`other` of load")
    if not isinstance(other, values.TileValue):
        if isinstance(other, int) and dtype is dtypes.bool_ and other in (0, 1):
            other = bool(other)
        try:
            fill = arithmetic.converted(other, dtype)
        except KernelError:
            raise KernelValueError(f"other={other!r} does not fit {dtype.name}, the array's dtype") from None
        if dtype.is_float and np.isfinite(other) and not np.isfinite(_rounded(float(fill), dtype)):
            raise KernelValueError(f"other={other!r} does not fit {dtype.name}, the array's dtype: it would be infinite")
        return arithmetic.constant(fill, dtype)
    if other.shape:
        raise KernelTypeError(f"`other` of load is one value, not {values.describe(other)}; ts.where(mask, tile, other) takes a tile")
    if other.weak and promotion.weak_fits(other.dtype, dtype):
        return arithmetic.astype(other, dtype)
    if not promotion.can_store(other.dtype, dtype):
        raise KernelTypeError(
            f"`other` is {values.describe(other)}, and the array's dtype is {dtype.name}: write other.astype(ts.{dtype.name})"
        )
    return arithmetic.astype(other, dtype)


def _rounded(value: float, dtype: DType) -> float:
    with np.errstate(all="ignore"):
        return float(np.asarray(value).astype(dtype.numpy))


# ---- loads -----------------------------------------------------------------------------------------------------------------------


def load(a: Any, index: Any = None, *, shape: Any = None, offset: Any = None, other: Any = 0) -> values.TileValue:
    """The tile of `shape` at `index`, which counts in tiles, or at `offset`, which counts in elements.

    `index` and `offset` have an integer per axis of `a` (for one axis the integer alone will do); they may lie outside. Elements outside
    the array are `other`. The result has the dtype of `a`.
    """
    a = _array(a, "load")
    if shape is None:
        raise KernelTypeError(f"load needs shape=(…): the extents of the tile, one for each of the {a.ndim} axes of {a.name!r}")
    extents = tile_shape(shape)
    _check_rank(a, extents, "load")
    offsets = _offsets(a, index, offset, extents, "load")
    fill = _fill(other, a.dtype)
    return arithmetic.emit(ops.Load(a.value, offsets, fill.value, shape=extents))


def _check_rank(a: values.ArrayValue, shape: tuple[int, ...], name: str) -> None:
    if len(shape) != a.ndim:
        raise KernelTypeError(
            f"{name}: the shape {shape} has {len(shape)} axes, and {a.name!r} has {a.ndim}: give an extent per axis "
            "(1 for an axis that the tile doesn't span), and reshape the tile"
        )


def _element(a: values.ArrayValue, key: Any) -> list[values.TileValue | int]:
    items: Sequence[Any] = cast("Sequence[Any]", key) if isinstance(key, tuple) else (key,)
    if any(isinstance(i, slice) or i is None or i is Ellipsis for i in items):
        raise KernelTypeError(
            f"{a.name}[…] reads one element; for a tile write ts.load({a.name}, index, shape=…), whose index counts in tiles"
        )
    for item in items:
        if isinstance(item, values.TileValue) and item.shape:
            raise KernelTypeError(f"{a.name}[…] takes scalars, not {values.describe(item)}: a tile of indices is not available")
    if len(items) != a.ndim and a.ndim > 1:
        zeros, extents = ", ".join("0" * a.ndim), ", ".join(("1",) * (a.ndim - 1) + ("N",))
        raise KernelTypeError(
            f"{a.name}[…] reads one element, and takes an index for each of the {a.ndim} axes of {a.name!r}, not {len(items)}; for a row "
            f"write ts.load({a.name}, ({zeros}), shape=({extents}))"
        )
    at = _position(a, key, f"the index of {a.name}[…]")
    for axis, item in enumerate(at):
        if isinstance(item, int) and item < 0:
            raise KernelValueError(
                f"{a.name}[…]: the index {item} is below 0, and indices don't count from the end: write {a.name}.shape[{axis}] - {-item}"
            )
    return at


def read_element(a: values.ArrayValue, key: Any) -> values.TileValue:
    """`a[i, j]`: one element as a scalar; 0 outside the array."""
    offsets = tuple(map(_value, _element(a, key)))
    tile = ops.Load(a.value, offsets, arithmetic.constant(False if a.dtype is dtypes.bool_ else 0, a.dtype).value, shape=(1,) * a.ndim)
    loaded = tracer().emit(tile)
    return arithmetic.emit(Reshape(loaded, shape=())) if a.ndim else values.TileValue(loaded)


# ---- stores ----------------------------------------------------------------------------------------------------------------------


def store(a: Any, index: Any = None, tile: Any = None, *, shape: Any = None, offset: Any = None) -> None:
    """Write a tile at `index`, which counts in tiles, or at `offset`, which counts in elements. What lies outside the array is dropped.

    `shape` is what the tile is broadcast to before; without it, a scalar is stored as one element. The dtype must be one that NumPy casts
    safely to the array's.
    """
    a = _array(a, "store")
    if tile is None:
        raise KernelTypeError("store takes the array, the index and the tile: ts.store(a, index, tile) or ts.store(a, offset=…, tile=…)")
    source = _stored(a, arithmetic.operand(tile, "the tile of store"))
    if shape is not None:
        extents = tile_shape(shape)
        _check_rank(a, extents, "store")
        if arithmetic.common_shape("store", source.shape, extents) != extents:
            raise KernelTypeError(f"store: a tile of shape {source.shape} doesn't broadcast to shape={extents}")
        source = arithmetic.stretch(source, extents)
    elif not source.shape:
        source = arithmetic.stretch(source, (1,) * a.ndim)
    if len(source.shape) != a.ndim:
        raise KernelTypeError(
            f"store: a tile of shape {source.shape} has {len(source.shape)} axes, and {a.name!r} has {a.ndim}: "
            "add axes of extent 1 with tile[:, None] or tile[None, :], or give shape=(…)"
        )
    offsets = _offsets(a, index, offset, source.shape, "store")
    tracer().block.ops.append(ops.Store(a.value, offsets, source.value))


_FLOAT64 = " (float64 comes from ts.full of a float without dtype=, from / of integers, and from floats that meet integers)"


def _stored(a: values.ArrayValue, tile: arithmetic.Operand) -> values.TileValue:
    """The tile in the array's dtype. Raises KernelTypeError where that could lose values."""
    if not isinstance(tile, values.TileValue):
        return arithmetic.constant(tile, a.dtype)
    if tile.dtype is a.dtype:
        return tile
    if tile.weak and promotion.weak_fits(tile.dtype, a.dtype):
        return arithmetic.astype(tile, a.dtype)
    if tile.weak or not promotion.can_store(tile.dtype, a.dtype):
        raise KernelTypeError(
            f"{values.describe(tile)} doesn't go into {a.name!r}, an array of {a.dtype.name}, by itself: "
            f"write tile.astype({a.name}.dtype) where the loss is meant"
            + (_FLOAT64 if tile.dtype is dtypes.float64 and not tile.weak else "")
        )
    return arithmetic.astype(tile, a.dtype)


def write_element(a: values.ArrayValue, key: Any, item: Any) -> None:
    """`a[i, j] = x`: one element; outside the array nothing is written."""
    source = _stored(a, arithmetic.operand(item, f"what is stored in {a.name}[…]"))
    if source.shape:
        raise KernelTypeError(f"{a.name}[…] = … takes a scalar, not {values.describe(source)}: ts.store writes tiles")
    offsets = tuple(map(_value, _element(a, key)))
    value = tracer().emit(Splat(source.value, shape=(1,) * a.ndim)) if a.ndim else source.value
    tracer().block.ops.append(ops.Store(a.value, offsets, value))
