"""Tiles in LDS: addresses, the accesses that reach them, bank conflicts by brute force, and the paddings that are chosen."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.targets.rocm import layout as lo
from tessera.targets.rocm import lds as ld
from tessera.targets.rocm import matrix
from tessera.targets.rocm.layout import Layout
from tessera.targets.rocm.lds import LdsLayout

law = settings(deadline=None, max_examples=100)
RDNA = ((1, 16), (3, -16))
PADS = [(), RDNA, ((0, 16),), ((2, 4),), ((0, 8), (1, 8)), ((1, 4), (2, -4))]


def addresses(lds: LdsLayout) -> np.ndarray:
    return np.asarray(lds.address(list(np.indices(lds.shape))))


def brute_conflicts(lds: LdsLayout, layout: Layout, banks: int) -> int:
    """Cycles lost, from the addresses of every access of wave 0, constants included."""
    lost = 0
    for access in ld.accesses(lds, layout):
        first = [lds.address(layout.coordinates(access.registers[0], lane)) for lane in range(layout.wave_size)]
        group = min(32, max(1, banks * 4 // access.bytes), layout.wave_size)
        for start in range(0, layout.wave_size, group):
            words = {(at + b) // 4 for at in first[start : start + group] for b in range(access.bytes)}
            lost += int(np.bincount([w % banks for w in words]).max()) - 1
    return lost


def test_the_rule_of_rdna() -> None:
    lds = LdsLayout((128, 32), (1, 0), 2, RDNA)
    assert all(lds.address((r, k)) == 64 * r + 16 * ((r >> 1) - (r >> 3)) + 2 * k for r, k in product(range(128), range(32)))
    assert lds.bytes == 8960
    assert str(lds) == "lds(128x32,2,1.0,+16*(r>>1)-16*(r>>3))"


@law
@given(st.sampled_from([(8, 16), (2, 4, 8), (4, 12), (16,), (3, 8)]), st.sampled_from([1, 2, 4, 8]), st.sampled_from(PADS), st.data())
def test_elements_do_not_overlap(shape: tuple[int, ...], size: int, pads: ld.Pads, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    if any(step % size for _, step in pads) or (pads and any(lo.odd_part(shape[a]) > 1 for a in order[1:-1])):
        return
    lds = LdsLayout(shape, order, size, pads)
    at = np.sort(addresses(lds).ravel())
    assert at[0] == 0
    assert at[-1] + size == lds.bytes
    assert (np.diff(at) >= size).all()


def test_bad_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        LdsLayout((8, 8), (1, 0), 2, ((0, -16),))
    with pytest.raises(ValueError, match="overlap"):
        LdsLayout((8, 8), (1, 0), 2, ((0, 16), (2, -32)))
    with pytest.raises(ValueError, match="can't be padded"):
        LdsLayout((2, 3, 8), (2, 1, 0), 2, ((1, 16),))
    with pytest.raises(ValueError, match="not an order"):
        LdsLayout((8, 8), (1, 1), 2)
    with pytest.raises(ValueError, match="aligned"):
        LdsLayout((8, 8), (1, 0), 8, ((0, 4),))
    with pytest.raises(ValueError, match="can't be addressed"):
        ld.accesses(LdsLayout((64, 32), (1, 0), 2, RDNA), lo.blocked((32, 32)), (8, 0))


@law
@given(
    st.sampled_from([(16, 32), (64, 8), (4, 8, 4), (48, 16), (32,), (1, 8)]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(PADS),
    st.sampled_from([1, 4, 8]),
    st.data(),
)
def test_accesses_reach_every_register(shape: tuple[int, ...], size: int, pads: ld.Pads, vector: int, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    if any(step % size for _, step in pads) or (pads and any(lo.odd_part(shape[a]) > 1 for a in order[1:-1])):
        return
    layout = lo.blocked(shape, vector=vector, order=tuple(data.draw(st.permutations(range(len(shape))))), num_waves=4)
    held = tuple(extent * 2 for extent in shape)
    corner = tuple(data.draw(st.sampled_from([0, extent])) for extent in shape)
    lds = LdsLayout(held, order, size, pads)
    if pads and any(c % u for c, u in zip(corner, layout.unit, strict=True)):
        return
    seen: list[int] = []
    lane_steps, wave_steps = lds.weights(layout.lanes), lds.weights(layout.waves)
    for access in ld.accesses(lds, layout, corner):
        assert access.bytes == size * len(access.registers) <= 16
        for lane, wave in product((0, 1, 9, 22, 31), (0, 1, 3)):
            base = sum(w for b, w in enumerate(lane_steps) if lane >> b & 1) + sum(w for b, w in enumerate(wave_steps) if wave >> b & 1)
            assert (base + access.offset) % access.bytes == 0
            for n, register in enumerate(access.registers):
                point = [a + c for a, c in zip(layout.coordinates(register, lane, wave), corner, strict=True)]
                assert base + access.offset + n * size == lds.address(point)
        seen += access.registers
    assert sorted(seen) == list(range(layout.count))


def test_accesses_are_as_wide_as_can_be() -> None:
    lds = LdsLayout((32, 64), (1, 0), 2)
    assert {a.bytes for a in ld.accesses(lds, lo.blocked((32, 64), vector=16))} == {16}
    assert {a.bytes for a in ld.accesses(lds, lo.blocked((32, 64), vector=2))} == {4}
    # Registers that are neighbours down a column, stored into rows of columns: a transpose on the way.
    down = lo.parse("32x64/j1.j2.j4.i1.i2/j8.j16.j32.i4.i8/i16")
    transposed = ld.accesses(LdsLayout((32, 64), (0, 1), 2), down)
    assert [a.bytes for a in transposed] == [8] * 8
    assert transposed[1].registers == (1, 9, 17, 25)
    # A padding finer than the access splits it.
    assert {a.bytes for a in ld.accesses(LdsLayout((32, 64), (1, 0), 2, ((0, 4),)), lo.blocked((32, 64), vector=16))} == {4}


@law
@given(
    st.sampled_from([(16, 32), (32, 16), (64, 8)]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(PADS),
    st.sampled_from([1, 2, 8]),
    st.data(),
)
def test_conflicts_by_brute_force(shape: tuple[int, int], size: int, pads: ld.Pads, vector: int, data: st.DataObject) -> None:
    order = data.draw(st.sampled_from([(0, 1), (1, 0)]))
    layout = lo.blocked(shape, vector=vector, order=data.draw(st.sampled_from([(0, 1), (1, 0)])))
    lds = LdsLayout(shape, order, size, tuple((shift, step * size) for shift, step in pads))
    banks = data.draw(st.sampled_from([32, 64]))
    assert ld.conflicts(lds, layout, banks) == brute_conflicts(lds, layout, banks)


def test_known_conflicts() -> None:
    column = lo.blocked((32, 1))  # lane = row: without padding all 32 rows of 128 bytes begin in one bank
    assert ld.conflicts(LdsLayout((32, 32), (1, 0), 4), column, 32) == 31
    assert ld.conflicts(LdsLayout((32, 32), (1, 0), 4), column, 64) == 15
    assert ld.conflicts(LdsLayout((32, 32), (1, 0), 4, ((0, 4),)), column, 32) == 0
    assert ld.conflicts(LdsLayout((32, 32), (0, 1), 4), column, 32) == 0
    assert ld.conflicts(LdsLayout((32, 32), (1, 0), 4), lo.replicated((32, 1)), 32) == 0  # one word for all lanes
    rows = lo.blocked((32, 32), order=(0, 1))  # each lane reads its row 16 bytes at a time, eight lanes together
    assert ld.conflicts(LdsLayout((32, 32), (1, 0), 4), rows, 32) == 8 * 4 * 7


ROWS = {r.mnemonic: r for r in matrix.ROWS if r.a is r.b}


@pytest.mark.parametrize("tile", [(32, 32, 32), (64, 64, 32), (128, 64, 32), (128, 128, 32), (64, 64, 64), (128, 128, 16), (64, 64, 128)])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("split", [(1, 1), (2, 2), (4, 1)])
def test_fragments_are_read_without_conflicts(tile: tuple[int, int, int], row: matrix.MatrixInstruction, split: tuple[int, int]) -> None:
    m, n, k = tile
    size = row.a.bytes
    waves_m, waves_n = (lo.bits_of(s) for s in split)
    num_waves = math.prod(split)
    for shape, order, fragment, axes in (
        ((m, k), (1, 0), row.a_layout, (None,) * waves_n + (0,) * waves_m),
        ((k, n), (0, 1), row.b_layout, (1,) * waves_n + (None,) * waves_m),
    ):
        read = lo.tiled(fragment, shape, axes)
        write = lo.blocked(shape, vector=16 // size, order=order, num_waves=num_waves)
        lds = ld.choose(shape, order, size, (read,), (write,), 32)
        assert brute_conflicts(lds, read, 32) == 0
        assert brute_conflicts(lds, write, 32) == 0
        assert {a.bytes for a in ld.accesses(lds, read)} == {16}
        assert lds.bytes <= math.prod(shape) * size * 1.3


def test_the_choice_for_transposed_halves_is_the_measured_one() -> None:
    read = lo.tiled(ROWS["v_wmma_f32_16x16x16_f16"].b_layout, (32, 128), (1, None))
    # Each lane loads 4 rows of k by 8 columns of n; lane bits 0-2 and 4 are the column group, bit 3 and the wave the group of rows.
    write = lo.parse("32x128/j1.j2.j4.i1.i2/j8.j16.j32.i4.j64/i8.i16")
    assert ld.choose((32, 128), (0, 1), 2, (read,), (write,), 32).pads == RDNA
