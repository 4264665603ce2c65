"""The language's operations equal NumPy's, op by op and dtype by dtype, through the reference interpreter."""
# ruff: noqa: B023 (the functions of loops below are called in the same trip)

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dtypes
from tessera.errors import KernelError, KernelTypeError, KernelValueError
from tessera.frontend import promotion
from tessera.frontend.staging import Scalar, Spec, trace
from tessera.ir import passes
from tessera.ir.interp import run_kernel
from tessera.ir.types import ArrayType
from tessera.ir.verify import verify

INTS = [d for d in dtypes.ALL if d.is_integer]
FLOATS = [d for d in dtypes.ALL if d.is_float]
NUMPYS_OWN = [d for d in dtypes.ALL if d is not dtypes.bfloat16]
WEAK = {bool: ts.bool_, int: ts.int64, float: ts.float64}


def run(function: Callable[..., Any], *args: Any, grid: tuple[int, int, int] = (1, 1, 1)) -> None:
    """Trace, verify, run passes, and evaluate; arrays are written in place."""
    specs: dict[str, Spec] = {}
    names = function.__code__.co_varnames
    for name, value in zip(names, args, strict=False):
        if isinstance(value, np.ndarray):
            specs[name] = ArrayType(dtypes.from_numpy(value.dtype), value.ndim, value.itemsize, None, True, True)
        elif isinstance(value, np.generic):
            specs[name] = Scalar(dtypes.from_numpy(value.dtype))
        else:
            specs[name] = Scalar(WEAK[type(value)], weak=True)
    kernel = trace(function, specs, {}).kernel  # pyright: ignore[reportArgumentType]
    verify(kernel)
    passes.run(kernel)
    run_kernel(kernel, grid, args)


def result(compute: Callable[..., Any], *tiles: np.ndarray, shape: tuple[int, ...] | None = None, numbers: tuple[Any, ...] = ()) -> Any:
    """What `compute` gives in a kernel for tiles that are whole arrays and for run-time numbers: an array of the dtype that it has."""
    found: list[Any] = []

    def look(a0, a1, a2, n0, n1):
        loaded = [ts.load(a, (0,) * a.ndim, shape=tile.shape) for a, tile in zip((a0, a1, a2), tiles, strict=False)]
        values = [n for n in (n0, n1) if n is not None]
        value = compute(*loaded, *values)
        found.append((value.shape, value.dtype))

    everything: dict[str, Spec] = {}
    given: list[Any] = []
    for i, tile in enumerate(tiles):
        everything[f"a{i}"] = ArrayType(dtypes.from_numpy(tile.dtype), tile.ndim, tile.itemsize, None, True, True)
        given.append(tile)
    for i, number in enumerate(numbers):
        weak = type(number) in WEAK
        everything[f"n{i}"] = Scalar(WEAK[type(number)] if weak else dtypes.from_numpy(number.dtype), weak)
        given.append(number)
    rest = {name: None for name in ("a0", "a1", "a2", "n0", "n1") if name not in everything}
    trace(look, everything, rest)  # pyright: ignore[reportArgumentType]
    made, dtype = found[-1]
    out = np.zeros(made, dtype.numpy)

    def kernel(a0, a1, a2, n0, n1, out):
        loaded = [ts.load(a, (0,) * a.ndim, shape=tile.shape) for a, tile in zip((a0, a1, a2), tiles, strict=False)]
        values = [n for n in (n0, n1) if n is not None]
        ts.store(out, (0,) * out.ndim, compute(*loaded, *values))

    everything["out"] = ArrayType(dtype, out.ndim, out.itemsize, None, True, True)
    traced = trace(kernel, everything, rest).kernel  # pyright: ignore[reportArgumentType]
    verify(traced)
    passes.run(traced)
    verify(traced)
    run_kernel(traced, (1, 1, 1), [*given, out])
    return out


def values_of(dtype: dtypes.DType, seed: int = 0, count: int = 16) -> np.ndarray:
    """Unique values with the extremes among them."""
    random = np.random.default_rng(seed)
    if dtype is dtypes.bool_:
        return random.integers(0, 2, count).astype(bool)
    if dtype.is_integer:
        low, high = promotion.int_range(dtype)
        some = [low, high, 0, 1, 3, 7]
        rest = random.integers(max(low, -100), min(high, 100), count - len(some)).tolist()
        return random.permutation(np.array([*some, *rest], object)).astype(dtype.numpy)
    some = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -2.5, 3])
    return random.permutation(np.concatenate([some, random.standard_normal(count - len(some)) * 3])).astype(dtype.numpy)


