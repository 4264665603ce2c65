"""Kernels in textual IR that apply many elementwise ops at once, and operands that find faults in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from lowering_harness import assign, parse

from tessera import dtypes
from tessera.dtypes import DType, Kind
from tessera.ir.core import Kernel
from tessera.llvmtext import Value, const
from tessera.targets.rocm.lowering import floatmod, maths
from tessera.targets.rocm.lowering.context import Context

Array = np.ndarray
Step = tuple[str, DType]
"""An op with its operands in terms of %x and %y (tiles), %s and %t (scalars), {n} (the type of a tile) and so on; the result's dtype."""

ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "maximum", "minimum")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def binary_ops(dtype: DType) -> list[Step]:
    """All ops of two operands that take `dtype`, on %x and %y."""
    names = list(ARITHMETIC)
    if dtype.kind is Kind.BOOL:
        names = ["maximum", "minimum", "and", "or", "xor"]
    elif dtype.is_float:
        names.append("div")
    else:
        names += ["and", "or", "xor", "shl", "shr"]
    return [(f"{name} %x %y", dtype) for name in names] + [(f"{name} %x %y", dtypes.bool_) for name in COMPARISONS]


def unary_ops(dtype: DType) -> list[Step]:
    """All exact ops of one operand that take `dtype`, on %x."""
    if dtype.kind is Kind.BOOL:
        return [("not %x", dtype)]
    names = ["neg", "abs", *(("floor", "ceil", "sqrt") if dtype.is_float else ("not",))]
    return [(f"{name} %x", dtype) for name in names]


def casts(to: Sequence[DType] = dtypes.ALL) -> list[Step]:
    return [(f"cast %x to={dtype}", dtype) for dtype in to]


def kernel_text(dtype: DType, steps: Sequence[Step], tile: int, *, prologue: str = "", scalars: bool = False, waves: int = 2) -> str:
    """Program i loads the i-th `tile` elements of x and y, computes each step, and stores each result to an array of its own.

    `prologue` are lines of IR in front of the steps (it may define anew what they read as %x and %y; the loaded tiles are %x0 and %y0, and
    are %x and %y unless it does). With `scalars`, %s and %t are two more parameters, behind the arrays.
    """
    array = "array<{},1,align=16,axis=0,small,disjoint>"
    params = [f"%a: {array.format(dtype)}", f"%b: {array.format(dtype)}"]
    params += [f"%c{i}: {array.format(result)}" for i, (_, result) in enumerate(steps)]
    params += [f"%s: {dtype}", f"%t: {dtype}"] if scalars else []
    names = {"%x": "%x" if "%x =" in prologue else "%x0", "%y": "%y" if "%y =" in prologue else "%y0"}
    lines = [
        f"kernel @steps num_waves={waves} weak=[]",
        f"^({', '.join(params)}) {{",
        "%i = program_id axis=0 : i64",
        f"%n = const type=i64 value={tile} : i64",
        "%r = mul %i %n : i64",
        f"%o = const type={dtype} value=0 : {dtype}",
        f"%x0 = load %a [%r] %o shape=({tile},) : {tile}x{dtype}",
        f"%y0 = load %b [%r] %o shape=({tile},) : {tile}x{dtype}",
        *prologue.splitlines(),
    ]
    for index, (step, result) in enumerate(steps):
        words = " ".join(names.get(word, word) for word in step.split(" "))
        lines += [f"%v{index} = {words} : {tile}x{result}", f"store %c{index} [%r] %v{index}"]
    return "\n".join([*lines, "yield []", "}"])


def build(dtype: DType, steps: Sequence[Step], tile: int, *, vector: int = 4, prologue: str = "", scalars: bool = False) -> Kernel:
    return assign(parse(kernel_text(dtype, steps, tile, prologue=prologue, scalars=scalars)), vector=vector)


def outputs(steps: Sequence[Step], count: int) -> list[Array]:
    """Arrays that no op leaves as they are: full of NaN, or of a telling integer."""
    return [np.full(count, True if d.kind is Kind.BOOL else np.nan if d.is_float else 0x5A, d.numpy) for _, d in steps]


def special(dtype: DType) -> Array:
    """Values of a dtype at which something changes."""
    if dtype.kind is Kind.BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(str(dtype.numpy))
        low, high, half = int(info.min), int(info.max), 1 << dtype.bits // 2
        near = [0, 1, 2, 3, 5, 7, 10, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100, half - 1, half, half + 1, high // 3, high - 1, high]
        near += [low, low + 1, -1, -2, -3, -7, -10, -dtype.bits, -half] if dtype.is_signed else [high // 2, high // 2 + 1, high - 2]
        return np.array(sorted(set(near)), dtype.numpy)
    digits, lowest = {"f16": (10, -14), "bf16": (7, -126), "f32": (23, -126), "f64": (52, -1022)}[dtype.short]
    tiny, top = 2.0**lowest, 2.0 ** (15 if dtype.short == "f16" else 1023 if dtype.short == "f64" else 127)
    step = 2.0**-digits
    sizes = [
        0.0,
        tiny * step,
        3 * tiny * step,
        tiny * (1 - step),
        tiny,
        tiny * 1.5,
        0.1,
        0.5 - step / 4,
        0.5,
        0.5 + step,
        0.75,
        1 - step / 2,
    ]
    sizes += [1.0, 1 + step, 1.5, 2.5, 3.0, 3.5, 7.0, 2.0 ** (digits - 1) - 0.5, 2.0**digits - 1, 2.0**digits + 1, 2.0 ** (digits + 1)]
    sizes += [top, top * (2 - step), float("inf")]
    values = np.array([*sizes, float("nan")])
    return np.concatenate([values, -values]).astype(dtype.numpy)


def patterns(dtype: DType, count: int, seed: int) -> Array:
    """Random bits as values, most of them extreme."""
    rng = np.random.default_rng(seed)
    if dtype.kind is Kind.BOOL:
        return rng.integers(0, 2, count).astype(bool)
    return rng.integers(0, 256, count * dtype.bytes, np.uint8).view(dtype.numpy)


def ordinary(dtype: DType, count: int, seed: int) -> Array:
    """Random small values; halves among the floats."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return (rng.integers(-60, 60, count) * 0.5).astype(dtype.numpy)
    return rng.integers(0, 2, count).astype(bool) if dtype.kind is Kind.BOOL else rng.integers(-60, 60, count).astype(dtype.numpy)


def pairs(dtype: DType) -> tuple[Array, Array]:
    """Operands of two: every special value with every other, and random ones of several kinds."""
    x, y = (axis.ravel() for axis in np.meshgrid(special(dtype), special(dtype)))
    count = 300
    wild, calm = patterns(dtype, count, 1), ordinary(dtype, count, 2)
    other, small = patterns(dtype, count, 3), ordinary(dtype, count, 4)
    with np.errstate(all="ignore"):
        multiple = (calm * small).astype(dtype.numpy) if dtype.kind is not Kind.BOOL else calm
    return np.concatenate([x, wild, calm, wild, multiple]), np.concatenate([y, other, small, small, small])


def coarsen(monkeypatch: pytest.MonkeyPatch, intrinsic: str, factor: float) -> None:
    """Multiply what a hardware function gives: the simulator's is (almost) exact, the hardware's need not be."""
    exact = maths.each

    def worse(cx: Context, name: str, x: Value, *rest: object) -> Value:
        found = exact(cx, name, x, *rest)
        return cx.f.binary("fmul", found, const(found.type, factor)) if name == intrinsic else found

    for module in (maths, floatmod):
        monkeypatch.setattr(module, "each", worse)
