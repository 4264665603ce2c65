"""Fences between accesses to global memory by different waves: where they stand, and that results depend on them.

Kernels run in the simulator's checking mode, which finds what hardware might do and waves run in turn don't show.
"""

from __future__ import annotations

import numpy as np
import pytest
from lowering_harness import array_type, assign, check, parse

from tessera.errors import DataRaceError
from tessera.ir.core import Kernel
from tessera.targets.rocm.layout import blocked
from tessera.targets.rocm.ops import MemoryFence

TILE = (16, 32)
HEAD = """
  %i = program_id axis=0 : i64
  %zero = const type=i64 value=0 : i64
  %one = const type=i64 value=1 : i64
  %n = const type=i64 value=16 : i64
  %n2 = const type=i64 value=32 : i64
  %m = const type=i64 value=32 : i64
  %z = const type=f32 value=0 : f32
  %k = const type=16x32xf32 value=0.5 : 16x32xf32
  %init = const type=16x32xf32 value=0 : 16x32xf32
"""


def numbers(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(3).permutation(rows * columns).reshape(rows, columns).astype(np.float32)


def kernel(body: str, *, a: str = "", b: str = "", waves: int = 4) -> str:
    default = array_type(numbers(64, 64))
    return f"\nkernel @k num_waves={waves} weak=[]\n^(%a: {a or default}, %b: {b or default}) {{{HEAD}{body}\n  yield []\n}}\n"


def fence_count(compiled: Kernel) -> int:
    return sum(isinstance(op, MemoryFence) for op in compiled.body.walk())


def load(name: str, at: str, array: str = "%a") -> str:
    return f"\n  {name} = load {array} [{at}] %z shape=(16,32) : 16x32xf32"


def store(at: str, value: str, array: str = "%a") -> str:
    return f"\n  store {array} [{at}] {value}"


IN_PLACE = load("%x", "%zero %zero") + "\n  %y = add %x %k : 16x32xf32" + store("%zero %zero", "%y")
AGAIN = IN_PLACE + load("%x2", "%zero %zero") + "\n  %y2 = mul %x2 %x2 : 16x32xf32" + store("%zero %zero", "%y2")
SHIFTED = IN_PLACE + load("%w", "%one %zero") + store("%zero %zero", "%w", "%b")
OVERWRITTEN = load("%w", "%zero %zero") + store("%one %zero", "%w")
TWICE = store("%zero %zero", "%k") + store("%one %one", "%init")
OTHER_ARRAY = load("%x", "%zero %zero") + store("%one %zero", "%x", "%b")


@pytest.mark.parametrize(
    ("body", "expected"), [(IN_PLACE, 0), (AGAIN, 0), (SHIFTED, 1), (OVERWRITTEN, 1), (TWICE, 1), (OTHER_ARRAY, 0)],
    ids=["in place", "in place twice", "read after write", "write after read", "write after write", "disjoint arrays"],
)  # fmt: skip
def test_straight_code(body: str, expected: int) -> None:
    text = kernel(body)
    compiled = assign(parse(text))
    assert fence_count(compiled) == expected
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)
    assert fence_count(assign(parse(text.replace("num_waves=4", "num_waves=1")))) == 0


def test_arguments_that_may_overlap() -> None:
    """One buffer behind two parameters: a store through one is seen through the other."""
    whole = numbers(64, 64)
    overlapping = array_type(whole, disjoint=False)
    body = store("%zero %zero", "%k") + load("%x", "%one %one", "%b") + store("%n %zero", "%x")
    assert fence_count(assign(parse(kernel(body)))) == 0
    compiled = assign(parse(kernel(body, a=overlapping, b=overlapping)))
    assert fence_count(compiled) == 2  # before the load, and before the store that might overwrite what other waves still read
    one_disjoint = assign(parse(kernel(body, a=overlapping)))
    assert fence_count(one_disjoint) == 0


def loop(inside: str, *, bounds: str = "%zero %n2 %n") -> str:
    lines = inside.replace("\n  ", "\n    ")
    return f"""
  %r = for {bounds} [%init] stages=0 : 16x32xf32
  ^(%c: i64, %t: 16x32xf32) {{{lines}
    %u = add %t %x : 16x32xf32
    yield [%u]
  }}
  store %b [%zero %zero] %r"""


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (load("%x", "%c %zero") + store("%c %zero", "%t"), 0),
        (load("%x", "%c %zero") + "\n  %d = add %c %n : i64" + store("%d %zero", "%x"), 1),
        (load("%x", "%zero %zero") + store("%zero %zero", "%t"), 1),
        ("\n  %d = mul %c %one : i64" + load("%x", "%d %zero") + store("%d %zero", "%t"), 0),
        (load("%x", "%c %zero") + "\n  %d = sub %c %n : i64" + store("%d %zero", "%x"), 1),
    ],
    ids=["tiles apart", "next tile", "same tile each trip", "a multiple of the counter", "previous tile"],
)
def test_loops(inside: str, expected: int) -> None:
    compiled = assign(parse(kernel(loop(inside))))
    assert fence_count(compiled) == expected
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)