def same(found: Any, expected: Any) -> None:
    """Bit for bit, NaN payloads aside."""
    expected = np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    wide = found.dtype if found.dtype != dtypes.bfloat16.numpy else np.float32
    np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))
    if found.dtype.kind == "f":
        zero = found == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


# ---- promotion ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), list(itertools.product(dtypes.ALL, dtypes.ALL)), ids=str)
def test_dtypes_promote_as_numpy_result_type(a: dtypes.DType, b: dtypes.DType) -> None:
    if dtypes.uint64 in (a, b) and dtypes.Kind.INT in (a.kind, b.kind):
        with pytest.raises(KernelTypeError, match=r"uint64 and int\d+ .*astype\(ts.int64\).*astype\(ts.uint64\)"):
            promotion.promote(a, b)
        return
    assert promotion.promote(a, b).numpy == np.result_type(a.numpy, b.numpy)


@pytest.mark.parametrize("number", [True, 3, 2.5], ids=str)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_numbers_are_weak_as_in_numpy(dtype: dtypes.DType, number: Any) -> None:
    with np.errstate(all="ignore"):
        expected = np.ones(4, dtype.numpy) * number
    for numbers in ((), (number,)):
        compute = (lambda x: x * number) if not numbers else (lambda x, n: x * n)
        assert result(compute, np.ones(4, dtype.numpy), numbers=numbers).dtype == expected.dtype


