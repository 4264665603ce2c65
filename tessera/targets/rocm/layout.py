"""Distributed layouts: which element of a tile lies in which register of which lane of which wave.

The idea. Number a thread's registers, the lanes of a wave and the waves of a workgroup in binary. A layout says for every *bit* of these
three numbers what setting it does to the tile coordinate: it adds a power of two along one axis (its basis), or nothing, in which case the
threads that differ in that bit only hold copies of the same elements. The coordinate of a register is the sum over the bits that are set:

    registers i8      lanes j1 j2 j4 j8 i1      waves i2 i4          (a 16 x 16 tile, two registers, 32 lanes, 4 waves)
    register 1 of lane 0b10011 of wave 0b01:  i8 + (j1 + j2 + i1) + i2  =  row 11, column 3

Every bit of the tile's index belongs to exactly one basis, so the sums never carry: a coordinate splits into a part that depends on the
lane, one that depends on the wave and a constant per register, and address arithmetic is done once per thread with the constants folded
into instruction offsets. It also makes every question about two layouts a question about their bits: `register_map` and `conversion`
below compare a handful of pairs rather than thousands of elements.

The map goes from hardware to tile and not back since it must be a function: a tile element may have several holders (replication), a
register holds one element. This is Triton's linear layout with the matrix restricted to one-hot columns, which all hardware layouts obey.

Extents that are not powers of two. An extent is 2**b times an odd number; the odd part is a *repeat count*. The bits cover the power of
two, and the whole pattern repeats along the axis, in more registers: register = repeat index (row-major over the axes) * 2**len(registers)
+ the bits. As repeats are odd there is one way to write a layout, and equality is equality of the fields.

Surplus waves. With 3, 5, 6 or 7 waves a layout has bits for the largest power of two of them; the waves beyond repeat the work of those
whose number agrees in these bits, and neither store nor take part in what must be done once.

Text: `16x16/i8/j1.j2.j4.j8.i1/i2.i4` is the layout above: shape, registers, lanes, waves; axes are i, j, k, …; `-` is a replicated bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Basis: TypeAlias = "tuple[int, int] | None"
"""(axis, step): what setting a bit adds to the coordinate; None for a replicated bit."""

_AXES = "ijklmnop"


def odd_part(extent: int) -> int:
    """The largest odd divisor."""
    return extent // (extent & -extent)


def bits_of(count: int) -> int:
    """The number of bits of the largest power of two that is at most `count`."""
    return count.bit_length() - 1


@dataclass(frozen=True)
class Layout:
    """How a tile of `shape` spreads over registers, lanes and waves; the module's docstring explains the bases.

    Bit 0 comes first in each tuple. Raises ValueError unless every bit of every extent's power of two is in exactly one basis.
    """

    shape: tuple[int, ...]
    registers: tuple[tuple[int, int], ...]
    lanes: tuple[Basis, ...]
    waves: tuple[Basis, ...]

    def __post_init__(self) -> None:
        if len(self.shape) > len(_AXES) or any(extent < 1 for extent in self.shape):
            raise ValueError(f"a layout can't have the shape {self.shape}")
        wanted = [(axis, 1 << b) for axis, extent in enumerate(self.shape) for b in range(bits_of(extent // odd_part(extent)))]
        given = [basis for basis in (*self.registers, *self.lanes, *self.waves) if basis is not None]
        if sorted(given) != wanted:
            raise ValueError(f"the bases {given} don't cover each bit of the shape {self.shape} once")

    # Sizes.

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def wave_size(self) -> int:
        """Lanes in a wave."""
        return 1 << len(self.lanes)

    @property
    def num_waves(self) -> int:
        """Waves that the layout tells apart: a power of two."""
        return 1 << len(self.waves)

    @cached_property
    def repeats(self) -> tuple[int, ...]:
        """How often the pattern repeats along each axis: the odd part of the extent."""
        return tuple(odd_part(extent) for extent in self.shape)

    @cached_property
    def unit(self) -> tuple[int, ...]:
        """The shape of the pattern that repeats: powers of two."""
        return tuple(extent // odd_part(extent) for extent in self.shape)

    @cached_property
    def count(self) -> int:
        """Registers per thread, one element each."""
        return math.prod(self.repeats) << len(self.registers)

    # Coordinates.

    @cached_property
    def register_offsets(self) -> tuple[tuple[int, ...], ...]:
        """For each register, the part of the coordinate that is the same in all threads."""
        found: list[tuple[int, ...]] = []
        for repeat in product(*map(range, self.repeats)):
            corner = [r * u for r, u in zip(repeat, self.unit, strict=True)]
            for bits in range(1 << len(self.registers)):
                point = list(corner)
                for b, (axis, step) in enumerate(self.registers):
                    point[axis] += step * (bits >> b & 1)
                found.append(tuple(point))
        return tuple(found)

    @staticmethod
    def weights(bases: Sequence[Basis], axis: int) -> tuple[int, ...]:
        """What each bit adds along `axis`: (0, 0, 1, 2) for bases - j1-like in other axes."""
        return tuple(basis[1] if basis is not None and basis[0] == axis else 0 for basis in bases)

    def coordinates(self, register: int, lane: int, wave: int = 0) -> tuple[int, ...]:
        """The element that a register holds. Bits of `wave` beyond the layout's are ignored (surplus waves)."""
        point = list(self.register_offsets[register])
        for bases, number in ((self.lanes, lane), (self.waves, wave)):
            for b, basis in enumerate(bases):
                if basis is not None and number >> b & 1:
                    point[basis[0]] += basis[1]
        return tuple(point)

    def elements(self) -> NDArray[np.int64]:
        """The row-major index of the element in each (wave, lane, register), as an array of that shape."""
        strides = [math.prod(self.shape[axis + 1 :]) for axis in range(self.rank)]

        def part(bases: Sequence[Basis]) -> NDArray[np.int64]:
            numbers = np.arange(1 << len(bases))
            steps = [0 if basis is None else basis[1] * strides[basis[0]] for basis in bases]
            return sum(((numbers >> b & 1) * step for b, step in enumerate(steps)), np.zeros_like(numbers)).astype(np.int64)

        offsets = np.array([sum(at * stride for at, stride in zip(point, strides, strict=True)) for point in self.register_offsets])
        return part(self.waves)[:, None, None] + part(self.lanes)[:, None] + offsets

    # Replication.

    @cached_property
    def replicated_lanes(self) -> int:
        """The mask of lane bits in which lanes with equal data differ: the lanes with none of them set own the elements."""
        return sum(1 << b for b, basis in enumerate(self.lanes) if basis is None)

    @cached_property
    def replicated_waves(self) -> int:
        """The same for waves; surplus waves own nothing either."""
        return sum(1 << b for b, basis in enumerate(self.waves) if basis is None)

    @cached_property
    def providers(self) -> dict[tuple[int, int], tuple[str, int]]:
        """For each basis, the kind ("register", "lane" or "wave") and number of the bit that has it."""
        named = (("register", self.registers), ("lane", self.lanes), ("wave", self.waves))
        return {basis: (kind, b) for kind, bases in named for b, basis in enumerate(bases) if basis is not None}

    # Text.

    def __str__(self) -> str:
        def word(basis: Basis) -> str:
            return "-" if basis is None else f"{_AXES[basis[0]]}{basis[1]}"

        parts = [".".join(map(word, bases)) for bases in (self.registers, self.lanes, self.waves)]
        return "/".join(["x".join(map(str, self.shape)), *parts])


