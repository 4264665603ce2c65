"""The one rule by which results are compared.

Data movement, integers, comparisons, casts, `+ - * / sqrt` and single elementwise steps: bit for bit (`same`, `same_bits`). Sums and matrix
products: within gamma(K) |A| |B| of the exact result, where gamma(K) = K u / (1 - K u) and u is the unit roundoff of the accumulator
(`product`, `total`; Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: it holds for every order of summation, with and
without fused multiply-adds). Other functions: within their row of ULPS (`function`). There is no other tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}  # the spacing of subnormals

ULPS: dict[str, dict[str, float]] = {
    "exp": {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 2},
    "exp2": {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 2},
    "log": {"float16": 1, "bfloat16": 1, "float32": 3, "float64": 2},
    "log2": {"float16": 1, "bfloat16": 1, "float32": 3, "float64": 2},
    "rsqrt": {"float16": 1, "bfloat16": 1, "float32": 1, "float64": 1},
}


def same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal bytes, NaN payloads and signs of zero included: what only moves must arrive as it was."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    _report(actual, expected, _words(actual) == _words(expected))


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal bytes, but any NaN will do for a NaN: which one arithmetic gives isn't defined."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    good = _words(actual) == _words(expected)
    if _is_float(actual):
        good |= np.isnan(actual) & np.isnan(expected)
    _report(actual, expected, good)


def gamma(terms: int, accumulator: str) -> float:
    """The relative error that a sum of `terms` products can have."""
    u = ROUNDOFF[accumulator] * terms
    return u / (1 - u)


def product(actual: np.ndarray, a: np.ndarray, b: np.ndarray, acc: np.ndarray | None = None, *, accumulator: str = "float32") -> None:
    """`actual` is a @ b + acc: exact for integers (modulo 2**32); for floats within the bound of `accumulator`, then rounded once."""
    if a.dtype.kind in "iu":
        exact = a.astype(np.int64) @ b.astype(np.int64) + (0 if acc is None else acc.astype(np.int64))
        return same(actual, exact.astype(actual.dtype))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exact, size = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
        if acc is not None:
            exact, size = exact + acc.astype(np.float64), size + np.abs(acc.astype(np.float64))
    within(actual, exact, sum_bound(size, a.shape[-1] + (acc is not None), accumulator))


def sum_bound(size: np.ndarray, terms: int, accumulator: str) -> np.ndarray:
    """The bound on a sum of `terms` whose magnitudes sum to `size`, with what the float64 that stands for the exact sum adds to it."""
    return (gamma(terms, accumulator) + gamma(terms, "float64")) * size


def total(actual: np.ndarray, x: np.ndarray, axis: int, *, accumulator: str) -> None:
    """`actual` is the sum of x along an axis, accumulated in `accumulator`, rounded once to actual's dtype."""
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        within(actual, wide.sum(axis), sum_bound(np.abs(wide).sum(axis), x.shape[axis], accumulator))


def within(actual: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> None:
    """|actual - exact| <= bound, and actual was then rounded once to its dtype. NaN and infinities must agree."""
    assert actual.shape == exact.shape
    got, name = actual.astype(np.float64), actual.dtype.name
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(exact)
        last = np.maximum(ROUNDOFF[name] * (np.abs(exact) + bound), SMALLEST[name] / 2)
        largest = _largest(name)
        near = np.where(np.abs(exact) + bound + last > largest, np.isinf(got) & (np.sign(got) == np.sign(exact)), False)
        near |= np.abs(got - exact) <= bound + last
        good = np.where(finite, near, (got == exact) | (np.isnan(got) & np.isnan(exact)))
    _report(actual, exact, good)


def function(actual: np.ndarray, name: str, x: np.ndarray) -> None:
    """`actual` is the function of x within its row of ULPS. Special values must agree."""
    exact = _TRUE[name](x)
    _report(actual, exact, ulps(actual, exact) <= ULPS[name][actual.dtype.name])


def ulps(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The distance to `exact` (float64s or Decimals) in units of actual's last place; infinite where a special value differs."""
    name, found = actual.dtype.name, np.full(actual.shape, np.inf)
    for i, want in np.ndenumerate(exact):
        got, true = float(actual[i]), Decimal(want)
        if math.isnan(got) or not true.is_finite():
            found[i] = 0 if got == float(want) or (math.isnan(got) and true.is_nan()) else np.inf
        elif math.isinf(got):  # rightly so where the true value rounds past the largest
            limit = Decimal(_largest(name)) * (1 + Decimal(ROUNDOFF[name]) / 2)
            found[i] = 0 if abs(true) >= limit and (got > 0) == (true > 0) else np.inf
        else:
            size = min(abs(float(want)), _largest(name))
            unit = max(math.ldexp(ROUNDOFF[name], math.frexp(size)[1]), SMALLEST[name])
            found[i] = abs(Decimal(got) - true) / Decimal(unit)
    return found


def _exactly(of_float: Callable[[np.ndarray], np.ndarray], of_decimal: Callable[[Decimal], Decimal]) -> Callable[[np.ndarray], np.ndarray]:
    """A function on arrays: narrow floats in float64, and float64 in decimals of 40 digits, where NumPy isn't exact enough a judge."""

    def apply(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.asarray(of_float(x.astype(np.float64)))
        if x.dtype != np.float64:
            return found
        result = found.astype(object)
        with localcontext() as context:
            context.prec = 40
            for i, value in np.ndenumerate(x):
                if np.isfinite(value) and np.isfinite(found[i]) and value != 0:
                    result[i] = of_decimal(Decimal(float(value)))
        return result

    return apply


_LN2 = Decimal("0.6931471805599453094172321214581765680755001343602552541206800094933936")
_TRUE = {
    "exp": _exactly(np.exp, Decimal.exp),
    "exp2": _exactly(np.exp2, lambda x: (x * _LN2).exp()),
    "log": _exactly(np.log, Decimal.ln),
    "log2": _exactly(np.log2, lambda x: x.ln() / _LN2),
    "rsqrt": _exactly(lambda x: 1 / np.sqrt(x), lambda x: 1 / x.sqrt()),
}


def _largest(name: str) -> float:
    if name == "bfloat16":
        return (2 - 2.0**-7) * 2.0**127
    return float(np.finfo(name).max)


def _is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f" or x.dtype.name == "bfloat16"


def _words(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def _report(actual: np.ndarray, expected: Any, good: np.ndarray) -> None:
    """Fail with the number of wrong elements, and the first of them."""
    if np.all(good):
        return
    wrong = np.argwhere(~np.atleast_1d(good))
    shown = [
        f"[{', '.join(map(str, i))}] {np.atleast_1d(actual)[tuple(i)]!r}, not {np.atleast_1d(expected)[tuple(i)]!r}" for i in wrong[:8]
    ]
    raise AssertionError(f"{len(wrong)} of {np.size(good)} elements of shape {actual.shape} are wrong: {'; '.join(shown)}")
