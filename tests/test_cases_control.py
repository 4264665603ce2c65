"""Reports from the field: control flow and scoping. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import re

import both
import compare
import numpy as np
import pytest
from poison import LAYOUTS, Arena

import tessera as ts
from corpus.kernels import matmul
from tessera.errors import KernelError, KernelSyntaxError
from tessera.jit import JitFunction, Options

pytestmark = pytest.mark.filterwarnings("ignore:kernel .* (has been compiled|spills)")

BOUNDS = (0, 1, 2, 63, 64)


def with_waves(kernel: JitFunction, waves: int) -> JitFunction:
    return JitFunction(kernel.function, Options(num_waves=waves))


@ts.jit
def running_sum(x, partial, out, n, N: ts.constexpr = 8):
    acc = ts.zeros((), ts.float64)
    for t in range(n):
        acc += ts.sum(ts.load(x, t, shape=N))
        partial[t] = acc
    out[0] = acc


@pytest.mark.parametrize("waves", [1, 2, 4, 8])
def test_ctl_01_trip_counts_at_run_time(waves: int) -> None:
    """triton-lang/triton#11378 (gfx1151): constant, specialised and run-time bounds give the same, for one wave and several."""
    x = np.arange(512.0)
    kernel = with_waves(running_sum, waves)
    compiled = kernel.compile(x, np.zeros(64), np.zeros(1), int, arch="gfx1151")
    for n in BOUNDS:
        partial, out = np.full(64, -1.0), np.full(1, -1.0)
        both.launch(compiled, 1, x, partial, out, n)
        assert out[0] == x[: 8 * n].sum()
        assert partial.tolist() == [x[: 8 * t + 8].sum() if t < n else -1 for t in range(64)]
        constant = JitFunction(running_sum_of_constant.function, Options(num_waves=waves))
        both.run(constant, 1, x, partial, out, n=n)
        assert out[0] == x[: 8 * n].sum()
    assert [float(x[: 8 * n].sum()) for n in BOUNDS] == [0.0, 28.0, 120.0, 126756.0, 130816.0]


@ts.jit
def running_sum_of_constant(x, partial, out, n: ts.constexpr, N: ts.constexpr = 8):
    acc = ts.zeros((), ts.float64)
    for t in range(n):
        acc += ts.sum(ts.load(x, t, shape=N))
        partial[t] = acc
    out[0] = acc


@ts.jit
def steps(x, visited, out, start, stop, step):
    total = 0
    count = 0
    for i in range(start, stop, step):
        total += x[i]
        visited[count] = i
        count += 1
    out[0] = total
    out[1] = count


RANGES = [
    (45, -1, -5), (5, 10, -3), (10, 1, -3), (1, 10, 3), (0, 50, 49), (0, 0, 1), (3, 3, -1), (49, -1, -1), (0, 50, 1), (10, 1, 3),
    (7, 8, 100), (8, 7, -100), (-3, 3, 2), (3, -4, -2), (0, 50, 7), (0, 49, 7), (48, -1, -7), (2**40, 2**40 + 3, 1), (0, 2**62, 2**61),
    (-(2**63), -(2**63) + 2, 1), (2**63 - 3, 2**63 - 1, 1), (2**63 - 2, 2**63 - 4, -1), (2**31 - 2, 2**31 + 2, 1),
    (-(2**31) + 1, -(2**31) - 3, -2),
]  # fmt: skip


@pytest.mark.parametrize("make", [int, np.int64, np.int32])
def test_ctl_02_steps_of_either_sign(make) -> None:
    """triton-lang/triton#10950: Python's range for bounds and steps that arrive at run time; a step of 0 runs no times."""
    x = np.arange(50) + 1
    compiled = steps.compile(x, np.zeros(60, np.int64), np.zeros(2, np.int64), make(0), make(0), make(0), arch="gfx1151")
    for bounds in RANGES:
        if make is np.int32 and max(map(abs, bounds)) >= 2**31:
            continue
        visited, out = np.full(60, -7, np.int64), np.full(2, -1, np.int64)
        both.launch(compiled, 1, x, visited, out, *map(make, bounds))
        walked = list(range(*bounds))
        assert visited.tolist() == walked + [-7] * (60 - len(walked)), bounds
        assert out.tolist() == [sum(int(x[i]) for i in walked if 0 <= i < 50), len(walked)], bounds
    visited, out = np.full(60, -7, np.int64), np.full(2, -1, np.int64)
    both.launch(compiled, 1, x, visited, out, make(0), make(5), make(0))
    assert out.tolist() == [0, 0]
    assert (sum(x[i] for i in range(45, -1, -5)), list(range(10, 1, -3))) == (235, [10, 7, 4])


