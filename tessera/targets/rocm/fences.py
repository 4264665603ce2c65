"""Order global memory between the waves of a program: `rocm.memory_fence` where one wave may touch what another has.

A program's loads see its earlier stores, its stores come after its earlier loads and stores of the same bytes. Within a wave the hardware
keeps that order; between waves only a fence with a barrier does. The pass walks the kernel with the set of accesses since the last fence
and puts a fence in front of each access that conflicts with one of them: same array or arguments that may overlap, one of the two a store.

A conflict between trips of a loop has its fence at the end of the body, not in front of the access. For the semantics it is the same, but
LLVM loses it at the top: its pass that inserts waits (SIInsertWaitcnts) takes away those of a fence that have nothing to wait for, and
looks at the top of a loop before it knows what the end leaves pending.

Two kinds of pairs need none: both touch the same elements by the same threads (same offsets and layout, nothing held twice), and tiles
that lie apart, in the same trip of a loop or in different ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Block, Kernel, Op, Value
from ...ir.ops.arith import Add, Cast, Const, Mul, Sub
from ...ir.ops.control import For, While
from ...ir.ops.memory import Load, Store
from ...ir.types import ArrayType
from .arch import Arch
from .ops import MemoryFence

Access = Load | Store


@dataclass(frozen=True)
class _Pending:
    """An access since the last fence, and the loops that have begun another trip since."""

    op: Access
    loops: frozenset[Op]


State = frozenset[_Pending]


def fences(kernel: Kernel, arch: Arch) -> None:
    """Insert the fences. A kernel of one wave needs none."""
    if kernel.num_waves > 1 and any(isinstance(op, Store) for op in kernel.body.walk()):
        _Walk(kernel.num_waves).block(kernel.body, frozenset(), insert=True)


class _Walk:
    def __init__(self, num_waves: int) -> None:
        self.num_waves = num_waves
        self.loops: list[Op] = []  # around the present place
        self.around: set[Op] = set()  # loops of which some trip conflicts with an earlier one

    def block(self, block: Block, state: State, *, insert: bool) -> State:
        """The accesses pending behind a block, those in front of it being `state`."""
        done: list[Op] = []
        for op in block.ops:
            if isinstance(op, MemoryFence):
                state = frozenset()
            elif isinstance(op, Access):
                if self._conflicts(state, op):
                    done.append(_fence(op))
                    state = frozenset()
                state |= {_Pending(op, frozenset())}
            elif isinstance(op, For | While):
                state = self._loop(op, state, insert=insert)
            elif op.blocks:
                state = frozenset[_Pending]().union(*(self.block(nested, state, insert=insert) for nested in op.blocks))
            done.append(op)
        if insert:
            block.ops[:] = done
        return state

    def _loop(self, op: For | While, before: State, *, insert: bool) -> State:
        def trip(state: State, insert: bool) -> State:
            for nested in op.blocks:
                state = self.block(nested, state, insert=insert)
            return state

        self.loops.append(op)
        entering = before
        while True:
            around = frozenset(_Pending(p.op, p.loops | {op}) for p in trip(entering, False))
            if around <= entering:
                break
            entering |= around
        self.loops.pop()
        if op not in self.around:
            return before | frozenset(_Pending(p.op, p.loops - {op}) for p in trip(entering, insert))
        self.around.remove(op)
        trip(before, insert)
        if insert:
            op.body.ops.insert(-1, _fence(op))
        return before | self.block(op.cond, before, insert=False) if isinstance(op, While) else before

    def _conflicts(self, state: State, op: Access) -> bool:
        """Whether a fence is needed in front of `op`. Conflicts around a loop are noted: their fence stands at the loop's end."""
        found = False
        for pending in state:
            if self._conflict(pending, op):
                if pending.loops:
                    self.around.add(next(loop for loop in self.loops if loop in pending.loops))
                else:
                    found = True
        return found

    def _conflict(self, pending: _Pending, op: Access) -> bool:
        earlier = pending.op
        if (isinstance(earlier, Load) and isinstance(op, Load)) or not _may_overlap(earlier.array, op.array):
            return False
        if earlier.array is not op.array:
            return True
        if not pending.loops and earlier.offsets == op.offsets and self._same_threads(_tile(earlier), _tile(op)):
            return False
        sizes = zip(_tile(earlier).tile.shape, _tile(op).tile.shape, strict=True)
        return not any(
            _apart(before, after, before_size, after_size, pending.loops)
            for before, after, (before_size, after_size) in zip(earlier.offsets, op.offsets, sizes, strict=True)
        )

    def _same_threads(self, x: Value, y: Value) -> bool:
        if x.layout is None or y.layout is None or str(x.layout) != str(y.layout):
            return False
        return not x.layout.replicated_waves and x.layout.num_waves == self.num_waves


def _fence(op: Op) -> MemoryFence:
    fence = MemoryFence()
    fence.location = op.location
    return fence


def _tile(op: Access) -> Value:
    return op.result if isinstance(op, Load) else op.source


def _may_overlap(x: Value, y: Value) -> bool:
    if x is y:
        return True
    return not any(isinstance(v.type, ArrayType) and v.type.disjoint for v in (x, y))


Linear = tuple[dict[Value, int], int]
"""A scalar as a sum of multiples of others, and a constant."""


def _linear(value: Value) -> Linear:
    """A scalar in terms of those that are not sums, differences or multiples of others."""

    def combine(x: Linear, y: Linear, factor: int) -> Linear:
        terms = dict(x[0])
        for base, times in y[0].items():
            terms[base] = terms.get(base, 0) + factor * times
        return {base: times for base, times in terms.items() if times}, x[1] + factor * y[1]

    match value.owner:
        case Const(value=number):
            return {}, int(number)
        case Cast(source=source) if (
            source.tile.dtype.is_signed and source.tile.dtype.is_integer and source.tile.dtype.bits <= value.tile.dtype.bits
        ):
            return _linear(source)
        case Add(lhs=x, rhs=y):
            return combine(_linear(x), _linear(y), 1)
        case Sub(lhs=x, rhs=y):
            return combine(_linear(x), _linear(y), -1)
        case Mul(lhs=x, rhs=Value(owner=Const(value=factor))) | Mul(lhs=Value(owner=Const(value=factor)), rhs=x):
            return combine(({}, 0), _linear(x), int(factor))
        case _:
            return {value: 1}, 0


def _apart(before: Value, after: Value, before_size: int, after_size: int, loops: frozenset[Op]) -> bool:
    """Whether two tiles never overlap along an axis, the second access coming one or more trips of each of `loops` after the first."""
    (terms, constant), (later_terms, later_constant) = _linear(before), _linear(after)
    if terms != later_terms or len(loops) > 1:
        return False
    distance, step = later_constant - constant, 0
    for loop in loops:
        if not isinstance(loop, For) or not isinstance(loop.step.owner, Const):
            return False
        counter = loop.body.params[0]
        inside = _defined_inside(loop)
        if any(base in inside for base in terms if base is not counter):
            return False
        step = terms.get(counter, 0) * int(loop.step.owner.value)
    if not loops:
        return distance >= before_size or -distance >= after_size
    # distance + t * step for t = 1, 2, …: it moves away from 0, and the first is the nearest.
    return (step > 0 and distance + step >= before_size) or (step < 0 and -(distance + step) >= after_size)


def _defined_inside(loop: For) -> set[Value]:
    found: set[Value] = set(loop.body.params)
    for op in loop.body.walk():
        found.update(op.results)
        for nested in op.blocks:
            found.update(nested.params)
    return found
