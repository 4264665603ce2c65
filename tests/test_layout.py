"""Layouts: the algebra's laws on random layouts, against plain NumPy simulations of what threads hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.targets.rocm import layout as lo
from tessera.targets.rocm.layout import Basis, Layout, Movement

law = settings(deadline=None, max_examples=100)


def check_ownership(layout: Layout) -> None:
    """Every element is held, and held once by the threads that own it."""
    elements = layout.elements()
    assert elements.shape == (layout.num_waves, layout.wave_size, layout.count)
    lanes = [lane for lane in range(layout.wave_size) if not lane & layout.replicated_lanes]
    waves = [wave for wave in range(layout.num_waves) if not wave & layout.replicated_waves]
    owned = elements[np.ix_(waves, lanes, range(layout.count))]
    assert sorted(owned.ravel()) == list(range(math.prod(layout.shape)))


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...] | None = None, lanes: int | None = None, waves: int | None = None) -> Layout:
    if shape is None:
        shape = tuple(draw(st.lists(st.sampled_from([1, 2, 4, 8, 16, 3, 6]), max_size=3)))
    lanes = draw(st.sampled_from([5, 6])) if lanes is None else lanes
    waves = draw(st.integers(0, 3)) if waves is None else waves
    bases: list[Basis] = [(a, 1 << b) for a, extent in enumerate(shape) for b in range(lo.bits_of(extent // lo.odd_part(extent)))]
    bases = draw(st.permutations(bases))
    at_lanes = draw(st.integers(0, min(lanes, len(bases))))
    at_waves = draw(st.integers(0, min(waves, len(bases) - at_lanes)))
    lane = draw(st.permutations(bases[:at_lanes] + [None] * (lanes - at_lanes)))
    wave = draw(st.permutations(bases[at_lanes : at_lanes + at_waves] + [None] * (waves - at_waves)))
    return Layout(shape, tuple(b for b in bases[at_lanes + at_waves :] if b is not None), tuple(lane), tuple(wave))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Layout, Layout]:
    source = draw(layouts())
    lanes, waves = len(source.lanes), len(source.waves)
    if draw(st.booleans()):
        return source, draw(layouts(source.shape, lanes, waves))
    # Neighbours: a few swaps of bits, so that the cheap conversions are met often.
    bits: list[Basis] = [*source.registers, *source.lanes, *source.waves]
    for _ in range(draw(st.integers(0, 3))):
        a, b = draw(st.integers(0, len(bits) - 1)), draw(st.integers(0, len(bits) - 1))
        bits[a], bits[b] = bits[b], bits[a]
    n = len(source.registers)
    if any(b is None for b in bits[:n]):
        return source, source
    registers = tuple(b for b in bits[:n] if b is not None)
    return source, Layout(source.shape, registers, tuple(bits[n : n + lanes]), tuple(bits[n + lanes :]))


@law
@given(layouts())
def test_ownership_and_coordinates(layout: Layout) -> None:
    check_ownership(layout)
    elements = layout.elements()
    for wave, lane, register in product(range(layout.num_waves), (0, 1, 5, 18, layout.wave_size - 1), range(layout.count)):
        point = layout.coordinates(register, lane, wave)
        assert int(np.ravel_multi_index(point, layout.shape) if layout.shape else 0) == elements[wave, lane, register]
        parts = list(layout.register_offsets[register])
        for axis in range(layout.rank):
            for bases, number in ((layout.lanes, lane), (layout.waves, wave)):
                parts[axis] += sum(w for b, w in enumerate(layout.weights(bases, axis)) if number >> b & 1)
        assert tuple(parts) == point


@law
@given(layouts())
def test_text_round_trip(layout: Layout) -> None:
    assert lo.parse(str(layout)) == layout
    assert " " not in str(layout)


def test_text() -> None:
    layout = Layout((16, 16), ((0, 8),), ((1, 1), (1, 2), (1, 4), (1, 8), (0, 1)), ((0, 2), (0, 4)))
    assert str(layout) == "16x16/i8/j1.j2.j4.j8.i1/i2.i4"
    assert layout.coordinates(1, 0b10011, 0b01) == (11, 3)


@pytest.mark.parametrize(
    "bases",
    [
        ((8,), ((0, 1), (0, 2)), (None,) * 5, ()),  # a bit is missing
        ((4,), ((0, 1), (0, 2)), ((0, 1), None, None, None, None), ()),  # twice
        ((4,), ((0, 1), (1, 2)), (None,) * 5, ()),  # another axis
        ((0,), (), (None,) * 5, ()),
        ((4,), ((0, 1), (0, 3)), (None,) * 5, ()),
    ],
)
def test_bases_must_cover_the_shape(
    bases: tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[Basis, ...], tuple[Basis, ...]],
) -> None:
    with pytest.raises(ValueError, match=r"cover|can't have"):
        Layout(*bases)


@law
@given(
    st.lists(st.sampled_from([1, 2, 8, 32, 3, 12]), max_size=3),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(1, 8),
    st.sampled_from([32, 64]),
    st.data(),
)
def test_blocked(shape: list[int], vector: int, num_waves: int, wave_size: int, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    layout = lo.blocked(tuple(shape), vector=vector, order=order, num_waves=num_waves, wave_size=wave_size)
    assert layout.wave_size == wave_size
    assert layout.num_waves == 1 << lo.bits_of(num_waves)
    threads = layout.num_waves * wave_size
    assert layout.count >= math.prod(shape) / threads
    fast = [] if not shape else [layout.register_offsets[r][order[0]] for r in range(min(vector, layout.unit[order[0]]))]
    assert fast == list(range(len(fast)))


def test_blocked_places() -> None:
    # 64 x 128 halves, 8 at a time: 16 lanes along a row of 128, two rows to a wave, four waves, eight rounds.
    layout = lo.blocked((64, 128), vector=8, num_waves=4)
    assert str(layout) == "64x128/j1.j2.j4.i8.i16.i32/j8.j16.j32.j64.i1/i2.i4"
    assert layout.coordinates(8 + 3, 17, 1) == (8 + 1 + 2, 8 + 3)
    assert lo.blocked((4,), num_waves=3).replicated_lanes == 0b11100
    assert lo.blocked((4,), num_waves=3).replicated_waves == 0b1
    column = lo.blocked((64, 32), vector=2, order=(0, 1), lanes=(8, 4), waves=(1, 2), num_waves=2)
    assert str(column) == "64x32/i1.i16.i32.j8.j16/i2.i4.i8.j1.j2/j4"


def test_extents_of_one_and_rank_zero() -> None:
    assert str(lo.blocked((), num_waves=2)) == "//-.-.-.-.-/-"
    assert lo.blocked((1, 1)).count == 1
    assert lo.parse("//-.-.-.-.-/-").coordinates(0, 31, 1) == ()
    assert lo.replicated((2, 3)).register_offsets == ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2))


@law
@given(layouts(), st.integers(0, 3))
def test_slice_is_the_inverse_of_expand_dims(layout: Layout, axis: int) -> None:
    axis = min(axis, layout.rank)
    wide = lo.expand_dims(layout, axis)
    check_ownership(wide)
    assert lo.slice_axis(wide, axis) == layout
    assert (wide.elements() == layout.elements()).all()


@law
@given(layouts(), st.data())
def test_slice(layout: Layout, data: st.DataObject) -> None:
    if layout.rank == 0:
        return
    axis = data.draw(st.integers(0, layout.rank - 1))
    thin = lo.slice_axis(layout, axis)
    check_ownership(thin)
    # Each register of the tile knows which register of the reduced tile it adds to.
    mapping = lo.register_map(lo.expand_dims(thin, axis), layout)
    assert mapping is not None
    points = np.stack(np.unravel_index(layout.elements(), layout.shape), -1)
    reduced = np.delete(points, axis, -1)
    index = np.ravel_multi_index(np.moveaxis(reduced, -1, 0), thin.shape) if thin.shape else np.zeros(reduced.shape[:-1], int)
    assert (thin.elements()[:, :, list(mapping)] == index).all()


@law
@given(layouts(), st.data())
def test_transpose(layout: Layout, data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(layout.rank)))
    tile = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    turned = lo.transpose(layout, axes)
    registers = list(lo.transpose_registers(layout, axes))
    assert (tile.transpose(axes).ravel()[turned.elements()] == layout.elements()[:, :, registers]).all()
    assert registers == list(range(layout.count)) or sum(r > 1 for r in layout.repeats) > 1
    assert lo.transpose(turned, np.argsort(axes).tolist()) == layout


@law
@given(layouts(), st.data())
def test_reshape(layout: Layout, data: st.DataObject) -> None:
    size = math.prod(layout.shape)
    shape: list[int] = []
    while size > 1 and len(shape) < 4 and data.draw(st.booleans()):
        factor = data.draw(st.sampled_from([f for f in range(1, size + 1) if size % f == 0]))
        shape.append(factor)
        size //= factor
    shape.append(size)
    after = lo.reshape(layout, tuple(shape))
    if after is None:
        assert any(lo.odd_part(e) > 1 for e in (*layout.shape, *shape))
        return
    check_ownership(after)
    assert (after.elements() == layout.elements()).all()
    back = lo.reshape(after, layout.shape)
    assert back == layout


def test_reshape_of_odd_extents() -> None:
    layout = lo.blocked((96, 8), vector=2)
    assert lo.reshape(layout, (768,)) is not None
    assert lo.reshape(layout, (1, 96, 2, 4)) is not None
    assert lo.reshape(layout, (8, 96)) is None
    with pytest.raises(ValueError, match="can't reshape"):
        lo.reshape(layout, (96, 4))


@law
@given(layouts(), st.data())
def test_broadcast(layout: Layout, data: st.DataObject) -> None:
    shape = tuple(e if e != 1 else data.draw(st.sampled_from([1, 2, 16, 6])) for e in layout.shape)
    wide = lo.broadcast(layout, shape)
    check_ownership(wide)
    mapping = lo.register_map(layout, wide)
    assert mapping is not None
    tile = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    expected = np.broadcast_to(tile, shape).ravel()[wide.elements()]
    assert (layout.elements()[:, :, list(mapping)] == expected).all()
    assert lo.register_map(lo.restrict(wide, layout.shape), wide) is not None


@law
@given(layouts(), st.data())
def test_restrict(layout: Layout, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.sampled_from([1, e])) for e in layout.shape)
    thin = lo.restrict(layout, shape)
    check_ownership(thin)
    mapping = lo.register_map(thin, layout)
    assert mapping is not None
    tile = np.arange(math.prod(shape)).reshape(shape)
    expected = np.broadcast_to(tile, layout.shape).ravel()[layout.elements()]
    assert (thin.elements()[:, :, list(mapping)] == expected).all()


def test_broadcast_uses_replicated_threads_first() -> None:
    row = lo.blocked((1, 16), num_waves=2)
    assert str(row) == "1x16//j1.j2.j4.j8.-/-"
    assert str(lo.broadcast(row, (8, 16))) == "8x16/i4/j1.j2.j4.j8.i1/i2"


def run_shuffle(source: Layout, target: Layout) -> np.ndarray:
    """What the threads hold after the rounds of `shuffle`, as its docstring tells."""
    plan = lo.shuffle(source, target)
    assert plan is not None
    held, got = source.elements(), np.full(target.elements().shape, -1)
    s_units, t_units = 1 << len(source.registers), 1 << len(target.registers)
    by_carrier = {x.carrier: x for x in plan.exchanges if x.register is not None}
    by_register = {x.source_register: x for x in plan.exchanges}
    for wave, lane, t in product(range(target.num_waves), range(target.wave_size), range(target.count)):
        bits = {"lane": lane, "register": t % t_units, "wave": wave}
        sender = 0
        for b, (kind, n) in enumerate(plan.lane_sources):
            bit = bits[kind] >> n & 1
            if b in by_carrier:
                bit ^= lane >> by_carrier[b].lane & 1
            sender |= bit << b
        register = t // t_units * s_units
        for b, origin in enumerate(plan.register_sources):
            if origin is not None:
                bit = bits[origin[0]] >> origin[1] & 1
            else:
                x = by_register[b]
                bit = sender >> x.carrier & 1
                if x.register is not None:
                    bit ^= t >> x.register & 1
            register |= bit << b
        place = t
        for x in plan.exchanges:
            if x.register is not None:
                place ^= (lane >> x.lane & 1) << x.register
        assert got[wave, lane, place] == -1
        got[wave, lane, place] = held[wave, sender, register]
    return got


@law
@given(pairs())
def test_conversions(pair: tuple[Layout, Layout]) -> None:
    source, target = pair
    kind = lo.movement(source, target)
    held, wanted = source.elements(), target.elements()
    if kind is Movement.NONE:
        assert source == target
    elif kind is Movement.REGISTERS:
        mapping = lo.register_map(source, target)
        assert mapping is not None
        assert (held[:, :, list(mapping)] == wanted).all()
    elif kind is Movement.LANES:
        assert (run_shuffle(source, target) == wanted).all()
    else:
        # Truly out of reach for plain register moves: some thread lacks an element.
        lacking = [set(wanted[w, x]) - set(held[w, x]) for w in range(target.num_waves) for x in range(target.wave_size)]
        assert any(lacking)


@law
@given(pairs())
def test_register_map_is_found_whenever_it_exists(pair: tuple[Layout, Layout]) -> None:
    source, target = pair
    held, wanted = source.elements(), target.elements()
    sources = {column.tobytes() for column in np.moveaxis(held, -1, 0)}
    assert (lo.register_map(source, target) is not None) == all(column.tobytes() in sources for column in np.moveaxis(wanted, -1, 0))


def test_classification_examples() -> None:
    row = lo.blocked((32, 32), vector=4, num_waves=2)
    assert str(row) == "32x32/j1.j2.i8.i16/j4.j8.j16.i1.i2/i4"
    reordered = lo.parse("32x32/i16.j2.j1.i8/j4.j8.j16.i1.i2/i4")
    lanes = lo.parse("32x32/j1.j2.i2.i16/j4.j8.j16.i1.i8/i4")
    waves = lo.parse("32x32/j1.j2.i4.i16/j4.j8.j16.i1.i2/i8")
    assert [lo.movement(row, x) for x in (row, reordered, lanes, waves)] == list(Movement)
    copies = lo.replicated((4,), num_waves=2)
    assert lo.movement(lo.blocked((4,), num_waves=2), copies) is Movement.LANES
    assert lo.movement(copies, lo.blocked((4,), num_waves=2)) is Movement.LANES  # each lane selects one of its registers
    with pytest.raises(ValueError, match="shape"):
        lo.movement(row, lo.transpose(lo.blocked((32, 64)), (1, 0)))


FRAGMENT = lo.parse("16x16/j1.j2.j4.j8/i1.i2.i4.i8.-/")


@pytest.mark.parametrize("shape", [(16, 16), (64, 32), (128, 16), (96, 32), (48, 48)])
@pytest.mark.parametrize("wave_axes", [(), (0,), (None, 0), (0, 0, None)])
def test_tiled(shape: tuple[int, int], wave_axes: tuple[int | None, ...]) -> None:
    layout = lo.tiled(FRAGMENT, shape, wave_axes)
    check_ownership(layout)
    rows, columns = (len({offset[axis] // 16 for offset in layout.register_offsets}) for axis in (0, 1))
    assert rows * columns * FRAGMENT.count == layout.count
    for index in range(rows * columns if layout.repeats == (1, 1) else 0):
        f, g = divmod(index, columns)
        for r in range(FRAGMENT.count):
            i, j = FRAGMENT.coordinates(r, 21)
            assert layout.coordinates(index * FRAGMENT.count + r, 21) == (f * 16 + i, g * 16 + j)


def test_tiled_waves_own_blocks() -> None:
    layout = lo.tiled(FRAGMENT, (128, 32), (None, 0))
    assert str(layout) == "128x32/j1.j2.j4.j8.j16.i16.i32/i1.i2.i4.i8.-/-.i64"
    with pytest.raises(ValueError, match="not made of fragments"):
        lo.tiled(FRAGMENT, (8, 32), ())


def weigh(weights: Sequence[int], number: int) -> int:
    return sum(w for b, w in enumerate(weights) if number >> b & 1)


@law
@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 8, 16, 48]), max_size=6))
def test_bit_groups(weights: list[int]) -> None:
    terms = list(lo.bit_groups(weights))
    for number in range(1 << len(weights)):
        assert sum((number >> shift & mask) * factor for shift, mask, factor in terms) == weigh(weights, number)
    assert list(lo.bit_groups([2, 4, 8, 0, 1, 3])) == [(0, 7, 2), (4, 1, 1), (5, 1, 3)]
