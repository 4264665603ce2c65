"""Properties, end to end: windows over any view of an array, matrix products of any size, and the corpus through the passes of the Tile IR.

What is expected is written down here element by element, apart from the reference executor.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import compare
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tessera as ts
from corpus import kernels
from corpus.generated import Member, dealt
from tessera.frontend.staging import Scalar, trace
from tessera.ir import passes
from tessera.ir.interp import run_kernel
from tessera.ir.text import parse_kernel, print_kernel
from tessera.ir.verify import verify
from tessera.jit import CompiledKernel, JitFunction, Options

quickly = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
DTYPES = {"int8": ts.int8, "float16": ts.float16, "int32": ts.int32, "float64": ts.float64}
TILES: dict[int, tuple[tuple[int, ...], ...]] = {1: ((8,), (128,)), 2: ((4, 8), (16, 2), (1, 32)), 3: ((2, 4, 4), (1, 8, 2))}

# ---- windows ---------------------------------------------------------------------------------------------------------------------------


def copy_1(x, y, a, p, TILE: ts.constexpr, other: ts.constexpr):
    ts.store(y, offset=p, tile=ts.load(x, offset=a, shape=TILE, other=other))


def copy_2(x, y, a, b, p, q, TILE: ts.constexpr, other: ts.constexpr):
    ts.store(y, offset=(p, q), tile=ts.load(x, offset=(a, b), shape=TILE, other=other))


def copy_3(x, y, a, b, c, p, q, r, TILE: ts.constexpr, other: ts.constexpr):
    ts.store(y, offset=(p, q, r), tile=ts.load(x, offset=(a, b, c), shape=TILE, other=other))


@cache
def copy_kernel(dtype: str, tile: tuple[int, ...], waves: int) -> CompiledKernel:
    rank = len(tile)
    kernel = JitFunction({1: copy_1, 2: copy_2, 3: copy_3}[rank], Options(num_waves=waves))
    spec = ts.Array(DTYPES[dtype], rank, align=DTYPES[dtype].bytes, contiguous=None)
    return kernel.compile(spec, spec, *[int] * (2 * rank), TILE=tile, other=3, arch="gfx1100")


@st.composite
def views(draw: Any, rank: int, dtype: np.dtype[Any], *, written: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(memory, view): any slices, steps, orders and, for what is only read, repeated axes."""
    extents = [draw(st.integers(1, 40 // rank)) for _ in range(rank)]
    memory = np.arange(1, int(np.prod(extents)) + 1).reshape(extents)
    memory = (memory % 120).astype(dtype)
    view = memory
    for axis in range(rank):
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        start = draw(st.integers(0, 3))
        index: list[Any] = [slice(None)] * rank
        index[axis] = slice(start, None, step) if step > 0 else slice(None, start or None, step)
        view = view[tuple(index)]
    view = view.transpose(draw(st.permutations(range(rank))))
    if not written and view.size and draw(st.booleans()):
        axis = draw(st.integers(0, rank - 1))
        view = np.broadcast_to(np.take(view, [0], axis), tuple(7 if i == axis else e for i, e in enumerate(view.shape)))
    return memory, view


OFFSETS = st.one_of(
    st.integers(-12, 12), st.integers(-(2**62), 2**62), st.sampled_from([2**31, -(2**31), 2**32, 2**31 - 4, -(2**63), 2**63 - 9])
)


@quickly
@given(st.data())
def test_windows(data: st.DataObject) -> None:
    """Element i of the tile is x[offset + i] or the fill value, and goes to y[offset + i] or nowhere; no other byte changes."""
    dtype = data.draw(st.sampled_from(sorted(DTYPES)))
    rank = data.draw(st.integers(1, 3))
    tile = data.draw(st.sampled_from(TILES[rank]))
    waves = data.draw(st.sampled_from([1, 4]))
    _, x = data.draw(views(rank, DTYPES[dtype].numpy, written=False))
    memory, y = data.draw(views(rank, DTYPES[dtype].numpy, written=True))
    source, target = ([data.draw(OFFSETS) for _ in range(rank)] for _ in range(2))
    expected_memory = memory.copy()
    expected = np.lib.stride_tricks.as_strided(
        expected_memory.ravel()[(y.__array_interface__["data"][0] - memory.ctypes.data) // memory.itemsize :], y.shape, y.strides
    )
    for place in itertools.product(*map(range, tile)):
        at, to = [o + i for o, i in zip(source, place, strict=True)], [o + i for o, i in zip(target, place, strict=True)]
        value = x[tuple(at)] if all(0 <= i < e for i, e in zip(at, x.shape, strict=True)) else 3
        if all(0 <= i < e for i, e in zip(to, y.shape, strict=True)):
            expected[tuple(to)] = value
    copy_kernel(dtype, tile, waves)[1](x, y, *source, *target)
    compare.same_bits(memory, expected_memory)


# ---- products --------------------------------------------------------------------------------------------------------------------------


@cache
def product_kernel(dtype: str, tile: tuple[int, int, int], waves: int) -> CompiledKernel:
    narrow = {"int8": ts.int8, "uint8": ts.uint8, "float16": ts.float16}[dtype]
    operand = ts.Array(narrow, 2, align=narrow.bytes, contiguous=None)
    kernel = JitFunction(kernels.matmul.function, Options(num_waves=waves))
    result = ts.Array(ts.float32 if narrow.is_float else ts.int32, 2, align=4, contiguous=None)
    return kernel.compile(operand, operand, result, BM=tile[0], BN=tile[1], BK=tile[2], arch="gfx1100")


@quickly
@given(st.data())
def test_products(data: st.DataObject) -> None:
    """Products of small integers, which are exact in every dtype, of any size and any strides."""
    dtype = data.draw(st.sampled_from(["int8", "uint8", "float16"]))
    tile = data.draw(st.sampled_from([(16, 16, 16), (32, 16, 32)]))
    m, k, n = (data.draw(st.integers(0, 70)) for _ in range(3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    low = 0 if dtype == "uint8" else -4
    big_a, big_b = rng.integers(low, 5, (2 * m, 3 * k)).astype(dtype), rng.integers(low, 5, (2 * n, k)).astype(dtype)
    a, b = big_a[::-2, 1::3], big_b[1::2].T
    c = np.full((m, n), 99, np.float32 if dtype == "float16" else np.int32)
    grid = (ts.cdiv(m, tile[0]), ts.cdiv(n, tile[1]))
    product_kernel(dtype, tile, data.draw(st.sampled_from([1, 2, 3])))[grid](a, b, c)
    assert c.tolist() == (a.astype(np.int64) @ b.astype(np.int64)).tolist()


# ---- the corpus through the passes -------------------------------------------------------------------------------------------------------

MEMBERS = [member for member in dealt(1, seed=3) if member.tile == "small" and member.level == "O0"]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: m.name)
def test_text_and_passes_keep_the_corpus(member: Member) -> None:
    """parse(print(k)) prints the same, and each pass of the Tile IR keeps what the kernel computes, bit for bit."""
    specs, constants = {}, dict(member.constants)
    names = [name for name in member.kernel.signature.names if name not in member.kernel.signature.constexprs]
    for name, spec in zip(names, member.specs(), strict=True):
        specs[name] = spec.type() if isinstance(spec, ts.Array) else Scalar(*{int: (ts.int64, True)}.get(spec, (spec, False)))
    kernel = trace(member.kernel.function, specs, constants, num_waves=member.waves).kernel
    text = print_kernel(kernel)
    assert without_locations(print_kernel(parse_kernel(text))) == without_locations(text)
    results = [outputs(kernel, member)]
    for step in passes.TILE_PASSES:
        step(kernel)
        verify(kernel)
        results.append(outputs(kernel, member))
    for after in results[1:]:
        for expected, got in zip(results[0], after, strict=True):
            compare.same(got, expected)


def without_locations(text: str) -> list[str]:
    return [line.partition("  // ")[0] for line in text.splitlines()]


def outputs(kernel: Any, member: Member) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(9)
    arrays = []
    for _, extents, dtype, written in member.arrays():
        numbers = rng.integers(-9, 10, extents) / (2 if dtype.is_float else 1)
        arrays.append(
            np.ones(extents, dtype.numpy) if written else np.abs(numbers).astype(dtype.numpy) * (1 - 2 * (numbers < 0)).astype(dtype.numpy)
        )
    run_kernel(kernel, member.grid, [*arrays, *member.numbers.values()])
    return [array for array, (_, _, _, written) in zip(arrays, member.arrays(), strict=True) if written]
