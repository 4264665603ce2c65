"""Loads and stores of tiles in the simulator: any strides, ragged edges, offsets anywhere, arrays of both size classes.

What surrounds an array in memory is NaN (or a telling integer) and may not be touched: the simulator raises where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lowering_harness import array_type, assign, check, compile_code, parse, simulate

from tessera import dtypes
from tessera.dtypes import DType
from tessera.ir.numerics import load_tile, store_tile
from tessera.targets.rocm.layout import Layout
from tessera.targets.rocm.layout import parse as parse_layout

Array = np.ndarray


def numbers(shape: tuple[int, ...], dtype: DType, seed: int = 1) -> Array:
    """Distinct values, up to the dtype's range."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype.short == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    values = rng.permutation(np.arange(1, count + 1)).reshape(shape)
    return (values % 2039 - 900).astype(dtype.numpy) if dtype.bits == 16 and dtype.is_float else values.astype(dtype.numpy)


def inside(shape: tuple[int, ...], dtype: DType, *, row_pad: int = 0, align: int = 16, margin: int = 5) -> Array:
    """A row-major array of distinct values in the middle of a poisoned buffer, rows padded by `row_pad` elements."""
    item = dtype.bytes
    pitch = shape[-1] + row_pad
    count = int(np.prod(shape[:-1])) * pitch
    buffer = np.full((count + 2 * margin) * item + 64, 0xFF, np.uint8)
    address = buffer.__array_interface__["data"][0]
    start = margin * item
    start += -(address + start) % align
    strides = [item]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * (n if len(strides) > 1 else pitch))
    view = np.ndarray(shape, dtype.numpy, buffer.data, start, tuple(strides))
    view[...] = numbers(shape, dtype)
    return view


def copy_kernel(
    source: str, target: str, shape: tuple[int, ...], offsets: str, *, other: str = "0", waves: int = 2, dtype: str = "f32"
) -> str:
    """`target[offsets] = load(source, offsets)`, the offsets being ops on %i (program 0) and %j (program 1) that define %r and %c."""
    named = ["%r", "%c"][: len(shape)] if len(shape) <= 2 else ["%r", "%c", "%d"]
    tile = "x".join(map(str, (*shape, dtype)))
    where = " ".join(named)
    return f"""
kernel @copy num_waves={waves} weak=[]
^(%a: {source}, %b: {target}, %u: i64, %v: i64) {{
  %i = program_id axis=0 : i64
  %j = program_id axis=1 : i64
{offsets}
  %other = const type={dtype} value={other} : {dtype}
  %t = load %a [{where}] %other shape=({"".join(f"{n}," for n in shape)}) : {tile}
  store %b [{where}] %t
  yield []
}}
"""


TILE = (8, 32)
AT_TILE = """
  %n = const type=i64 value=8 : i64
  %m = const type=i64 value=32 : i64
  %r = mul %i %n : i64
  %c = mul %j %m : i64"""
AT_OFFSET = """
  %n = const type=i64 value=8 : i64
  %m = const type=i64 value=32 : i64
  %ri = mul %i %n : i64
  %cj = mul %j %m : i64
  %r = add %ri %u : i64
  %c = add %cj %v : i64"""


def views(dtype: DType) -> dict[str, Callable[[], Array]]:
    """Arrays of about 21 x 75 elements, of every kind of strides."""
    return {
        "aligned": lambda: inside((21, 80), dtype),
        "row pitch a multiple of 16 bytes, extent not": lambda: inside((21, 75), dtype, row_pad=5),
        "odd pitch": lambda: inside((21, 75), dtype, align=dtype.bytes, margin=3),
        "transposed": lambda: inside((75, 21), dtype, align=dtype.bytes).T,
        "sliced": lambda: inside((42, 152), dtype)[1:43:2, 3:153:2],
        "rows backwards": lambda: inside((21, 80), dtype)[::-1],
        "columns backwards": lambda: inside((21, 75), dtype)[:, ::-1],
        "both backwards, transposed": lambda: inside((75, 24), dtype).T[::-1, ::-1],
    }


