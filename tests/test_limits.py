"""Tiles that no register file holds are refused at their line, with what would fit."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts


@ts.jit
def double(x, y, N: ts.constexpr):
    ts.store(y, 0, ts.load(x, 0, shape=N) * 2)


@ts.jit(num_waves=16)
def double_with_16_waves(x, y, N: ts.constexpr):
    ts.store(y, 0, ts.load(x, 0, shape=N) * 2)


def test_a_tile_beyond_twice_the_registers_is_refused():
    x = ts.Array(ts.float32, ndim=1)
    with pytest.raises(ts.errors.ResourceError) as caught:
        double.compile(x, x, N=1 << 17, arch="gfx1151")
    text = str(caught.value)
    assert "a tile of 131072 float32 takes 1,024 registers of each thread with num_waves=4; a thread on gfx1151 has 256" in text
    assert "@ts.jit(num_waves=16)" in text
    assert "ts.load(x, 0, shape=N)" in text
    assert "^^^^" in text


def test_the_advice_holds():
    x = np.arange(1 << 15, dtype=np.float32)
    y = np.zeros_like(x)
    double_with_16_waves[1](x, y, N=1 << 15)
    np.testing.assert_array_equal(y, 2 * x)


def test_where_no_number_of_waves_suffices_only_smaller_tiles_are_named():
    x = ts.Array(ts.float64, ndim=1)
    with pytest.raises(ts.errors.ResourceError, match="Make the tile smaller\n") as caught:
        double.compile(x, x, N=1 << 19, arch="gfx1151")
    assert caught.value.message.endswith("Make the tile smaller")
