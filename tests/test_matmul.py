"""The matrix product, end to end: every dtype, shape, layout of the operands, number of waves and default configuration.

The full product of these is some twenty thousand kernels. `make test` compiles a sample of them that covers every pair of choices; the slow
sweep compiles every dtype x configuration x number of waves, with classes of layouts dealt so that every dtype meets every pair of them.
Each kernel compiled then runs over all shapes, with every layout of its class: the arrays lie in poisoned memory, and nothing but C may
be written. The seeds are fixed.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, replace
from functools import cache
from itertools import product as combinations

import compare
import numpy as np
import pytest
from poison import CLASSES, LAYOUTS, Arena, Layout

import corpus.kernels as kernels
import tessera as ts
from tessera.errors import TesseraWarning
from tessera.ir.interp import run_kernel
from tessera.ir.text import parse_kernel
from tessera.jit import CompiledKernel, JitFunction

DTYPES = {
    "f16": (ts.float16, ts.float16, ts.float32),
    "bf16": (ts.bfloat16, ts.bfloat16, ts.float32),
    "s8": (ts.int8, ts.int8, ts.int32),
    "u8": (ts.uint8, ts.uint8, ts.int32),
    "u8s8": (ts.uint8, ts.int8, ts.int32),
    "s8u8": (ts.int8, ts.uint8, ts.int32),
}
SHAPES = (  # M, K, N
    (16, 16, 16),
    (64, 32, 48),
    (17, 17, 17),
    (100, 33, 80),
    (257, 129, 200),
    (40, 0, 24),
    (40, 1, 24),
    (1, 70, 24),
    (40, 70, 1),
)
WAVES = (1, 2, 4, 8)
CONFIGURATIONS = {"x".join(str(v) for v in c.values()): c for c in kernels.DEFAULT_CONFIGURATIONS}


@cache
def with_waves(kernel: JitFunction, num_waves: int, **options: int) -> JitFunction:
    return JitFunction(kernel.function, replace(kernel.options, num_waves=num_waves, **options))


def values(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    """Unique-looking values of all magnitudes that matter; integers over the whole range of the dtype."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-3, 4, shape))).astype(dtype)


def compiled(kernel: JitFunction, dtypes, classes, out_class=(1, 0), **constants) -> CompiledKernel:
    """The kernel for matrices A, B and C of classes (contiguous axis, alignment)."""
    specs = []
    for dtype, (axis, align) in zip(dtypes, (*classes, out_class), strict=True):
        specs.append(ts.Array(dtype, 2, align=align or dtype.bytes, contiguous=axis))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TesseraWarning)  # one wave can't hold the largest tiles
        return kernel.compile(*specs, **constants, arch="gfx1151")


def run_one(kernel: CompiledKernel, configuration, shape, layouts: tuple[Layout, Layout, Layout], dtypes, **options) -> None:
    """Launch on poisoned arrays, compare with the exact product and the reference executor, look for stray writes."""
    m, k, n = shape
    arenas = [Arena(s, d.numpy, layout) for s, d, layout in zip(((m, k), (k, n), (m, n)), dtypes, layouts, strict=True)]
    a, b = (arena.fill(values(arena.array.shape, arena.dtype, seed)) for seed, arena in enumerate(arenas[:2]))
    c = arenas[2].fill(np.full((m, n), -77, dtypes[2].numpy))
    grid = (ts.cdiv(m, configuration["BM"]), ts.cdiv(n, configuration["BN"]))
    ts.runtime.launch(kernel.artifact, grid, (a, b, c), executor="rocm_sim", **options)
    for arena in arenas:
        arena.check_surroundings()
    compare.product(c, a, b)
    reference = Arena((m, n), dtypes[2].numpy, layouts[2]).fill(np.full((m, n), -77, dtypes[2].numpy))
    ts.runtime.launch(kernel.artifact, grid, (a, b, reference), executor="reference")
    compare.product(reference, a, b)
    if dtypes[2] is ts.int32:
        compare.same(c, reference)


