"""Staged control flow equals plain Python: each kernel below is also run as it stands, on stand-ins for arrays."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.errors import KernelError, KernelNameError, KernelSyntaxError, KernelTypeError
from tessera.frontend.parameters import Signature
from tessera.frontend.staging import Scalar, Spec, trace
from tessera.ir import passes
from tessera.ir.core import Kernel
from tessera.ir.interp import run_kernel
from tessera.ir.ops.control import For, If, While
from tessera.ir.text import parse_kernel, print_kernel
from tessera.ir.types import ArrayType
from tessera.ir.verify import verify

WEAK = {bool: ts.bool_, int: ts.int64, float: ts.float64}


def traced(function: Any, *args: Any, **constants: Any) -> tuple[Kernel, list[Any]]:
    """The kernel for these arguments, and the run-time ones among them."""
    signature = Signature(function)
    specs: dict[str, Spec] = {}
    fixed: dict[str, Any] = {}
    given_: list[Any] = []
    for name, value in zip(signature.names, signature.bind(args, constants), strict=True):
        if name in signature.constexprs or value is None:
            fixed[name] = value
            continue
        given_.append(value)
        if isinstance(value, np.ndarray):
            specs[name] = ArrayType(ts.dtypes.from_numpy(value.dtype), value.ndim, value.itemsize, None, True, True)
        elif isinstance(value, np.generic):
            specs[name] = Scalar(ts.dtypes.from_numpy(value.dtype))
        else:
            specs[name] = Scalar(WEAK[type(value)], weak=True)
    return trace(function, specs, fixed).kernel, given_


def run(function: Any, *args: Any, grid: tuple[int, int, int] = (1, 1, 1), **constants: Any) -> Kernel:
    """Trace, verify, print and parse, run passes, evaluate before and after them; arrays are written in place."""
    kernel, given_ = traced(function, *args, **constants)
    verify(kernel)
    text = print_kernel(kernel)
    before = parse_kernel(text)
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in given_]
    passes.run(kernel)
    verify(kernel)
    run_kernel(kernel, grid, copies)
    run_kernel(before, grid, given_)
    for a, b in zip(copies, given_, strict=True):
        np.testing.assert_array_equal(a, b)
    return parse_kernel(text)


def both(function: Any, *args: Any) -> list[int | float]:
    """What a kernel that writes `out` gives, which must be what Python gives; numbers as arguments and as constants."""
    expected = np.zeros(16, np.float64)
    function(expected, *args)
    out = np.zeros(16, np.float64)
    run(function, out, *args)
    np.testing.assert_array_equal(out, expected)
    fixed = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    fixed.__annotations__ = dict.fromkeys(names, ts.constexpr)
    out = np.zeros(16, np.float64)
    run(fixed, out, *args)
    np.testing.assert_array_equal(out, expected)
    return expected.tolist()


small = st.integers(-7, 12)
step = st.integers(-4, 4).filter(bool)
quick = settings(max_examples=25, deadline=None)

# ---- for ------------------------------------------------------------------------------------------------------------------------


def counted(out, start, stop, step):
    count = 0
    total = 0
    last = 99
    for i in range(start, stop, step):
        count += 1
        total = total * 3 + i
        last = i
    out[0] = count
    out[1] = total
    out[2] = last


@quick
@given(small, small, step)
def test_range_follows_python_for_every_bound_and_step(start: int, stop: int, step: int) -> None:
    assert both(counted, start, stop, step)[0] == len(range(start, stop, step))


def loop_variable(out, n):
    i = 99
    s = 0
    for i in range(n):
        s += i
    out[0] = i
    out[1] = s


@pytest.mark.parametrize(("n", "last"), [(0, 99), (1, 0), (3, 2), (-4, 99)])
def test_the_loop_variable_after_the_loop(n: int, last: int) -> None:
    assert both(loop_variable, n)[0] == last


def reassigned(out, n):
    k = 0
    for i in range(0, n, 2):
        i = i + 100
        out[k] = i
        k += 1
    out[15] = k


@pytest.mark.parametrize("n", [0, 1, 6, 9])
def test_assigning_the_loop_variable_changes_neither_count_nor_order(n: int) -> None:
    both(reassigned, n)


def nested(out, rows, columns):
    acc = 0
    for i in range(rows):
        for j in range(9, columns):
            acc += 10 * i + j
        for j in range(columns, 9, -1):
            acc = acc * 2 - j
    out[0] = acc


@pytest.mark.parametrize("columns", [7, 9, 10, 12])
def test_an_inner_loop_that_is_empty_runs_no_times(columns: int) -> None:
    both(nested, 3, columns)


def triangle(out, n):
    total = 0
    for i in range(n):
        for j in range(i):
            for k in range(j, n, 2):
                total += (i + 1) * (j + 2) - k
    out[0] = total
    for _ in range(3):
        pass
    else:
        out[1] = total + 1


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_loops_whose_bounds_are_outer_variables(n: int) -> None:
    both(triangle, n)


def test_a_range_is_staged_whatever_its_bounds() -> None:
    def kernel(out, n):
        bounds = range(2, 8, 3)
        for i in bounds:
            out[i] = i
        for i in range(4):
            out[i] = i * n

    out = np.zeros(8)
    found = run(kernel, out, 2)
    assert sum(isinstance(op, For) for op in found.body.walk()) == 2
    assert out.tolist() == [0, 2, 4, 6, 0, 5, 0, 0]


def test_static_range_and_python_sequences_are_unrolled() -> None:
    def kernel(out, n):
        total = n
        for i in ts.static_range(4, -1, -2):
            assert i in (4, 2, 0)
            total = total * 10 + i
            if i == 2:
                continue
            total += 1
        for scale, offset in ((1, 2), (3, 4)):
            total = total * scale + offset
            if scale == 3:
                break
        else:
            total = 0
        out[0] = total

    out = np.zeros(1)
    found = run(kernel, out, 1)
    assert not any(op.blocks for op in found.body.walk())
    assert out[0] == ((((1 * 10 + 4) + 1) * 10 + 2) * 10 + 0 + 1) * 3 + 2 * 3 + 4


def test_strong_bounds_give_a_strong_counter() -> None:
    def kernel(out, n):
        for i in range(n):
            assert i.dtype is ts.int32
            out[i] = i
        for j in range(2, n, 3):
            assert j.dtype is ts.int32
            out[j] = 10 + j

    out = np.zeros(6, np.int32)
    run(kernel, out, np.int32(5))
    assert out.tolist() == [0, 1, 12, 3, 4, 0]


# ---- what loops carry -------------------------------------------------------------------------------------------------------------


def test_weak_numbers_take_the_type_that_the_body_gives() -> None:
    def kernel(x, out, n):
        s, best, count = 0, float("-inf"), 0
        for i in range(n):
            s += x[i]
            best = ts.maximum(best, x[i])
            count += 1
        assert s.dtype is best.dtype is ts.float32
        assert count.dtype is ts.int64
        assert count.weak
        out[0] = s
        out[1] = best
        out[2] = count.astype(ts.float32)

    x = np.array([1.5, -2, 8, 0.25], np.float32)
    out = np.zeros(3, np.float32)
    run(kernel, x, out, 3)
    assert out.tolist() == [7.5, 8, 3]
    run(kernel, x, out, 0)
    assert out.tolist() == [0, -np.inf, 0]


def test_tuples_and_dataclasses_are_carried() -> None:
    def kernel(out, n):
        pair = (1, (2, 3))
        for i in range(n):
            pair = (pair[1][0], (pair[1][1], pair[0] + i))
        out[0] = pair[0]
        out[1], (out[2], *rest) = pair[1][0], (pair[1][1], 4)
        out[3] = rest[0]

    def plain(n: int) -> list[int]:
        pair = (1, (2, 3))
        for i in range(n):
            pair = (pair[1][0], (pair[1][1], pair[0] + i))
        return [pair[0], *pair[1], 4]

    for n in (0, 1, 4):
        out = np.zeros(4)
        run(kernel, out, n)
        assert out.tolist() == plain(n)


def test_python_values_that_stay_the_same_stay_python() -> None:
    def kernel(out, n, FAST: ts.constexpr = False):
        width = 4
        name = "a"
        for i in range(n):
            tile = ts.full((width,), i, ts.float32)
            if FAST:
                width = 8
            name = "a"
            ts.store(out, i, tile)
        assert width == 4
        assert name == "a"

    out = np.zeros(8, np.float32)
    run(kernel, out, 2)
    assert out.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(KernelTypeError, match="must be known"):
        run(kernel, out, 2, FAST=True)


def test_a_temporary_of_another_type_before_the_loop_does_no_harm() -> None:
    def kernel(x, out, n):
        t = ts.load(x, 0, shape=8)
        total = ts.sum(t)
        for i in range(n):
            t = ts.load(x, i, shape=4).astype(ts.float64)
            total += ts.sum(t).astype(ts.float32)
        out[0] = total

    def late(x, out, n):
        kernel(x, out, n)
        t = ts.load(x, 0, shape=8)
        for i in range(n):
            t = ts.load(x, i, shape=4)
        ts.store(out, 0, t)

    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run(kernel, x, out, 2)
    assert out[0] == 28 + 6 + 22
    with pytest.raises(KernelNameError, match="'t' is a float32 tile of shape \\(8,\\) before the loop"):
        traced(late, x, out, 2)


# ---- while and if ------------------------------------------------------------------------------------------------------------------


def collatz(out, n, limit):
    steps = 0
    top = n
    while n > 1 and steps < limit:
        if n % 2 == 0:
            n //= 2
        elif n > 50:
            n = n * 3 + 1
            top = n if n > top else top
        else:
            n = 3 * n + 1
        steps += 1
    out[0], out[1], out[2] = n, steps, top


@quick
@given(st.integers(-3, 40), st.integers(0, 30))
def test_while_and_elif(n: int, limit: int) -> None:
    both(collatz, n, limit)


def logic(out, a, b, c):
    out[0] = a and b
    out[1] = a or b or c
    out[2] = 1 if not a else 2
    out[3] = 1 if a < b < c else 0
    out[4] = 1 if a < b <= c != a else 0
    out[5] = (a and b) or c
    out[6] = 5 if (a > 0 or b > 0) and not c > 3 else 6
    x = a if b else c
    x += b if a < 0 else (c if a > 4 else -1)
    out[7] = x
    out[8] = min(a, b, c) * 100 + max(a, b)
    out[9] = abs(a) - b // (c if c else 1) + a % (abs(b) + 1)


@quick
@given(small, small, small)
def test_logic_over_scalars(a: int, b: int, c: int) -> None:
    both(logic, a, b, c)


def branches(out, n, m):
    x = 1
    y = 2.5
    if n > m:
        x = 10
        if n > 2 * m:
            y = x * 2.0
        z = 1
    elif n == m:
        z = 2
    else:
        x, z = x + n, 3
    out[0], out[1], out[2] = x, y, z


@quick
@given(small, small)
def test_nested_branches(n: int, m: int) -> None:
    both(branches, n, m)


def test_what_a_branch_does_not_take_is_not_done() -> None:
    def kernel(out, n):
        def mark(i):
            out[i] = 1
            return i

        _ = n > 2 and mark(0)
        _ = n > 2 or mark(1)
        _ = mark(2) if n == 0 else mark(3)
        if n:
            out[4] = 1

    for n in (0, 1, 3):
        out = np.zeros(5)
        run(kernel, out, n)
        assert out.tolist() == [n > 2, n <= 2, n == 0, n != 0, n != 0]


def test_light_branches_become_selects_and_heavy_ones_stay() -> None:
    def kernel(x, out, n):
        a = n if n > 3 else -n
        t = ts.load(x, 0, shape=8)
        if n > 5:
            t = ts.exp(t)
        out[0] = ts.sum(t) + a

    found = traced(kernel, np.zeros(8), np.zeros(1), 3)[0]
    assert sum(isinstance(op, If) for op in found.body.walk()) == 1
    assert sum(op.name == "select" for op in found.body.walk()) == 1


def test_a_while_whose_condition_python_knows_is_unrolled() -> None:
    def kernel(out, n):
        width = 16
        while width > 2:
            width //= 2
            out[width] = n
        i = 0
        while True:
            i += 1
            if i == 3:
                break
        out[i] = 7

    out = np.zeros(16)
    found = run(kernel, out, 5)
    assert not any(isinstance(op, While) for op in found.body.walk())
    assert np.flatnonzero(out).tolist() == [2, 3, 4, 8]


# ---- functions ----------------------------------------------------------------------------------------------------------------------


def early(out, n, limit):
    pid = ts.program_id(0)
    if pid >= n:
        return
    if pid == limit:
        out[pid] = -1
        return
    value = pid * 10
    out[pid] = value


@pytest.mark.parametrize(("n", "limit"), [(0, 0), (3, 1), (8, 9)])
def test_a_kernel_that_returns_early(n: int, limit: int) -> None:
    out = np.zeros(5)
    run(early, out, n, limit, grid=(5, 1, 1))
    assert out.tolist() == [0 if p >= n else -1 if p == limit else 10 * p for p in range(5)]


def pick(x, n):
    """Returns at four places."""
    if n > 3:
        return x * 2
    elif n > 1:
        y = x + 1
        if n == 2:
            return y
    else:
        y = -x
    y = y * 3
    return y


def test_helpers_that_return_early() -> None:
    def kernel(x, out, n):
        ts.store(out, 0, pick(ts.load(x, 0, shape=4), n))

    x = np.array([1.0, 2, -3, 4])
    for n in range(-1, 6):
        out = np.zeros(4)
        run(kernel, x, out, n)
        np.testing.assert_array_equal(out, pick(x, n))


def weighted(x, y, *rest, scale=2, **options):
    total = x + y * scale
    for value in rest:
        total = total + value
    return total - options.get("bias", 0)


def next_power(n):
    """Plain Python: it is called with Python numbers only, and so runs as it stands, try and all."""
    try:
        power = 1
        for _ in range(10):
            if power < n:
                power *= 2
        return power
    finally:
        pass


def test_helpers_take_arguments_as_python_does() -> None:
    offset = 5

    def kernel(out, n):
        def closure(value, by=n):
            return value * by + offset

        pair = (2, 3)
        out[0] = weighted(n, 1)
        out[1] = weighted(n, *pair, scale=3, bias=4)
        out[2] = closure(7)
        out[3] = closure(by=2, value=n)
        out[4] = (lambda a, b=3: a * b)(n)
        out[5] = sum([f(n) for f in (lambda v: v + 1, abs, closure)])
        ts.store(out, offset=(8,), tile=ts.full(next_power(3), n, ts.float64))

    out = np.zeros(12)
    run(kernel, out, 4)
    assert out.tolist() == [6, 4 + 6 + 3 - 4, 33, 13, 12, 5 + 4 + 21, 0, 0, 4, 4, 4, 4]


def test_closures_see_variables_as_they_are_when_called() -> None:
    def kernel(out, n):
        total = 0

        def show(i):
            out[i] = total

        for _ in range(n):
            total = total + 2
            show(0)
        show(1)

    out = np.zeros(2)
    run(kernel, out, 3)
    assert out.tolist() == [6, 6]


def test_other_python_in_kernels() -> None:
    def kernel(out, n):
        table = {"a": n, "b": 2}
        items = [table[key] + i for i, key in enumerate("ab") if key]
        squares = {k: k * k for k in range(3)}
        (first, *others), last = items, squares[2]
        text = f"{len(items)}{'x'!r:>4}"
        assert text == "2 'x'"
        if (double := n * 2) > 4:
            first = double
        annotated: int = last
        out[0], out[1], out[2] = first, others[0], annotated
        out[3] = len({1, 2, 3}) + (n is None) + (2 in table.values() if False else 1)
        items.append(n)
        out[4] = items[-1]

    out = np.zeros(5)
    run(kernel, out, 3)
    assert out.tolist() == [6, 3, 4, 4, 3]


def test_a_kernel_calls_another() -> None:
    @ts.jit
    def inner(out, i):
        out[i] = i + 1

    def kernel(out, n):
        for i in range(n):
            inner(out, i)

    out = np.zeros(4)
    run(kernel, out, 3)
    assert out.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("annotation", [ts.constexpr, "ts.constexpr", "tessera.constexpr"])
def test_constexpr_annotations_also_as_text(annotation: Any) -> None:
    def kernel(out, N):
        ts.store(out, 0, ts.full(N, 2, ts.float64))

    import tessera

    kernel.__globals__["tessera"] = tessera
    kernel.__annotations__["N"] = annotation
    out = np.zeros(4)
    run(kernel, out, 4)
    assert out.tolist() == [2, 2, 2, 2]


def test_a_result_that_is_not_used_does_no_harm() -> None:
    def kernel(out, n):
        def noted(i):
            out[i] = 1
            return i * 2

        for i in range(n):
            noted(i)
            if i > 1:
                noted(i + 3)

    out = np.zeros(8)
    run(kernel, out, 4)
    assert out.tolist() == [1, 1, 1, 1, 0, 1, 1, 0]


def test_dtypes_compare_however_they_are_named() -> None:
    def kernel(x, out, n):
        known = (x.dtype == np.float32, x.dtype == "float32", x.dtype != ts.float32, x.dtype == ts.float16)
        assert known == (True, True, False, False)
        ts.store(out, 0, ts.load(x, 0, shape=4) * n if x.dtype == np.float32 else 0)

    out = np.zeros(4, np.float32)
    run(kernel, np.ones(4, np.float32), out, 3)
    assert out.tolist() == [3] * 4


# ---- what is refused (the gallery has the messages) ------------------------------------------------------------------------------------


def test_a_value_can_not_leave_its_loop_by_a_back_door() -> None:
    class Box:
        held: Any = None

    box = Box()

    def kernel(out, n):
        for i in range(n):
            box.held = i + 1
        out[0] = box.held

    with pytest.raises(KernelError, match="made inside the loop or branch on line"):
        traced(kernel, np.zeros(1), 3)


def test_errors_in_a_helper_name_the_chain_of_callers() -> None:
    def inner(x):
        return x + missing  # noqa: F821

    def outer(x):
        y = inner(x)
        return y

    def kernel(out, n):
        out[0] = outer(n)

    with pytest.raises(KernelNameError) as found:
        traced(kernel, np.zeros(1), 3)
    location = found.value.location
    functions = []
    while location is not None:
        functions.append(location.function.rpartition(".")[2])
        location = location.caller
    assert functions == ["inner", "outer", "kernel"]


def test_a_function_without_source_is_refused() -> None:
    space: dict[str, Any] = {"ts": ts}
    exec("def kernel(out, n):\n    out[0] = n\n", space)
    with pytest.raises(KernelSyntaxError, match="source of 'kernel' can't be found"):
        traced(space["kernel"], np.zeros(1), 3)


def test_every_op_has_a_place() -> None:
    found, _ = traced(collatz, np.zeros(16), 3, 4)
    first = collatz.__code__.co_firstlineno
    lines = [op.location.line for op in found.body.walk() if op.location is not None]
    assert len(lines) == len(list(found.body.walk()))
    assert min(lines) >= first
    assert max(lines) <= first + 13
