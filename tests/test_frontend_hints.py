"""What users of NumPy and Triton write first: it works, or the error says what to write."""
# ruff: noqa: F841 (short wrong programs)

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.errors import KernelError, LaunchError, TesseraWarning
from tessera.frontend import hints

X = np.arange(16, dtype=np.float32)
M = np.zeros((8, 4), np.float32)


def run(function: Callable[..., Any], *args: Any) -> np.ndarray[Any, Any]:
    """What a kernel leaves in an array of 16 floats, its first argument."""
    out = np.full(16, -1, np.float32)
    ts.jit(function)[1](out, *args)
    return out


# ---- tuples, any, all, enumerate -------------------------------------------------------------------------------------------------


def compared_tuples(out, m, n):
    out[0] = 1 if m.shape == (8, 4) else 0
    out[1] = 1 if m.shape != (8, 4) else 0
    out[2] = 1 if m.shape == (8, 5) else 0
    out[3] = 1 if (1, m.shape) == (1, (8, n)) else 0
    out[4] = 1 if m.shape != (8, n + 1) else 0
    if m.shape == (8, 4, 1) or m.shape == [8, 4] or (7, n) == (8, n):  # Python knows these
        out[5] = 1


def test_tuples_of_run_time_values_are_compared_item_by_item() -> None:
    assert run(compared_tuples, M, 4).tolist()[:6] == [1, 0, 0, 1, 1, -1]


def any_and_all(out, m, n):
    out[0] = 1 if any([m.shape[0] == 7, n == 3]) else 0
    out[1] = 1 if any([m.shape[0] == 7, n == 2]) else 0
    out[2] = 1 if all(extent > 3 for extent in m.shape) else 0
    out[3] = 1 if all([n == 3, True, m.shape[1] == 5]) else 0
    out[4] = 1 if any([n == 2, True]) else 0
    out[5] = 1 if all([n == 3, 0]) else 0
    out[6] = max(extent for extent in m.shape)
    out[7] = 1 if any(False for _ in (1, 2)) else 0


def test_any_and_all_of_scalars() -> None:
    assert run(any_and_all, M, 3).tolist()[:8] == [1, 0, 1, 0, 1, 0, 8, 0]


def enumerated(out, x):
    for i, tile in enumerate([ts.load(x, 1, shape=4), ts.load(x, 0, shape=4)]):
        ts.store(out, i, tile + i)


def test_enumerate_of_a_list_of_tiles() -> None:
    assert run(enumerated, X).tolist()[:8] == [4, 5, 6, 7, 1, 2, 3, 4]


# ---- errors that say what to write -----------------------------------------------------------------------------------------------


def tanh(x):
    ts.tanh(ts.load(x, 0, shape=8))


def sin(x):
    ts.sin(ts.load(x, 0, shape=8))


def argmax(x):
    ts.argmax(ts.load(x, 0, shape=8))


def atomic(x):
    ts.atomic_add(x, 0, 1)


def misspelt(x):
    ts.laod(x, 0, shape=8)


def unknown(x):
    ts.quux(x)


def to(x):
    ts.load(x, 0, shape=8).to(ts.float16)


def store_mask(x):
    ts.store(x, 0, 1, mask=True)


def full(x):
    ts.store(x, 0, ts.full(8, 2.0))


def row(x, m):
    x[0] = m[0]


def batched(x, m):
    ts.dot(ts.load(m, (0, 0), shape=(8, 4)).reshape(2, 4, 4), ts.load(m, (0, 0), shape=(4, 4)))


def batch_of_one(x, m):
    ts.dot(ts.load(m, (0, 0), shape=(8, 4)).reshape(1, 8, 4), ts.load(m, (0, 0), shape=(4, 4)))


def vector(x, m):
    ts.dot(ts.load(m, (0, 0), shape=(8, 4)), ts.load(x, 0, shape=4))


def any_of_a_tile(x):
    any(ts.load(x, 0, shape=8))


def tile_enumerated(x):
    list(enumerate(ts.load(x, 0, shape=8)))


def ordered_tuples(x, m):
    x[0] = 1 if m.shape < (8, 8) else 0


def within(x, m):
    x[0] = 1 if 8 in m.shape else 0


def while_true(x):
    while True:
        pass


