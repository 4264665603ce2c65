"""Order global memory between the waves of a program: `rocm.memory_fence` where one wave may touch what another has.

A program's loads see its earlier stores, its stores come after its earlier loads and stores of the same bytes. Within a wave the hardware
keeps that order; between waves only a fence with a barrier does. The pass walks the kernel with the set of accesses since the last fence
and puts a fence in front of each access that conflicts with one of them: same array or arguments that may overlap, one of the two a store.

Two kinds of pairs need none: both touch the same elements by the same threads (same offsets and layout, nothing held twice), and tiles of
different trips of a loop that lie apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Block, Kernel, Op, Value
from ...ir.ops.arith import Add, Cast, Const, Mul
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

    def block(self, block: Block, state: State, *, insert: bool) -> State:
        """The accesses pending behind a block, those in front of it being `state`."""
        done: list[Op] = []
        for op in block.ops:
            if isinstance(op, MemoryFence):
                state = frozenset()
            elif isinstance(op, Access):
                if any(self._conflict(pending, op) for pending in state):
                    done.append(MemoryFence())
                    done[-1].location = op.location
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

    def _loop(self, op: Op, before: State, *, insert: bool) -> State:
        def trip(state: State, insert: bool) -> State:
            for nested in op.blocks:
                state = self.block(nested, state, insert=insert)
            return state

        entering = before
        while True:
            around = frozenset(_Pending(p.op, p.loops | {op}) for p in trip(entering, False))
            if around <= entering:
                break
            entering |= around
        return before | trip(entering, insert)

    def _conflict(self, pending: _Pending, op: Access) -> bool:
        earlier = pending.op
        if (isinstance(earlier, Load) and isinstance(op, Load)) or not _may_overlap(earlier.array, op.array):
            return False
        if earlier.array is not op.array:
            return True
        if not pending.loops:
            return not (earlier.offsets == op.offsets and self._same_threads(_tile(earlier), _tile(op)))
        return not any(
            mine is theirs and all(abs(_advance(mine, loop)) >= size for loop in pending.loops)
            for mine, theirs, size in zip(earlier.offsets, op.offsets, _tile(op).tile.shape, strict=True)
            if len(pending.loops) == 1 and _tile(earlier).tile.shape == _tile(op).tile.shape
        )

    def _same_threads(self, x: Value, y: Value) -> bool:
        if x.layout is None or y.layout is None or str(x.layout) != str(y.layout):
            return False
        return not x.layout.replicated_waves and x.layout.num_waves == self.num_waves


def _tile(op: Access) -> Value:
    return op.result if isinstance(op, Load) else op.source


def _may_overlap(x: Value, y: Value) -> bool:
    if x is y:
        return True
    return not any(isinstance(v.type, ArrayType) and v.type.disjoint for v in (x, y))


def _advance(value: Value, loop: Op) -> int:
    """By how much a scalar grows with each trip of a loop; 0 where it isn't known or doesn't."""
    if not isinstance(loop, For) or not isinstance(loop.step.owner, Const):
        return 0
    inside = _defined_inside(loop)

    def steps(v: Value) -> int | None:
        """A multiple of the counter, plus what is the same in every trip; None for anything else."""
        if v is loop.body.params[0]:
            return 1
        if v not in inside:
            return 0
        match v.owner:
            case Cast(source=source) if source.tile.dtype.is_integer and v.tile.dtype.bits >= source.tile.dtype.bits:
                return steps(source)
            case Mul(lhs=x, rhs=Value(owner=Const(value=factor))) | Mul(lhs=Value(owner=Const(value=factor)), rhs=x):
                found = steps(x)
                return None if found is None else found * int(factor)
            case Add(lhs=x, rhs=y):
                a, b = steps(x), steps(y)
                return None if a is None or b is None else a + b
            case _:
                return None

    return (steps(value) or 0) * int(loop.step.owner.value)


def _defined_inside(loop: For) -> set[Value]:
    found: set[Value] = set(loop.body.params)
    for op in loop.body.walk():
        found.update(op.results)
        for nested in op.blocks:
            found.update(nested.params)
    return found
