"""Random kernels through the ROCm passes: layouts obey their rules after each pass; neither passes nor machine code change a result.

All values are small integers, and products are scaled down and rounded, so that no order of summation shows: results are equal bit for bit.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from rocm_kernels import array, load_kernel, run
from test_matrix_lowering import placed, simulate

from tessera.ir import passes
from tessera.ir.verify import verify
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.check import check_layouts
from tessera.targets.rocm.pipeline import ROCM_PASSES
from tessera.targets.rocm.select import select

pytestmark = pytest.mark.filterwarnings("ignore:kernel 'random' spills")

SHAPES = [(32, 32), (16, 64), (64, 16), (16, 16), (64, 64), (4, 128)]

Shape = tuple[int, ...]


class Generator:
    """A random kernel: loads, elementwise ops, transposes, reshapes, reductions spread again, dots; half of them with a loop."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.tiles: list[tuple[str, Shape]] = []
        self.axes = [self.r.choice([0, 1]) for _ in range(3)]
        self.waves = self.r.choice([1, 2, 3, 4, 8])

    def emit(self, op: str, shape: Shape, dtype: str = "f32") -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {op} : {'x'.join(map(str, shape))}x{dtype}")
        if dtype == "f32":
            self.tiles.append((name, shape))
        return name

    def constant(self, shape: Shape, value: float) -> str:
        return self.emit(f"const type={'x'.join(map(str, shape))}xf32 value={value}", shape)

    def load(self, offset: str) -> None:
        rows, columns = self.r.choice(SHAPES)
        source, first = self.r.choice(["%a", "%b"]), self.r.choice(["%m0", "%zero"])
        self.emit(f"load {source} [{first} {offset}] %z shape=({rows},{columns})", (rows, columns))

    def step(self, offset: str) -> None:
        r = self.r
        square = [t for t in self.tiles if len(t[1]) == 2]
        kind = r.choice(["load", "elementwise", "elementwise", "transpose", "reshape", "reduce", "reduce", "dot", "dot", "constant"])
        if kind == "load" or not square:
            self.load(offset)
            return
        tile, shape = r.choice(square)
        m, n = shape
        match kind:
            case "constant":
                self.constant(shape, r.randint(-3, 3))
            case "elementwise":
                other, _ = r.choice([t for t in self.tiles if t[1] == shape])
                self.emit(f"{r.choice(['add', 'sub', 'maximum'])} {tile} {other}", shape)
            case "transpose":
                self.emit(f"transpose {tile} order=(1,0)", (n, m))
            case "reshape":
                columns = r.choice([c for c in (4, 16, 32, 64, n) if m * n % c == 0 and m * n // c <= 128])
                self.emit(f"reshape {tile} shape=({m * n // columns},{columns})", (m * n // columns, columns))
            case "reduce":
                axis = r.choice([0, 1])
                small = self.emit(f"{r.choice(['max', 'min'])} {tile} axis={axis}", (shape[1 - axis],))
                one = (1, n) if axis == 0 else (m, 1)
                wide = self.emit(f"reshape {small} shape={one}".replace(", ", ","), one)
                self.tiles = [t for t in self.tiles if t[0] not in (small, wide)]
                self.emit(f"broadcast {wide} shape=({m},{n})", shape)
            case _:
                self.dot(tile, (m, n))

    def dot(self, a: str, shape: tuple[int, int]) -> None:
        fitting = [t for t in self.tiles if len(t[1]) == 2 and t[1][0] == shape[1]]
        if not fitting:
            return
        b, (k, n) = self.r.choice(fitting)  # type: ignore[misc]
        out = (shape[0], n)
        accumulators = [t for t, s in self.tiles if s == out]
        acc = self.r.choice(accumulators) if accumulators and self.r.random() < 0.5 else self.constant(out, 0)
        halves = [self.emit(f"cast {t} to=f16", s, "f16") for t, s in ((a, shape), (b, (k, n)))]
        product = self.emit(f"dot {halves[0]} {halves[1]} {acc} fallback='' instruction=''", out)
        scaled = self.emit(f"mul {product} {self.constant(out, 2.0**-7)}", out)
        self.emit(f"floor {scaled}", out)
        self.tiles = [t for t in self.tiles if t[0] not in (product, scaled)]  # fractions would round in the next product

    def loop(self) -> None:
        before = list(self.tiles)
        carried = [self.r.choice(before) for _ in range(self.r.randint(1, 3))]
        types = ["x".join(map(str, shape)) + "xf32" for _, shape in carried]
        results = [f"%r{i}" for i in range(len(carried))]
        init = " ".join(t for t, _ in carried)
        self.lines.append(f"  {', '.join(results)} = for %zero %stop %step [{init}] stages=0 : {', '.join(types)}")
        self.lines.append("  ^(" + ", ".join(["%i: i64", *(f"%c{i}: {t}" for i, t in enumerate(types))]) + ") {")
        self.tiles += [(f"%c{i}", shape) for i, (_, shape) in enumerate(carried)]
        for _ in range(self.r.randint(2, 8)):
            self.step("%i")
        ends = [self.r.choice([t for t, s in self.tiles if s == shape]) for _, shape in carried]
        self.lines += [f"  yield [{' '.join(ends)}]", "  }"]
        self.tiles = before + [(name, shape) for name, (_, shape) in zip(results, carried, strict=True)]

    def kernel(self) -> tuple[str, Shape]:
        """Its text, and the shape of what it stores."""
        self.load("%zero")
        for _ in range(self.r.randint(2, 9)):
            self.step("%zero")
        if self.r.random() < 0.6:
            self.loop()
            for _ in range(self.r.randint(0, 4)):
                self.step("%zero")
        out, shape = self.tiles[-1]
        a, b, c = (array("f32", axis) for axis in self.axes)
        head = f"""kernel @random num_waves={self.waves} weak=[]
^(%a: {a}, %b: {b}, %c: {c}) {{
  %m0 = const type=i64 value=16 : i64
  %zero = const type=i64 value=0 : i64
  %step = const type=i64 value=16 : i64
  %stop = extent %a axis=1 : i64
  %z = const type=f32 value=0 : f32
"""
        return head + "\n".join(self.lines) + f"\n  store %c [%zero %zero] {out}\n  yield []\n}}\n", shape


def check(seed: int, *, simulated: bool) -> None:
    made = Generator(seed)
    text, shape = made.kernel()
    rng = np.random.default_rng(seed)
    arrays = [placed(rng.integers(-4, 5, s).astype(np.float32), axis) for s, axis in zip(((40, 35), (50, 45)), made.axes, strict=False)]
    out = np.full(shape, np.nan, np.float32)
    want = run(load_kernel(text), (1, 1, 1), arrays, out)
    kernel = load_kernel(text)
    passes.run(kernel)
    for step in ROCM_PASSES:
        step(kernel, arch("gfx1151"))
        verify(kernel)
        if step is not select:
            check_layouts(kernel, arch("gfx1151"))
    np.testing.assert_array_equal(run(kernel, (1, 1, 1), arrays, out), want)
    if simulated:
        np.testing.assert_array_equal(simulate(text, (1, 1, 1), arrays, out), want)


@pytest.mark.parametrize("seed", range(60))
def test_passes(seed: int) -> None:
    check(seed, simulated=False)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(100, 120))
def test_on_the_simulator(seed: int) -> None:
    check(seed, simulated=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(12))
def test_many_on_the_simulator(block: int) -> None:
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        check(seed, simulated=True)
