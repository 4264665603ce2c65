"""exp, exp2, log, log2 and rsqrt in the simulator: within their row of compare.ULPS of the true value, special values exactly."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import compare
import numpy as np
import pytest
from elementwise_kernels import build, coarsen, outputs, special
from lowering_harness import same, simulate

from tessera import dtypes
from tessera.dtypes import DType
from tessera.targets.rocm.lowering import maths

FUNCTIONS = ("exp", "exp2", "log", "log2", "rsqrt")
NARROW = ("f16", "bf16", "f32")
arch_matrix = pytest.mark.parametrize("arch", ["gfx1151", pytest.param("gfx1100", marks=pytest.mark.medium)])


def run(name: str, x: np.ndarray, *, tile: int = 512, vector: int = 4, arch: str = "gfx1151") -> np.ndarray:
    """The function of x by a kernel."""
    dtype = dtypes.from_numpy(x.dtype)
    steps = [(f"{name} %x", dtype)]
    results = outputs(steps, x.size)
    simulate(build(dtype, steps, tile, vector=vector), (-(-x.size // tile), 1, 1), [x, x, *results], arch=arch)
    return results[0]


def true(name: str, x: np.ndarray) -> np.ndarray:
    """In float64, which is exact enough a judge of the narrower dtypes."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        return 1 / np.sqrt(wide) if name == "rsqrt" else getattr(np, name)(wide)