@pytest.mark.parametrize(
    ("kernel", "args", "message"),
    [
        (tanh, (X,), "ts.tanh is not in this version: write 1 - 2 / (ts.exp(2 * x) + 1)"),
        (sin, (X,), "ts.sin is not in this version: compute it from exp"),
        (argmax, (X,), "ts.argmax is not in this version: write ts.min(ts.where("),
        (atomic, (X,), "ts.atomic_add is not in this version: give each program its own elements"),
        (misspelt, (X,), "did you mean 'load'?"),
        (to, (X,), "has no attribute 'to': write x.astype(dtype)"),
        (store_mask, (X,), "masks aren't needed: elements outside the array aren't written"),
        (full, (X,), "float64 comes from ts.full of a float without dtype="),
        (row, (X, M), "for a row write ts.load(m, (0, 0), shape=(1, N))"),
        (batched, (X, M), "there is no batched dot; give each program one of the batch"),
        (batch_of_one, (X, M), "write a.reshape((8, 4))"),
        (vector, (X, M), "b[:, None] is a column"),
        (any_of_a_tile, (X,), "for a tile write ts.max(x != 0)"),
        (tile_enumerated, (X,), "enumerate needs a Python sequence"),
        (ordered_tuples, (X, M), "tuples of run-time values have == and != only"),
        (within, (X, M), "`in` can't look among run-time values"),
        (while_true, (X,), "has run 1,000 times. To stage it write for … in range(…)"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)  # fmt: skip
def test_errors_say_what_to_write(kernel: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        ts.jit(kernel)[1](*args)
    assert message in str(caught.value)


def test_unknown_names_get_no_far_fetched_hint() -> None:
    with pytest.raises(KernelError) as caught:
        ts.jit(unknown)[1](X)
    assert caught.value.message == "module 'tessera' has no attribute 'quux'"


def test_hints_are_of_functions_that_are_not_there() -> None:
    for name in hints._FUNCTIONS:  # pyright: ignore[reportPrivateUsage]
        assert not hasattr(ts, name), name


@pytest.mark.parametrize(("name", "call"), [("tanh", np.tanh), ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))])
def test_what_hints_say_is_right(name: str, call: Callable[..., Any]) -> None:
    text = hints.function(name).split("write ")[1]
    for scale in (1, 30):
        x = scale * (X.astype(np.float64) - 7.5) / 8
        got = eval(text, {"x": x, "ts": np})  # the advice is NumPy, too
        np.testing.assert_allclose(got, call(x), rtol=1e-12, atol=1e-15)


def test_a_grid_by_a_function() -> None:
    with pytest.raises(LaunchError, match=r"functions of the constexprs aren't: write kernel\[ts.cdiv\(n, N\)\]"):
        ts.jit(enumerated)[lambda meta: 1](X, X)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("num_waves", r"It is an option of the decorator: write @ts.jit\(num_waves=…\)"),
        ("num_warps", r"write @ts.jit\(num_waves=…\)"),
        ("check", r"ts.runtime.launch\(kernel.compile\(…\), grid, args, check=…\)"),
        ("arch", r"kernel.compile\(…, arch=…\), or by TESSERA_ARCH"),
    ],
)
def test_options_that_belong_elsewhere(option: str, hint: str) -> None:
    kernel = ts.jit(enumerated)
    with pytest.raises(LaunchError, match=f"has no parameter {option!r}; it has out, x. .*{hint}"):
        kernel[1](X, X, **{option: 2})
    with pytest.raises(LaunchError, match=f"has no parameter {option!r}. .*{hint}"):
        kernel.compile(X, X)[1](X, X, **{option: 2})
    if option != "num_waves":
        with pytest.raises(TypeError, match=f"jit has no option {option!r}; it has target, num_waves, .*[.] [A-Z]"):
            ts.jit(**{option: 2})


# ---- warnings --------------------------------------------------------------------------------------------------------------------


def rebinds(x, y):
    y = ts.load(x, 0, shape=8) * 2


def rebinds_in_place(x):
    x = ts.load(x, 0, shape=8) * 2


def rebinds_and_stores(x, y):
    x = ts.load(x, 0, shape=8) * 2
    ts.store(y, 0, x)


@pytest.mark.parametrize(("kernel", "args", "name"), [(rebinds, (X, X.copy()), "y"), (rebinds_in_place, (X,), "x")])
def test_a_tile_under_an_array_s_name_warns(kernel: Callable[..., Any], args: tuple[Any, ...], name: str) -> None:
    with pytest.warns(TesseraWarning, match=rf"leaves the array '{name}' as it is: to write to it, ts.store\({name}, …\)") as caught:
        ts.jit(kernel)[1](*args)
    assert (caught[0].filename, caught[0].lineno) == (__file__, kernel.__code__.co_firstlineno + 1)


def test_a_tile_under_the_name_of_an_array_that_was_read_is_no_mistake() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.jit(rebinds_and_stores)[1](X, np.zeros_like(X))


def long_while(out, x):
    i = 0
    while i < 101:
        out[0] += x[0]
        i += 1


def short_while(out, x):
    i, primes = 0, 0
    while i < 900:  # makes no code
        i, primes = i + 1, primes + (i in (2, 3, 5))
    out[0] = x[3] + primes


def test_a_long_while_that_is_unrolled_warns() -> None:
    with pytest.warns(TesseraWarning, match="is unrolled while the kernel is traced, .* and has run 100 times") as caught:
        ts.jit(long_while).compile(X, X)
    assert (caught[0].filename, caught[0].lineno) == (__file__, long_while.__code__.co_firstlineno + 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(short_while, X)[0] == 6


def spills(x, y, w):
    a = ts.load(x, (0, 0), shape=(64, 64))
    b = ts.load(w, (0, 0), shape=(64, 64))
    ts.store(y, (0, 0), ts.dot(a, b) + ts.exp(ts.dot(b, a)) * ts.dot(a, a.T) + ts.dot(b, b.T))


def test_spills_are_reported_at_the_line_that_compiled() -> None:
    f16 = ts.Array(ts.float16, ndim=2)
    with pytest.warns(TesseraWarning, match=r"kernel 'spills' spills \d+ VGPRs .*@ts.jit\(num_waves=2\)") as caught:
        ts.jit(num_waves=1)(spills).compile(f16, ts.Array(ts.float32, ndim=2), f16)
    assert caught[0].filename == __file__
