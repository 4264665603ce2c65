"""The layouts that memory and matrix instructions ask for: what layout assignment starts from.

Memory: how a tile is best spread over threads to be loaded or stored, what another layout would cost, and how the tile of a dot operand is
loaded when it goes on to LDS. Matrix: the fragment layouts of a dot's operands over the waves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ...ir.types import ArrayType
from .layout import Layout, bits_of, distribute, tiled
from .matrix import MatrixInstruction

WIDEST = 16  # bytes that one lane moves with one memory instruction
LINE = 64  # bytes of memory that are fetched together


@dataclass(frozen=True)
class Threads:
    """The threads of a workgroup: lanes of a wave and number of waves."""

    wave_size: int
    num_waves: int

    @property
    def count(self) -> int:
        """Threads among which a tile is divided: those of surplus waves (beyond a power of two) repeat work."""
        return self.wave_size << bits_of(self.num_waves)


# ---- memory ------------------------------------------------------------------------------------------------------------------


def _floor_power(count: int) -> int:
    return 1 << bits_of(max(1, count))


def _low_bit(extent: int) -> int:
    return extent & -extent


def _elements(array: ArrayType) -> int:
    """How many elements one access may take together, by alignment and width."""
    return _floor_power(min(WIDEST, array.align) // array.dtype.bytes) if array.axis is not None else 1


def _axes(rank: int, fastest: int) -> list[int]:
    """The axes from the fastest to the slowest: `fastest`, then the others from last to first."""
    return [fastest, *(a for a in reversed(range(rank)) if a != fastest)]


def memory_layout(shape: tuple[int, ...], array: ArrayType, threads: Threads, reduced: frozenset[int] = frozenset()) -> Layout:
    """The layout in which a tile of `array` is best loaded or stored.

    Lanes lie along the contiguous axis, each with as many neighbouring elements as one instruction moves (fewer where there aren't enough
    elements for all threads). Waves lie along the slowest axes, those that will be reduced (`reduced`) last: then fewer reductions cross
    waves.
    """
    fastest = array.axis if array.axis is not None else len(shape) - 1
    return spread(shape, fastest, _elements(array), threads, reduced)


def spread(shape: tuple[int, ...], fastest: int, vector: int, threads: Threads, reduced: frozenset[int] = frozenset()) -> Layout:
    """As `memory_layout`, from the fastest axis and the elements of a vector along it."""
    size = 1
    for extent in shape:
        size *= _low_bit(extent)
    vector = _floor_power(min(vector, size // threads.count))
    order = _axes(len(shape), fastest)
    outward = [axis for last in (False, True) for axis in reversed(order) if (axis in reduced) is last]
    return distribute(
        shape,
        [(fastest, bits_of(vector))],
        [(axis, 64) for axis in order],
        [(axis, 64) for axis in outward],
        order,
        threads.wave_size,
        threads.num_waves,
    )


def touches(layout: Layout, array: ArrayType) -> int:
    """What moving a tile costs a wave: pieces of LINE bytes that each of its instructions touches, over all instructions."""
    near, size = array.axis, array.dtype.bytes
    vector = 1
    while near is not None and vector < _elements(array) and (near, vector) in layout.registers:
        vector *= 2
    apart = [b for b in layout.lanes if b is not None and not (b[0] == near and b[1] * size < LINE)]
    return max(1, layout.count // vector) << len(apart)


_BARRIER = 64  # about what meeting at a barrier costs, in the unit of `touches`


def acceptable(layout: Layout, array: ArrayType, threads: Threads) -> bool:
    """Whether to move a tile between memory and `layout` directly, rather than in the best layout and through LDS.

    The detour writes and reads LDS, one side wide and one side element by element.
    """
    best = touches(memory_layout(layout.shape, array, threads), array)
    return touches(layout, array) <= 2 * best + layout.count + _BARRIER


def staging_layout(shape: tuple[int, int], array: ArrayType, k_axis: int, itemsize: int, threads: Threads) -> Layout:
    """How to load the tile of a dot operand that is written to LDS as rows along `k_axis`, as elements of `itemsize` bytes.

    Where k is contiguous in memory, each lane takes 16 bytes along it, and that is one LDS store. Else a lane takes a block: a few elements
    along the contiguous axis for each of a few k, which it transposes in its registers, so that both accesses are wide. Lane bits 0-2 count
    along the contiguous axis, the next along k: the neighbouring lanes that store in one cycle fill 16 bytes in each of eight rows.
    """
    other = 1 - k_axis
    each = max(1, _low_bit(shape[0]) * _low_bit(shape[1]) // threads.count)
    unit = min(itemsize, array.dtype.bytes)
    if array.axis != other:
        return spread(shape, k_axis, WIDEST // unit, threads)
    along, deep = _block(
        each, shape[other], min(_elements(array), _low_bit(shape[other])), min(WIDEST // itemsize, _low_bit(shape[k_axis]))
    )
    beside = bits_of(max(1, WIDEST // (deep * itemsize)))
    return distribute(
        shape,
        [(other, bits_of(along)), (k_axis, bits_of(deep))],
        [(other, 3), (k_axis, beside), (other, 64), (k_axis, 64)],
        [(k_axis, 64), (other, 64)],
        (other, k_axis),
        threads.wave_size,
        threads.num_waves,
    )


def _block(each: int, extent: int, widest: int, deepest: int) -> tuple[int, int]:
    """The block (along the contiguous axis, along k) of a lane that holds `each` elements.

    It takes `deep` loads and `along` LDS stores to move it: their sum is made small. Of equals, one that leaves eight blocks side by side
    in `extent`, then the widest load.
    """
    best = (1, 1)
    cost = (1 << 30, False, 0)
    along = 1
    while along <= min(widest, each):
        deep = min(deepest, each // along)
        this = (each // (along * deep) * (deep + along), along * 8 > extent, -along)
        if this < cost:
            best, cost = (along, deep), this
        along *= 2
    return best


# ---- matrix instructions -----------------------------------------------------------------------------------------------------


@cache
def cut(fragment: Layout, shape: tuple[int, ...]) -> Layout:
    """A fragment of which only `shape` exists: bits beyond it are replicated in lanes and left out of registers."""
    limits = tuple(min(extent, full) for extent, full in zip(shape, fragment.shape, strict=True))
    return Layout(
        limits,
        tuple(b for b in fragment.registers if b[1] < limits[b[0]]),
        tuple(b if b is not None and b[1] < limits[b[0]] else None for b in fragment.lanes),
        (),
    )


@dataclass(frozen=True)
class DotLayouts:
    """The fragment layouts of a dot over the waves of a workgroup. `waves` has the axis of the accumulator (0 for M, 1 for N) that each
    wave bit halves, or None."""

    instruction: MatrixInstruction
    a: Layout
    b: Layout
    acc: Layout
    waves: tuple[int | None, ...]


def dot_layouts(row: MatrixInstruction, m: int, n: int, k: int, waves: Sequence[int | None]) -> DotLayouts:
    """The layouts of the operands of an (M, K) @ (K, N) dot."""
    of_a = tuple(0 if axis == 0 else None for axis in waves)
    of_b = tuple(1 if axis == 1 else None for axis in waves)
    return DotLayouts(
        row,
        tiled(cut(row.a_layout, (m, k)), (m, k), of_a),
        tiled(cut(row.b_layout, (k, n)), (k, n), of_b),
        tiled(cut(row.acc_layout, (m, n)), (m, n), tuple(waves)),
        tuple(waves),
    )


def split_waves(row: MatrixInstruction, m: int, n: int, threads: Threads, along: int | None) -> tuple[int | None, ...]:
    """Which axis of the accumulator each wave bit halves, N's bits lowest.

    Each wave reads (its rows + its columns) of operands per k, so the split with the smallest sum is taken. `along` asks for as many waves
    as can be along one axis: rows that are reduced, or go on as the operand of another dot, then stay within their waves.
    """
    total = bits_of(threads.num_waves)
    rows, columns = bits_of(_low_bit(max(1, m // row.m))), bits_of(_low_bit(max(1, n // row.n)))
    if along is not None:
        over_m = min(rows, total) if along == 0 else max(0, total - min(columns, total))
        over_m = min(over_m, rows)
    else:
        choices = [c for c in range(min(rows, total) + 1) if total - c <= columns] or [min(rows, total)]
        over_m = min(choices, key=lambda c: ((m >> c) + (n >> (total - c)), c))
    over_n = min(columns, total - over_m)
    return (*[1] * over_n, *[0] * over_m, *[None] * (total - over_n - over_m))


def waves_of(acc: Layout, row: MatrixInstruction) -> tuple[int | None, ...] | None:
    """How a layout splits an accumulator of `row` over waves; None if it isn't such a layout."""
    waves = tuple(None if basis is None else basis[0] for basis in acc.waves)
    fragment = cut(row.acc_layout, acc.shape)
    if any(extent % f for extent, f in zip(acc.shape, fragment.shape, strict=True)):
        return None
    return waves if tiled(fragment, acc.shape, waves) == acc else None