def test_ctl_02_a_step_of_zero_is_an_error() -> None:
    """triton-lang/triton#10950."""

    @ts.jit
    def never(out):
        for _ in range(0, 5, 0):
            out[0] = 1

    with pytest.raises(KernelError, match="step") as caught:
        never.compile(np.zeros(1, np.int64))
    assert "range(0, 5, 0)" in str(caught.value)


@ts.jit
def nested(out, outer, start, stop):
    n = 0
    for _ in range(outer):
        for _ in range(start, stop):
            n += 1
    out[0] = n


def test_ctl_03_an_inner_loop_that_runs_no_times() -> None:
    """triton-lang/triton#11656: the trip count is max(0, …), nested or not."""
    for outer in (0, 1, 6):
        for stop in (7, 9, 10, 12, -5):
            out = np.full(1, -1, np.int64)
            both.run(nested, 1, out, outer, 9, stop)
            assert out[0] == outer * max(0, stop - 9)


def helper_with_return_in_loop(n):
    for i in range(n):
        return i + 1
    return 0


def helper_with_return(x):
    return x + 1


def helper_unrolled(n):
    for i in ts.static_range(n):
        if i == 2:
            return i * 10
    return -1


@ts.jit
def returns_in_helper(out, n):
    out[0] = helper_with_return_in_loop(n)


@ts.jit
def returns_in_loop(out, n):
    for i in range(n):
        out[0] = i
        return


@ts.jit
def returns_in_while(out, n):
    i = 0
    while i < n:
        i += 1
        if i == 3:
            return
    out[0] = i


@ts.jit
def early(out, n):
    i = ts.program_id(0)
    if i >= n:
        return
    for k in range(3):
        helper_with_return(k)  # what it returns is ignored
        if k > 0:
            helper_with_return(out[i])
    out[i] = helper_with_return(i)


@ts.jit
def unrolled(out, n: ts.constexpr):
    out[0] = helper_unrolled(n)


