"""Arrays laid out in every way a user may have them, in memory that is poisoned all around.

What surrounds the elements (and lies in the gaps of a strided view) is NaN with some infinities, or for integers a pattern, so that a value
that was read from outside shows, and a byte that was written outside is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

GUARD = 64  # bytes before and after


@dataclass(frozen=True)
class Layout:
    """A way to lay out a matrix. `contiguous` and `align` are the class of every array laid out so (align 0: the element's size)."""

    name: str
    contiguous: int | None
    align: int
    place: Callable[[Arena, tuple[int, int]], np.ndarray]


class Arena:
    """Poisoned memory for one array, and the check that only the array was written."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, layout: Layout | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self._raw = np.zeros(0, np.uint8)
        self.array = self.dense(shape) if layout is None else layout.place(self, shape)

    def memory(self, count: int, offset: int = 0) -> np.ndarray:
        """`count` elements, poisoned; the first is `offset` elements past a multiple of 16 bytes."""
        size = self.dtype.itemsize
        self._raw = np.zeros(2 * GUARD + (count + offset) * size + 16, np.uint8)
        start = -self._raw.ctypes.data % 16
        usable = self._raw[start : start + (len(self._raw) - start) // size * size].view(self.dtype)
        usable[:] = poison(len(usable), self.dtype)
        first = GUARD // size + offset
        return usable[first : first + count]

    def dense(self, shape: tuple[int, ...]) -> np.ndarray:
        """Row-major without gaps, aligned."""
        return self.memory(int(np.prod(shape))).reshape(shape)

    def fill(self, values: np.ndarray) -> np.ndarray:
        """Write values (repeated along axes of stride 0, of which the first is taken) and remember everything else."""
        broadcast = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in self.array.strides)
        self.array[broadcast] = values[broadcast]
        self._before = self._raw.copy()
        return self.array

    def check_surroundings(self) -> None:
        """Nothing but the array's own elements was written since `fill`."""
        changed = self._raw != self._before
        mine = np.zeros(len(self._raw), bool)
        if self.array.size:
            base = self._raw.ctypes.data
            at = self.array.ctypes.data - base + _offsets(self.array)
            for byte in range(self.dtype.itemsize):
                mine[at + byte] = True
        outside = np.flatnonzero(changed & ~mine)
        assert not outside.size, f"{outside.size} bytes outside the array were written, the first at {outside[:4].tolist()}"


def _offsets(array: np.ndarray) -> np.ndarray:
    total = np.zeros((), np.int64)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        total = total[..., None] + np.arange(extent, dtype=np.int64) * stride
    return total.ravel()


def poison(count: int, dtype: np.dtype) -> np.ndarray:
    """NaN, every fifth one an infinity; for integers the extremes in turn; for bool, True."""
    values = np.empty(count, dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values[0::2], values[1::2] = info.max - 2, info.min + 1
    elif dtype.kind == "b":
        values[:] = True
    else:
        values[:] = np.nan
        values[::5] = np.inf
        values[3::10] = -np.inf
    return values


# ---- layouts of matrices -----------------------------------------------------------------------------------------------------------


def _padded(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    """Rows that begin at multiples of 16 bytes, whatever the number of columns; with a gap behind each."""
    rows, columns = shape
    step = 16 // arena.dtype.itemsize
    width = (columns // step + 1) * step
    return arena.memory(rows * width).reshape(rows, width)[:, :columns]


def _odd(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    """Row-major without gaps, one element past an aligned address."""
    return arena.memory(shape[0] * shape[1], offset=1).reshape(shape)


def _transposed(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    return _padded(arena, (shape[1], shape[0])).T


def _transposed_odd(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    return _odd(arena, (shape[1], shape[0])).T


def _sliced(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    """Every second row and every third column."""
    rows, columns = 2 * shape[0] + 1, 3 * shape[1] + 2
    return arena.memory(rows * columns).reshape(rows, columns)[1::2, 2::3]


def _negative(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    """Both axes backwards."""
    return arena.memory(shape[0] * shape[1]).reshape(shape)[::-1, ::-1]


def _negative_rows(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    return _odd(arena, shape)[::-1]


def _negative_columns_of_transposed(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    return _odd(arena, (shape[1], shape[0]))[::-1].T


def _repeated_rows(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    """Stride 0 along the rows: every row is the same memory."""
    return np.lib.stride_tricks.as_strided(arena.memory(shape[1]), shape, (0, arena.dtype.itemsize))


def _repeated_columns(arena: Arena, shape: tuple[int, int]) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(arena.memory(shape[0]), shape, (arena.dtype.itemsize, 0))


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("padded", 1, 16, _padded),
        Layout("dense", 1, 0, Arena.dense),
        Layout("odd", 1, 0, _odd),
        Layout("negative_rows", 1, 0, _negative_rows),
        Layout("repeated_rows", 1, 0, _repeated_rows),
        Layout("transposed", 0, 16, _transposed),
        Layout("transposed_odd", 0, 0, _transposed_odd),
        Layout("transposed_negative", 0, 0, _negative_columns_of_transposed),
        Layout("sliced", None, 0, _sliced),
        Layout("negative", None, 0, _negative),
        Layout("repeated_columns", None, 0, _repeated_columns),
    )
}

CLASSES: dict[tuple[int | None, int], tuple[Layout, ...]] = {}
"""The layouts by the class that a kernel is compiled for."""
for _layout in LAYOUTS.values():
    CLASSES[_layout.contiguous, _layout.align] = (*CLASSES.get((_layout.contiguous, _layout.align), ()), _layout)


# ---- arrays of any rank, by the way that memory is reached ---------------------------------------------------------------------------


def laid_out(extents: tuple[int, ...], dtype: np.dtype, access: str, *, written: bool) -> Arena:
    """An array in poisoned memory: "contiguous", "ragged", "strided" or "broadcast" (corpus.generated). What is written isn't broadcast."""
    arena = Arena((), dtype)
    step = 16 // arena.dtype.itemsize
    if access == "ragged" or len(extents) == 1:
        arena.array = arena.memory(int(np.prod(extents)), offset=1).reshape(extents)
    elif access == "strided":
        outer = (*(2 * extent + 1 for extent in extents[:-1]), 3 * extents[-1] + 2)
        flipped = (slice(None), *[slice(None, None, -1)] * (len(extents) - 1))
        index = (*[slice(1, None, 2)] * (len(extents) - 1), slice(2, None, 3))
        arena.array = arena.memory(int(np.prod(outer))).reshape(outer)[index][flipped]
    elif access == "broadcast" and not written:
        row = arena.memory(extents[-1])
        arena.array = np.lib.stride_tricks.as_strided(row, extents, (0,) * (len(extents) - 1) + (arena.dtype.itemsize,))
    else:
        width = (extents[-1] // step + 1) * step
        arena.array = arena.memory(int(np.prod(extents[:-1])) * width).reshape(*extents[:-1], width)[..., : extents[-1]]
    assert arena.array.shape == extents
    return arena
