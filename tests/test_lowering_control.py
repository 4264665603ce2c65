"""Loops and branches in the simulator: bounds of every kind, what they carry, and what happens at the limits of the counter's type."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from lowering_harness import array_type, assign, check, compile_code, parse

from tessera import dtypes, llvm
from tessera.dtypes import DType
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.lowering import lower_kernel

OUT = np.zeros(64, np.int64)


def counting(kind: str, start: str, stop: str, step: str, *, params: str = "") -> str:
    """Each program's out[0:4] is (trips, sum of counters modulo 2**64, last counter, something carried in circles)."""
    return f"""
kernel @count num_waves=1 weak=[]
^(%out: {array_type(OUT)}, %p0: {kind}, %p1: {kind}, %p2: {kind}) {{
  %one = const type=i64 value=1 : i64
  %two = const type=i64 value=2 : i64
  %three = const type=i64 value=3 : i64
  %zero = const type=i64 value=0 : i64
  %never = const type=i64 value=-77 : i64
  {params}
  %n, %s, %l, %x, %y = for {start} {stop} {step} [%zero %zero %never %one %two] stages=0 : i64, i64, i64, i64, i64
  ^(%i: {kind}, %n0: i64, %s0: i64, %l0: i64, %x0: i64, %y0: i64) {{
    {"%w = add %i %zero : i64" if kind == "i64" else "%w = cast %i to=i64 : i64"}
    %n1 = add %n0 %one : i64
    %s1 = add %s0 %w : i64
    yield [%n1 %s1 %w %y0 %x0]
  }}
  %t0 = reshape %n shape=(1,) : 1xi64
  %t1 = reshape %s shape=(1,) : 1xi64
  %t2 = reshape %l shape=(1,) : 1xi64
  %t3 = reshape %x shape=(1,) : 1xi64
  store %out [%zero] %t0
  store %out [%one] %t1
  store %out [%two] %t2
  store %out [%three] %t3
  yield []
}}
"""


def constants(kind: str, *values: int) -> str:
    return "\n  ".join(f"%c{i} = const type={kind} value={v} : {kind}" for i, v in enumerate(values))


TOP, LOW = 2**63 - 1, -(2**63)
BOUNDS = [
    (0, 10, 1),
    (0, 10, 3),
    (10, 0, -1),
    (10, 0, -3),
    (0, 0, 1),
    (5, 4, 1),
    (4, 5, -1),
    (-7, 9, 4),
    (3, 4, 100),
    (4, 3, -100),
    (1, 9, 0),
]
BOUNDS_64 = [
    (TOP - 5, TOP, 2),
    (TOP - 5, TOP, 1),
    (LOW + 5, LOW, -2),
    (LOW + 5, LOW, -1),
    (LOW, TOP, TOP),
    (TOP, LOW, LOW),
    (LOW, TOP, 2**62),
    (-1, TOP, 2**62),
]


@pytest.mark.parametrize("bounds", BOUNDS + BOUNDS_64, ids=str)
def test_constant_bounds(bounds: tuple[int, int, int]) -> None:
    kernel = parse(counting("i64", "%c0", "%c1", "%c2", params=constants("i64", *bounds)))
    check(assign(kernel), (1, 1, 1), (OUT, 0, 0, 0))


@pytest.mark.parametrize("step", [1, -1, 3, -3, 32, None])
def test_run_time_bounds(step: int | None) -> None:
    """The bounds are arguments, the step a constant or an argument."""
    text = counting("i64", "%p0", "%p1", "%p2" if step is None else "%c0", params=constants("i64", step) if step is not None else "")
    kernel = assign(parse(text))
    code = compile_code(kernel)
    for start, stop, by in BOUNDS + BOUNDS_64:
        if step is not None and not -1000 < start - stop < 1000:
            continue
        check(kernel, (1, 1, 1), (OUT, start, stop, by), code=code)