def parse(text: str) -> Layout:
    """The layout of a text that `str()` wrote. Raises ValueError."""

    def basis(word: str) -> Basis:
        return None if word == "-" else (_AXES.index(word[0]), int(word[1:]))

    shape, registers, lanes, waves = text.split("/")
    split = [tuple(map(basis, filter(None, part.split(".")))) for part in (registers, lanes, waves)]
    found = tuple(b for b in split[0] if b is not None)
    if len(found) != len(split[0]):
        raise ValueError(f"a register bit can't be replicated: {text!r}")
    return Layout(tuple(map(int, filter(None, shape.split("x")))), found, split[1], split[2])


# Making layouts.


def distribute(
    shape: Sequence[int],
    registers: Sequence[tuple[int, int]],
    lanes: Sequence[tuple[int, int]],
    waves: Sequence[tuple[int, int]],
    order: Sequence[int],
    wave_size: int,
    num_waves: int,
) -> Layout:
    """A layout from the number of bits to take, in turn, from each axis: entries are (axis, bits), lowest first.

    Bits of an axis are handed out upwards: to `registers`, then `lanes`, then `waves`; an entry takes what is left if that is less. Bits
    that nobody asked for become the highest register bits, along the axes in `order`. Lane and wave bits that got none are replicated.
    """
    left = [[(axis, 1 << b) for b in range(bits_of(extent // odd_part(extent)))] for axis, extent in enumerate(shape)]

    def take(wanted: Sequence[tuple[int, int]], room: int) -> list[tuple[int, int]]:
        taken: list[tuple[int, int]] = []
        for axis, count in wanted:
            count = min(count, room - len(taken), len(left[axis]))
            taken += left[axis][:count]
            del left[axis][:count]
        return taken

    low = take(registers, 64)
    lane_bits, wave_bits = bits_of(wave_size), bits_of(num_waves)
    lane, wave = take(lanes, lane_bits), take(waves, wave_bits)
    rest = take([(axis, 64) for axis in order], 64)
    return Layout(
        tuple(shape),
        tuple(low + rest),
        (*lane, *[None] * (lane_bits - len(lane))),
        (*wave, *[None] * (wave_bits - len(wave))),
    )


@cache
def blocked(
    shape: tuple[int, ...],
    *,
    vector: int = 1,
    order: tuple[int, ...] | None = None,
    lanes: tuple[int, ...] | None = None,
    waves: tuple[int, ...] | None = None,
    num_waves: int = 1,
    wave_size: int = 32,
) -> Layout:
    """A layout for memory: each thread holds `vector` neighbours along the fastest axis, neighbouring lanes hold neighbouring vectors.

    `order` lists the axes, fastest first (default: the last axis first). `lanes` and `waves` limit how many of them go along each axis
    (powers of two; default: as many as fit, fastest axis first, waves beginning where the lanes ended). What is left over becomes more
    registers.
    """
    order = tuple(reversed(range(len(shape)))) if order is None else order

    def wanted(limits: tuple[int, ...] | None) -> list[tuple[int, int]]:
        return [(axis, 64 if limits is None else bits_of(limits[axis])) for axis in order]

    low = [(order[0], bits_of(vector))] if order else []
    return distribute(shape, low, wanted(lanes), wanted(waves), order, wave_size, num_waves)


@cache
def replicated(shape: tuple[int, ...], *, num_waves: int = 1, wave_size: int = 32) -> Layout:
    """Every thread holds the whole tile."""
    return distribute(shape, [], [], [], tuple(reversed(range(len(shape)))), wave_size, num_waves)


@cache
def tiled(fragment: Layout, shape: tuple[int, ...], wave_axes: tuple[int | None, ...]) -> Layout:
    """A tile of fragments: each wave holds a block of whole fragments of the layout `fragment` (of one wave) of a matrix operand.

    `wave_axes` has an entry per wave bit, bit 0 first: the axis that it halves, or None where the waves that differ in it hold the same
    data (operand A of waves along n). A bit whose axis has no whole fragments left to halve is replicated. A wave's fragments are
    contiguous in its registers: register = (index of the fragment, row-major over the axes) * fragment.count + register of the fragment;
    only an odd number of repeats is outermost. Raises ValueError where the shape isn't a multiple of the fragment's.
    """
    if fragment.waves or any(r != 1 for r in fragment.repeats):
        raise ValueError(f"not a fragment of one wave: {fragment}")
    if len(shape) != fragment.rank or any(extent % f for extent, f in zip(shape, fragment.shape, strict=True)):
        raise ValueError(f"a tile of shape {shape} is not made of fragments of shape {fragment.shape}")
    left = [
        [(axis, f << b) for b in range(bits_of(extent // odd_part(extent) // f))]
        for axis, (extent, f) in enumerate(zip(shape, fragment.shape, strict=True))
    ]
    waves: list[Basis] = [left[axis].pop() if axis is not None and left[axis] else None for axis in reversed(wave_axes)]
    rest = [basis for bases in reversed(left) for basis in bases]
    return Layout(shape, (*fragment.registers, *rest), fragment.lanes, tuple(reversed(waves)))


# Layouts of the results of shape operations. None of them moves data between threads, and where all elements are kept each one stays in its
# register (but for `transpose` of two odd extents).


def _rename(layout: Layout, shape: tuple[int, ...], axes: dict[int, int]) -> Layout:
    """Renumber the axes; bases along axes that are not in `axes` go."""

    def new(basis: Basis) -> Basis:
        return (axes[basis[0]], basis[1]) if basis is not None and basis[0] in axes else None

    registers = tuple(b for b in map(new, layout.registers) if b is not None)
    return Layout(shape, registers, tuple(map(new, layout.lanes)), tuple(map(new, layout.waves)))


@cache
def slice_axis(layout: Layout, axis: int) -> Layout:
    """The layout of a reduction's result along `axis`, which disappears: lanes and waves that differed along it hold the same result."""
    kept = [a for a in range(layout.rank) if a != axis]
    return _rename(layout, tuple(layout.shape[a] for a in kept), {old: new for new, old in enumerate(kept)})


@cache
def expand_dims(layout: Layout, axis: int) -> Layout:
    """The layout with an axis of extent 1 inserted before `axis`. `slice_axis(expand_dims(x, a), a) == x`."""
    shape = (*layout.shape[:axis], 1, *layout.shape[axis:])
    return _rename(layout, shape, {a: a + (a >= axis) for a in range(layout.rank)})


def transpose(layout: Layout, axes: Sequence[int]) -> Layout:
    """The layout whose axis `n` is the old axis `axes[n]`."""
    return _rename(layout, tuple(layout.shape[a] for a in axes), {old: new for new, old in enumerate(axes)})


def transpose_registers(layout: Layout, axes: Sequence[int]) -> tuple[int, ...]:
    """For each register of `transpose(layout, axes)`, the register of `layout` that holds the element: the identity but for odd extents."""
    index = {offset: register for register, offset in enumerate(layout.register_offsets)}
    places = [axes.index(a) for a in range(layout.rank)]
    return tuple(index[tuple(offset[p] for p in places)] for offset in transpose(layout, axes).register_offsets)


def reshape(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """The layout after a row-major reshape, each element staying where it is; None where the bits of an odd extent would mix.

    Works on any powers of two, and where an odd repeat stays the outermost part of the row-major index in both shapes.
    """
    if math.prod(shape) != math.prod(layout.shape):
        raise ValueError(f"can't reshape {layout.shape} to {shape}")
    if layout.shape == shape:
        return layout

    def outermost(extents: Sequence[int]) -> bool:
        wide = [extent for extent in extents if extent != 1]
        return all(odd_part(extent) == 1 for extent in wide[1:])

    if not outermost(layout.shape) or not outermost(shape):
        return None
    old_bits = [(axis, 1 << b) for axis in reversed(range(layout.rank)) for b in range(bits_of(layout.unit[axis]))]
    new_bits = [(axis, 1 << b) for axis in reversed(range(len(shape))) for b in range(bits_of(shape[axis] // odd_part(shape[axis])))]
    moved = dict(zip(old_bits, new_bits, strict=True))

    def new(basis: Basis) -> Basis:
        return None if basis is None else moved[basis]

    return Layout(shape, tuple(moved[b] for b in layout.registers), tuple(map(new, layout.lanes)), tuple(map(new, layout.waves)))


def restrict(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout of a tile that broadcasts to `layout` without moving data: axes where `shape` has extent 1 are replicated."""
    kept = {a: a for a in range(layout.rank) if shape[a] == layout.shape[a]}
    if any(shape[a] != 1 for a in range(layout.rank) if a not in kept):
        raise ValueError(f"{shape} does not broadcast to {layout.shape}")
    return _rename(layout, shape, kept)


def broadcast(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """A layout of the shape to which a tile broadcasts, such that no data moves and as few registers as can be are added.

    Axes of extent 1 grow. Their bits go to lanes and waves that were replicated, the last axis and the lowest bit first, then to registers.
    """
    if len(shape) != layout.rank or any(a not in (1, b) for a, b in zip(layout.shape, shape, strict=True)):
        raise ValueError(f"{layout.shape} does not broadcast to {shape}")
    grown = [
        (axis, 1 << b)
        for axis in reversed(range(layout.rank))
        if layout.shape[axis] == 1
        for b in range(bits_of(shape[axis] // odd_part(shape[axis])))
    ]

    def fill(bases: Sequence[Basis]) -> tuple[Basis, ...]:
        return tuple(grown.pop(0) if basis is None and grown else basis for basis in bases)

    lanes, waves = fill(layout.lanes), fill(layout.waves)
    return Layout(shape, (*layout.registers, *grown), lanes, waves)


# Comparing layouts.


@cache
def register_map(source: Layout, target: Layout) -> tuple[int, ...] | None:
    """For each register of `target`, the register of `source` that holds the same element in every thread; None if data must move.

    The shapes may differ where the source's extent is 1: it is then broadcast.
    """
    if len(source.lanes) != len(target.lanes) or len(source.waves) != len(target.waves):
        return None
    for mine, theirs in ((source.lanes, target.lanes), (source.waves, target.waves)):
        if any(basis is not None and basis != other for basis, other in zip(mine, theirs, strict=True)):
            return None
    if any(target.providers[basis][0] != "register" for basis in source.registers):
        return None
    index = {offset: register for register, offset in enumerate(source.register_offsets)}
    # What lanes and waves provide in the target, the source either gets from the same bits or broadcasts.
    ones = [extent == 1 for extent in source.shape]
    points = ([0 if one else at for at, one in zip(offset, ones, strict=True)] for offset in target.register_offsets)
    return tuple(index[tuple(point)] for point in points)


class Movement(IntEnum):
    """What a conversion takes, cheapest first."""

    NONE = 0  # the layouts are equal
    REGISTERS = 1  # each thread rearranges, copies or drops its registers
    LANES = 2  # elements move between the lanes of a wave
    LDS = 3  # elements move between waves, or lanes can't do it by shuffles


@dataclass(frozen=True)
class Exchange:
    """A source register bit that the target has as lane bit `lane`: which register a lane sends depends on the lane.

    The sender tells by its own lane bit `carrier`. If `register` isn't None, that lane bit is in turn the target's register bit of this
    number, and register and lane bit are exchanged: in round t the receiver gets its register t ^ (lane bit << register).
    """

    source_register: int
    lane: int
    carrier: int
    register: int | None


@dataclass(frozen=True)
class Shuffle:
    """How a conversion of kind LANES goes: one round per target register `t`, each lane receiving one element.

    For round t and receiving lane l (in wave w), bit b of the sending lane is `lane_sources[b]`: ("lane", n) is bit n of l, ("register", n)
    bit n of t, ("wave", n) bit n of w; for an exchange with a register, the carrier bit is bit `register` of t xor bit `lane` of l. Bit b
    of the sender's register is `register_sources[b]`, "register" and "wave" as above, or None for that of an exchange: the carrier bit of
    the sender, xor bit `register` of t if there is one. The receiver's register is t with bit `register` of each exchange xored by bit
    `lane` of l. The repeat index is the same on both sides.
    """

    lane_sources: tuple[tuple[str, int], ...]
    register_sources: tuple[tuple[str, int] | None, ...]
    exchanges: tuple[Exchange, ...]


@cache
def shuffle(source: Layout, target: Layout) -> Shuffle | None:
    """How to convert within each wave; None where elements must change waves or lanes can't carry them."""
    if source.shape != target.shape or len(source.lanes) != len(target.lanes) or len(source.waves) != len(target.waves):
        return None
    if any(basis is not None and basis != other for basis, other in zip(source.waves, target.waves, strict=True)):
        return None
    lane_sources = [("lane", b) if basis is None else target.providers[basis] for b, basis in enumerate(source.lanes)]
    register_sources: list[tuple[str, int] | None] = []
    wanted: list[tuple[int, int]] = []
    for b, basis in enumerate(source.registers):
        provider = target.providers[basis]
        if provider[0] == "lane":
            wanted.append((b, provider[1]))
            register_sources.append(None)
        else:
            register_sources.append(provider)
    swaps = [(b, origin[1]) for b, origin in enumerate(lane_sources) if origin[0] == "register"]
    free = [b for b, basis in enumerate(source.lanes) if basis is None]
    exchanges: list[Exchange] = []
    for register, lane in wanted:
        if lane in free:
            free.remove(lane)
            carrier, other = lane, None
        elif swaps:
            carrier, other = swaps.pop(0)
        elif free:
            carrier, other = free.pop(0), None
        else:
            return None
        lane_sources[carrier] = ("lane", lane) if other is None else ("register", other)
        exchanges.append(Exchange(register, lane, carrier, other))
    return Shuffle(tuple(lane_sources), tuple(register_sources), tuple(exchanges))


@cache
def movement(source: Layout, target: Layout) -> Movement:
    """What it takes to convert `source` to `target`. Raises ValueError where the shapes differ."""
    if source.shape != target.shape:
        raise ValueError(f"a conversion can't change the shape {source.shape} to {target.shape}")
    if source == target:
        return Movement.NONE
    if register_map(source, target) is not None:
        return Movement.REGISTERS
    return Movement.LANES if shuffle(source, target) is not None else Movement.LDS


def bit_groups(weights: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Split `sum(weights[b] * bit b of n)` into terms ((n >> shift) & mask) * factor, one per run of doubling weights.

    Yields (shift, mask, factor).
    """
    b = 0
    while b < len(weights):
        start = b
        b += 1
        if weights[start] == 0:
            continue
        while b < len(weights) and weights[b] == weights[start] << (b - start):
            b += 1
        yield start, (1 << (b - start)) - 1, weights[start]
