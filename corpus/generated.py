"""A corpus of kernels made from templates: every op of the language x every dtype x every way to reach memory x small and large tiles x
numbers of waves x levels of optimisation.

One kernel does a family of ops (all arithmetic of two tiles, all casts of a dtype, …), each result going to a slice of the output, so that
the corpus stays countable: `FAMILIES` x their dtypes x `ACCESSES` x `TILES` x `WAVES` x `LEVELS`, some twenty thousand members. `dealt`
gives a part of it in which every family meets every dtype, and the other choices are dealt out evenly, with a fixed seed.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import tessera as ts
from tessera import dtypes
from tessera.dtypes import DType
from tessera.jit import CompiledKernel, JitFunction, Options

INTEGERS = (ts.int8, ts.int16, ts.int32, ts.int64, ts.uint8, ts.uint16, ts.uint32, ts.uint64)
FLOATS = (ts.float16, ts.bfloat16, ts.float32, ts.float64)
ALL = dtypes.ALL
NUMBERS = (*INTEGERS, *FLOATS)

ACCESSES = ("contiguous", "ragged", "strided", "broadcast")
"""Rows aligned to 16 bytes and whole tiles; odd sizes at odd addresses; steps along both axes; a stride of 0 and tiles of one row."""
TILES = {"small": (4, 8), "large": (32, 64)}
WAVES = (1, 2, 3, 4, 5, 6, 7, 8)
LEVELS = {"O0": (0, 1), "O1": (1, 1), "O3": (3, 3)}
"""LLVM's levels of IR optimisation and of code generation; O0 is what kernels are compiled at unless they say otherwise."""

# ---- the templates -------------------------------------------------------------------------------------------------------------------


def two_tiles(x, y, out, fs: ts.constexpr, TILE: ts.constexpr):
    i, j = ts.program_id(0), ts.program_id(1)
    a = ts.load(x, (i, j), shape=TILE)
    b = ts.load(y, (i, j), shape=TILE)
    for n in ts.static_range(len(fs)):
        ts.store(out, (n, i, j), fs[n](a, b).astype(out.dtype)[None, :, :])


def one_row_with_a_tile(x, y, out, fs: ts.constexpr, TILE: ts.constexpr):
    i, j = ts.program_id(0), ts.program_id(1)
    a = ts.load(x, (0, j), shape=(1, TILE[1]))
    b = ts.load(y, (i, 0), shape=(TILE[0], 1))
    for n in ts.static_range(len(fs)):
        ts.store(out, (n, i, j), fs[n](a, b).astype(out.dtype)[None, :, :])


def one_tile(x, out, fs: ts.constexpr, TILE: ts.constexpr):
    i, j = ts.program_id(0), ts.program_id(1)
    a = ts.load(x, (i, j), shape=TILE)
    for n in ts.static_range(len(fs)):
        ts.store(out, (n, i, j), fs[n](a).astype(out.dtype)[None, :, :])


def scalars(x, y, out, s, t, fs: ts.constexpr):
    """Elements and arguments, which are the same in all lanes."""
    i, j = ts.program_id(0), ts.program_id(1)
    a, b = x[i, j], y[i, j]
    for n in ts.static_range(len(fs)):
        out[n, i, j] = fs[n](a, b).astype(out.dtype)
        out[len(fs) + n, i, j] = fs[n](s, t).astype(out.dtype)


def casts(x, b, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, TILE: ts.constexpr):
    i, j = ts.program_id(0), ts.program_id(1)
    a = ts.load(x, (i, j), shape=TILE)
    for out in (b, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64):
        ts.store(out, (i, j), a.astype(out.dtype))


def reductions(x, rows, columns, everything, f: ts.constexpr, TILE: ts.constexpr):
    i, j = ts.program_id(0), ts.program_id(1)
    a = ts.load(x, (i, j), shape=TILE)
    ts.store(rows, (i, j), f(a, 1)[:, None])
    ts.store(columns, (i, j), f(a, 0)[None, :])
    everything[i, j] = f(a, None)