@pytest.mark.parametrize("kind", ["i8", "u8", "i16", "u16", "i32", "u32", "u64"])
def test_counters_of_every_dtype(kind: str) -> None:
    info = np.iinfo(dtypes.parse(kind).numpy)
    kernel = assign(parse(counting(kind, "%p0", "%p1", "%p2")))
    by_two = assign(parse(counting(kind, "%p0", "%p1", "%c0", params=constants(kind, 2))))
    code, code_two = compile_code(kernel), compile_code(by_two)
    for start, stop, step in [
        (0, 10, 3),
        (info.max - 5, info.max, 2),
        (info.max - 4, info.max, 1),
        (5, 5, 1),
        (7, 2, 1),
        (0, info.max, info.max // 2),
        (2, 9, 0),
    ]:
        check(kernel, (1, 1, 1), (OUT, start, stop, step), code=code)
        if step == 2 or stop - start < 100:
            check(by_two, (1, 1, 1), (OUT, start, stop, 2), code=code_two)
    if info.min < 0:
        for start, stop, step in [
            (10, 0, -3),
            (info.min + 5, info.min, -2),
            (info.min + 5, info.min, -1),
            (-3, 4, -1),
            (info.max, info.min, info.min),
        ]:
            check(kernel, (1, 1, 1), (OUT, start, stop, step), code=code)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.short)
def test_tiles_carried_by_every_loop_and_branch(dtype: DType) -> None:
    """Two tiles change places in a for, a while and an if, each around the other: nothing is lost, whatever the dtype."""
    d, n = dtype.short, 512
    rng = np.random.default_rng(5)
    x = rng.integers(0, 256, n * dtype.bytes, dtype=np.uint8).view(dtype.numpy) if d != "bool" else rng.integers(0, 2, n).astype(bool)
    y = x[::-1].copy()
    text = f"""
kernel @carry num_waves=2 weak=[]
^(%a: {array_type(x)}, %b: {array_type(y)}, %n: i64, %m: i64) {{
  %zero = const type=i64 value=0 : i64
  %one = const type=i64 value=1 : i64
  %two = const type=i64 value=2 : i64
  %z = const type={d} value=0 : {d}
  %x = load %a [%zero] %z shape=({n},) : {n}x{d}
  %y = load %b [%zero] %z shape=({n},) : {n}x{d}
  %f, %g = for %zero %n %one [%x %y] stages=0 : {n}x{d}, {n}x{d}
  ^(%i: i64, %f0: {n}x{d}, %g0: {n}x{d}) {{
    %odd = mod %i %two : i64
    %is = eq %odd %one : bool
    %f1, %g1 = if %is : {n}x{d}, {n}x{d}
    ^() {{
      %f2, %g2, %left = while [%f0 %g0 %m] : {n}x{d}, {n}x{d}, i64
      ^(%fw: {n}x{d}, %gw: {n}x{d}, %k: i64) {{
        %go = gt %k %zero : bool
        yield [%go %fw %gw %k]
      }}
      ^(%fb: {n}x{d}, %gb: {n}x{d}, %kb: i64) {{
        %less = sub %kb %one : i64
        yield [%gb %fb %less]
      }}
      yield [%f2 %g2]
    }}
    ^() {{
      yield [%g0 %f0]
    }}
    yield [%f1 %g1]
  }}
  store %a [%zero] %f
  store %b [%zero] %g
  yield []
}}
"""
    kernel = assign(parse(text), vector=16 // dtype.bytes)
    code = compile_code(kernel)
    for trips, inner in product((0, 1, 2, 5), (0, 3)):
        check(kernel, (1, 1, 1), (x, y, trips, inner), code=code)


def test_a_while_that_never_runs_and_conditions_from_memory() -> None:
    data = np.array([5, 0, 3, 0], np.int32)
    out = np.zeros(4, np.int32)
    text = f"""
kernel @sums num_waves=2 weak=[]
^(%a: {array_type(data)}, %out: {array_type(out)}) {{
  %p = program_id axis=0 : i64
  %z = const type=i32 value=0 : i32
  %one = const type=i32 value=1 : i32
  %t = load %a [%p] %z shape=(1,) : 1xi32
  %n = reshape %t shape=() : i32
  %s, %k = while [%z %n] : i32, i32
  ^(%s0: i32, %k0: i32) {{
    %go = gt %k0 %z : bool
    yield [%go %s0 %k0]
  }}
  ^(%s1: i32, %k1: i32) {{
    %s2 = add %s1 %k1 : i32
    %k2 = sub %k1 %one : i32
    yield [%s2 %k2]
  }}
  %r = reshape %s shape=(1,) : 1xi32
  store %out [%p] %r
  yield []
}}
"""
    kernel = assign(parse(text))
    check(kernel, (4, 1, 1), (data, out))
    assembly = llvm.device_assembly(lower_kernel(kernel, arch("gfx1151")), "gfx1151")
    assert "s_cbranch_execz" not in assembly  # a scalar from memory is uniform, and so is the branch on it


def test_the_grid() -> None:
    out = np.zeros((2, 3, 4, 6), np.int64)
    stores = "\n".join(
        f"  %v{i} = reshape %{name} shape=(1,1,1,1) : 1x1x1x1xi64\n  %n{i} = const type=i64 value={i} : i64\n"
        f"  store %out [%z %y %x %n{i}] %v{i}"
        for i, name in enumerate(("x", "y", "z", "nx", "ny", "nz"))
    )
    text = f"""
kernel @grid num_waves=3 weak=[]
^(%out: {array_type(out)}) {{
  %x = program_id axis=0 : i64
  %y = program_id axis=1 : i64
  %z = program_id axis=2 : i64
  %nx = num_programs axis=0 : i64
  %ny = num_programs axis=1 : i64
  %nz = num_programs axis=2 : i64
{stores}
  yield []
}}
"""
    check(assign(parse(text)), (4, 3, 2), (out,))


def test_extents_and_strides_as_numpy_has_them() -> None:
    data = np.zeros((40, 6, 8), np.float32)[::-2, 2:3, ::3]
    out = np.zeros(6, np.int64)
    stores = "\n".join(
        f"  %v{i} = {op} %a axis={axis} : i64\n  %w{i} = reshape %v{i} shape=(1,) : 1xi64\n  %n{i} = const type=i64 value={i} : i64\n"
        f"  store %out [%n{i}] %w{i}"
        for i, (op, axis) in enumerate(product(("extent", "stride"), range(3)))
    )
    text = f"\nkernel @k num_waves=1 weak=[]\n^(%a: {array_type(data)}, %out: {array_type(out)}) {{\n{stores}\n  yield []\n}}\n"
    check(assign(parse(text)), (1, 1, 1), (data, out))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.short)
