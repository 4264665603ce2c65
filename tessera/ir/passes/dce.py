"""Dead code: what no store, no barrier and no live result needs is dropped, loop-carried values included.

Contract: ops that write or order memory stay, with all they use; a loop stays where something in it stays or one of its results is used.
"""

from __future__ import annotations

from ..core import Block, Kernel, Op, Trait, Value
from ..ops.control import For, If, While, Yield

EFFECTS = Trait.WRITES | Trait.BARRIER


def dce(kernel: Kernel) -> None:
    """Drop dead code in place."""
    live = _Liveness(kernel)
    _sweep(kernel.body, live)


class _Liveness:
    """Marks values and ops that are needed, from the effects backwards."""

    def __init__(self, kernel: Kernel) -> None:
        self.values: set[Value] = set()
        self.ops: set[Op] = set()
        self.parents: dict[Block, Op] = {}
        self.pending: list[Value] = []
        effects: list[Op] = []
        for op in kernel.body.walk():
            for nested in op.blocks:
                self.parents[nested] = op
        self._find_effects(kernel.body, effects, [])
        for op in effects:
            self.keep(op)
        self.keep(kernel.body.terminator)
        while self.pending:
            self.trace(self.pending.pop())

    def _find_effects(self, block: Block, found: list[Op], around: list[Op]) -> None:
        for op in block.ops:
            if op.traits & EFFECTS:
                found += [op, *around]
            for nested in op.blocks:
                self._find_effects(nested, found, [*around, op])

    def want(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self.pending.append(value)

    def keep(self, op: Op) -> None:
        """The op stays; a control op keeps what decides its course, other ops all their operands."""
        if op in self.ops:
            return
        self.ops.add(op)
        match op:
            case For():
                wanted = [op.start, op.stop, op.step]
            case If():
                wanted = [op.cond]
            case While():
                wanted = [op.cond.terminator.operands[0]]
            case _:
                wanted = list(op.operands)
        for value in wanted:
            self.want(value)

    def trace(self, value: Value) -> None:
        """What a needed value needs in turn."""
        if isinstance(value.owner, Block):
            parent = self.parents.get(value.owner)
            if isinstance(parent, (For, While)):
                self.keep(parent)
                index = value.owner.params.index(value) - isinstance(parent, For)
                if index >= 0:
                    self.carried(parent, index)
            return
        op = value.owner
        if op is None:
            return
        self.keep(op)
        if op.blocks:
            index = op.results.index(value)
            if isinstance(op, (For, While)):
                self.carried(op, index)
            else:
                for nested in op.blocks:
                    self.want(nested.terminator.operands[index])

    def carried(self, loop: For | While, index: int) -> None:
        self.want(loop.init[index])
        self.want(loop.body.terminator.operands[index])
        self.want(loop.body.params[index + isinstance(loop, For)])
        self.want(loop.results[index])
        if isinstance(loop, While):
            self.want(loop.cond.terminator.operands[index + 1])
            self.want(loop.cond.params[index])


def _sweep(block: Block, live: _Liveness) -> None:
    block.ops = [op for op in block.ops if op in live.ops or op is block.terminator]
    for op in block.ops:
        match op:
            case For():
                kept = [i for i, r in enumerate(op.results) if r in live.values]
                _yield(op.body, kept, 0)
                op.body.params = [op.body.params[0], *(op.body.params[i + 1] for i in kept)]
                op.init = tuple(op.init[i] for i in kept)
            case While():
                kept = [i for i, r in enumerate(op.results) if r in live.values]
                _yield(op.body, kept, 0)
                _yield(op.cond, kept, 1)
                op.body.params = [op.body.params[i] for i in kept]
                op.cond.params = [op.cond.params[i] for i in kept]
                op.init = tuple(op.init[i] for i in kept)
            case If():
                kept = [i for i, r in enumerate(op.results) if r in live.values]
                _yield(op.then, kept, 0)
                _yield(op.orelse, kept, 0)
            case _:
                continue
        op.results = tuple(op.results[i] for i in kept)
        for nested in op.blocks:
            _sweep(nested, live)


def _yield(block: Block, kept: list[int], fixed: int) -> None:
    """Keep the first `fixed` values of a terminator, and of the others those that are in `kept`."""
    last = block.terminator
    assert isinstance(last, Yield)
    last.values = (*last.values[:fixed], *(last.values[fixed + i] for i in kept))
