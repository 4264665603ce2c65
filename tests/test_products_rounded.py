"""A float32 product that is rounded to float16 keeps the sign of a zero.

LLVM would select v_fma_mixlo_f16 with an addend of +0 for the product and the rounding together, and -0 + 0 is +0.
"""

from __future__ import annotations

import both
import numpy as np
import pytest

import tessera as ts
from tessera.jit import JitFunction, Options

LEVELS = {"O0": (0, 1), "O1": (1, 1), "O3": (3, 3)}
TINY = 2.0**-24
X = np.array([-0.0, 0.0, -TINY, TINY, -3, np.inf, -np.inf, 0.0, -1e-30, 5], np.float32)
Y = np.array([2, -2, 0.25, -0.25, 3, 2, -0.5, -1e-30, 1e-30, -7], np.float32)


def plain(x, y):
    return x * y


def through_a_choice(x, y):
    return ts.where(x < 100, -(x * y), y)


def through_shapes(x, y):
    return ts.reshape(ts.reshape(x * y, (4, 4)).T.T, 16)


def by_branch(x, y):
    product = x
    if ts.program_id(0) < 7:
        product = x * y
    return product


def by_loop(x, y):
    product = x
    for _ in range(1):
        product = product * y
    return product


def by_constant(x, y):
    return x / 4 if x.dtype == ts.float32 else x.astype(ts.float32) / 4


def kernel(x, y, out, f: ts.constexpr):
    ts.store(out, 0, f(ts.load(x, 0, shape=16), ts.load(y, 0, shape=16)).astype(out.dtype))


def widened(x, y, out):
    ts.store(out, 0, (ts.load(x, 0, shape=16).astype(ts.float32) * ts.load(y, 0, shape=16)).astype(out.dtype))


def divided(x, y, out):
    ts.store(out, 0, ts.load(x, 0, shape=16) / 2)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("f", [plain, through_a_choice, through_shapes, by_branch, by_loop, by_constant])
def test_the_sign_of_zero_survives(f, level: str) -> None:
    optimize, codegen = LEVELS[level]
    out = np.full(10, 9, np.float16)
    made = JitFunction(kernel, Options(num_waves=1, optimize=optimize, codegen=codegen))
    both.run(made, 1, X, Y, out, f=f)
    if f in (plain, by_loop):
        np.testing.assert_array_equal(np.signbit(out), np.signbit(X * Y))


@pytest.mark.parametrize("level", LEVELS)
def test_of_operands_that_were_float16(level: str) -> None:
    optimize, codegen = LEVELS[level]
    x, y, out = X.astype(np.float16), Y.astype(np.float16), np.full(10, 9, np.float16)
    for function in (widened, divided):
        both.run(JitFunction(function, Options(num_waves=1, optimize=optimize, codegen=codegen)), 1, x, y, out)
    assert np.signbit(out).tolist() == np.signbit(x).tolist()
