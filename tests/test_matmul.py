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
import ml_dtypes
import numpy as np
import pytest
from poison import CLASSES, LAYOUTS, Arena, Layout

import corpus.kernels as kernels
import tessera as ts
from tessera.errors import KernelTypeError, TesseraWarning
from tessera.jit import CompiledKernel, JitFunction
from tessera.runtime.simulator import engine

checking = pytest.mark.skipif(engine.observer_factory is None, reason="the checking mode isn't part of this version")

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
    """Cases in which every pair of choices occurs, but for one wave holding 128x128, which spills and is slow to compile."""
    rng = random.Random(seed)
    dtypes = tuple(dtype for dtype in DTYPES if dtype != "s8u8")
    axes = (dtypes, tuple(CONFIGURATIONS), WAVES, tuple(CLASSES), tuple(CLASSES), tuple(CLASSES))

    def pairs(choice):
        return {(i, choice[i], j, choice[j]) for i in range(6) for j in range(i + 1, 6)}

    slow = (1, "128x128x32", 2, 1)
    wanted = {(i, x, j, y) for i in range(6) for j in range(i + 1, 6) for x in axes[i] for y in axes[j]} - {slow}
    cases = []
    while wanted:
        candidates = [choice for _ in range(60) if slow not in pairs(choice := tuple(rng.choice(axis) for axis in axes))]
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
