"""How a tile lies in LDS, which wide accesses a distributed layout needs to reach it, and which of them collide in the banks.

A tile is stored row by row, a *row* being the elements along the fastest axis (`order[0]`). Row r begins at

    r * row bytes  +  sum over the pads (shift, bytes) of  (r >> shift) * bytes

so that rows which lanes touch together fall into different banks: with 64-byte rows the pads ((1, 16), (3, -16)) skip 16 bytes after every
second row but not after every eighth. Such a shift distributes over sums of disjoint bits, as do the coordinates of a distributed layout
(layout.py): the byte offset of an element is the sum of a part per lane bit, a part per wave bit and a constant per register. The first
two are computed once per thread and the constants disappear into the offset fields of the instructions. An exclusive-or swizzle would
give up exactly that, hence padding.

Banks. LDS has `arch.lds_banks` banks of 4 bytes. An access of 4 bytes per lane serves 32 lanes together; 8 bytes 16 neighbours, 16
bytes 8 neighbours (32 banks; assumed for RDNA, no public source). Lanes that touch different words of one bank at the same time wait for
each other; the same word is read once for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .layout import Basis, Layout, bits_of, odd_part

_N = TypeVar("_N", int, NDArray[np.int64])

Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LdsLayout:
    """A tile of `shape` (rank 1 or more) in LDS. `order` lists the axes, fastest first; an element has 1, 2, 4 or 8 bytes; pads are
    (shift, bytes).

    Raises ValueError where the pads wouldn't distribute over the bits of a coordinate, misalign elements, or would make rows overlap.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    element_bytes: int
    pads: Pads = ()

    def __post_init__(self) -> None:
        if not self.shape or sorted(self.order) != list(range(len(self.shape))):
            raise ValueError(f"{self.order} is not an order of the axes of {self.shape}")
        if self.pads and any(odd_part(self.shape[a]) > 1 for a in self.order[1:-1]):
            raise ValueError(f"rows of a tile of shape {self.shape} in the order {self.order} can't be padded")
        if any(step % self.element_bytes for _, step in self.pads):
            raise ValueError(f"the pads {self.pads} don't keep elements of {self.element_bytes} bytes aligned")
        # Row r begins so much after row r - 1, where 2**zeros is the largest power of two that divides r.
        gaps = [sum(step for shift, step in self.pads if shift <= zeros) for zeros in range(max(0, self.rows - 1).bit_length())]
        if min(gaps, default=0) < 0:
            raise ValueError(f"rows of {self.row_bytes} bytes overlap with the pads {self.pads}")

    @property
    def row_bytes(self) -> int:
        """Bytes of a row without padding."""
        return self.shape[self.order[0]] * self.element_bytes

    @property
    def rows(self) -> int:
        return math.prod(self.shape[a] for a in self.order[1:])

    def _row_start(self, row: int) -> int:
        return row * self.row_bytes + sum((row >> shift) * step for shift, step in self.pads)

    @cached_property
    def bytes(self) -> int:
        """Size of the whole tile, from the first element's first byte to the last one's last."""
        return self._row_start(self.rows - 1) + self.row_bytes

    def address(self, point: Sequence[_N]) -> _N:
        """The byte offset of an element from the tile's first byte; coordinates are all ints or all NumPy arrays."""
        row = point[self.order[0]] * 0
        for axis, scale in zip(self.order[1:], self._row_scales, strict=True):
            row = row + point[axis] * scale
        total = row * self.row_bytes + point[self.order[0]] * self.element_bytes
        for shift, step in self.pads:
            total = total + (row >> shift) * step
        return total

    @cached_property
    def _row_scales(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[a] for a in self.order[1:n]) for n in range(1, len(self.order)))

    def weights(self, bases: Sequence[Basis]) -> tuple[int, ...]:
        """The bytes that each bit of a lane's or wave's number adds to the address."""
        found: list[int] = []
        for basis in bases:
            point = [0] * len(self.shape)
            if basis is not None:
                point[basis[0]] = basis[1]
            found.append(int(self.address(point)))
        return tuple(found)

    def __str__(self) -> str:
        pads = "".join(f"{step:+}*(r>>{shift})" for shift, step in self.pads)
        return f"lds({'x'.join(map(str, self.shape))},{self.element_bytes},{'.'.join(map(str, self.order))}{',' + pads if pads else ''})"


@dataclass(frozen=True)
class Access:
    """One LDS instruction: consecutive bytes at the thread's address + `offset`, holding these registers' elements in order."""

    offset: int
    registers: tuple[int, ...]
    bytes: int


