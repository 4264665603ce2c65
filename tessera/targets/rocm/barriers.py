"""Pass 7: barriers where waves would race in LDS. (fences.py does the same for global memory.)

The rule. Walking the kernel in order, the accesses since the last barrier are *pending*. An access that touches the same bytes as a pending
one, where either writes, must come behind a barrier, unless no two waves can meet in it: both access the same part of the same buffer in
layouts that give every element to one wave, the same one. A single wave never needs a barrier: its LDS accesses stay in order.

Loops. What is pending at the end of a body is pending at its beginning. Barriers that the loop's own iterations need go into the body; one
that only what came before the loop needs goes in front of it.

Branches are uniform in this language, so that all waves meet at a barrier inside one. Accesses are compared by byte ranges: buffers that
share memory (allocate.py) race too.
"""

from __future__ import annotations

from ...errors import at
from ...ir.core import Block, Kernel, Op, Value
from ...ir.ops.control import For, If, While
from .arch import Arch
from .layout import Layout
from .ops import Barrier, LdsAlloc, LdsLoad, LdsStore, MemoryFence

_Pending = frozenset[LdsLoad | LdsStore]


def barriers(kernel: Kernel, arch: Arch) -> None:
    """Insert `rocm.barrier`. LDS must have been allocated."""
    if kernel.num_waves > 1:
        _Placer(kernel.num_waves).block(kernel.body, frozenset())


class _Placer:
    def __init__(self, num_waves: int) -> None:
        self.num_waves = num_waves
        self.missing: set[LdsLoad | LdsStore] = set()  # accesses that a walk without inserting found no barrier behind

    def block(self, block: Block, pending: _Pending, *, insert: bool = True) -> _Pending:
        """Walk a block; returns what is pending behind it. Without `insert` nothing changes but `missing`."""
        ops: list[Op] = []
        for op in block.ops:
            with at(op.location):
                pending = self._op(op, pending, ops, insert)
            ops.append(op)
        if insert:
            block.ops = ops
        return pending

    def _op(self, op: Op, pending: _Pending, before: list[Op], insert: bool) -> _Pending:
        match op:
            case Barrier() | MemoryFence():
                return frozenset()
            case LdsLoad() | LdsStore():
                racing = {other for other in pending if self._race(other, op)}
                if racing and insert:
                    before.append(Barrier())
                    return frozenset((op,))
                self.missing |= racing
                return pending | {op}
            case For() | While():
                return self._loop(op, pending, before, insert)
            case If():
                return self.block(op.then, pending, insert=insert) | self.block(op.orelse, pending, insert=insert)
            case _:
                return pending

    def _loop(self, op: For | While, pending: _Pending, before: list[Op], insert: bool) -> _Pending:
        carried: _Pending = frozenset()
        while True:  # the loop's own needs, with nothing pending in front of it
            _, behind = self._iteration(op, carried, insert)
            if behind <= carried:
                break
            carried |= behind
        if insert:
            known, self.missing = self.missing, set()
            self._iteration(op, carried | pending, insert=False)
            racing, self.missing = self.missing & pending, known
            if racing:
                before.append(Barrier())
                pending = frozenset()
        ended, _ = self._iteration(op, carried | pending, insert=False)
        return ended

    def _iteration(self, op: For | While, pending: _Pending, insert: bool) -> tuple[_Pending, _Pending]:
        """Walk a loop's body once; returns what is pending where the loop ends, and where the next iteration begins."""
        if isinstance(op, For):
            behind = self.block(op.body, pending, insert=insert)
            return pending | behind, behind
        tested = self.block(op.cond, pending, insert=insert)
        return tested, self.block(op.body, tested, insert=insert)

    def _race(self, x: LdsLoad | LdsStore, y: LdsLoad | LdsStore) -> bool:
        """Whether two waves could touch the same bytes in x and y, one of them writing."""
        if isinstance(x, LdsLoad) and isinstance(y, LdsLoad):
            return False
        (a, b), (c, d) = _range(x.buffer), _range(y.buffer)
        same = x.buffer is y.buffer and x.offset == y.offset
        return a < d and c < b and not (same and self._private(_tile(x), _tile(y)))

    def _private(self, x: Value, y: Value) -> bool:
        """Whether each wave holds its own part in both tiles, and the same in both."""
        a, b = x.layout, y.layout
        if not isinstance(a, Layout) or not isinstance(b, Layout) or a.shape != b.shape or a.waves != b.waves:
            return False
        return not a.replicated_waves and a.num_waves == self.num_waves


def _range(buffer: Value) -> tuple[int, int]:
    alloc = buffer.owner
    assert isinstance(alloc, LdsAlloc)
    return alloc.offset, alloc.offset + buffer.layout.bytes


def _tile(op: LdsLoad | LdsStore) -> Value:
    return op.source if isinstance(op, LdsStore) else op.result