def run_all(case: Case, **options) -> None:
    dtypes = DTYPES[case.dtype]
    configuration = CONFIGURATIONS[case.configuration]
    kernel = compiled(with_waves(kernels.matmul, case.waves), dtypes, (case.a, case.b), case.c, **configuration)
    rng = random.Random(repr(case))
    for shape in SHAPES:
        for layout_a, layout_b in combinations(CLASSES[case.a], CLASSES[case.b]):
            if shape[0] * shape[1] > 5000 and rng.random() < 0.5 and len(CLASSES[case.a]) * len(CLASSES[case.b]) > 4:
                continue  # of the largest shape, half the pairs of layouts
            run_one(kernel, configuration, shape, (layout_a, layout_b, rng.choice(OUTPUTS[case.c])), dtypes, **options)


OUTPUTS = {key: tuple(layout for layout in found if "repeated" not in layout.name) for key, found in CLASSES.items()}
"""Layouts that can be written."""


@dataclass(frozen=True)
class Case:
    """One kernel of the sweep: `a`, `b` and `c` are classes of layouts."""

    dtype: str
    configuration: str
    waves: int
    a: tuple[int | None, int]
    b: tuple[int | None, int]
    c: tuple[int | None, int]

    def __str__(self) -> str:
        def name(key):
            return f"{'any' if key[0] is None else 'ct'[1 - key[0]]}{key[1] or ''}"

        return f"{self.dtype}-{self.configuration}-w{self.waves}-{name(self.a)}-{name(self.b)}-{name(self.c)}"


def pairwise(seed: int) -> list[Case]:
    """Cases in which every pair of choices occurs, but for one wave with the largest tiles, which spills."""
    rng = random.Random(seed)
    dtypes = tuple(dtype for dtype in DTYPES if dtype != "s8u8")
    axes = (dtypes, tuple(CONFIGURATIONS), WAVES, tuple(CLASSES), tuple(CLASSES), tuple(CLASSES))

    def pairs(choice):
        return {(i, choice[i], j, choice[j]) for i in range(6) for j in range(i + 1, 6)}

    slow = {(1, "128x128x32", 2, 1), (1, "128x64x32", 2, 1)}
    wanted = {(i, x, j, y) for i in range(6) for j in range(i + 1, 6) for x in axes[i] for y in axes[j]} - slow
    cases = []
    while wanted:
        candidates = [choice for _ in range(60) if not slow & pairs(choice := tuple(rng.choice(axis) for axis in axes))]
        best = max(candidates, key=lambda choice: len(pairs(choice) & wanted))
        wanted -= pairs(best)
        cases.append(Case(*best))
    return cases


def sweep(seed: int) -> list[Case]:
    """Every dtype x configuration x number of waves; three pairs of classes each, so that each dtype meets all 25 pairs."""
    rng = random.Random(seed)
    cases = []
    for dtype in DTYPES:
        pairs = list(combinations(CLASSES, CLASSES))
        dealt: list = []
        for configuration, waves in combinations(CONFIGURATIONS, WAVES):
            for _ in range(3):
                if not dealt:
                    dealt = rng.sample(pairs, len(pairs))
                cases.append(Case(dtype, configuration, waves, *dealt.pop(), rng.choice(tuple(CLASSES))))
    return cases


QUICK = pairwise(0)
SWEEP = [case for case in sweep(1) if case not in QUICK]


