"""Elementwise ops in the simulator are what the reference interpreter, and with it NumPy, computes: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from elementwise_kernels import binary_ops, build, casts, coarsen, kernel_text, ordinary, outputs, pairs, patterns, special, unary_ops
from lowering_harness import assign, check, compile_code, parse

from tessera import dtypes
from tessera.dtypes import DType, Kind
from tessera.ir.core import OPS
from tessera.ir.ops import arith
from tessera.targets.rocm.arch import arch as arch_row

FUNCTIONS = ("exp", "exp2", "log", "log2", "rsqrt")  # test_lowering_functions.py
dtype_matrix = pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
arch_matrix = pytest.mark.parametrize("arch", ["gfx1151", pytest.param("gfx1100", marks=pytest.mark.medium)])


def mostly_medium(*quick: str) -> pytest.MarkDecorator:
    """Tests of all dtypes, of which only `quick` ones are for `make check`."""
    params = [pytest.param(d, id=str(d), marks=() if d.short in quick else pytest.mark.medium) for d in dtypes.ALL]
    return pytest.mark.parametrize("dtype", params)


INTEGERS = [d for d in dtypes.ALL if d.is_integer]
FLOATS = [d for d in dtypes.ALL if d.is_float]


def run(kernel, tile: int, x: np.ndarray, y: np.ndarray, results: list[np.ndarray], *scalars, arch: str = "gfx1151") -> None:
    check(kernel, (-(-x.size // tile), 1, 1), [x, y, *results, *scalars], arch=arch)


def test_every_op_is_here() -> None:
    tested = {step.split()[0] for d in dtypes.ALL for step, _ in [*binary_ops(d), *unary_ops(d)]}
    elementwise = {name for name, cls in OPS.items() if issubclass(cls, (arith.Unary, arith.Binary))}
    assert elementwise - set(FUNCTIONS) == tested


@arch_matrix
@dtype_matrix
def test_two_operands(dtype: DType, arch: str) -> None:
    x, y = pairs(dtype)
    steps = binary_ops(dtype)
    run(build(dtype, steps, 128, vector=2), 128, x, y, outputs(steps, x.size), arch=arch)


@arch_matrix
@dtype_matrix
def test_one_operand_and_casts(dtype: DType, arch: str) -> None:
    x = np.concatenate([special(dtype), *([_around_integers(dtype)] if dtype.is_float else []), patterns(dtype, 500, 7)])
    steps = unary_ops(dtype) + casts()
    run(build(dtype, steps, 128, vector=2), 128, x, x[::-1].copy(), outputs(steps, x.size), arch=arch)


def _around_integers(dtype: DType) -> np.ndarray:
    """Where conversions to integers saturate, and where conversions to narrower floats tie, overflow and underflow."""
    ends = [2.0**n for n in (7, 8, 15, 16, 31, 32, 63, 64)]
    with np.errstate(all="ignore"):
        exact = np.array(
            [0.0, *ends, 65504.0, 65519.0, 65520.0, 65536.0, 2.0**-24, 2.0**-25, 2.0**-133, 2.0**-134, 2.0**-149, 2.0**-150, 3.4e38]
        )
        values = np.concatenate([exact, -exact])
        near = [
            values,
            values - 1,
            values + 1,
            values - 0.5,
            values + 0.5,
            values * (1 + 2.0**-11),
            values * (1 + 2.0**-8),
            values * (1 - 2.0**-24),
        ]
        near = np.concatenate(near).astype(dtype.numpy)
    if dtype is not dtypes.float32:
        return near
    return np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_that_round_twice(dtype: DType) -> None:
    """Integers reach 16-bit floats by way of float32: ties, and values just off ties that float32 makes ties."""
    powers = [1 << n for n in range(dtype.bits - (dtype.is_signed))]
    near = {
        p + q + d for p in powers for q in (0, p >> 8, p >> 9, p >> 11, p >> 12, p >> 24, p >> 25, p >> 53, p >> 54) for d in (-1, 0, 1)
    }
    info = np.iinfo(str(dtype.numpy))
    near |= {-n for n in near}
    x = np.array(sorted(n for n in near if info.min <= n <= info.max), dtype.numpy)
    steps = casts(FLOATS)
    run(build(dtype, steps, 128), 128, x, x, outputs(steps, x.size))


@pytest.mark.parametrize("short", ["f16", "bf16"])
def test_all_16_bit_floats(short: str) -> None:
    dtype = dtypes.parse(short)
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    steps = unary_ops(dtype) + casts([d for d in dtypes.ALL if d.bits <= 32])
    run(build(dtype, steps, 256), 256, x, x, outputs(steps, x.size))


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_all_8_bit_pairs(dtype: DType) -> None:
    x, y = (np.ascontiguousarray(axis.ravel()) for axis in np.meshgrid(*2 * [np.arange(256, dtype=np.uint8).view(dtype.numpy)]))
    steps = binary_ops(dtype)
    run(build(dtype, steps, 512, vector=8), 512, x, y, outputs(steps, x.size))


# ---- constants, scalars and splats ---------------------------------------------------------------------------------------------


def constants(dtype: DType) -> list[float | int]:
    if dtype.kind is Kind.BOOL:
        return [0, 1]
    if dtype.is_float:
        return [0.0, 1.0, -1.5, 3.0, 0.1, float("inf"), float("nan")]
    info = np.iinfo(str(dtype.numpy))
    return [int(v) for v in (0, 1, 3, 8, 10, dtype.bits, info.max, info.max - 1)] + ([-1, -7, int(info.min)] if dtype.is_signed else [])


@mostly_medium("i16")
def test_constant_operands(dtype: DType) -> None:
    """A constant on either side, and as the operand of a cast, gives what the same value gives at run time (which the reference has)."""
    x = np.concatenate([special(dtype), patterns(dtype, 60, 5), ordinary(dtype, 60, 6)])
    steps: list[tuple[str, DType]] = []
    prologue: list[str] = []
    tile = 64  # an element per thread: what matters is the code
    for index, value in enumerate(constants(dtype)):
        name = f"%k{index}"
        prologue.append(f"{name} = const type={tile}x{dtype} value={value!r} : {tile}x{dtype}")
        for step, result in binary_ops(dtype):
            steps.append((step.replace("%y", name), result))
            if value in (1, 3, 10):
                steps.append((step.replace("%x", name).replace("%y", "%x"), result))
        steps += [(step.replace("%x", name), result) for step, result in (*unary_ops(dtype), *casts(_other_casts(dtype)))]
    for part in range(0, len(steps), 60):
        chosen = steps[part : part + 60]
        run(build(dtype, chosen, tile, vector=1, prologue="\n".join(prologue)), tile, x, x, outputs(chosen, x.size))


def _other_casts(dtype: DType) -> list[DType]:
    return [
        d
        for d in (dtypes.bool_, dtypes.int8, dtypes.uint32, dtypes.int64, dtypes.float16, dtypes.bfloat16, dtypes.float32)
        if d is not dtype
    ]


@arch_matrix
@mostly_medium("f16")
def test_scalars_and_splats(dtype: DType, arch: str) -> None:
    """Ops on scalars (uniform: in SGPRs where it can be), and on tiles with a splat on either side."""
    x, tile = np.concatenate([special(dtype), patterns(dtype, 30, 8)]), 64
    steps: list[tuple[str, DType]] = []
    prologue = [f"%ss = splat %s shape=({tile},) : {tile}x{dtype}"]
    for index, (step, result) in enumerate(binary_ops(dtype)):
        scalar = step.replace("%x", "%s").replace("%y", "%t")
        prologue.append(f"%q{index} = {scalar} : {result}")
        steps.append((f"splat %q{index} shape=({tile},)", result))
        steps.append((step.replace("%y", "%ss"), result))
        steps.append((step.replace("%x", "%ss").replace("%y", "%x"), result))
    for index, (step, result) in enumerate([*unary_ops(dtype), *casts()]):
        prologue.append(f"%u{index} = {step.replace('%x', '%s')} : {result}")
        steps.append((f"splat %u{index} shape=({tile},)", result))
    values = special(dtype)
    chosen = list(zip(values, np.roll(values, 7), strict=True))
    kernel = build(dtype, steps, tile, vector=1, prologue="\n".join(prologue), scalars=True)
    code = compile_code(kernel, arch)
    for s, t in chosen if dtype.bits > 16 else chosen[::2]:
        check(kernel, (1, 1, 1), [x[:tile], x[:tile], *outputs(steps, min(x.size, tile)), s, t], arch=arch, code=code)


def test_select() -> None:
    for dtype in dtypes.ALL:
        x, y = pairs(dtype)
        tile = 128
        prologue = f"%c = lt %x0 %y0 : {tile}xbool\n%k = const type={tile}x{dtype} value=1 : {tile}x{dtype}"
        steps = [("select %c %x %y", dtype), ("select %c %k %x", dtype), ("select %c %y %k", dtype)]
        run(build(dtype, steps, tile, vector=2, prologue=prologue), tile, x, y, outputs(steps, x.size))


# ---- division: shapes of code that depend on the tile --------------------------------------------------------------------------


@pytest.mark.parametrize("short", ["i8", "u16", "i32", "u64", "i64", "f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("tile", [64, pytest.param(128, marks=pytest.mark.medium), pytest.param(1024, marks=pytest.mark.medium)])
def test_division_of_tiles_of_any_width(short: str, tile: int) -> None:
    dtype = dtypes.parse(short)
    x, y = pairs(dtype)
    steps = [("floordiv %x %y", dtype), ("mod %x %y", dtype)]
    run(build(dtype, steps, tile), tile, x, y, outputs(steps, x.size))


@pytest.mark.parametrize("short", ["f32", "f64"])
def test_remainders_of_large_quotients(short: str) -> None:
    """fmod is exact for quotients of up to 277 and 2098 binary digits, subnormal divisors included."""
    dtype = dtypes.parse(short)
    rng = np.random.default_rng(11)
    low, high, digits = (-149, 127, 24) if short == "f32" else (-1074, 1023, 53)
    x = np.ldexp(rng.uniform(1, 2, 600), rng.integers(low + digits, high, 600)).astype(dtype.numpy)
    y = np.ldexp(rng.uniform(1, 2, 600), rng.integers(low, high, 600)).astype(dtype.numpy)
    y[y == 0] = np.ldexp(1.0, low)
    x[::3] *= -1
    y[::2] *= -1
    x[5], y[5] = np.finfo(dtype.numpy).max, np.ldexp(3.0, low)
    steps = [("mod %x %y", dtype), ("floordiv %x %y", dtype)]
    run(build(dtype, steps, 128), 128, x, y, outputs(steps, x.size))


@pytest.mark.medium
@pytest.mark.parametrize("off", [1 + 2.0**-23, 1 - 2.0**-23])
@pytest.mark.parametrize("short", ["f32", "f64"])
def test_remainders_stay_exact_with_a_coarse_reciprocal(short: str, off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """v_rcp_f32 is within 1 ulp and v_rcp_f64 within 2^29 of them, but the simulator's are exact: here they are as bad as they may be."""
    coarsen(monkeypatch, "amdgcn.rcp", off)
    test_remainders_of_large_quotients(short)
    test_division_of_tiles_of_any_width(short, 128)


# ---- other arches --------------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1200", "gfx1250"])
def test_llvm_takes_everything_on_every_arch(arch: str) -> None:
    """LLVM ends the process where it can't select an instruction: no op of any dtype, on tiles or scalars, may lead there."""
    for dtype in dtypes.ALL:
        tile = 2 * arch_row(arch).wave_size
        steps = binary_ops(dtype) + unary_ops(dtype) + casts()
        steps += [(f"{name} %x", dtype) for name in FUNCTIONS] if dtype.is_float else []
        prologue = [f"%q{i} = {step.replace('%x', '%s').replace('%y', '%t')} : {result}" for i, (step, result) in enumerate(steps)]
        steps += [(f"splat %q{i} shape=({tile},)", result) for i, (_, result) in enumerate(steps)]
        text = kernel_text(dtype, steps, tile, prologue="\n".join(prologue), scalars=True)
        assert compile_code(assign(parse(text), vector=2, wave_size=arch_row(arch).wave_size), arch)
