"""The corpus of generated kernels (corpus/generated.py): what the simulator computes is what the reference executor computes.

`make test` runs a third of one deal, in which every family occurs with several dtypes; the slow sweep runs four deals of every family with
every dtype. The whole product would be nearly forty thousand kernels. The seeds are fixed.
"""

from __future__ import annotations

import warnings
from typing import Any

import compare
import numpy as np
import pytest
from poison import Arena, laid_out

import tessera as ts
from corpus.generated import FAMILIES, LEVELS, Member, dealt
from tessera.errors import TesseraWarning

FEW = {"numbers", "dots", "turned_dots", "scalars"}
QUICK = [m for i, m in enumerate(dealt(1)) if (i % 3 == 0 or m.family.name in FEW) and not (m.tile == "large" and m.waves < 3)]
SWEEP = [member for member in dealt(4, seed=1) if member not in QUICK]


def values(member: Member, extents: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    """Numbers that find mistakes: random ones of all sizes, small ones that collide, and the ends of the range."""
    rng = np.random.default_rng([seed, *map(ord, member.name)])
    count = int(np.prod(extents))
    if dtype.kind == "b":
        return rng.integers(0, 2, extents).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, count, dtype, endpoint=True)
        small = rng.integers(-9 if info.min else 0, 10, count).astype(dtype)
        special = rng.choice(np.array([info.min, info.max, 0, 1, info.max // 2 + 1, *([-1] if info.min else [])], dtype), count)
        found = np.choose(rng.integers(0, 5, count), [wide, small, small, wide, special])
        return found.astype(dtype).reshape(extents)
    if member.family.rule in ("sum", "product"):
        return (rng.standard_normal(extents) * np.exp2(rng.integers(-4, 5, extents))).astype(dtype)
    normal = rng.standard_normal(count) * np.exp2(rng.integers(-6, 7, count))
    small = rng.integers(-9, 10, count) / 2
    with np.errstate(over="ignore"):
        huge = np.exp2(rng.uniform(-1080, 1020, count) if dtype == np.float64 else rng.uniform(-150, 128, count)) * rng.choice(
            [-1, 1], count
        )
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 2.0**-24, -(2.0**-149), 65504.0, 3.3895e38], count)
        return np.choose(rng.integers(0, 6, count), [normal, small, small, normal, huge, special]).astype(dtype).reshape(extents)


def run(member: Member, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TesseraWarning)
        compiled = member.compile("gfx1151")
    outputs: dict[str, list[Arena]] = {}
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    for seed, (name, extents, dtype, written) in enumerate(member.arrays()):
        if written:
            made = [laid_out(extents, dtype.numpy, member.access, written=True) for _ in range(2)]
            for arena in made:
                arena.fill(np.ones(extents, dtype.numpy))
            outputs[name] = made
        else:
            arena = laid_out(extents, dtype.numpy, member.access, written=False)
            inputs[name] = arena.fill(values(member, extents, dtype.numpy, seed))
    scalars = member.numbers
    for which, executor in enumerate(("rocm_sim", "reference")):
        arguments = {**inputs, **{name: made[which].array for name, made in outputs.items()}, **scalars}
        more = options if executor == "rocm_sim" else {}
        ts.runtime.launch(compiled.artifact, member.grid, arguments, executor=executor, **more)
    for simulated, reference in outputs.values():
        simulated.check_surroundings()
        check(member, inputs, simulated.array, reference.array)


def check(
    member: Member, inputs: dict[str, np.ndarray[Any, Any]], simulated: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]
) -> None:
    """By the rule of tests/compare.py."""
    rule, x = member.family.rule, inputs.get("x")
    is_float = simulated.dtype.kind not in "biu"
    if rule in compare.ULPS:
        compare.function(simulated[0], rule, x)
    elif rule == "sum" and is_float:
        rows, columns = member.shape
        for result in (simulated, reference):
            axes = {(x.shape[0], 3): (1, columns), (2, x.shape[1]): (0, rows), (2, 3): (None, 0)}[result.shape]
            check_sums(result, x, axes, (rows, columns))
    elif rule == "product":
        check_products(member, simulated, inputs)
        check_products(member, reference, inputs)
    elif member.family.name in ("movement", "shapes"):
        compare.same_bits(simulated, reference)
    else:
        compare.same(simulated, reference)


def check_sums(result: np.ndarray[Any, Any], x: np.ndarray[Any, Any], axes: tuple[int | None, int], tile: tuple[int, int]) -> None:
    """The sums of each tile of x, along an axis or whole; what is outside is zero."""
    accumulator = "float32" if result.dtype.itemsize == 2 else result.dtype.name
    padded = np.zeros((2 * tile[0], 3 * tile[1]), np.float64)
    padded[: x.shape[0], : x.shape[1]] = x
    parts = padded.reshape(2, tile[0], 3, tile[1])
    over = {1: 3, 0: 1, None: (1, 3)}[axes[0]]
    terms = axes[1] or tile[0] * tile[1]
    exact, size = parts.sum(over), np.abs(parts).sum(over)
    if axes[0] == 1:
        exact, size = exact.reshape(-1, 3)[: x.shape[0]], size.reshape(-1, 3)[: x.shape[0]]
    elif axes[0] == 0:
        exact, size = exact.reshape(2, -1)[:, : x.shape[1]], size.reshape(2, -1)[:, : x.shape[1]]
    compare.within(result, exact, compare.sum_bound(size, terms, accumulator))


def check_products(member: Member, result: np.ndarray[Any, Any], inputs: dict[str, np.ndarray[Any, Any]]) -> None:
    x, y = inputs["x"], inputs["y"]
    if member.family.name == "turned_dots":
        with np.errstate(over="ignore"):
            x, y = (x + x).astype(x.dtype), np.maximum(y, y.dtype.type(0))
    compare.product(result, x, y)


@pytest.mark.medium
@pytest.mark.parametrize("member", QUICK, ids=lambda m: m.name)
def test_corpus(member: Member) -> None:
    run(member)


@pytest.mark.slow
@pytest.mark.parametrize("member", SWEEP, ids=lambda m: m.name)
def test_corpus_sweep(member: Member) -> None:
    run(member)


def test_every_family_is_in_both_parts() -> None:
    names = {family.name for family in FAMILIES}
    assert {member.family.name for member in QUICK} == names
    pairs = {(family.name, dtype) for family in FAMILIES for dtype in family.dtypes}
    assert {(member.family.name, member.dtype) for member in (*QUICK, *SWEEP)} == pairs


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", ["control", "dots", "movement"])
def test_every_level_of_optimisation(family: str, level: str) -> None:
    """LLVM's passes know how large a buffer descriptor is: loops over tiles stay what they were."""
    found = next(f for f in FAMILIES if f.name == family)
    run(Member(found, found.dtypes[2], "contiguous", "small", 1, level))