def errors(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """As compare.ulps, for many narrow floats at once."""
    dtype = actual.dtype.name
    got = actual.astype(np.float64)
    _, exponent = np.frexp(exact)
    unit = np.maximum(np.ldexp(2 * compare.ROUNDOFF[dtype], exponent - 1), compare.SMALLEST[dtype])
    with np.errstate(all="ignore"):
        found = np.abs(got - exact) / unit
        rounded = exact.astype(actual.dtype).astype(np.float64)  # an infinity where the true value rounds to it
    return np.where(np.isinf(got) | np.isinf(exact) | np.isnan(exact), np.where(same(got, rounded), 0, np.inf), found)


def within(name: str, actual: np.ndarray, x: np.ndarray) -> None:
    found = errors(actual, true(name, x))
    worst = np.argmax(found)
    assert found[worst] <= compare.ULPS[name][x.dtype.name], f"{name}({x[worst]}) = {actual[worst]}: {found[worst]} ulp off"


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("short", ["f16", "bf16"])
def test_all_16_bit_floats(short: str, name: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtypes.parse(short).numpy)
    y = run(name, x, tile=1024, vector=8)
    within(name, y, x)


def interesting(dtype: DType, count: int) -> np.ndarray:
    """Special values, all exponents, where results turn subnormal, infinite or 0, and where logarithms vanish."""
    rng = np.random.default_rng(5)
    low, high = {"f16": (-24, 15), "bf16": (-133, 127), "f32": (-149, 127), "f64": (-1074, 1023)}[dtype.short]
    edge = float(high + 2)
    parts = [
        special(dtype).astype(np.float64),
        np.array([edge, edge - 1, low + 0.5, low - 0.5, low - 1.0, low - 1.5, low - 2.0]),
        np.log(2.0) * np.array([edge - 1, edge - 1 - 2.0**-12, low, low - 0.5, low - 1.0, low - 1.5, low + 24]),
        np.ldexp(rng.uniform(1, 2, count), rng.integers(low, high + 1, count)),
        rng.uniform(low - 3, edge, count),
        np.log(2.0) * rng.uniform(low - 3, edge, count),
        1 + np.ldexp(rng.uniform(-1, 1, count), rng.integers(-50, 0, count)),
        np.sqrt(2.0) ** rng.integers(-9, 9, 20) * (1 + rng.integers(-2, 3, 20) * 2.0**-52),
        rng.uniform(-1, 1, count),
        rng.uniform(0.5, 2, count),
    ]
    with np.errstate(all="ignore"):
        return np.concatenate(parts).astype(dtype.numpy)


@arch_matrix
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32(name: str, arch: str) -> None:
    x = interesting(dtypes.float32, 4000)
    within(name, run(name, x, arch=arch), x)


@arch_matrix
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64(name: str, arch: str) -> None:
    x = interesting(dtypes.float64, 150)
    compare.function(run(name, x, arch=arch), name, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_at_large(name: str) -> None:
    """Every 512th bit pattern, and every number next to 1."""
    x = np.concatenate(
        [np.arange(7, 1 << 32, 512, dtype=np.uint32).view(np.float32), (1 + np.arange(-(1 << 20), 1 << 20) * 2.0**-24).astype(np.float32)]
    )
    within(name, run(name, x, tile=2048), x)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_at_large(name: str) -> None:
    x = interesting(dtypes.float64, 10_000)
    compare.function(run(name, x, tile=1024), name, x)


@pytest.mark.parametrize("short", [*NARROW, "f64"])
def test_special_values(short: str) -> None:
    """Zeros of both signs, infinities, NaN, negative numbers, and where the result is exact."""
    dtype = dtypes.parse(short)
    inf, nan = np.inf, np.nan
    table = {
        "exp": ([0.0, -0.0, -inf, inf, nan, 800, -800], [1, 1, 0, inf, nan, inf, 0]),
        "exp2": ([0.0, -0.0, -inf, inf, nan, 3, -14, 5000, -5000], [1, 1, 0, inf, nan, 8, 2.0**-14, inf, 0]),
        "log": ([0.0, -0.0, 1, -1, inf, -inf, nan, -(2.0**-14)], [-inf, -inf, 0.0, nan, inf, nan, nan, nan]),
        "log2": ([0.0, -0.0, 1, 8, 2.0**-14, -1, inf, -inf, nan], [-inf, -inf, 0.0, 3, -14, nan, inf, nan, nan]),
        "rsqrt": ([0.0, -0.0, 1, 4, 2.0**-14, inf, -inf, -1, nan], [inf, -inf, 1, 0.5, 128, 0.0, nan, nan, nan]),
    }
    with np.errstate(all="ignore"):
        for name, (x, expected) in table.items():
            compare.same(run(name, np.array(x).astype(dtype.numpy), tile=64), np.array(expected).astype(dtype.numpy))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("short", [*NARROW, "f64"])
def test_scalars_and_tiles_of_any_width(short: str, name: str) -> None:
    """What a function gives doesn't depend on how many elements a thread computes, or whether all threads compute the same one."""
    dtype = dtypes.parse(short)
    with np.errstate(all="ignore"):
        x = np.array([0.3, 1.7, 5.25, 0.0078125, 0.9, 1.1, 3.0, 9.5] * 128).astype(dtype.numpy)
    wide, narrow = (run(name, x, tile=tile) for tile in (1024, 64))
    steps = [("splat %q shape=(64,)", dtype)]
    kernel = build(dtype, steps, 64, prologue=f"%q = {name} %s : {dtype}", scalars=True)
    compare.same(wide, narrow)
    for value in x[:3]:
        results = outputs(steps, 64)
        simulate(kernel, (1, 1, 1), [x[:64], x[:64], *results, value, value])
        compare.same(results[0], np.full(64, wide[np.flatnonzero(x == value)[0]]))


@pytest.mark.medium
@pytest.mark.parametrize("off", [1 + 2.0**-23, 1 - 2.0**-23])
@pytest.mark.parametrize(("name", "intrinsic"), [("rsqrt", "amdgcn.rsq"), ("log", "amdgcn.rcp"), ("log2", "amdgcn.rcp")])
def test_float64_from_coarse_hardware_functions(name: str, intrinsic: str, off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """v_rsq_f64 and v_rcp_f64 are within 2^29 ulp, but the simulator's are exact: here they are as bad as they may be."""
    coarsen(monkeypatch, intrinsic, off)
    test_float64(name, "gfx1151")


def test_polynomials() -> None:
    """The coefficients are what they are said to be: exp(r) within 2^-55.7 and log(1 + f) within 2^-57.5 of themselves."""

    def value(coefficients: tuple[float, ...], x: Fraction) -> Fraction:
        total = Fraction(0)
        for coefficient in coefficients:
            total = total * x + Fraction(coefficient)
        return total

    for i in range(-100, 101):
        r = Fraction(i, 100) * Fraction(maths.LN_2) / 2
        term, exact = Fraction(1), Fraction(0)
        for k in range(1, 30):
            exact += term
            term = term * r / k
        assert abs(1 + r + r * r * value(maths.EXP, r) - exact) <= exact * Fraction(2.0**-55.7)
    for i in range(1, 101):
        s = Fraction(i, 100) * Fraction(maths.SQRT_HALF - 0.5) / Fraction(maths.SQRT_HALF + 0.5)
        exact = sum((2 * s ** (2 * k + 1) / (2 * k + 1) for k in range(24)), Fraction(0))
        assert abs(2 * s + s**3 * value(maths.LOG, s * s) - exact) <= exact * Fraction(2.0**-57.5)


def test_the_document_has_the_bounds() -> None:
    """docs/accuracy.md states the bounds that the tests use, and measured errors within them."""
    text = (Path(__file__).parent.parent / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\d.]+) \| ([\d.]+) \|", text, re.MULTILINE)
    assert {(name, dtype): float(bound) for name, dtype, bound, _ in rows} == {
        (name, dtype): bound for name, row in compare.ULPS.items() for dtype, bound in row.items()
    }
    assert all(0.49 <= float(measured) <= float(bound) for _, _, bound, measured in rows)