def test_numbers_among_themselves() -> None:
    seen: list[Any] = []

    def kernel(n, x, flag, s):
        i = ts.program_id(0)
        seen.append([(v.dtype, v.weak) for v in (n, i, n + i, n * x, n / 2, n // i, n > i, flag + n, -flag, (n > 0) + 1)])
        seen.append(
            [(v.dtype, v.weak) for v in (s + n, s * 2, s + i, s > 3, ts.exp(n), ts.where(n > 0, n, 2.5), 2 - n, n.astype(ts.int32))]
        )

    specs: dict[str, Spec] = {
        "n": Scalar(ts.int64, True), "x": Scalar(ts.float64, True), "flag": Scalar(ts.bool_, True), "s": Scalar(ts.int16),
    }  # fmt: skip
    trace(kernel, specs, {})  # pyright: ignore[reportArgumentType]
    i64, f64 = (ts.int64, True), (ts.float64, True)
    assert seen[0] == [i64, i64, i64, f64, f64, i64, (ts.bool_, True), i64, i64, i64]
    i16 = (ts.int16, False)
    assert seen[1] == [i16, i16, i16, (ts.bool_, False), f64, f64, i64, (ts.int32, False)]


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_ints_that_do_not_fit(dtype: dtypes.DType) -> None:
    low, high = promotion.int_range(dtype)
    x = values_of(dtype)
    for value in (low, high):
        same(result(lambda x: x + value, x), x + np.asarray(value, dtype.numpy))
        same(result(lambda x: ts.maximum(value, x), x), np.maximum(x, np.asarray(value, dtype.numpy)))
    for value in (low - 1, high + 1, 2**70):
        with pytest.raises(KernelValueError, match=f"{value} does not fit {dtype.name} "):
            result(lambda x: x + value, x)
        for op in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            same(result(lambda x: op(x, value), x), op(x.astype(object), value).astype(bool))
            same(result(lambda x: op(value, x), x), op(value, x.astype(object)).astype(bool))


def test_strong_scalars_promote_as_numpy() -> None:
    x = np.array([1, 2, 250, 255], np.uint8)
    for scalar in (np.int32(300), np.float16(2), np.uint8(9), np.bool_(True), np.int8(-3)):
        same(result(lambda x, s: x + s, x, numbers=(scalar,)), x + scalar)
        same(result(lambda x: scalar * x, x), scalar * x)
        same(result(lambda x: x > scalar, x), x > scalar)


# ---- arithmetic ---------------------------------------------------------------------------------------------------------------------

BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def numpy_or_error(compute: Callable[[], Any]) -> Any:
    with np.errstate(all="ignore"):
        try:
            return compute()
        except TypeError:
            return TypeError


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_binary_operators(dtype: dtypes.DType, name: str) -> None:
    op = BINARY[name]
    x, y = values_of(dtype, 1), values_of(dtype, 2)
    if name == "//" and dtype.is_float:
        y = np.where(np.isfinite(y.astype(np.float32)), y, y.dtype.type(2)).astype(y.dtype)
    expected = numpy_or_error(lambda: op(x, y))
    if expected is TypeError:
        with pytest.raises(KernelTypeError):
            result(op, x, y)
        return
    same(result(op, x, y), expected)


@pytest.mark.parametrize("pair", [("int8", "uint8"), ("int32", "uint32"), ("int16", "float16"), ("uint8", "bool"), ("int64", "float32")])
@pytest.mark.parametrize("name", BINARY)
def test_mixed_dtypes(name: str, pair: tuple[str, str]) -> None:
    x, y = (values_of(dtypes.from_numpy(d), i) for i, d in enumerate(pair))
    expected = numpy_or_error(lambda: BINARY[name](x, y))
    if expected is TypeError:
        with pytest.raises(KernelTypeError):
            result(BINARY[name], x, y)
    else:
        same(result(BINARY[name], x, y), expected)


def test_floor_division_has_one_meaning() -> None:
    a, b = np.array([7, -7, 7, -7, 6, -6, 0, 5], np.int32), np.array([2, 2, -2, -2, 3, 3, 4, 0], np.int32)
    quotient, rest = [3, -4, -4, 3, 2, -2, 0, 0], [1, 1, -1, -1, 0, 0, 0, 0]
    assert result(lambda x, y: x // y, a, b).tolist() == quotient
    assert result(lambda x, y: x % y, a, b).tolist() == rest
    assert result(lambda x, y: divmod(x, y)[0] * 100 + divmod(x, y)[1], a, b).tolist() == [
        q * 100 + r for q, r in zip(quotient, rest, strict=True)
    ]
    for p, q, want, left in zip(a.tolist()[:7], b.tolist()[:7], quotient, rest, strict=False):
        assert result(lambda x, n, m: x * 0 + (n // m) * 10 + n % m, a[:1], numbers=(p, q))[0] == want * 10 + left
        assert result(lambda x: x * 0 + (p // q) * 10 + p % q, a[:1])[0] == want * 10 + left
    lowest = np.array([-(2**31)], np.int32)
    assert result(lambda x, y: x // y, lowest, np.array([-1], np.int32)).tolist() == [-(2**31)]


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_shifts_beyond_the_width(dtype: dtypes.DType) -> None:
    x, bits = values_of(dtype), dtype.bits
    counts = np.array([0, 1, bits - 1, bits, bits + 1, 100, 3, 2] * 2).astype(dtype.numpy)
    plain = [int(v) for v in x]
    left = np.array([(v << int(c)) & (2**bits - 1) for v, c in zip(plain, counts, strict=True)], object)
    wrapped = np.array([v - 2**bits if dtype.is_signed and v >= 2 ** (bits - 1) else v for v in left], object).astype(dtype.numpy)
    right = np.array([v >> int(c) for v, c in zip(plain, counts, strict=True)], object).astype(dtype.numpy)
    same(result(lambda x, c: x << c, x, counts), wrapped)
    same(result(lambda x, c: x >> c, x, counts), right)
    same(result(lambda x: x >> 3, x), x >> 3)
    with pytest.raises(KernelValueError, match="negative shift count"):
        result(lambda x: x << -1, x)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_unary_operators_and_functions(dtype: dtypes.DType) -> None:
    x = values_of(dtype)
    for ours, numpys in (
        (operator.neg, np.negative),
        (operator.invert, np.invert),
        (abs, np.abs),
        (ts.abs, np.abs),
        (operator.pos, np.positive),
    ):
        expected = numpy_or_error(lambda: numpys(x))
        if expected is TypeError:
            with pytest.raises(KernelTypeError):
                result(ours, x)
        else:
            same(result(ours, x), expected)
    for ours, numpys in ((ts.floor, np.floor), (ts.ceil, np.ceil)):
        same(result(ours, x), numpys(x) if dtype.is_float else x)  # NumPy before 2.1 made float64 of integers
    with np.errstate(all="ignore"):
        if dtype is not dtypes.bool_:
            same(result(lambda x: x**2, x), x**2)
            same(result(lambda x: x**0, x), x**0)
        if dtype.is_integer:
            same(result(lambda x: x**5, x), x**5)


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "sqrt", "rsqrt"])
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_functions_of_floats(dtype: dtypes.DType, name: str) -> None:
    x = values_of(dtype)
    with np.errstate(all="ignore"):
        numpys = getattr(np, name, lambda v: 1 / np.sqrt(v))
        kind = numpys(x[:1]).dtype
        exact = numpys(x.astype(kind).astype(np.longdouble if kind == np.float64 else np.float64)).astype(kind)
    found = result(getattr(ts, name), x)
    assert found.dtype == kind
    np.testing.assert_allclose(found.astype(np.float64), exact.astype(np.float64), rtol=float(np.finfo(np.float64).eps) * 2, atol=0)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_where_minimum_maximum(dtype: dtypes.DType) -> None:
    x, y, mask = values_of(dtype, 1), values_of(dtype, 2), np.arange(16) % 3 == 0
    same(result(lambda m, x, y: ts.where(m, x, y), mask, x, y), np.where(mask, x, y))
    same(
        result(lambda m, x: ts.where(m, x, 1), mask, x),
        np.where(mask, x, dtypes.int64.numpy.type(1) if dtype is dtypes.bool_ else x.dtype.type(1)),
    )
    same(result(lambda x, y: ts.where(x, y, x), y, x), np.where(y, x, y))
    with np.errstate(all="ignore"):
        for ours, numpys in ((ts.maximum, np.maximum), (ts.minimum, np.minimum)):
            found, expected = result(ours, x, y), numpys(x, y)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(("source", "to"), list(itertools.product(dtypes.ALL, dtypes.ALL)), ids=str)
def test_astype(source: dtypes.DType, to: dtypes.DType) -> None:
    x = values_of(source)
    found = result(lambda x: x.astype(to), x)
    assert found.dtype == to.numpy
    if source.is_float and to.is_integer:
        low, high = promotion.int_range(to)
        expected = [0 if v != v else low if v <= low else high if v >= high else int(v) for v in x.astype(np.float64).tolist()]
        assert found.tolist() == expected
    else:
        with np.errstate(all="ignore"):
            expected = x.astype(to.numpy)
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_unsigned_conversions_both_ways() -> None:
    def to(dtype: Any, value: Any) -> float:
        return result(lambda x: x.astype(dtype), np.array([value]))[0].item()

    assert to(ts.float32, np.uint8(200)) == 200
    assert to(ts.float32, np.uint16(60000)) == 60000
    assert to(ts.float32, np.uint32(3000000000)) == 3000000000
    assert to(ts.uint32, np.float32(3e9)) == 3000000000
    assert to(ts.float32, np.uint64(2**63 + 2**11)) == 9.223372036854776e18
    same(result(lambda t: t + 1, np.array([1234567890123456789], np.uint64)), np.array([1234567890123456790], np.uint64))


def test_comparisons_know_signs() -> None:
    def holds(compute: Any, *arrays: Any) -> bool:
        return bool(result(compute, *(np.array([a]) for a in arrays))[0])

    assert holds(lambda a: a > 1, np.uint32(4294967295))
    assert holds(lambda a, b: a > b, np.uint8(200), np.uint8(100))
    assert holds(lambda a, b: a < b, np.int8(-1), np.int8(1))
    assert holds(lambda a, b: a < b, np.int32(-1), np.uint32(1))  # by value, as NumPy's int64
    assert holds(lambda a, b: a > b, np.uint8(255), np.int8(-1))
    assert result(lambda x: ts.max(x, 0), np.array([1, 2**31], np.uint32)) == 2**31
    assert result(lambda x: ts.min(x, 0), np.array([65535, 1], np.uint16)) == 1


@pytest.mark.parametrize("x", [-36, -35, -1, 0, 1, 36, 37])
@pytest.mark.parametrize("y", [5, -5, 1])
def test_ceiling_division_inside_and_outside(x: int, y: int) -> None:
    expected = -(-x // y)
    assert ts.cdiv(x, y) == expected
    assert ts.cdiv(np.int64(x), y) == expected
    assert result(lambda n, m: ts.cdiv(n, m).astype(ts.int64), numbers=(x, y)) == expected
    for dtype in (np.int8, np.int32):
        assert result(lambda a: ts.cdiv(a, y), np.array([x, -128], dtype)).tolist() == [expected, np.int64(-(128 // y)).astype(dtype)]


def test_ceiling_division_of_unsigned() -> None:
    same(result(lambda a: ts.cdiv(a, 3), np.array([0, 1, 3, 255], np.uint8)), np.array([0, 1, 1, 85], np.uint8))
    with pytest.raises(KernelTypeError, match="divides integers"):
        ts.cdiv(1.5, 2)


# ---- shapes -------------------------------------------------------------------------------------------------------------------------

CUBE = np.arange(64, dtype=np.int32).reshape(2, 4, 8)


@pytest.mark.parametrize(
    ("ours", "numpys"),
    [
        (lambda x: x[:, None], lambda x: x[:, None]),
        (lambda x: x[None], lambda x: x[None]),
        (lambda x: x[..., None], lambda x: x[..., None]),
        (lambda x: x[None, ..., None, :], lambda x: x[None, ..., None, :]),
        (lambda x: x[:, :, None, :], lambda x: x[:, :, None, :]),
        (lambda x: ts.expand_dims(x, 0), lambda x: np.expand_dims(x, 0)),
        (lambda x: ts.expand_dims(x, (1, -1)), lambda x: np.expand_dims(x, (1, -1))),
        (lambda x: x.T, lambda x: x.T),
        (lambda x: ts.transpose(x, (1, 0, 2)), lambda x: x.transpose(1, 0, 2)),
        (lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
        (lambda x: ts.permute(x, (0, -1, 1)), lambda x: x.transpose(0, 2, 1)),
        (lambda x: x.reshape(8, -1), lambda x: x.reshape(8, -1)),
        (lambda x: ts.reshape(x, 64), lambda x: x.reshape(64)),
        (lambda x: x.reshape((4, 2, 1, 8)), lambda x: x.reshape(4, 2, 1, 8)),
        (lambda x: ts.broadcast_to(x[:, :1] if False else ts.sum(x, 1, keepdims=True), (4, 2, 16, 8)),
         lambda x: np.broadcast_to(x.sum(1, keepdims=True), (4, 2, 16, 8))),
        (lambda x: x + ts.arange(8), lambda x: x + np.arange(8, dtype=np.int32)),
        (lambda x: x * ts.arange(4)[:, None] + ts.arange(2)[:, None, None],
         lambda x: x * np.arange(4, dtype=np.int32)[:, None] + np.arange(2, dtype=np.int32)[:, None, None]),
    ],
)  # fmt: skip
def test_shapes(ours: Any, numpys: Any) -> None:
    same(result(ours, CUBE), numpys(CUBE))


def test_tiles_from_nothing() -> None:
    same(result(lambda: ts.arange(8)), np.arange(8, dtype=np.int32))
    same(result(lambda: ts.arange(3, 7, dtype=ts.uint8)), np.arange(3, 7, dtype=np.uint8))
    same(result(lambda: ts.arange(-4, 4, dtype=np.float16)), np.arange(-4, 4).astype(np.float16))
    same(result(lambda: ts.zeros((2, 4), ts.bool_)), np.zeros((2, 4), bool))
    same(result(lambda: ts.zeros((), ts.float32)), np.zeros((), np.float32))
    same(result(lambda: ts.full((2,), 7)), np.full((2,), 7))
    same(result(lambda: ts.full(4, float("-inf"), ts.bfloat16)), np.full(4, -np.inf, dtypes.bfloat16.numpy))
    same(result(lambda n: ts.full(2, n, ts.float16), numbers=(3,)), np.full(2, 3, np.float16))
    same(result(lambda s: ts.full(2, s), numbers=(np.uint8(9),)), np.full(2, np.uint8(9)))
    for wrong in (
        lambda: ts.full(2, 300, ts.int8),
        lambda: ts.full(2, 1.5, ts.int32),
        lambda: ts.arange(256, dtype=ts.int8),
        lambda: ts.arange(5),
    ):
        with pytest.raises((KernelValueError, KernelTypeError)):
            result(wrong)


# ---- reductions -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 2), (2, 0, 1), ()], ids=str)
@pytest.mark.parametrize("dtype", NUMPYS_OWN, ids=str)
def test_reductions(dtype: dtypes.DType, axis: Any) -> None:
    x = values_of(dtype, count=64).reshape(2, 4, 8)
    if dtype.is_float:
        x = np.where(np.isfinite(x), x, 0).astype(x.dtype)
    for keep in (False, True):
        same(result(lambda x: ts.max(x, axis, keepdims=keep), x), x.max(axis, keepdims=keep))
        same(result(lambda x: x.min(axis, keepdims=keep), x), x.min(axis, keepdims=keep))
        found = result(lambda x: ts.sum(x, axis=axis, keepdims=keep), x)
        expected = x.sum(axis, keepdims=keep)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if not dtype.is_float:
            np.testing.assert_array_equal(found, expected)
        else:
            bound = 64 * np.finfo(dtype.numpy).eps * np.abs(x.astype(np.float64)).sum(axis, keepdims=keep)
            assert (np.abs(found.astype(np.float64) - x.astype(np.float64).sum(axis, keepdims=keep)) <= bound).all()


def test_sums_widen_and_accumulate() -> None:
    same(result(lambda x: ts.sum(x, 0), np.full(4, 100, np.int8)), np.int64(400))
    same(result(lambda x: ts.sum(x, 0), np.full(4, 200, np.uint8)), np.uint64(800))
    same(result(lambda x: ts.sum(x > 0, 0), np.array([1, -1, 2, 0], np.int32)), np.int64(2))
    same(result(lambda x: ts.sum(x, 0, dtype=ts.int8), np.full(4, 100, np.int8)), np.int8(-112))
    small = np.full((16, 16), 2048, np.float16)
    small[3, 5] = 1  # lost at 2**11 where sums are held in float16
    assert result(lambda x: ts.sum(x - 2047), small) == np.float16(255 - 2046)
    near = np.array([[256, 1], [1, 0]], np.float32).astype(dtypes.bfloat16.numpy)  # 256 + 1 is 256 in bfloat16
    assert float(result(lambda x: ts.sum(x), near)) == 258
    assert np.isnan(result(lambda x: ts.max(x), np.array([1, np.nan, 2, 3], np.float32)))


# ---- the matrix product ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "acc"),
    [
        ("float16", "float16", "float32"), ("float32", "float32", "float32"), ("float64", "float64", "float64"), ("int8", "int8", "int32"),
        ("uint8", "int8", "int32"), ("int32", "int32", "int32"), ("int64", "int64", "int64"), ("uint16", "uint8", "int32"),
    ],
)  # fmt: skip
def test_dot(a: str, b: str, acc: str) -> None:
    x, y = np.arange(-30, 34).reshape(4, 16).astype(a), (np.arange(128) % 23 - 9).reshape(16, 8).astype(b)
    expected = (
        (x.astype(np.float64) @ y.astype(np.float64)).astype(acc)
        if acc[0] == "f"
        else (x.astype(np.int64) @ y.astype(np.int64)).astype(acc)
    )
    same(result(lambda x, y: ts.dot(x, y), x, y), expected)
    start = np.arange(32).reshape(4, 8).astype(acc)
    same(result(lambda x, y, z: ts.dot(x, y, z), x, y, start), expected + start)


def test_integer_dots_are_exact_beyond_float32() -> None:
    for k in (1, 2, 4):
        acc = np.full((16, 16), 16777217, np.int32)
        found = result(lambda a, b, c: ts.dot(a, b, c), np.ones((16, k), np.int8), np.ones((k, 16), np.int8), acc)
        assert (found == 16777217 + k).all()
    for first, second, value in (("u8", "s8", -522240), ("u8", "u8", 522240), ("s8", "s8", 2048), ("s8", "u8", -2048)):
        a = np.full((16, 16), 255, np.uint8) if first == "u8" else np.full((16, 16), -1, np.int8)
        b = np.full((16, 16), 128, np.uint8) if second == "u8" else np.full((16, 16), -128, np.int8)
        assert (result(lambda a, b: ts.dot(a, b), a, b) == value).all()


# ---- memory ---------------------------------------------------------------------------------------------------------------------------


def test_loads_count_in_tiles_and_fill_what_is_outside() -> None:
    def kernel(x, y, fill):
        i, j = ts.program_id(0), ts.program_id(1)
        tile = ts.load(x, (i - 1, j), shape=(4, 8), other=fill)
        ts.store(y, (i, j), tile)

    base = np.full((9, 20), np.nan, np.float32)
    base[1:8, 2:15] = np.arange(91).reshape(7, 13)
    y = np.zeros((12, 16), np.float32)
    run(kernel, base[1:8, 2:15], y, -5, grid=(3, 2, 1))
    expected = np.full((12, 16), -5, np.float32)
    expected[4:11, :13] = base[1:8, 2:15]
    np.testing.assert_array_equal(y, expected)


def test_any_strides() -> None:
    def kernel(x, y):
        ts.store(y, (0, 0), ts.load(x, (0, 0), shape=(8, 4)))

    base = np.arange(80, dtype=np.int32).reshape(8, 10)
    for x in (base[::-1, ::-3], base.T[:7, 1::2], np.broadcast_to(base[0, :4], (8, 4)), base[:0]):
        y, expected = np.zeros((8, 4), np.int32), np.zeros((8, 4), np.int32)
        run(kernel, x, y)
        part = x[:8, :4]
        expected[: part.shape[0], : part.shape[1]] = part
        np.testing.assert_array_equal(y, expected)


def test_shape_strides_and_the_grid() -> None:
    def kernel(x, out):
        if ts.program_id(0) == 1:
            rows, columns = x.shape
            out[0], out[1], out[2], out[3] = rows, columns, x.strides[0], x.strides[-1]
            out[4], out[5], out[6] = x.size, ts.num_programs(0) * 10 + ts.num_programs(2), len(x.shape) + x.ndim * 10 + x.itemsize * 100
            out[7] = x.dtype is ts.int16

    x, out = np.zeros((6, 10), np.int16)[::-2, ::3], np.zeros(8, np.int64)
    run(kernel, x, out, grid=(3, 1, 2))
    assert out.tolist() == [3, 4, -40, 6, 12, 32, 222, 1]


def test_elements_and_offsets() -> None:
    def kernel(x, y, n):
        y[0] = x[2, 3] + x[n, 0]
        y[1] += x[7, 9]  # outside: 0
        y[n + 20] = 5  # outside: dropped
        ts.store(y, offset=3, tile=ts.load(x, offset=(n - 1, -2), shape=(1, 8), other=9).reshape(8))
        ts.store(y, 1, -1)
        ts.store(y, 12, 3, shape=1)

    x, y = np.arange(20, dtype=np.float64).reshape(4, 5), np.full(14, 50.0)
    run(kernel, x, y, 1)
    assert y.tolist() == [13 + 5, -1, 50, 9, 9, 0, 1, 2, 3, 4, 9, 50, 3, 50]


def test_stores_convert_only_where_it_is_safe() -> None:
    for source, to in itertools.product(dtypes.ALL, dtypes.ALL):

        def kernel(x, y):
            ts.store(y, 0, ts.load(x, 0, shape=4))

        x, y = values_of(source, count=16)[:4], np.zeros(4, to.numpy)
        if np.can_cast(source.numpy, to.numpy, "safe"):
            run(kernel, x, y)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(y.astype(np.float64), x.astype(to.numpy).astype(np.float64))
        else:
            with pytest.raises(KernelTypeError, match=r"tile.astype\(y.dtype\)"):
                run(kernel, x, y)


def test_what_other_takes() -> None:
    def load(x, other):
        ts.store(x, 0, ts.load(x, 1, shape=4, other=other))

    def kernel(value: Any) -> Callable[..., Any]:
        def body(x):
            ts.store(x, 0, ts.load(x, 1, shape=4, other=value))

        return body

    for dtype, value in (
        (np.int8, -7),
        (np.float16, 2),
        (np.float16, -np.inf),
        (np.bool_, 1),
        (np.float32, np.float16(1.5)),
        (np.int32, True),
    ):
        x = np.zeros(4, dtype)
        run(kernel(value), x)
        assert x.tolist() == [value] * 4
    x = np.zeros(4, np.float32)
    run(load, x, 3)
    assert x.tolist() == [3] * 4
    for dtype, value in ((np.int8, 200), (np.int8, 1.5), (np.float16, 1e6), (np.bool_, 2), (np.float16, np.float32(1)), (np.uint8, -1)):
        with pytest.raises((KernelValueError, KernelTypeError), match="other"):
            run(kernel(value), np.zeros(4, dtype))


@pytest.mark.parametrize("name", ["load", "store", "program_id", "zeros", "exp", "sum", "dot"])
def test_the_functions_work_in_kernels_only(name: str) -> None:
    args = {"program_id": (0,), "zeros": (4, ts.float32), "exp": (1.0,), "sum": (1,)}.get(name, (None, None))
    with pytest.raises(KernelError, match=r"only inside a kernel|takes"):
        getattr(ts, name)(*args)