@pytest.mark.medium
@pytest.mark.parametrize("case", QUICK, ids=str)
def test_matmul(case: Case) -> None:
    run_all(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", SWEEP, ids=str)
def test_matmul_sweep(case: Case) -> None:
    run_all(case)


# ---- other numbers of waves, and the launch in one line --------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("waves", [3, 5, 6, 7])
@pytest.mark.parametrize("dtype", ["f16", "s8"])
def test_odd_numbers_of_waves(dtype: str, waves: int) -> None:
    run_all(Case(dtype, "32x32x32", waves, (1, 0), (1, 0), (1, 0)))


def test_launch_compiles_for_the_arrays_given() -> None:
    """The classes come from the arrays, C is of either dtype of the accumulator, and one call does it all."""
    for dtype, out in ((ts.float16, np.float32), (ts.bfloat16, np.float32), (ts.float16, np.float16), (ts.uint8, np.int32)):
        a = Arena((50, 70), dtype.numpy, LAYOUTS["transposed_negative"]).fill(values((50, 70), dtype.numpy, 0))
        b = Arena((70, 90), dtype.numpy, LAYOUTS["sliced"]).fill(values((70, 90), dtype.numpy, 1))
        c = Arena((50, 90), np.dtype(out), LAYOUTS["negative"])
        result = kernels.matmul[2, 3](a, b, c.fill(np.full((50, 90), 99, out)), BM=32, BN=32)
        c.check_surroundings()
        compare.product(c.array, a, b, accumulator=np.dtype(out).name if out is np.float16 else "float32")
        assert (result.executor, result.arch, result.grid) == ("rocm_sim", "gfx1151", (2, 3, 1))


# ---- dots that aren't the plain loop -----------------------------------------------------------------------------------------------------

NARROW = {"f16": ts.float16, "bf16": ts.bfloat16}


def launch_on_poison(kernel: JitFunction, grid, inputs, out: Arena, **constants) -> np.ndarray:
    """Compile for the inputs' own classes and run; nothing but `out` is written. Returns what the reference executor gives."""
    out.fill(np.full(out.array.shape, -99, out.dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TesseraWarning)
        compiled = kernel.compile(*inputs, out.array, **constants, arch="gfx1151")
    compiled[grid](*inputs, out.array)
    out.check_surroundings()
    reference = np.full(out.array.shape, -99, out.dtype)
    run_kernel(parse_kernel(compiled.tile_ir), (*grid, 1, 1)[:3], (*inputs, reference))
    return reference


def filled(shape: tuple[int, ...], dtype, layout: str, seed: int) -> np.ndarray:
    return Arena(shape, dtype.numpy, LAYOUTS[layout]).fill(values(shape, dtype.numpy, seed))


@pytest.mark.medium
@pytest.mark.parametrize("layout", ["padded", "transposed", "sliced"])
@pytest.mark.parametrize("waves", [1, 4, 6])
@pytest.mark.parametrize("dtype", NARROW)
def test_bias_and_activation(dtype: str, waves: int, layout: str) -> None:
    """The epilogue adds the bias in float32, clamps and rounds once to C's dtype."""
    narrow = NARROW[dtype]
    a, b = filled((75, 50), narrow, layout, 0), filled((50, 41), narrow, layout, 1)
    bias = Arena((41,), narrow.numpy).fill(values((41,), narrow.numpy, 2))
    out = Arena((75, 41), narrow.numpy, LAYOUTS["odd"])
    kernel = with_waves(kernels.matmul_bias_activation, waves)
    reference = launch_on_poison(kernel, (3, 2), (a, b, bias), out, BM=32, BN=32)
    wide_a, wide_b, wide_bias = a.astype(np.float64), b.astype(np.float64), bias.astype(np.float64)
    exact = np.maximum(wide_a @ wide_b + wide_bias, 0)
    bound = compare.sum_bound(np.abs(wide_a) @ np.abs(wide_b) + np.abs(wide_bias), 51, "float32")
    compare.within(out.array, exact, bound)
    compare.within(reference, exact, bound)


@pytest.mark.medium
@pytest.mark.parametrize("layout", ["dense", "sliced"])
@pytest.mark.parametrize("waves", [1, 2, 8])
@pytest.mark.parametrize("dtype", NARROW)
def test_chained_dots(dtype: str, waves: int, layout: str) -> None:
    """(A @ B) @ D with the inner product in registers, rounded to the narrow dtype: a fragment of C becomes one of A."""
    narrow = NARROW[dtype]
    a, b, d = (filled(s, narrow, layout, seed) for seed, s in enumerate(((45, 38), (38, 70), (70, 33))))
    out = Arena((45, 33), np.dtype(np.float32), LAYOUTS["odd"])
    reference = launch_on_poison(with_waves(kernels.chained_dots, waves), (2, 2), (a, b, d), out)
    wide_a, wide_b, wide_d = (x.astype(np.float64) for x in (a, b, d))
    inner, size = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    loss = compare.sum_bound(size, 38, "float32")
    loss = loss + compare.ROUNDOFF[narrow.name] * (np.abs(inner) + loss) + compare.SMALLEST[narrow.name]
    bound = loss @ np.abs(wide_d) + compare.sum_bound((np.abs(inner) + loss) @ np.abs(wide_d), 70, "float32")
    compare.within(out.array, inner @ wide_d, bound)
    compare.within(reference, inner @ wide_d, bound)


@pytest.mark.parametrize("layout", ["dense", "transposed"])
@pytest.mark.parametrize("waves", [1, 8])
@pytest.mark.parametrize("dtype", NARROW)
def test_computed_operand(dtype: str, waves: int, layout: str) -> None:
    """An operand that is loaded as float32, scaled by row, masked and cast on its way to the matrix instruction."""
    narrow = NARROW[dtype]
    a, b = filled((45, 70), ts.float32, layout, 0), filled((70, 50), narrow, layout, 1)
    scale = Arena((45,), np.dtype(np.float32)).fill(values((45,), np.dtype(np.float32), 2))
    out = Arena((45, 50), np.dtype(np.float32), LAYOUTS["padded"])
    reference = launch_on_poison(with_waves(kernels.computed_operand, waves), (2, 2), (a, b, scale), out)
    operand = np.maximum(a * scale[:, None], np.float32(0)).astype(narrow.numpy)
    compare.product(out.array, operand, b)
    compare.product(reference, operand, b)


@pytest.mark.parametrize("waves", [1, 4, 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dot_outside_a_loop(dtype: str, waves: int) -> None:
    """One program, one dot, smaller arrays than tiles; for floats also with an accumulator of the operands' dtype."""
    first, second, acc = DTYPES[dtype]
    a, b = filled((30, 61), first, "padded", 0), filled((61, 17), second, "sliced", 1)
    for to in {acc, first} if first.is_float else {acc}:
        out = Arena((30, 17), to.numpy, LAYOUTS["transposed"])
        reference = launch_on_poison(with_waves(kernels.one_dot, waves), (1,), (a, b), out, M=32, N=32, K=64)
        compare.product(out.array, a, b, accumulator=to.name if to.is_float else "float32")
        compare.product(reference, a, b, accumulator=to.name if to.is_float else "float32")


def test_dot_with_an_accumulator_that_is_loaded() -> None:
    """C += A @ B in place, twice."""
    a, b = filled((20, 40), ts.float16, "dense", 0), filled((40, 24), ts.float16, "transposed", 1)
    start = values((20, 24), np.dtype(np.float32), 2)
    c = Arena((20, 24), np.dtype(np.float32), LAYOUTS["sliced"])
    c.fill(start)
    accumulate[2, 2](a, b, c.array)
    c.check_surroundings()
    compare.product(c.array, a, b, start)
    once = c.array.copy()
    accumulate[2, 2](a, b, c.array)
    compare.product(c.array, a, b, once)


@ts.jit(num_waves=2)
def accumulate(a, b, c):
    i, j = ts.program_id(0), ts.program_id(1)
    acc = ts.load(c, (i, j), shape=(16, 16))
    for k in range(ts.cdiv(a.shape[1], 16)):
        acc = ts.dot(ts.load(a, (i, k), shape=(16, 16)), ts.load(b, (k, j), shape=(16, 16)), acc)
    ts.store(c, (i, j), acc)


def test_int32_accumulators_wrap() -> None:
    """A sum past 2**31 wraps, as int32 sums do in NumPy."""
    a, b = np.full((16, 16), -128, np.int8), np.full((16, 16), -128, np.int8)
    c = np.full((16, 16), 2**31 - 1000, np.int32)
    accumulate[1, 1](a, b, c)
    assert np.all(c == np.int64(2**31 - 1000 + 16 * 2**14).astype(np.int32))


# ---- in checking mode --------------------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("case", QUICK[::4], ids=str)
def test_matmul_in_checking_mode(case: Case) -> None:
    run_all(case, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", SWEEP[::12], ids=str)
def test_matmul_sweep_in_checking_mode(case: Case) -> None:
    run_all(case, check=True)