@pytest.mark.parametrize(
    ("kernel", "line"),
    [(returns_in_helper, "return i + 1"), (returns_in_loop, "return"), (returns_in_while, "return")],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_ctl_05_return_in_a_loop_is_refused_at_its_line(kernel: JitFunction, line: str) -> None:
    """triton-lang/triton#2567: one error with file and line."""
    with pytest.raises(KernelSyntaxError) as caught:
        kernel.compile(np.zeros(1, np.int64), int)
    message = str(caught.value)
    assert "return" in message.splitlines()[0]
    assert re.search(rf"\| +{re.escape(line)}\n", message)
    assert "test_cases_control.py" in message


def test_ctl_05_returns_that_work() -> None:
    """triton-lang/triton#2567: an early exit, a value ignored in a loop, a return from an unrolled loop."""
    out = np.full(8, -1, np.int64)
    both.run(early, 8, out, 5)
    assert out.tolist() == [1, 2, 3, 4, 5, -1, -1, -1]
    both.run(unrolled, 1, out, n=4)
    assert out[0] == 20
    both.run(unrolled, 1, out, n=2)
    assert out[0] == -1


@ts.jit
def last_value(out, x, n):
    i = 99
    s = 0
    for i in range(n):
        s += x[i]
    out[0] = i
    out[1] = s


@ts.jit
def first_set_in_loop(out, n):
    for i in range(n):
        y = i * 2
    out[0] = y


@ts.jit
def loop_variable_without_value(out, n):
    for i in range(n):
        out[0] = i
    out[0] = i


@ts.jit
def set_in_one_branch(out, n):
    if n > 3:
        y = n
    out[0] = y


def test_ctl_07_after_the_loop() -> None:
    """triton-lang/triton#11439: the last value, or the one from before where it ran no times."""
    x = np.array([5, 6, 7, 8])
    for n, expected in ((3, [2, 18]), (0, [99, 0]), (1, [0, 5]), (-2, [99, 0])):
        out = np.full(2, -1, np.int64)
        both.run(last_value, 1, out, x, n)
        assert out.tolist() == expected


@pytest.mark.parametrize(("kernel", "name"), [(first_set_in_loop, "y"), (loop_variable_without_value, "i"), (set_in_one_branch, "y")])
def test_ctl_07_what_may_have_no_value(kernel: JitFunction, name: str) -> None:
    """triton-lang/triton#11439: an error at the line that reads it, never undefined data."""
    with pytest.raises(KernelError) as caught:
        kernel.compile(np.zeros(1, np.int64), int)
    assert f"{name!r}" in str(caught.value) or f"'{name}'" in str(caught.value)
    assert f"out[0] = {name}" in str(caught.value)


@ts.jit
def reassigns(out, stop, step):
    n = 0
    for i in range(0, stop, step):
        i = i + 100
        out[n] = i
        n += 1
    out[7] = n


def test_ctl_08_assigning_to_the_loop_variable() -> None:
    """triton-lang/triton#2015: the body sees the new value, and the number of trips stays."""
    out = np.zeros(8, np.int64)
    both.run(reassigns, 1, out, 6, 2)
    assert out.tolist() == [100, 102, 104, 0, 0, 0, 0, 3]


@ts.jit
def widens(out, n, N: ts.constexpr = 4):
    acc = ts.zeros(N, ts.float16)
    for _ in range(n):
        acc += ts.full(N, 1.0, ts.float32)
    ts.store(out, 0, acc)


@ts.jit
def widens_in_branch(out, scale, n, N: ts.constexpr = 4):
    tile = ts.full(N, 2.0, ts.float16)
    if n > 0:
        tile = tile * scale
    ts.store(out, 0, tile.astype(out.dtype))


@ts.jit
def keeps(out, n, N: ts.constexpr = 4):
    acc = ts.zeros(N, ts.float16)
    for _ in range(n):
        acc = (acc + ts.full(N, 1.0, ts.float32)).astype(ts.float16)
    ts.store(out, 0, acc)


def test_ctl_09_a_dtype_that_changes() -> None:
    """triton-lang/triton#1423: an error that names the variable, both types, the line and the cast; with the cast it works."""
    for kernel, args, name in (
        (widens, (np.zeros(4, np.float16), 32), "acc"),
        (widens_in_branch, (np.zeros(4, np.float32), np.float32(3), 1), "tile"),
    ):
        with pytest.raises(KernelError) as caught:
            kernel.compile(*args)
        message = str(caught.value)
        assert name in message and "float16" in message and "float32" in message and "astype" in message  # noqa: PT018
        assert re.search(r"test_cases_control.py', line \d+", message)
    out = np.zeros(4, np.float16)
    both.run(keeps, 1, out, 32)
    assert out.tolist() == [32] * 4


@pytest.mark.parametrize("tile", [(64, 64, 32), (16, 16, 16)], ids=str)
@pytest.mark.parametrize("waves", [1, 4])
def test_ctl_12_short_loops_of_dots(tile, waves: int) -> None:
    """triton-lang/triton#4890: with the loads of the next trip in flight, 0 to 5 trips, whole and ragged, are right.

    (Deeper pipelines, range(…, num_stages=…), are a later version's.)
    """
    bm, bn, bk = tile
    kernel = with_waves(matmul, waves)
    rng = np.random.default_rng(7)
    for trips in range(6):
        for k in {bk * trips, max(bk * trips - 5, 0)}:
            a = Arena((20, k), np.dtype(np.float16), LAYOUTS["padded"]).fill(rng.standard_normal((20, k)).astype(np.float16))
            b = Arena((k, 24), np.dtype(np.float16), LAYOUTS["padded"]).fill(rng.standard_normal((k, 24)).astype(np.float16))
            c = np.full((20, 24), np.nan, np.float32)
            both.run(kernel, (ts.cdiv(20, bm), ts.cdiv(24, bn)), a, b, c, exact=False, BM=bm, BN=bn, BK=bk)
            compare.product(c, a, b)
            ones = np.ones((20, k), np.float16), np.ones((k, 24), np.float16)
            both.run(kernel, (ts.cdiv(20, bm), ts.cdiv(24, bn)), *ones, c, BM=bm, BN=bn, BK=bk)
            assert np.all(c == k)
