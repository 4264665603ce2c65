"""Kernels that once went wrong: each is the smallest that showed it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.targets.rocm.lowering import access
from tests import poison

rng = np.random.default_rng(20)


def both(kernel: Any, arrays: list[np.ndarray[Any, Any]], *, check: bool = False, **constants: Any) -> None:
    """Run one program on the simulator and on the reference executor: the same bytes."""
    compiled = kernel.compile(*arrays, **constants)
    copies = [array.copy() for array in arrays]
    ts.runtime.launch(compiled.artifact, 1, arrays, executor="rocm_sim", check=check)
    ts.runtime.launch(compiled.artifact, 1, copies, executor="reference")
    for array, copy in zip(arrays, copies, strict=True):
        assert array.tobytes() == copy.tobytes()


def test_the_addresses_of_one_store_are_not_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of addresses was keyed by the id of an object that was gone: another store, with the same id by then, took its bounds."""
    monkeypatch.setattr(access, "id", lambda x: 0 if isinstance(x, access.Plan) else id(x), raising=False)

    shapes = [(64, 64), (63, 61), (60, 64), (64, 50), (33, 64), (64, 47)]

    @ts.jit(num_waves=8)
    def products(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> None:
        t = ts.load(a, (0, 0), shape=(64, 16))
        u = ts.load(b, (0, 0), shape=(16, 64))
        for out in (c, d, e, f, g, h):
            ts.store(out, (0, 0), ts.dot(t, u))

    a, b = rng.integers(-3, 4, (64, 16)).astype(np.float16), rng.integers(-3, 4, (16, 64)).astype(np.float16)
    arenas = [poison.Arena(shape, np.dtype(np.float32)) for shape in shapes]
    outputs = [arena.fill(np.zeros(shape, np.float32)) for arena, shape in zip(arenas, shapes, strict=True)]
    products[1](a, b, *outputs)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    for arena, output in zip(arenas, outputs, strict=True):
        arena.check_surroundings()
        assert (output == expected[: output.shape[0], : output.shape[1]]).all()


def test_only_the_low_bits_of_a_shift_amount_need_be_defined() -> None:
    """LLVM shifts by a register whose upper half nothing has written; the checking mode reported it."""

    @ts.jit(num_waves=2)
    def shifts(x: Any, by: Any, left: Any, right: Any) -> None:
        t, n = ts.load(x, 0, shape=128), ts.load(by, 0, shape=128)
        ts.store(left, 0, t << n)
        ts.store(right, 0, t >> n)

    x = rng.integers(0, 2**63, 128).astype(np.uint64)
    by = np.arange(128, dtype=np.uint8)
    both(shifts, [x, by, np.zeros(128, np.uint64), np.zeros(128, np.uint64)], check=True)


@ts.jit
def increment(x: Any) -> None:
    ts.store(x, (0, 0), ts.load(x, (0, 0), shape=(4, 8)) + 1)


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.lib.stride_tricks.as_strided(np.arange(100, dtype=np.int32), shape, tuple(4 * stride for stride in strides))


@pytest.mark.parametrize(("shape", "strides"), [((4, 8), (4, 1)), ((4, 8), (7, 1)), ((8, 4), (1, 7)), ((3, 4), (3, 2)), ((2, 2), (5, 5))])
def test_an_array_whose_elements_share_memory_is_not_written(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Stores to such an array were not ordered with loads of it: the compiler takes different elements to lie apart."""
    with pytest.raises(ts.errors.LaunchError, match="share memory"):
        increment[1](strided(shape, strides))


@pytest.mark.parametrize(("shape", "strides"), [((4, 8), (8, 1)), ((2, 3), (3, 2)), ((3, 2), (2, 3)), ((1, 8), (0, 1)), ((4, 2), (2, 1))])
def test_elements_side_by_side_are_written(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = strided(shape, strides)
    expected = x + 1
    increment[1](x)
    assert (x == expected).all()


def test_a_device_of_the_wrong_type_is_named() -> None:
    x = np.zeros((4, 8), np.int32)
    with pytest.raises(ts.errors.LaunchError, match="device is 3; it is a name"):
        ts.runtime.launch(increment.compile(x).artifact, 1, [x], device=3)  # type: ignore[arg-type]
