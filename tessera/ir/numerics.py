"""NumPy's arithmetic where NumPy alone isn't precise enough a definition: casts, division by zero, shifts, maxima.

These functions are the meaning that the reference executor, constant folding and every target share.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..dtypes import DType, Kind
from . import types
from .types import NDArray


def quiet() -> np.errstate:
    """Suppress NumPy's warnings: overflow, invalid values and division by zero have defined results here."""
    return np.errstate(all="ignore")


def cast_array(x: NDArray, source: DType, to: DType) -> NDArray:
    """`x.astype(to)`, with out-of-range floats saturating to integers and NaN going to 0.

    Floats narrow to nearest even. To bfloat16 everything but float16 goes by way of float32, as in ml_dtypes; integers reach float16 by
    way of float32, as in NumPy.
    """
    with quiet():
        if to.kind is Kind.BOOL:
            return x != x.dtype.type(0)
        if source.is_float and to.is_integer:
            wide = x.astype(np.float64)
            info = np.iinfo(cast(Any, to.numpy))
            inside = (
                (wide > float(info.min) - 1) & (wide < float(info.max) + 1)
                if to.bits < 64
                else (wide >= float(info.min)) & (wide < float(info.max))
            )
            exact = np.where(inside, wide, 0).astype(to.numpy)
            clamped = np.where(wide < 0, np.array(info.min, to.numpy), np.array(info.max, to.numpy))
            return np.where(inside, exact, np.where(np.isnan(wide), 0, clamped).astype(to.numpy)).astype(to.numpy)
        if to.bits == 16 and to.is_float and (source.is_integer or source.bits == 64) and not (source.is_float and to.short == "f16"):
            x = x.astype(np.float32)
        return x.astype(to.numpy)


def wide(x: NDArray, dtype: DType) -> NDArray:
    """float16 and bfloat16 as float32, in which their arithmetic is done; other dtypes as they are."""
    return x.astype(np.float32) if dtype.is_float and dtype.bits == 16 else x


def floor_divide(x: NDArray, y: NDArray) -> NDArray:
    """NumPy's `//`. Integers: x // 0 is 0, and the lowest integer // -1 wraps. Floats round toward minus infinity."""
    with quiet():
        return np.asarray(np.floor_divide(x, y), x.dtype)


def remainder(x: NDArray, y: NDArray) -> NDArray:
    """NumPy's `%`: the sign of the divisor; integers: x % 0 is 0."""
    with quiet():
        return np.asarray(np.remainder(x, y), x.dtype)


def shift_left(x: NDArray, count: NDArray) -> NDArray:
    """`x << count`; counts at or above the width, and negative ones, give 0."""
    width = x.dtype.itemsize * 8
    bad = (count < 0) | (count >= width)
    return np.where(bad, x.dtype.type(0), np.left_shift(x, np.where(bad, 0, count).astype(x.dtype))).astype(x.dtype)


def shift_right(x: NDArray, count: NDArray) -> NDArray:
    """`x >> count`; counts at or above the width, and negative ones, give 0 or, for a negative x, -1."""
    width = x.dtype.itemsize * 8
    bad = (count < 0) | (count >= width)
    return (
        np.right_shift(x, np.where(bad, width - 1, count).astype(x.dtype))
        if np.issubdtype(x.dtype, np.signedinteger)
        else np.where(bad, x.dtype.type(0), np.right_shift(x, np.where(bad, 0, count).astype(x.dtype))).astype(x.dtype)
    )


def maximum(x: NDArray, y: NDArray) -> NDArray:
    """The larger; NaN if either is; +0 is larger than -0."""
    with quiet():
        picked = np.where((x > y) | np.isnan(x), x, y) if x.dtype.kind not in "bui" else np.maximum(x, y)
        if x.dtype.kind not in "bui":
            picked = np.where((x == y) & np.signbit(y), x, picked)
        return picked.astype(x.dtype)


def minimum(x: NDArray, y: NDArray) -> NDArray:
    """The smaller; NaN if either is; -0 is smaller than +0."""
    with quiet():
        picked = np.where((x < y) | np.isnan(x), x, y) if x.dtype.kind not in "bui" else np.minimum(x, y)
        if x.dtype.kind not in "bui":
            picked = np.where((x == y) & np.signbit(x), x, picked)
        return picked.astype(x.dtype)


def matmul(a: NDArray, b: NDArray, acc: NDArray, tile: types.Tile) -> NDArray:
    """`a @ b + acc`: integers exactly, modulo 2**bits; floats in float64, rounded once to the accumulator's dtype."""
    if tile.dtype.is_integer:
        if tile.dtype.bits == 64 or a.shape[-1] * 2 ** (8 * a.dtype.itemsize + 8 * b.dtype.itemsize) >= 2**53:
            product = a.astype(np.int64) @ b.astype(np.int64)
        else:
            product = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)  # exact below 2**53, and quick
        return (product + acc.astype(np.int64)).astype(tile.dtype.numpy)
    with quiet():
        total = a.astype(np.float64) @ b.astype(np.float64) + acc.astype(np.float64)
        return total.astype(tile.dtype.numpy)


def load_tile(array: NDArray, offsets: tuple[int, ...], shape: tuple[int, ...], other: NDArray) -> NDArray:
    """The tile of `shape` elements that begins at `offsets`; what lies outside the array is `other`. Nothing wraps or moves."""
    tile = np.full(shape, other, array.dtype)
    inside, outside = _overlap(array.shape, offsets, shape)
    if inside is not None:
        tile[outside] = array[inside]
    return tile


def store_tile(array: NDArray, offsets: tuple[int, ...], tile: NDArray) -> None:
    """Write a tile at `offsets`; what lies outside the array is dropped."""
    inside, outside = _overlap(array.shape, offsets, tile.shape)
    if inside is not None:
        array[inside] = tile[outside]


def _overlap(
    extents: tuple[int, ...], offsets: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[slice, ...] | None, tuple[slice, ...]]:
    inside: list[slice] = []
    outside: list[slice] = []
    for extent, offset, count in zip(extents, offsets, shape, strict=True):
        low, high = max(offset, 0), min(offset + count, extent)
        if low >= high:
            return None, ()
        inside.append(slice(low, high))
        outside.append(slice(low - offset, high - offset))
    return tuple(inside), tuple(outside)
