"""Types of IR values: immutable, hashable, and written the same way everywhere.

Examples: `64x32xf16`, `i64`, `array<f16,2,align=16,axis=1,small,disjoint>`, `lds<64x32xf16>`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .. import dtypes
from ..dtypes import DType

NDArray: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[Any]]"


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of `shape` elements of `dtype`; the empty shape is a scalar."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), self.dtype.short])


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array in global memory: what is known of it when a kernel is compiled.

    `align` divides the base address and every stride but the contiguous one, in bytes. `axis` is the axis whose stride is one element, or
    None. `small`: every extent, and the distance from the lowest to the highest byte, are below 2**31. `disjoint`: no other argument that
    the kernel writes shares memory with it.
    """

    dtype: DType
    ndim: int
    align: int
    axis: int | None
    small: bool
    disjoint: bool

    def __str__(self) -> str:
        words = [self.dtype.short, str(self.ndim), f"align={self.align}"]
        if self.axis is not None:
            words.append(f"axis={self.axis}")
        words += [word for word, on in (("small", self.small), ("disjoint", self.disjoint)) if on]
        return f"array<{','.join(words)}>"


@dataclass(frozen=True, slots=True)
class LdsType:
    """A tile held in LDS. How its elements lie there is the business of the target's ops."""

    shape: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"lds<{'x'.join([*map(str, self.shape), self.dtype.short])}>"


Type: TypeAlias = "Tile | ArrayType | LdsType"


def tile_from_text(text: str) -> Tile:
    """Parse `64x32xf16`. Raises ValueError."""
    *shape, short = text.split("x")
    try:
        return Tile(tuple(map(int, shape)), dtypes.parse(short))
    except KeyError:
        raise ValueError(f"{text!r} is not a tile type") from None


def type_from_text(text: str) -> Type:
    """Parse what `str()` of a type gives. Raises ValueError."""
    if text.startswith("lds<"):
        tile = tile_from_text(text[4:-1])
        return LdsType(tile.shape, tile.dtype)
    if not text.startswith("array<"):
        return tile_from_text(text)
    short, ndim, *words = text[6:-1].split(",")
    values = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    axis = values.get("axis")
    return ArrayType(
        dtypes.parse(short), int(ndim), int(values["align"]), None if axis is None else int(axis), "small" in values, "disjoint" in values
    )


INDEX = Tile((), dtypes.int64)
"""The type of weak integers: program ids, extents, offsets, loop counters."""

TRUTH = Tile((), dtypes.bool_)
"""The type of conditions."""