def test_scalar_arguments(dtype: DType) -> None:
    """Each at its natural alignment, behind others of other sizes."""
    out = np.zeros(2, dtype.numpy)
    d = dtype.short
    text = f"""
kernel @args num_waves=1 weak=[]
^(%b: bool, %x: {d}, %c: i8, %out: {array_type(out)}, %h: i16, %y: {d}) {{
  %zero = const type=i64 value=0 : i64
  %one = const type=i64 value=1 : i64
  %z = select %b %x %y : {d}
  %t = reshape %z shape=(1,) : 1x{d}
  %u = reshape %y shape=(1,) : 1x{d}
  store %out [%zero] %t
  store %out [%one] %u
  yield []
}}
"""
    kernel = assign(parse(text))
    for b in (True, False):
        check(kernel, (1, 1, 1), (b, np.array(1, dtype.numpy), -1, out, -2, np.array(0.0, dtype.numpy)))


def test_loops_compile_to_one_test_at_the_bottom() -> None:
    """A counted loop has a single branch back, compares in scalar registers, and doesn't count its trips beside."""
    text = counting("i32", "%c0", "%p1", "%c1", params=constants("i32", 0, 1))
    assembly = llvm.device_assembly(lower_kernel(assign(parse(text)), arch("gfx1151")), "gfx1151")
    back = [line for line in assembly.splitlines() if "s_cbranch" in line]
    assert len(back) == 2  # one into the loop or past it, one back
    loop = assembly[assembly.index(".LBB0_2:") :]
    assert "\tv_" not in loop[: loop.index("s_cbranch")]