@cache
def accesses(lds: LdsLayout, layout: Layout, corner: tuple[int, ...] | None = None, widest: int = 16) -> tuple[Access, ...]:
    """The accesses that move a tile of `layout` to or from `lds`, where it begins at the element `corner`: each as wide as can be.

    An access is a power of two bytes, at most `widest`, and aligned to its width provided that the buffer is to 16 bytes. Raises
    ValueError where the corner shares bits with the tile's coordinates, so that padding would not distribute.
    """
    corner = corner or (0,) * layout.rank
    if lds.pads and any(corner[a] % layout.unit[a] for a in lds.order[1:]):
        raise ValueError(f"a tile of shape {layout.shape} can't be addressed at {corner} of padded {lds}")
    aligned = math.gcd(widest, *lds.weights(layout.lanes), *lds.weights(layout.waves))
    offsets = sorted(
        (lds.address([at + start for at, start in zip(point, corner, strict=True)]), register)
        for register, point in enumerate(layout.register_offsets)
    )
    found: list[Access] = []
    size, first = lds.element_bytes, 0
    while first < len(offsets):
        start, run = offsets[first][0], 1
        while first + run < len(offsets) and offsets[first + run][0] == start + run * size and (run + 1) * size <= widest:
            run += 1
        width = size << bits_of(run)
        while width > size and (start % width or aligned % width):
            width //= 2
        count = width // size
        found.append(Access(start, tuple(register for _, register in offsets[first : first + count]), width))
        first += count
    return tuple(found)


def conflicts(lds: LdsLayout, layout: Layout, banks: int) -> int:
    """Cycles lost to bank conflicts when one wave reads or writes a tile of `layout`, over all its accesses."""
    # Within an access, the registers' constants move all lanes alike, which only rotates the banks.
    widths = Counter(access.bytes for access in accesses(lds, layout))
    lanes = _sums(lds.weights(layout.lanes))
    return sum(count * _lost(lanes, width, banks) for width, count in widths.items())


def _sums(weights: Sequence[int]) -> list[int]:
    """The sum of the weights of the set bits of 0, 1, 2, …"""
    found = [0]
    for weight in weights:
        found += [at + weight for at in found]
    return found


def _lost(lanes: Sequence[int], width: int, banks: int) -> int:
    together = max(1, min(len(lanes), 32, banks * 4 // width))
    units = max(1, width // 4)  # an access of several words is aligned to them, so that its words collide as one
    lost = 0
    for first in range(0, len(lanes), together):
        words = {address // (4 * units) for address in lanes[first : first + together]}
        lost += max(Counter(word % (banks // units) for word in words).values()) - 1
    return lost


@cache
def choose(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    element_bytes: int,
    reads: tuple[Layout, ...],
    writes: tuple[Layout, ...],
    banks: int,
) -> LdsLayout:
    """The smallest padding without bank conflicts; where there is none, that with the fewest in `reads`, then in `writes`.

    `reads` and `writes` are layouts of tiles of `shape`. Paddings that would split accesses into narrower ones are not considered.
    """
    plain = LdsLayout(shape, order, element_bytes)
    widths = [Counter(access.bytes for access in accesses(plain, layout)) for layout in (*reads, *writes)]
    widest = max((width for found in widths for width in found), default=4)
    chosen, best = plain, None
    for pads in _candidates(plain, max(widest, 4)):
        lds = LdsLayout(shape, order, element_bytes, pads)
        score = [0, 0]
        for index, (layout, found) in enumerate(zip((*reads, *writes), widths, strict=True)):
            lanes = _sums(lds.weights(layout.lanes))
            score[index >= len(reads)] += sum(count * _lost(lanes, width, banks) for width, count in found.items())
        if best is None or score < best:
            chosen, best = lds, score
        if best == [0, 0]:
            break
    return chosen


def _candidates(plain: LdsLayout, finest: int) -> list[Pads]:
    """Pads in steps of `finest` bytes or more, by the size that they add; none comes first."""
    if any(odd_part(plain.shape[a]) > 1 for a in plain.order[1:-1]) or plain.rows < 2:
        return [()]
    shifts = range(min(bits_of(plain.rows), 6))
    steps = [step for step in (4, 8, 16) if step >= finest]
    single: list[Pads] = [((shift, step),) for shift, step in product(shifts, steps)]
    double: list[Pads] = [((s, step), (t, sign * step)) for s, t in combinations(shifts, 2) for step in steps for sign in (-1, 1)]
    last = plain.rows - 1
    return [(), *sorted([*single, *double], key=lambda pads: sum((last >> shift) * step for shift, step in pads))]