def shapes(x, turned, flat, repeated, TILE: ts.constexpr):
    i, j = ts.program_id(0), ts.program_id(1)
    a = ts.load(x, (i, j), shape=TILE)
    ts.store(turned, (j, i), a.T)
    size = TILE[0] * TILE[1]
    ts.store(flat, i * ts.num_programs(1) + j, ts.reshape(a, size))
    row = ts.load(x, (i * TILE[0], j), shape=(1, TILE[1]))
    ts.store(repeated, (i, j), ts.broadcast_to(row, TILE))
    ts.store(repeated, (ts.num_programs(0) + i, j), ts.where(a == a, ts.reshape(a.T, TILE), ts.broadcast_to(row, TILE)))


def movement(x, out, one, TILE: ts.constexpr):
    """Copies by tile and by element, in place and beside, with a fill value, of three axes and of one."""
    i, j = ts.program_id(0), ts.program_id(1)
    ts.store(out, (0, i, j), ts.load(x, (i, j), shape=TILE, other=1)[None])
    ts.store(
        out, offset=(1, i * TILE[0] + 1, j * TILE[1] - 1), tile=ts.load(x, offset=(i * TILE[0] - 1, j * TILE[1] + 1), shape=TILE)[None]
    )
    ts.store(out, (2, i, j), ts.full(TILE, one, x.dtype)[None])
    out[3, i, j] = x[i, j]
    out[3, i + 2, j] = x[x.shape[0] - 1 - i, x.shape[1] - 1 - j]


def control(x, out, n, limit, TILE: ts.constexpr):
    """Loops that carry tiles and numbers, branches, an early exit."""
    i, j = ts.program_id(0), ts.program_id(1)
    total = ts.zeros(TILE, out.dtype)
    count = 0
    for k in range(n):
        tile = ts.load(x, (i + k, j), shape=TILE).astype(out.dtype)
        total = tile if k == 1 else ts.maximum(total, tile)
        count += k
    ts.store(out, (0, i, j), total[None])
    at = 0
    while at * at < limit and at < 50:
        at += 2
    if i + j >= at:
        return
    if count > 3:
        out[1, i, j] = at
    else:
        out[1, i, j] = count
    if i == 0:  # several programs may not write one element
        for k in range(n, -n, -2):
            out[2, k + n, j] = k * k % 7 if k % 3 else 1


def numbers(out, strides, n, k, BM: ts.constexpr):
    """Arithmetic of program ids, extents, strides and arguments."""
    i, j, m = ts.program_id(0), ts.program_id(1), ts.program_id(2)
    at = (i * ts.num_programs(1) + j) * ts.num_programs(2) + m
    values = (
        i * 3 + j - m, ts.cdiv(strides.shape[0], BM), strides.strides[0] * n, n // k, n % k, -n // 3, n >> 2, n << 3, n & 255, n | 17,
        n ^ k, ts.minimum(n, k), ts.maximum(n, i), abs(n - k), n / k > 2, i == j, at * n, (n * 2654435761) % 2**32, ~n, n if n > k else k,
    )  # fmt: skip
    for v in ts.static_range(len(values)):
        out[at, v] = ts.astype(values[v], ts.int64)


def dots(x, y, out, STEP: ts.constexpr, TILE: ts.constexpr):
    i, j = ts.program_id(0), ts.program_id(1)
    acc = ts.zeros((TILE[0], TILE[1]), out.dtype)
    for k in range(ts.cdiv(x.shape[1], STEP)):
        acc = ts.dot(ts.load(x, (i, k), shape=(TILE[0], STEP)), ts.load(y, (k, j), shape=(STEP, TILE[1])), acc)
    ts.store(out, (i, j), acc)


def turned_dots(x, y, out, STEP: ts.constexpr, TILE: ts.constexpr):
    """Operands that are transposed, scaled and cast in registers, and a result that is."""
    i, j = ts.program_id(0), ts.program_id(1)
    acc = ts.zeros((TILE[1], TILE[0]), ts.int32 if x.dtype.is_integer else ts.float32)
    for k in range(ts.cdiv(x.shape[1], STEP)):
        a = ts.load(x, (i, k), shape=(TILE[0], STEP))
        b = ts.load(y, (k, j), shape=(STEP, TILE[1]))
        acc = ts.dot(ts.maximum(b, 0).T, (a + a).astype(x.dtype).T, acc)
    ts.store(out, (i, j), acc.T.astype(out.dtype))