KINDS = list(views(dtypes.float32))


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("kind", KINDS)
def test_strides_of_loads_and_stores(kind: str, small: bool) -> None:
    source = views(dtypes.float32)[kind]()
    text = copy_kernel(array_type(source, small=small), array_type(source, small=small), TILE, AT_TILE)
    target = views(dtypes.float32)[kind]()
    target[...] = -1
    grid = (-(-source.shape[0] // 8) + 1, -(-source.shape[1] // 32), 1)
    check(assign(parse(text)), grid, (source, target, 0, 0))


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("other", ["0", "7", "nan"])
@pytest.mark.parametrize(
    ("u", "v"), [(-3, -8), (5, 13), (-8, 40), (1, -1), (2**40, 0), (0, -(2**40)), (2**63 - 1, 0), (2**31 - 1, 2**31), (-(2**63), 0)]
)
def test_offsets_anywhere_and_other(u: int, v: int, other: str, small: bool) -> None:
    source = inside((21, 75), dtypes.float32, row_pad=5)
    target = inside((24, 96), dtypes.float32)
    target[...] = -1
    text = copy_kernel(array_type(source, small=small), array_type(target, small=small), TILE, AT_OFFSET, other=other)
    text = text.replace("store %b [%r %c]", "store %b [%ri %cj]")
    check(cached(text), (3, 3, 1), (source, target, u, v))


@pytest.mark.parametrize(("u", "v"), [(-3, -8), (5, 13), (-8, 40), (2**40, 0), (0, -(2**33)), (2**63 - 1, 2**63 - 1)])
@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
def test_stores_at_offsets_anywhere(u: int, v: int, small: bool) -> None:
    source = inside((24, 96), dtypes.float32)
    target = inside((21, 75), dtypes.float32, row_pad=5)
    target[...] = -1
    text = copy_kernel(array_type(source, small=small), array_type(target, small=small), TILE, AT_OFFSET)
    text = text.replace("load %a [%r %c]", "load %a [%ri %cj]")
    check(cached(text), (3, 3, 1), (source, target, u, v))


_kernels: dict[str, Any] = {}


def cached(text: str, **options: Any) -> Any:
    key = text + repr(options)
    if key not in _kernels:
        _kernels[key] = assign(parse(text), **options)
    return _kernels[key]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.short)
@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
def test_dtypes(dtype: DType, small: bool) -> None:
    for width, pad in ((64, 0), (61, 3), (61, 0)):
        source = inside((11, width), dtype, row_pad=pad, align=16 if pad or width == 64 else dtype.bytes)
        target = inside((11, width), dtype, row_pad=pad, align=16 if pad or width == 64 else dtype.bytes)
        target[...] = 0
        other = "1"
        text = copy_kernel(array_type(source, small=small), array_type(target, small=small), TILE, AT_TILE, dtype=dtype.short, other=other)
        check(assign(parse(text), vector=16 // dtype.bytes), (2, 2, 1), (source, target, 0, 0))


def test_bytes_that_are_no_bools() -> None:
    """A bool is true where its byte isn't zero."""
    raw = np.arange(256, dtype=np.uint8).reshape(8, 32)
    target = np.zeros((8, 32), np.bool_)
    text = copy_kernel(array_type(raw.view(np.bool_)), array_type(target), TILE, AT_TILE, dtype="bool")
    kernel = assign(parse(text), vector=4)
    simulate(kernel, (1, 1, 1), (raw.view(np.bool_), target, 0, 0))
    assert np.array_equal(target.view(np.uint8), (raw != 0).astype(np.uint8))


def test_broadcast_and_overlapping_sources() -> None:
    """Strides of 0, and rows that overlap: rows past the end lie on addresses that are inside."""
    base = inside((1, 96), dtypes.float32)
    stretched = np.lib.stride_tricks.as_strided(base, (21, 75), (0, 4))
    windows = np.lib.stride_tricks.as_strided(base, (18, 75), (4, 4))
    narrow = np.lib.stride_tricks.as_strided(base, (21, 75), (0, 0))
    for source in (stretched, windows, narrow):
        for small in (True, False):
            target = inside((24, 80), dtypes.float32)
            target[...] = -1
            text = copy_kernel(
                array_type(source, small=small, align=4, axis=1 if source.strides[1] else None),
                array_type(target),
                TILE,
                AT_TILE,
                other="7",
            )
            check(assign(parse(text)), (3, 3, 1), (source, target, 0, 0))


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_ranks(rank: int) -> None:
    shape = ((), (77,), (3, 5, 37))[rank if rank < 2 else 2]
    tile = ((), (64,), (2, 4, 32))[rank if rank < 2 else 2]
    source = inside(shape, dtypes.float32, align=4) if rank else np.array(3.5, np.float32)
    target = np.zeros_like(source)
    code = (
        "",
        "\n  %m = const type=i64 value=64 : i64\n  %r = mul %i %m : i64",
        """
  %two = const type=i64 value=2 : i64
  %four = const type=i64 value=4 : i64
  %r = mul %i %two : i64
  %c = mul %j %four : i64
  %k = program_id axis=2 : i64
  %m = const type=i64 value=32 : i64
  %d = mul %k %m : i64""",
    )[rank if rank < 2 else 2]
    names = ("", "%r", "%r %c %d")[rank if rank < 2 else 2]
    text = copy_kernel(array_type(source), array_type(target), tile, code)
    text = text.replace("load %a [%r %c %d]", f"load %a [{names}]").replace("store %b [%r %c %d]", f"store %b [{names}]")
    text = text.replace("load %a [%r %c]", f"load %a [{names}]")
    check(assign(parse(text)), ((1, 1, 1), (2, 1, 1), (2, 2, 2))[min(rank, 2)], (source, target, 0, 0), checking=True)


def test_empty_arrays() -> None:
    for small in (True, False):
        source = np.zeros((0, 75), np.float32)
        target = inside((21, 80), dtypes.float32)
        text = copy_kernel(array_type(source, small=small), array_type(target, small=small), TILE, AT_TILE, other="7")
        check(assign(parse(text)), (3, 3, 1), (source, target, 0, 0))
        text = copy_kernel(array_type(target, small=small), array_type(source, small=small), TILE, AT_TILE)
        check(assign(parse(text)), (3, 3, 1), (target, source, 0, 0))


LAYOUTS = {
    "replicated lanes and waves": "8x32/j1.j2.i4.j16/j4.-.j8.-.i1/i2.-",
    "columns in lanes": "8x32/i1.i2.i4/j1.j2.j4.j8.j16/-.-",
    "rows in the low registers": "8x32/i1.j1.i2/j2.j4.j8.j16.i4/-.-",
    "vector bits last": "8x32/i4.j2.j1/j4.j8.j16.i1.i2/-.-",
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("waves", [4, 5])
def test_layouts(name: str, waves: int) -> None:
    """Whatever the order of registers; what is held twice is stored once (a second store would be a race), surplus waves store nothing."""
    layout: Layout = parse_layout(LAYOUTS[name])
    source, target = inside((21, 75), dtypes.float32, row_pad=5), inside((21, 75), dtypes.float32, row_pad=5)
    target[...] = -1
    text = copy_kernel(array_type(source), array_type(target), TILE, AT_TILE, waves=waves)
    check(assign(parse(text), layouts={TILE: layout}), (3, 3, 1), (source, target, 0, 0), checking=True)


def test_odd_extents() -> None:
    layout = parse_layout("24x96/j1.j2/j4.j8.j16.i1.i2/i4")
    source, target = inside((45, 190), dtypes.float32, row_pad=2), inside((45, 190), dtypes.float32, row_pad=2)
    target[...] = -1
    code = AT_TILE.replace("value=8", "value=24").replace("value=32", "value=96")
    text = copy_kernel(array_type(source), array_type(target), (24, 96), code)
    check(assign(parse(text), layouts={(24, 96): layout}), (2, 2, 1), (source, target, 0, 0))


# ---- in loops ----------------------------------------------------------------------------------------------------------------

SUM_ROWS = """
kernel @rows num_waves=2 weak=[]
^(%a: {a}, %b: {b}, %start: i64, %stop: i64, %step: i64) {{
  %i = program_id axis=0 : i64
  %n = const type=i64 value=8 : i64
  %m = const type=i64 value=32 : i64
  %zero = const type=i64 value=0 : i64
  %r = mul %i %n : i64
  %other = const type=f32 value={other} : f32
  %init = const type=8x32xf32 value=0 : 8x32xf32
  %sum = for {bounds} [%init] stages=0 : 8x32xf32
  ^(%k: i64, %acc: 8x32xf32) {{
    %t = load %a [{at}] %other shape=(8,32) : 8x32xf32
    %next = add %acc %t : 8x32xf32
    {store}
    yield [%next]
  }}
  store %b [%r %zero] %sum
  yield []
}}
"""


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("at", ["%r %k", "%k %r", "%k %k", "%r %zero"])
@pytest.mark.parametrize(
    "kind", ["aligned", "row pitch a multiple of 16 bytes, extent not", "rows backwards", "both backwards, transposed"]
)
def test_loads_that_move_in_loops(kind: str, at: str, small: bool) -> None:
    source = views(dtypes.float32)[kind]()
    target = inside((24, 32), dtypes.float32)
    a, b = array_type(source, small=small), array_type(target)
    kernel = assign(parse(SUM_ROWS.format(a=a, b=b, other="0.5", bounds="%zero %stop %m", at=at, store="")))
    check(kernel, (3, 1, 1), (source, target, 0, 100, 32))


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(-40, 100, 13), (100, -50, -24), (0, 0, 1), (5, 6, 100), (0, 10, 0), (-(2**62), -(2**62) + 2, 1)]
)
def test_run_time_bounds(start: int, stop: int, step: int) -> None:
    source = inside((21, 75), dtypes.float32, row_pad=5)
    target = inside((24, 32), dtypes.float32)
    text = SUM_ROWS.format(
        a=array_type(source), b=array_type(target), other="0.5", bounds="%start %stop %step", at="%r %k", store="store %b [%k %r] %t"
    )
    check(cached(text), (1, 1, 1), (source, target, start, stop, step))


def test_nested_loops_and_branches() -> None:
    """Addresses hoisted out of the inner loop, not out of the branch around it."""
    source = inside((40, 90), dtypes.float32, row_pad=6)
    target = inside((40, 90), dtypes.float32, row_pad=6)
    target[...] = 0
    text = f"""
kernel @nest num_waves=2 weak=[]
^(%a: {array_type(source)}, %b: {array_type(target)}) {{
  %rows = extent %a axis=0 : i64
  %cols = extent %a axis=1 : i64
  %zero = const type=i64 value=0 : i64
  %eight = const type=i64 value=8 : i64
  %wide = const type=i64 value=32 : i64
  %limit = const type=i64 value=17 : i64
  %z = const type=f32 value=0 : f32
  %first = const type=8x32xf32 value=1 : 8x32xf32
  %x = for %zero %rows %eight [%first] stages=0 : 8x32xf32
  ^(%r: i64, %t: 8x32xf32) {{
    %low = lt %r %limit : bool
    %y = if %low : 8x32xf32
    ^() {{
      %shift = add %r %eight : i64
      %y1 = for %zero %cols %wide [%t] stages=0 : 8x32xf32
      ^(%c: i64, %u: 8x32xf32) {{
        %v = load %a [%shift %c] %z shape=(8,32) : 8x32xf32
        %w = add %u %v : 8x32xf32
        store %b [%r %c] %w
        yield [%w]
      }}
      yield [%y1]
    }}
    ^() {{
      %v2 = load %a [%r %zero] %z shape=(8,32) : 8x32xf32
      yield [%v2]
    }}
    store %b [%r %wide] %y
    yield [%y]
  }}
  yield []
}}
"""
    check(assign(parse(text)), (1, 1, 1), (source, target))


def test_tiles_of_bfloat16_and_half_keep_their_bits() -> None:
    """Signalling NaNs and subnormals are moved, not computed with."""
    bits = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        source, target = bits.copy().view(dtype), np.zeros((256, 256), dtype)
        text = copy_kernel(
            array_type(source),
            array_type(target),
            (64, 256),
            AT_TILE.replace("8", "64").replace("32", "256"),
            dtype=dtypes.from_numpy(dtype).short,
        )
        simulate(assign(parse(text), vector=8), (4, 1, 1), (source, target, 0, 0))
        assert np.array_equal(target.view(np.uint16), bits)


# ---- past 2**31 bytes --------------------------------------------------------------------------------------------------------


def huge(shape: tuple[int, ...], dtype: DType = dtypes.float32) -> Array:
    """An array of zeros that the operating system backs with memory only where it is written."""
    return np.zeros(shape, dtype.numpy)


def move_kernel(a: Array, b: Array, *, axis_a: int | None = -1) -> Any:
    """b[u1, v1] = load(a, u0, v0), tiles of 8 x 32 at element offsets given as arguments."""
    text = f"""
kernel @move num_waves=2 weak=[]
^(%a: {array_type(a, small=False, axis=axis_a)}, %b: {array_type(b, small=False)}, %u0: i64, %v0: i64, %u1: i64, %v1: i64) {{
  %z = const type=f32 value=7 : f32
  %t = load %a [%u0 %v0] %z shape=(8,32) : 8x32xf32
  store %b [%u1 %v1] %t
  yield []
}}
"""
    return assign(parse(text))


@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x.T, lambda x: x[::-1, ::-1].T, lambda x: x[::9001]],
    ids=["rows", "rows backwards", "columns backwards", "transposed", "backwards, transposed", "rows far apart"],
)
def test_arrays_of_several_gibibytes(view: Callable[[Array], Array]) -> None:
    """Near every corner, where 32-bit offsets would wrap into other parts of the array."""
    source, target, expected = (view(huge((90_011, 16_384))) for _ in range(3))
    kernel = move_kernel(source, target)
    code = compile_code(kernel)
    rows, columns = source.shape
    corners = [(slice(0, 40), slice(0, 100)), (slice(rows - 40, rows), slice(columns - 100, columns))]
    corners += [(corners[0][0], corners[1][1]), (corners[1][0], corners[0][1])]
    corners.append((slice(rows // 2, rows // 2 + 40), slice(columns // 2, columns // 2 + 100)))
    for number, corner in enumerate(corners):
        source[corner] = numbers(source[corner].shape, dtypes.float32, number)
    starts = [(0, 0), (rows - 5, 0), (rows - 5, columns - 20), (-3, columns - 20), (rows // 2 + 3, columns // 2 + 5)]
    starts += [(2**40, 0), (0, -(2**35))]
    for (r, c), (r1, c1) in [*zip(starts, starts, strict=True), *zip(starts, starts[::-1], strict=True), *pairwise(starts)]:
        simulate(kernel, (1, 1, 1), (source, target, r, c, r1, c1), code=code)
        store_tile(expected, (r1, c1), load_tile(source, (r, c), TILE, np.array(7, np.float32)))
        assert all(np.array_equal(target[corner], expected[corner]) for corner in corners), (r, c, r1, c1)


def test_two_rows_a_gibibyte_long() -> None:
    """A stride that 32 bits can't hold, in tiles whose rows no one descriptor reaches."""
    source, target = huge((5, 2**29 + 8)), huge((5, 2**29 + 8))
    kernel = move_kernel(source, target)
    code = compile_code(kernel)
    source[:, -40:] = numbers((5, 40), dtypes.float32)
    simulate(kernel, (1, 1, 1), (source, target, -1, 2**29 - 24, 0, 2**29 - 24), code=code)
    assert np.array_equal(target[1:, -32:], source[:4, -32:])
    assert (target[0, -32:] == 7).all()


def test_a_loop_over_a_large_array() -> None:
    source, target = huge((70_000, 16_384)), inside((24, 32), dtypes.float32)
    for at in ("%k %r", "%k %zero"):
        text = SUM_ROWS.format(
            a=array_type(source, small=False), b=array_type(target), other="0.5", bounds="%start %stop %step", at=at, store=""
        )
        kernel = assign(parse(text))
        code = compile_code(kernel)
        start = 69_950
        source[start:, :64] = numbers((50, 64), dtypes.float32)
        simulate(kernel, (3, 1, 1), (source, target, start, 70_040, 8), code=code)
        for program in range(3):
            total = np.zeros((8, 32), np.float32)
            column = 8 * program if "%r" in at else 0
            for k in range(start, 70_040, 8):
                tile = np.full((8, 32), 0.5, np.float32)
                part = source[k : k + 8, column : column + 32]
                tile[: part.shape[0], : part.shape[1]] = part
                total += tile
            assert np.array_equal(target[8 * program : 8 * program + 8], total)
