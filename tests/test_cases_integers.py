"""Reports from the field: integers, signedness, bools. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import re

import both
import numpy as np
import pytest
from poison import Arena

import tessera as ts
from tessera.errors import KernelError, KernelTypeError

pytestmark = pytest.mark.filterwarnings("ignore:kernel .* has been compiled")
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
SIGNED = INTEGERS[:4]


@ts.jit
def divide_tiles(a, b, q, r, N: ts.constexpr):
    x, y = ts.load(a, 0, shape=N), ts.load(b, 0, shape=N)
    ts.store(q, 0, x // y)
    ts.store(r, 0, x % y)


@ts.jit
def divide_scalars(q, r, x, y):
    q[0] = x // y
    r[0] = x % y


@ts.jit
def divide_constants(q, r, X: ts.constexpr, Y: ts.constexpr):
    q[0] = X // Y
    r[0] = X % Y


@ts.jit
def divide_by_constant(a, q, r, Y: ts.constexpr, N: ts.constexpr):
    x = ts.load(a, 0, shape=N)
    ts.store(q, 0, x // Y)
    ts.store(r, 0, x % Y)


@pytest.mark.parametrize("dtype", [*SIGNED, np.float32, np.float16])
def test_int_01_division_rounds_down(dtype) -> None:
    """triton-lang/triton#955: Python's rule for tiles, scalars and constants alike, and a == q * b + r."""
    a, b = np.array([7, -7, 7, -7, 6, -6], dtype), np.array([2, 2, -2, -2, 3, 3], dtype)
    q, r = np.zeros(6, dtype), np.zeros(6, dtype)
    both.run(divide_tiles, 1, a, b, q, r, N=8)
    assert (q.tolist(), r.tolist()) == ([3, -4, -4, 3, 2, -2], [1, 1, -1, -1, 0, 0])
    assert np.all(q * b + r == a)
    for divisor in (2, -2, 3, -3, 1, -1, 4, -8):
        both.run(divide_by_constant, 1, a, q, r, Y=divisor, N=8)
        assert (q.tolist(), r.tolist()) == ([x // divisor for x in a.tolist()], [x % divisor for x in a.tolist()])


@pytest.mark.parametrize("make", [int, np.int32, np.int64, np.int16])
def test_int_01_the_same_of_scalars(make) -> None:
    """triton-lang/triton#955."""
    out = np.dtype(np.int64 if make is int else make)
    compiled = None
    for x, y in ((7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (-1, 5), (0, -3)):
        q, r = np.zeros(1, out), np.zeros(1, out)
        compiled = compiled or divide_scalars.compile(q, r, make(x), make(y), arch="gfx1151")
        both.launch(compiled, 1, q, r, make(x), make(y))
        assert (q[0], r[0]) == (x // y, x % y)
    q, r = np.zeros(1, np.int32), np.zeros(1, np.int32)
    both.run(divide_constants, 1, q, r, X=-7, Y=2)
    assert (q[0], r[0]) == (-4, 1)


@ts.jit
def rounded_up(x, q, by, N: ts.constexpr = 8):
    ts.store(q, 0, ts.cdiv(ts.load(x, 0, shape=N), by))


@ts.jit
def rounded_up_scalar(q, x, by):
    q[0] = ts.cdiv(x, by)


def test_int_02_cdiv_of_negatives() -> None:
    """triton-lang/triton#954: the quotient rounded up for all signs, in kernels and outside."""
    numbers = (-36, -35, -1, 0, 1, 36)
    for by in (5, -5, 1, 7):
        expected = [-(-x // by) for x in numbers]
        assert [ts.cdiv(x, by) for x in numbers] == expected
        q = np.zeros(6, np.int32)
        both.run(rounded_up, 1, np.array(numbers, np.int32), q, by)
        assert q.tolist() == expected
        for x, up in zip(numbers, expected, strict=True):
            out = np.zeros(1, np.int64)
            both.run(rounded_up_scalar, 1, out, x, by)
            assert out[0] == up
    assert [ts.cdiv(x, 5) for x in numbers] == [-7, -7, 0, 0, 1, 8]


@ts.jit
def quotient(a, b, q, N: ts.constexpr = 16):
    ts.store(q, 0, ts.load(a, 0, shape=N) // ts.load(b, 0, shape=N))


@ts.jit
def rest(a, b, r, N: ts.constexpr = 16):
    ts.store(r, 0, ts.load(a, 0, shape=N) % ts.load(b, 0, shape=N))


@ts.jit
def guarded(a, b, q, N: ts.constexpr = 16):
    x, y = ts.load(a, 0, shape=N), ts.load(b, 0, shape=N)
    ts.store(q, 0, ts.where(y != 0, x // y, 1).astype(q.dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_int_04_division_by_zero_is_defined(dtype) -> None:
    """flagos-ai/FlagGems#204: x // 0 and x % 0 are 0, alone or together, and the lowest integer by -1 wraps to itself."""
    info = np.iinfo(dtype)
    a = np.array([2, 100, 0, info.max, info.min, info.min, 5], dtype)
    b = np.array([0, 0, 0, 0, 0, 1, 3], dtype)
    if info.min:
        a, b = np.append(a, np.array([-2, info.min, info.max], dtype)), np.append(b, np.array([0, -1, -1], dtype))
    q, r, q2, r2 = (np.full(len(a), 77, dtype) for _ in range(4))
    both.run(divide_tiles, 1, a, b, q, r, N=16)
    both.run(quotient, 1, a, b, q2)
    both.run(rest, 1, a, b, r2)
    assert q.tolist() == q2.tolist() == [wrapped(0 if y == 0 else x // y, dtype) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert r.tolist() == r2.tolist() == [0 if y == 0 else x % y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    both.run(guarded, 1, a, b, q)
    assert q.tolist() == np.where(b != 0, q2, 1).tolist()  # lanes that the mask drops may divide by zero


def wrapped(value: int, dtype) -> int:
    return int(np.array(value % 2 ** (8 * np.dtype(dtype).itemsize), np.uint64).astype(dtype))


@ts.jit
def comparisons(a, b, out, N: ts.constexpr = 8):
    x, y = ts.load(a, 0, shape=N), ts.load(b, 0, shape=N)
    results = (x < y, x <= y, x > y, x >= y, x == y, x != y)
    for i in ts.static_range(6):
        ts.store(out, (i, 0), results[i][None, :])


@ts.jit
def extremes(a, b, out, N: ts.constexpr = 8):
    x, y = ts.load(a, 0, shape=N), ts.load(b, 0, shape=N)
    ts.store(out, (0, 0), ts.minimum(x, y)[None, :])
    ts.store(out, (1, 0), ts.maximum(x, y)[None, :])
    ts.store(out, (2, 0), ts.where(x < y, x, y)[None, :])
    ts.store(out, (3, 0), ts.broadcast_to(ts.max(x), (1, N)))
    ts.store(out, (4, 0), ts.broadcast_to(ts.min(x), (1, N)))


@ts.jit
def count_to(out, stop):
    n = 0
    for _ in range(stop):
        n += 1
    out[0] = n


@pytest.mark.parametrize("dtype", INTEGERS)
def test_int_08_comparisons_know_signedness(dtype) -> None:
    """NVIDIA/numba-cuda-mlir#121: <, min, max, where, reductions."""
    info = np.iinfo(dtype)
    a = np.array([info.max, info.min, 1, info.max, info.max // 2 + 1, 0, 200 % (info.max + 1), info.min], dtype)
    b = np.array([1, info.max, info.min, info.max, 1, info.max // 2 + 1, 100, info.min], dtype)
    out = np.zeros((6, 8), np.bool_)
    both.run(comparisons, 1, a, b, out)
    assert out.tolist() == [r.tolist() for r in (a < b, a <= b, a > b, a >= b, a == b, a != b)]
    ends = np.zeros((5, 8), dtype)
    both.run(extremes, 1, a, b, ends)
    least, most = np.minimum(a, b), np.maximum(a, b)
    assert ends.tolist() == [least.tolist(), most.tolist(), least.tolist(), [int(a.max())] * 8, [int(a.min())] * 8]


def test_int_08_mixed_signs_compare_by_value() -> None:
    """NVIDIA/numba-cuda-mlir#121: uint32 with int32 and uint8 with int8, in tiles; loop bounds of unsigned scalars."""
    for unsigned, signed in (
        (np.uint32, np.int32),
        (np.uint8, np.int8),
        (np.uint16, np.int64),
        (np.uint32, np.int8),
    ):
        top = np.iinfo(unsigned).max
        a, b = np.array([top, 0, 1, top // 2 + 1], unsigned), np.array([-1, -1, 1, -5], signed)
        out = np.zeros((6, 4), np.bool_)
        both.run(comparisons, 1, a, b, out, N=4)
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        assert out.tolist() == [[x < y for x, y in pairs], [x <= y for x, y in pairs], [x > y for x, y in pairs],
                                [x >= y for x, y in pairs], [x == y for x, y in pairs], [x != y for x, y in pairs]]  # fmt: skip
    for signed in SIGNED:  # no dtype holds both
        with pytest.raises(KernelTypeError, match=r"uint64 and int\d+ have no common integer dtype"):
            comparisons.compile(np.zeros(4, np.uint64), np.zeros(4, signed), np.zeros((6, 4), np.bool_), N=4)
    for stop, trips in ((np.uint8(200), 200), (np.int8(-56), 0), (np.uint16(300), 300), (7, 7)):
        n = np.zeros(1, np.int64)
        both.run(count_to, 1, n, stop)
        assert n[0] == trips


@ts.jit
def convert(x, y, N: ts.constexpr = 8):
    ts.store(y, 0, ts.load(x, 0, shape=N).astype(y.dtype))


def test_int_09_unsigned_conversions() -> None:
    """NVIDIA/numba-cuda-mlir#290: uint to float and back, at values whose top bit is set."""
    u8, u16, u32, u64 = (
        [200, 255, 128, 0],
        [60000, 65535, 32768, 2049],
        [3_000_000_000, 2**32 - 1, 2**31, 16777217],
        [2**63 + 2**11, 2**64 - 1, 2**63 + 1, 2**40 + 1],
    )
    cases = [
        *((source, to, numbers) for to in (np.float16, ts.bfloat16.numpy, np.float32, np.float64)
          for source, numbers in ((np.uint8, u8), (np.uint16, u16), (np.uint32, u32), (np.uint64, u64))),
        (np.int64, np.float32, [-(2**63), 2**63 - 1, -(2**40) - 1, -1]),
        (np.float32, np.uint32, [3e9, 4294967040.0, 2147483648.0, 0.9]), (np.float32, np.uint8, [200.7, 255.9, 128.0, 127.5]),
        (np.float64, np.uint64, [2.0**63 + 2**11, 2.0**64 - 2**11, 2.0**63, 1.5]),
        (np.float32, np.uint64, [2.0**63, 1.8446742974197924e19, 5.5, 3e9]),
        (np.float16, np.uint16, [60000.0, 65504.0, 32768.0, 2.5]), (np.float32, np.uint16, [65535.0, 32768.5, 40000.0, 0.0]),
    ]  # fmt: skip
    for source, to, numbers in cases:
        x, y = np.array(numbers, source), np.zeros(4, to)
        both.run(convert, 1, x, y, N=4)
        with np.errstate(over="ignore"):  # the largest of them are infinite in float16
            assert y.tolist() == x.astype(to).tolist(), (source, to)
    out = np.zeros(1, np.float32)
    both.run(convert, 1, np.array([2**63 + 2**11], np.uint64), out, N=1)
    assert out[0] == 9.223372036854776e18


@ts.jit
def accumulate(a, b, c, K: ts.constexpr):
    acc = ts.load(c, (0, 0), shape=(16, 16))
    ts.store(c, (0, 0), ts.dot(ts.load(a, (0, 0), shape=(16, K)), ts.load(b, (0, 0), shape=(K, 16)), acc))


@pytest.mark.parametrize("tile", [16, 32, 64])
def test_int_12_integer_dots_are_exact(tile: int) -> None:
    """triton-lang/triton#11282: a sum beyond 2**24 keeps its last digits, whatever K."""
    for k in (1, 2, 3, 4, 7, 16):
        a, b = (
            Arena((16, k), np.dtype(np.int8)).fill(np.ones((16, k), np.int8)),
            Arena((k, 16), np.dtype(np.int8)).fill(np.ones((k, 16), np.int8)),
        )
        for start in (16777217, -16777217, 2**31 - 1 - k, -(2**31)):
            c = np.full((16, 16), start, np.int32)
            both.run(accumulate, 1, a, b, c, K=tile)
            assert np.all(c == start + k)


def test_int_13_signs_of_both_operands() -> None:
    """ROCm/FlyDSL#958: the four combinations of signed and unsigned bytes, at the ends of their ranges and in between."""
    rng = np.random.default_rng(5)
    for first, second in ((np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8), (np.int8, np.uint8)):
        a, b = np.full((16, 16), 255, np.uint8).view(first), np.full((16, 16), 128, np.uint8).view(second)
        c = np.zeros((16, 16), np.int32)
        both.run(accumulate, 1, a, b, c, K=16)
        expected = {(1, 0): -522240, (1, 1): 522240, (0, 0): 2048, (0, 1): -2048}[first is np.uint8, second is np.uint8]
        assert np.all(c == expected)
        a, b = (rng.integers(0, 256, (16, 16), np.uint8).view(t) for t in (first, second))
        c[...] = 0
        both.run(accumulate, 1, a, b, c, K=16)
        assert c.tolist() == (a.astype(np.int64) @ b.astype(np.int64)).tolist()


@ts.jit
def count(x, out, N: ts.constexpr = 8):
    positive = ts.load(x, 0, shape=N) > 0
    total = ts.sum(positive)
    ts.static_assert(total.dtype == ts.int64)
    out[0] = total
    out[1] = (positive + positive).astype(ts.int64).max()
    out[2] = ts.sum(positive, dtype=ts.int32)
    out[3] = ts.max(positive).astype(ts.int64)
    out[4] = ts.min(positive).astype(ts.int64)


def test_int_16_sums_of_bools_count() -> None:
    """triton-lang/triton-ascend#2334: the sum of a mask is an int64 count; True + True is True, as in NumPy."""
    for n in (5, 600):
        x = np.resize(np.array([1, -1, 2, 0, 3], np.int32), n)
        out = np.zeros(5, np.int64)
        both.run(count, 1, x, out, N=8 if n == 5 else 1024)
        assert out.tolist() == [3 * n // 5, 1, 3 * n // 5, 1, 0]


@ts.jit
def stamps(t, out, k, N: ts.constexpr = 4):
    x = ts.load(t, 0, shape=N)
    ts.store(out, (0, 0), (x + 1)[None, :])
    ts.store(out, (1, 0), (x * 2)[None, :])
    ts.store(out, (2, 0), (x + k)[None, :])
    ts.store(out, (3, 0), (x * np.uint32(3))[None, :])


@ts.jit
def mixed(t, s, out, N: ts.constexpr = 4):
    ts.store(out, 0, ts.load(t, 0, shape=N) + ts.load(s, 0, shape=N))


def test_int_17_uint64_stays_an_integer() -> None:
    """numba/numba#1386: with Python ints it is uint64; with a signed tile an error that names both casts, never a float."""
    t = np.array([1234567890123456789, 2**63 + 1, 2**64 - 1, 0], np.uint64)
    out = np.zeros((4, 4), np.uint64)
    both.run(stamps, 1, t, out, 41)
    assert out.tolist() == [
        (t + np.uint64(n)).tolist() if op == "+" else (t * np.uint64(n)).tolist() for op, n in (("+", 1), ("*", 2), ("+", 41), ("*", 3))
    ]
    assert out[0, 0] == 1234567890123456790
    for signed in SIGNED:
        with pytest.raises(KernelTypeError) as caught:
            mixed.compile(t, np.zeros(4, signed), np.zeros(4, np.uint64))
        assert re.search(r"\.astype\(ts\.int64\).*\.astype\(ts\.uint64\)", str(caught.value))


@ts.jit
def look_up(table, index, out):
    for i in range(index.shape[0]):
        out[i] = table[index[i]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int16, np.int64])
def test_off_05_unsigned_indices_are_not_negative(dtype) -> None:
    """triton-lang/triton#6043: scalars of unsigned dtypes as indices. (Tiles of indices, ts.gather, are a later version's.)"""
    table = np.arange(256, dtype=np.int32) * 3
    index = np.array([0, 127, 128, 200, 255], dtype)
    out = np.zeros(5, np.int32)
    both.run(look_up, 1, table, index, out)
    assert out.tolist() == [0, 381, 384, 600, 765]


@ts.jit
def offset_by(table, index, out, N: ts.constexpr = 8):
    ts.store(out, 0, ts.load(table, offset=index, shape=N, other=-1))


def test_off_05_unsigned_offsets() -> None:
    """triton-lang/triton#6043: at the top of each unsigned dtype, an offset is past the end, not before the beginning."""
    table = np.arange(256, dtype=np.int32)
    for start in (np.uint8(252), np.uint16(252), np.uint32(252), np.uint64(252)):
        out = np.zeros(8, np.int32)
        both.run(offset_by, 1, table, start, out)
        assert out.tolist() == [252, 253, 254, 255, -1, -1, -1, -1]
    for start in (np.uint16(2**16 - 4), np.uint32(2**32 - 4), np.int8(-128), np.int64(-8)):
        out = np.zeros(8, np.int32)
        both.run(offset_by, 1, table, start, out)
        assert out.tolist() == [-1] * 8
    out = np.zeros(8, np.int32)
    both.run(offset_by, 1, table, np.int8(-4), out)
    assert out.tolist() == [-1] * 4 + [0, 1, 2, 3]


def test_an_error_names_the_dtype() -> None:
    """A uint64 offset beyond int64 can't be an index."""
    with pytest.raises(KernelError):
        offset_by.compile(np.zeros(4, np.int32), np.float32(1), np.zeros(8, np.int32))
