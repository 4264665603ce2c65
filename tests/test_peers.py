"""Kernels of other compilers in the simulator, in its fast and its checking mode, against NumPy.

`data/peers` holds what Triton 3.9 made of `benchmarks/peers/triton_kernels.py` for gfx1100 and gfx1151 (`launches.json`: the kernel's name,
its threads, its dynamic LDS). They show that the simulator knows the hardware, and not just the habits of our own compiler.

`data/clang` are kernels in plain C, which clang-22 compiles here.

Bounds: movement and integers are exact; float32 sums of n terms are within gamma_n times the sum of the magnitudes (DESIGN.md, 8); what
else rounds is added where it is used.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera.runtime import LaunchResult, launch
from tessera.runtime.simulator import load
from tests import tools

PEERS = Path(__file__).parent / "data" / "peers"
LAUNCHES: dict[str, dict[str, Any]] = json.loads((PEERS / "launches.json").read_text())
Array = np.ndarray[Any, Any]
U = 2.0**-24  # the unit roundoff of float32
HALF = 2.0**-11  # and of float16
TINY = 2.0**-25  # half of float16's smallest subnormal


def gamma(n: int) -> float:
    """The bound of n float32 roundings in a row."""
    return n * U / (1 - n * U)


@cache
def code(name: str) -> Any:
    return load(PEERS / f"{name}.hsaco")


def run(name: str, grid: tuple[int, ...], args: tuple[object, ...], check: bool) -> LaunchResult:
    """Launch a peer; Triton's kernels take two more pointers, to scratch memory that these don't use."""
    tools.need("llvm-objdump")
    found = LAUNCHES[name]
    return launch(
        code(name), grid, (*args, None, None), kernel=found["kernel"], block=found["threads"], dynamic_lds=found["dynamic_lds"], check=check
    )


def within(got: Array, expected: Array, bound: Array | float) -> None:
    error = np.abs(got.astype(np.float64) - expected)
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), f"at {worst}: {got[worst]} instead of {expected[worst]}"


def random(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Values that differ, surrounded by nothing: every array is exactly as large as the kernel may touch."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def vector_add(name: str, check: bool) -> None:
    n = 2500
    x, y, z = random(n), random(n, seed=1), np.full(n, np.nan, np.float32)
    run(name, (3,), (x, y, z, n), check)
    np.testing.assert_array_equal(z, x + y)


def softmax(rows: int, columns: int, dtype: Any) -> Callable[[str, bool], None]:
    def go(name: str, check: bool) -> None:
        x = random(rows, columns, dtype=dtype)
        out = np.full((rows, columns + 5), np.nan, dtype)
        run(name, (rows,), (x, out, columns, columns + 5, columns), check)
        wide = x.astype(np.float64)
        below = wide - wide.max(1, keepdims=True)
        power = np.exp(below)
        expected = power / power.sum(1, keepdims=True)
        # The argument of exp2 is rounded twice, its result is within an ulp or two; then the sum and the division.
        bound = expected * ((4 * np.abs(below) + 8) * U + gamma(columns))
        if dtype is np.float16:
            bound += expected * HALF + TINY
        within(out[:, :columns], expected, bound)
        assert np.isnan(out[:, columns:]).all()

    return go


def layer_norm(name: str, check: bool) -> None:
    rows, columns, epsilon = 3, 900, 1e-5
    x, weight, bias = random(rows, columns, dtype=np.float16), random(columns, dtype=np.float16), random(columns, dtype=np.float16, seed=1)
    out = np.full((rows, columns), np.nan, np.float16)
    run(name, (rows,), (x, out, weight, bias, columns, columns, epsilon), check)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    variance = (centred**2).mean(1, keepdims=True) + epsilon
    scaled = centred / np.sqrt(variance) * weight.astype(np.float64)
    expected = scaled + bias.astype(np.float64)
    # The mean's error moves each element, the variance's scales it.
    shift = gamma(columns) * np.abs(wide).mean(1, keepdims=True)
    bound = (2 * shift / np.sqrt(variance)) * np.abs(weight.astype(np.float64)) + np.abs(scaled) * (gamma(columns) + 8 * U)
    within(out, expected, bound + np.abs(expected) * (HALF + U) + TINY)


def matmul(m: int, n: int, k: int, tile: tuple[int, int], dtype: Any) -> Callable[[str, bool], None]:
    def go(name: str, check: bool) -> None:
        if dtype is np.int8:
            generator = np.random.default_rng(5)
            a, b = (generator.integers(-128, 128, shape, np.int8) for shape in ((m, k), (k, n)))
            c = np.full((m, n + 3), 77, np.int32)
        else:
            a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1)
            c = np.full((m, n + 3), np.nan, np.float32)
        run(name, (-(-m // tile[0]), -(-n // tile[1])), (a, b, c, m, n, k, k, n, n + 3), check)
        if dtype is np.int8:
            np.testing.assert_array_equal(c[:, :n], a.astype(np.int32) @ b.astype(np.int32))
            assert (c[:, n:] == 77).all()
            return
        wide = a.astype(np.float64), b.astype(np.float64)
        within(c[:, :n], wide[0] @ wide[1], gamma(k + 1) * (np.abs(wide[0]) @ np.abs(wide[1])))
        assert np.isnan(c[:, n:]).all()

    return go


def flash(causal: bool) -> Callable[[str, bool], None]:
    def go(name: str, check: bool) -> None:
        heads, length, depth, scale = 2, 150, 64, 0.125
        q, k, v = (random(heads, length, depth, dtype=np.float16, seed=seed) for seed in range(3))
        out = np.full((heads, length, depth), np.nan, np.float16)
        run(name, (-(-length // 128), heads), (q, k, v, out, length, length * depth, scale), check)
        wide = [x.astype(np.float64) for x in (q, k, v)]
        scores = np.einsum("hid,hjd->hij", wide[0], wide[1]) * scale
        if causal:
            scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        power = np.exp(scores - scores.max(2, keepdims=True))
        weights = power / power.sum(2, keepdims=True)
        expected = weights @ wide[2]
        # A score's error is a relative error of its weight, which is rounded to float16 before the second product.
        magnitude = np.einsum("hid,hjd->hij", np.abs(wide[0]), np.abs(wide[1])) * scale
        score = 2 * gamma(depth + 8) * (magnitude.max() + np.abs(scores[np.isfinite(scores)]).max())
        relative = HALF + 2 * score + 2 * gamma(length + 8)
        within(out, expected, relative * (weights @ np.abs(wide[2])) + np.abs(expected) * HALF + 2 * TINY)

    return go


CASES: dict[str, Callable[[str, bool], None]] = {
    "vadd_f32": vector_add,
    "softmax_f16_1024": softmax(3, 1000, np.float16),
    "softmax_f32_4096": softmax(2, 3001, np.float32),
    "layernorm_f16_1024": layer_norm,
    "gemm_f16_64x64x32_w4s2": matmul(100, 90, 80, (64, 64), np.float16),
    "gemm_bf16_128x64x64_w8s2": matmul(150, 90, 100, (128, 64), ml_dtypes.bfloat16),
    "gemm_f16_128x128x32_w4s2": matmul(150, 130, 80, (128, 128), np.float16),
    "gemm_i8_128x128x64_w4s2": matmul(150, 130, 100, (128, 128), np.int8),
    "flash_f16_d64": flash(False),
    "flash_f16_d64_causal_w8": flash(True),
}
QUICK = ("vadd_f32.gfx1151", "softmax_f16_1024.gfx1151", "layernorm_f16_1024.gfx1100")


def test_every_peer_has_a_case() -> None:
    assert {f"{name}.{arch}" for name in CASES for arch in ("gfx1100", "gfx1151")} == set(LAUNCHES)


@pytest.mark.parametrize("check", [False, True], ids=["fast", "checked"])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LAUNCHES])
def test_triton(name: str, check: bool) -> None:
    CASES[name.rpartition(".")[0]](name, check)


# ---- clang ---------------------------------------------------------------------------------------------------------------------------

CLANG = Path(__file__).parent / "data" / "clang"


@cache
def compiled(name: str, arch: str, level: str) -> Any:
    tools.need("ld.lld")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "kernel.hsaco"
        target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-nogpulib", "-std=c11", level)
        tools.run("clang", *target, "-o", result, CLANG / f"{name}.c")
        return load(result)


def saxpy(go: Callable[..., LaunchResult]) -> None:
    x, y = random(1000), random(1000, seed=1)
    expected = np.float32(1.5) * x.astype(np.float64) + y.astype(np.float64)  # exact in double
    start = y.copy()
    go((4,), 256, (x, y, 1.5, 1000))
    # Contracted to one rounding, or the product and the sum rounded.
    bound = np.abs(1.5 * x) * U + np.abs(expected) * U * (1 + U)
    within(y, expected, bound)
    assert not np.array_equal(y, start)


def reduce(go: Callable[..., LaunchResult]) -> None:
    data = random(3700)
    out = np.full(8, np.nan, np.float32)
    go((4,), 256, (data, out, 3700))
    parts = [data[i : i + 1000].astype(np.float64) for i in range(0, 3700, 1000)]
    within(out[::2], np.array([part.sum() for part in parts]), np.array([gamma(12) * np.abs(part).sum() for part in parts]))
    np.testing.assert_array_equal(out[1::2], np.array([part.max() for part in parts], np.float32))


def histogram(go: Callable[..., LaunchResult]) -> None:
    data = np.random.default_rng(3).integers(0, 200, 5000).astype(np.uint8)
    counts = np.arange(256, dtype=np.uint32)
    go((3,), 128, (data, counts, 5000, 3 * 128))
    np.testing.assert_array_equal(counts, np.arange(256) + np.bincount(data, minlength=256))


def transpose(go: Callable[..., LaunchResult]) -> None:
    data = np.arange(70 * 45, dtype=np.uint16).reshape(70, 45)
    out = np.full((45, 70), 0xFFFF, np.uint16)
    go((3, 2), 256, (data, out, 70, 45))
    np.testing.assert_array_equal(out, data.T)


def scan(go: Callable[..., LaunchResult]) -> None:
    data = np.random.default_rng(4).integers(-1000, 1000, 700).astype(np.float64)  # whole numbers: sums are exact
    out = np.full(700, np.nan)
    go((1,), 256, (data, out, 700))
    np.testing.assert_array_equal(out, np.cumsum(data))


def collatz(go: Callable[..., LaunchResult]) -> None:
    start = np.arange(1, 151, dtype=np.uint32)
    out = np.full((150, 2), 0xFFFFFFFF, np.uint32)
    go((3,), 64, (start, out, 150))
    for first, (steps, digest) in zip(start.tolist(), out.tolist(), strict=True):
        recent, count, value = [0] * 8, 0, first
        while value != 1:
            recent[count % 8] = value
            value = 3 * value + 1 if value % 2 else value // 2
            count += 1
        expected = 0
        for last in recent:
            expected = (expected * 31 + last) % (1 << 32)
        assert (steps, digest) == (count, expected), first


C_CASES = {"saxpy": saxpy, "reduce": reduce, "histogram": histogram, "transpose": transpose, "scan": scan, "collatz": collatz}


@pytest.mark.parametrize("check", [False, True], ids=["fast", "checked"])
@pytest.mark.parametrize(("arch", "level"), [("gfx1151", "-O1"), ("gfx1151", "-O3"), ("gfx1100", "-O2")])
@pytest.mark.parametrize("name", C_CASES)
def test_clang(name: str, arch: str, level: str, check: bool) -> None:
    tools.need("llvm-objdump")
    image = compiled(name, arch, level)

    def go(grid: tuple[int, ...], block: int, args: tuple[object, ...]) -> LaunchResult:
        return launch(image, grid, args, block=block, check=check)

    C_CASES[name](go)


def test_every_c_source_has_a_case() -> None:
    assert {path.stem for path in CLANG.glob("*.c")} == set(C_CASES)
