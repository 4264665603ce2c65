"""Random programs: what a kernel computes is what Python computes when it runs the same source as it stands."""

from __future__ import annotations

import linecache
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.frontend.staging import Scalar, trace
from tessera.ir import passes
from tessera.ir.interp import run_kernel
from tessera.ir.types import ArrayType
from tessera.ir.verify import verify

INTS = ("a", "b", "c", "i")
FLOATS = ("x", "y")
OUT = ArrayType(ts.float64, 1, 8, 0, True, True)


@st.composite
def integers(draw: Any, depth: int = 2) -> str:
    """An expression over ints whose value stays small."""
    kind = draw(st.integers(0, 9 if depth else 1))
    if kind == 0:
        return str(draw(st.integers(-4, 9)))
    if kind == 1:
        return draw(st.sampled_from(INTS))
    p, q = draw(integers(depth - 1)), draw(integers(depth - 1))
    word = draw(st.sampled_from(["and", "or"]))
    return {
        2: f"({p} + {q})", 3: f"({p} - {q})", 4: f"({p} * {q} % 97)", 5: f"({p} // (abs({q}) + 1))", 6: f"({p} % ({q} or 3))",
        7: f"({p} if {draw(conditions(depth - 1))} else {q})", 8: f"helper({p}, {q})", 9: f"({p} {word} {q})",
    }[kind]  # fmt: skip


@st.composite
def conditions(draw: Any, depth: int = 2) -> str:
    kind = draw(st.integers(0, 4 if depth else 0))
    p, q = draw(integers(0)), draw(integers(max(depth - 1, 0)))
    op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
    if kind <= 1:
        return f"{p} {op} {q}"
    if kind == 2:
        return f"not ({draw(conditions(depth - 1))})"
    if kind == 3:
        return f"{p} {op} {q} {draw(st.sampled_from(['<', '!=']))} {draw(integers(0))}"
    return f"({draw(conditions(depth - 1))} {draw(st.sampled_from(['and', 'or']))} {draw(conditions(depth - 1))})"


@st.composite
def floats(draw: Any) -> str:
    p, q = draw(st.sampled_from(FLOATS)), draw(integers(1))
    return draw(st.sampled_from([f"{p} * 0.5 + {q}", f"{p} - {q} / 4", f"min({p}, {q})", f"-{p}", f"{p} if {p} < {q} else {q}"]))


@st.composite
def statements(draw: Any, depth: int, in_loop: bool) -> list[str]:
    """A block, as lines."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 9 if depth else 4))
        if kind <= 1:
            name = draw(st.sampled_from(INTS))
            lines.append(draw(st.sampled_from([f"{name} = {{}}", f"{name} += {{}} % 50"])).format(draw(integers())))
        elif kind == 2:
            lines.append(f"{draw(st.sampled_from(FLOATS))} = {draw(floats())}")
        elif kind == 3:
            lines.append(f"a, b = {draw(integers(1))}, {draw(integers(1))}")
        elif kind == 4:
            lines.append(f"out[{draw(integers(0))} % 8] = {draw(integers(1))}")
        elif kind <= 6:
            lines.append(f"if {draw(conditions())}:")
            lines += ["    " + line for line in draw(statements(depth - 1, in_loop))]
            if not in_loop and draw(st.booleans()):
                lines.append("    return")
            if draw(st.booleans()):
                lines.append("else:")
                lines += ["    " + line for line in draw(statements(depth - 1, in_loop))]
        elif kind <= 8:
            start, stop, step = draw(integers(0)), draw(integers(1)), draw(st.sampled_from([1, 2, 3, -1, -2]))
            lines.append(f"for {draw(st.sampled_from(INTS))} in range({start} % 5, {stop} % 7 - 1, {step}):")
            lines += ["    " + line for line in draw(statements(depth - 1, True))]
        else:
            lines.append(f"while fuel > 0 and {draw(conditions(1))}:")
            lines += ["    fuel -= 1", *("    " + line for line in draw(statements(depth - 1, True)))]
    return lines


HEAD = "def helper(p, q):\n    if p > q:\n        return p - q\n    r = q * 2\n    return r % 13\n\n\n"
TAIL = "    out[8], out[9], out[10], out[11], out[12], out[13], out[14] = a, b, c, i, x, y, fuel\n"


def defined(body: list[str], parameters: str, first: str) -> types.FunctionType:
    """A kernel of this body, whose source linecache knows."""
    text = HEAD + f"def kernel(out, {parameters}):\n    {first}\n" + "".join(f"    {line}\n" for line in body) + TAIL
    file = f"<random program {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    return space["kernel"]


def check(body: list[str], numbers: tuple[int, ...]) -> None:
    start = "fuel = 5; i = 0; x = 1.5; y = -2.0"
    expected = np.zeros(16)
    defined(body, "a, b, c", start)(expected, *numbers)
    known = defined(body, "n", f"{start}; a, b, c = {numbers}")
    for kernel, given_ in ((defined(body, "a, b, c", start), numbers), (known, (0,))):
        names = kernel.__code__.co_varnames[1 : kernel.__code__.co_argcount]
        traced = trace(kernel, {"out": OUT, **{name: Scalar(ts.int64, weak=True) for name in names}}, {}).kernel
        verify(traced)
        before = np.zeros(16)
        run_kernel(traced, (1, 1, 1), [before, *given_])
        np.testing.assert_array_equal(before, expected)
        passes.run(traced)
        verify(traced)
        after = np.zeros(16)
        run_kernel(traced, (1, 1, 1), [after, *given_])
        np.testing.assert_array_equal(after, expected)


number = st.integers(-9, 20)
relaxed = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=60, deadline=None, suppress_health_check=relaxed)
@given(statements(3, False), st.tuples(number, number, number))
def test_random_programs(body: list[str], numbers: tuple[int, ...]) -> None:
    check(body, numbers)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=relaxed)
@given(statements(4, False), st.tuples(number, number, number))
def test_many_random_programs(body: list[str], numbers: tuple[int, ...]) -> None:
    check(body, numbers)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=relaxed)
@given(statements(3, False), st.tuples(number, number, number), st.sampled_from([1, 2, 4]))
def test_random_programs_on_the_simulator(body: list[str], numbers: tuple[int, ...], num_waves: int) -> None:
    kernel = defined(body, "a, b, c", "fuel = 5; i = 0; x = 1.5; y = -2.0")
    expected, found = np.zeros(16), np.zeros(16)
    kernel(expected, *numbers)
    compiled = ts.jit(num_waves=num_waves)(kernel).compile(found, *numbers, arch="gfx1151")
    ts.runtime.launch(compiled.artifact, 1, (found, *numbers), device="sim:gfx1151")
    np.testing.assert_array_equal(found, expected)