def fences_at_ends(compiled: Kernel) -> list[bool]:
    """For each loop, whether its body ends in a fence."""
    return [isinstance(op.blocks[-1].ops[-2], MemoryFence) for op in compiled.body.walk() if op.name in ("for", "while")]


def test_behind_a_loop() -> None:
    """What the trips of a loop wrote is pending behind it."""
    body = loop("\n  %x = add %t %k : 16x32xf32" + store("%c %zero", "%x")) + load("%y", "%one %zero") + store("%zero %n2", "%y", "%b")
    compiled = assign(parse(kernel(body)))
    assert fence_count(compiled) == 1
    assert fences_at_ends(compiled) == [False]
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)


def test_nested_loops() -> None:
    """A conflict around the outer loop alone is fenced once a trip of the outer loop."""
    body = f"""
  %r = for %zero %n2 %n [%init] stages=0 : 16x32xf32
  ^(%c: i64, %t: 16x32xf32) {{
    %r1 = for %zero %n2 %m [%t] stages=0 : 16x32xf32
    ^(%e: i64, %t1: 16x32xf32) {{{load("%x", "%zero %e")}
      %u = add %t1 %x : 16x32xf32
      yield [%u]
    }}
    store %a [%one %c] %r1
    yield [%r1]
  }}
  store %b [%zero %zero] %r"""
    compiled = assign(parse(kernel(body)))
    assert fences_at_ends(compiled) == [True, False]
    assert fence_count(compiled) == 2  # the other stands before the store, behind the loads of the inner loop
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)


def test_while() -> None:
    body = f"""
  %q, %left = while [%init %n2] : 16x32xf32, i64
  ^(%t0: 16x32xf32, %l0: i64) {{
    %go = gt %l0 %zero : bool
    yield [%go %t0 %l0]
  }}
  ^(%t1: 16x32xf32, %l1: i64) {{{load("%x", "%zero %zero")}{store("%one %zero", "%x")}
    %u = add %t1 %x : 16x32xf32
    %l2 = sub %l1 %n : i64
    yield [%u %l2]
  }}
  store %b [%zero %zero] %q"""
    compiled = assign(parse(kernel(body)))
    assert fences_at_ends(compiled) == [True]
    assert fence_count(compiled) == 2
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)


def test_tiles_closer_than_their_size() -> None:
    inside = load("%x", "%c %zero") + store("%c %zero", "%t")
    compiled = assign(parse(kernel(loop(inside, bounds="%zero %n2 %one"))))
    assert fence_count(compiled) == 1
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)


def test_branches() -> None:
    """What either branch did is pending behind both."""
    body = f"""
  %w = extent %a axis=0 : i64
  %c = lt %w %one : bool
  %q = if %c : 16x32xf32
  ^() {{
    yield [%k]
  }}
  ^() {{
    store %a [%one %zero] %k
    yield [%init]
  }}{load("%x", "%zero %zero")}{store("%zero %zero", "%x", "%b")}"""
    compiled = assign(parse(kernel(body)))
    assert fence_count(compiled) == 1
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)


def test_layouts_with_copies_in_other_waves() -> None:
    """Waves that hold copies load what the owner stores."""
    compiled = assign(parse(kernel(IN_PLACE)), layouts={TILE: blocked(TILE, waves=(2, 1), num_waves=4)})
    assert fence_count(compiled) == 1
    check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64) + 7000), checking=True)
    surplus = assign(parse(kernel(IN_PLACE, waves=5)))
    assert fence_count(surplus) == 1


def test_the_fence_is_what_makes_it_right() -> None:
    """Without it, waves that the simulator runs in turn read what others have not stored yet."""
    compiled = assign(parse(kernel(OVERWRITTEN)))
    compiled.body.ops[:] = [op for op in compiled.body.ops if not isinstance(op, MemoryFence)]
    with pytest.raises(AssertionError, match="differs"):
        check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64)))
    with pytest.raises(DataRaceError, match="no barrier orders them"):
        check(compiled, (1, 1, 1), (numbers(64, 64), numbers(64, 64)), checking=True)