# ---- ops of the templates ------------------------------------------------------------------------------------------------------------


def swapped(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: f(b, a)


def power(exponent):
    return lambda a: a**exponent


def of_tile_and_number(f, number):
    return lambda a: f(a, number)


def of_number_and_tile(f, number):
    return lambda a: f(number, a)


def chosen(a, b):
    return ts.where(a < b, a, b)


def chosen_number(a):
    return ts.where(a > 1, a, 3)


def both_ways(a, b):
    return ts.where((a < b) & (b != 5) | ~(a == b), b, a)


def index_tile(a):
    return ts.arange(a.shape[1])[None, :] + 100 * ts.arange(a.shape[0])[:, None] + ts.where(a == a, 1, 2)


COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
ARITHMETIC = (operator.add, operator.sub, operator.mul, ts.minimum, ts.maximum, chosen, both_ways)
BITWISE = (operator.and_, operator.or_, operator.xor)
SHIFTS = (operator.lshift, operator.rshift)
DIVISIONS = (operator.floordiv, operator.mod)
FUNCTIONS = {"exp": ts.exp, "exp2": ts.exp2, "log": ts.log, "log2": ts.log2, "rsqrt": ts.rsqrt}


def _binary(dtype: DType) -> tuple[Any, ...]:
    if dtype is ts.bool_ or dtype is ts.bool:
        return (*BITWISE, operator.add, operator.mul, ts.minimum, ts.maximum, chosen)
    return (*ARITHMETIC, operator.truediv) if dtype.is_float else (*ARITHMETIC, *BITWISE, *SHIFTS)


def _unary(dtype: DType) -> tuple[Any, ...]:
    if dtype is ts.bool:
        return (operator.invert, ts.abs, index_tile)
    common = (operator.neg, operator.pos, ts.abs, power(2), ts.floor, ts.ceil, chosen_number, index_tile)
    return (*common, ts.sqrt, power(0), power(-1), power(0.5)) if dtype.is_float else (*common, operator.invert, power(3), power(5))


def _with_numbers(dtype: DType) -> tuple[Any, ...]:
    if dtype.is_float:
        pairs = [(f, n) for f in (operator.add, operator.mul, operator.truediv, operator.lt, ts.maximum) for n in (2, 0.1)]
        pairs += [(operator.truediv, 3), (operator.floordiv, 2), (operator.mod, 3)]
    else:
        pairs = [(f, n) for f in (*DIVISIONS, *BITWISE, operator.mul, operator.add) for n in (3, 8, 7, 1)]
        pairs += [(operator.lshift, n) for n in (0, 1, 7, 100)] + [(operator.rshift, n) for n in (1, 5, 64)]
        if dtype.is_signed:
            pairs += [(f, -5) for f in DIVISIONS]
    backwards = [(f, n) for f, n in pairs if f in (operator.sub, operator.truediv, operator.floordiv, operator.mod, operator.lt)]
    return (*(of_tile_and_number(f, n) for f, n in pairs), *(of_number_and_tile(f, n) for f, n in backwards))


def _sum(a, axis):
    return ts.sum(a, axis)


def _largest(a, axis):
    return ts.max(a, axis)


def _smallest(a, axis):
    return ts.min(a, axis)


# ---- members --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """One template with its ops. `rule` says how results compare: "exact", "sum", "product" or a name of FUNCTIONS."""

    name: str
    template: Callable[..., Any]
    dtypes: tuple[DType, ...]
    rule: str = "exact"
    ops: Callable[[DType], tuple[Any, ...]] | None = None
    out: Callable[[DType], DType] = lambda dtype: dtype
    accesses: tuple[str, ...] = ACCESSES


def _wide_sum(dtype: DType) -> DType:
    if dtype.is_float:
        return dtype
    return ts.uint64 if dtype in (ts.uint8, ts.uint16, ts.uint32, ts.uint64) else ts.int64


def _accumulator(dtype: DType) -> DType:
    return ts.float32 if dtype.is_float else ts.int32


_DOTS = (ts.float16, ts.bfloat16, ts.int8, ts.uint8)
_LAID_OUT = ("contiguous", "ragged", "strided")

FAMILIES: tuple[Family, ...] = (
    Family("arithmetic", two_tiles, ALL, ops=_binary),
    Family("rows_and_columns", one_row_with_a_tile, ALL, ops=_binary),
    Family("comparisons", two_tiles, ALL, ops=lambda dtype: COMPARISONS, out=lambda dtype: ts.bool),
    Family("division", two_tiles, NUMBERS, ops=lambda dtype: DIVISIONS),
    Family("unary", one_tile, ALL, ops=_unary),
    Family("numbers_with_tiles", one_tile, NUMBERS, ops=_with_numbers),
    Family("scalars", scalars, NUMBERS, ops=lambda dtype: (*_binary(dtype), *COMPARISONS, *DIVISIONS), accesses=_LAID_OUT),
    Family("casts", casts, ALL),
    Family("sum", reductions, ALL, "sum", ops=lambda dtype: (_sum,), out=_wide_sum),
    Family("max", reductions, ALL, ops=lambda dtype: (_largest,)),
    Family("min", reductions, ALL, ops=lambda dtype: (_smallest,)),
    Family("shapes", shapes, ALL, accesses=_LAID_OUT),
    Family("movement", movement, ALL),
    Family("control", control, NUMBERS),
    Family("numbers", numbers, (ts.int64,), accesses=("contiguous",)),
    Family("dots", dots, _DOTS, "product", out=_accumulator),
    Family("turned_dots", turned_dots, _DOTS, "product", out=_accumulator),
    *(Family(name, one_tile, FLOATS, name, ops=lambda dtype, f=f: (f,)) for name, f in FUNCTIONS.items()),
)


@dataclass(frozen=True)
class Member:
    """One kernel of the corpus."""

    family: Family = field(repr=False)
    dtype: DType
    access: str
    tile: str
    waves: int
    level: str

    @property
    def name(self) -> str:
        return f"{self.family.name}-{self.dtype.name}-{self.access}-{self.tile}-w{self.waves}-{self.level}"

    @property
    def shape(self) -> tuple[int, int]:
        """The tile."""
        if "dots" in self.family.name:
            return (16, 32) if self.tile == "small" else (64, 64)
        return TILES[self.tile]

    @property
    def extent(self) -> tuple[int, int]:
        """The matrix that the kernel runs over: two tiles by three, less a bit where the access is ragged."""
        rows, columns = 2 * self.shape[0], 3 * self.shape[1]
        return (rows - 1, columns - 3) if self.access == "ragged" else (rows, columns)

    @property
    def kernel(self) -> JitFunction:
        return _kernel(self.family.template, self.waves, self.level)

    def arrays(self) -> list[tuple[str, tuple[int, ...], DType, bool]]:
        """The array parameters: name, extents, dtype, whether the kernel writes it."""
        rows, columns = self.extent
        out = self.family.out(self.dtype)
        count = len(self.ops)
        match self.family.template.__name__:
            case "two_tiles":
                return [
                    ("x", (rows, columns), self.dtype, False),
                    ("y", (rows, columns), self.dtype, False),
                    ("out", (count, rows, columns), out, True),
                ]
            case "one_row_with_a_tile":
                return [
                    ("x", (1, columns), self.dtype, False),
                    ("y", (rows, 1), self.dtype, False),
                    ("out", (count, rows, columns), out, True),
                ]
            case "one_tile":
                return [("x", (rows, columns), self.dtype, False), ("out", (count, rows, columns), out, True)]
            case "scalars":
                return [("x", (2, 3), self.dtype, False), ("y", (2, 3), self.dtype, False), ("out", (2 * count, 2, 3), out, True)]
            case "casts":
                names = ("b", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64")
                return [
                    ("x", (rows, columns), self.dtype, False),
                    *((n, (rows, columns), d, True) for n, d in zip(names, ALL, strict=True)),
                ]
            case "reductions":
                return [
                    ("x", (rows, columns), self.dtype, False), ("rows", (rows, 3), out, True), ("columns", (2, columns), out, True),
                    ("everything", (2, 3), out, True),
                ]  # fmt: skip
            case "shapes":
                size = self.shape[0] * self.shape[1]
                return [
                    ("x", (rows, columns), self.dtype, False), ("turned", (columns, rows), out, True), ("flat", (6 * size - 1,), out, True),
                    ("repeated", (2 * rows, columns), out, True),
                ]  # fmt: skip
            case "movement":
                return [("x", (rows, columns), self.dtype, False), ("out", (4, rows, columns), out, True)]
            case "control":
                return [("x", (rows, columns), self.dtype, False), ("out", (3, rows, columns), out, True)]
            case "numbers":
                return [("out", (12, 20), out, True), ("strides", (7, 5), ts.float32, False)]
            case _:
                depth = 41 if self.access == "ragged" else 64
                return [
                    ("x", (rows, depth), self.dtype, False),
                    ("y", (depth, columns), self.dtype, False),
                    ("out", (rows, columns), out, True),
                ]

    @property
    def ops(self) -> tuple[Any, ...]:
        return _ops(self.family.name, self.dtype)

    @property
    def numbers(self) -> dict[str, Any]:
        """The scalar arguments."""
        scalar = self.dtype.numpy.type
        match self.family.template.__name__:
            case "scalars":
                return {"s": scalar(7), "t": scalar(3)}
            case "movement":
                return {"one": scalar(1)}
            case "control":
                return {"n": 2, "limit": 30}
            case "numbers":
                return {"n": 1000003, "k": 77}
            case _:
                return {}

    @property
    def constants(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        names = self.family.template.__annotations__
        if "fs" in names:
            found["fs"] = self.ops
        if "f" in names:
            found["f"] = self.ops[0]
        if "TILE" in names:
            found["TILE"] = self.shape
        if "STEP" in names:
            found["STEP"] = 16 if self.tile == "small" else 32
        if "BM" in names:
            found["BM"] = 4
        return found

    @property
    def grid(self) -> tuple[int, int, int]:
        return (2, 3, 2) if self.family.name == "numbers" else (2, 3, 1)

    def specs(self) -> list[Any]:
        """What stands for the arguments in `compile`."""
        found: list[Any] = []
        for _, extents, dtype, _ in self.arrays():
            aligned = self.access in ("contiguous", "broadcast") and len(extents) > 1
            contiguous = None if self.access == "strided" and len(extents) > 1 else -1
            found.append(ts.Array(dtype, len(extents), align=16 if aligned else dtype.bytes, contiguous=contiguous))
        given = self.numbers
        python = {int: int, float: float}
        return [*found, *(python.get(type(v)) or dtypes.from_numpy(v.dtype) for v in given.values())]

    def compile(self, arch: str) -> CompiledKernel:
        named = [name for name in self.kernel.signature.names if name not in self.kernel.signature.constexprs]
        return self.kernel.compile(**dict(zip(named, self.specs(), strict=True)), **self.constants, arch=arch)


@cache
def _kernel(template: Any, waves: int, level: str) -> JitFunction:
    optimize, codegen = LEVELS[level]
    return JitFunction(template, Options(num_waves=waves, optimize=optimize, codegen=codegen))


@cache
def _ops(name: str, dtype: DType) -> tuple[Any, ...]:
    family = next(family for family in FAMILIES if family.name == name)
    return family.ops(dtype) if family.ops is not None else ()


def members() -> Iterator[Member]:
    """The whole corpus."""
    for family in FAMILIES:
        yield from map(Member, *zip(*product((family,), family.dtypes, family.accesses, TILES, WAVES, LEVELS), strict=True))


def dealt(rounds: int, seed: int = 0) -> list[Member]:
    """Part of the corpus: every family with every of its dtypes, `rounds` times, with the other choices dealt out evenly."""
    rng = random.Random(seed)
    piles: dict[Any, list[Any]] = {}

    def deal(of: tuple[Any, ...]) -> Any:
        pile = piles.setdefault(of, [])
        if not pile:
            pile.extend(rng.sample(of, len(of)))
        return pile.pop()

    found: list[Member] = []
    for _ in range(rounds):
        for family in FAMILIES:
            for dtype in family.dtypes:
                found.append(Member(family, dtype, deal(family.accesses), deal(tuple(TILES)), deal(WAVES), deal(tuple(LEVELS))))
    return list(dict.fromkeys(found))
