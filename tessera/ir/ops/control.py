"""Structured control flow: loops and branches carry their state as SSA values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Block, IRError, Op, Program, Trait, Value, attr, block, operand, operands
from ..types import TRUTH, NDArray, Tile, Type


class Yield(Op, name="yield", traits=Trait.TERMINATOR):
    """Ends a block and hands its values to the op around it."""

    values: tuple[Value, ...] = operands()

    def infer(self) -> Sequence[Type]:
        return ()


def yielded(op: Op, body: Block) -> tuple[Type, ...]:
    """The types that a block yields."""
    last = body.ops[-1] if body.ops else None
    if not isinstance(last, Yield):
        raise IRError(f"{op.name}: a block must end in yield", op)
    return tuple(v.type for v in last.values)


def _words(types: Sequence[Type]) -> str:
    return "[" + ", ".join(map(str, types)) + "]"


class If(Op, name="if"):
    """One of two blocks, which yield the same types."""

    cond: Value = operand()
    then: Block = block()
    orelse: Block = block()

    def infer(self) -> Sequence[Type]:
        if self.cond.type != TRUTH:
            raise IRError(f"if: the condition is {self.cond.type}, not a bool scalar", self)
        a, b = yielded(self, self.then), yielded(self, self.orelse)
        if a != b:
            raise IRError(f"if: branches yield {_words(a)} and {_words(b)}", self)
        return a

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return program.run(self.then if args[0] else self.orelse, ())


class For(Op, name="for"):
    """Python's `range(start, stop, step)`: `body` gets the counter and the state, and yields the next state. A step of 0 ends at once.

    Bounds and counter are integer scalars of one dtype. `stages` is how many tiles a pipeline may hold (0: the compiler's choice).
    """

    start: Value = operand()
    stop: Value = operand()
    step: Value = operand()
    init: tuple[Value, ...] = operands()
    stages: int = attr(0)
    body: Block = block()

    def infer(self) -> Sequence[Type]:
        kind = self.start.type
        if not isinstance(kind, Tile) or kind.shape or not kind.dtype.is_integer or self.stop.type != kind or self.step.type != kind:
            raise IRError(f"for: bounds {self.start.type}, {self.stop.type}, {self.step.type} are not integer scalars of one dtype", self)
        carried = tuple(v.type for v in self.init)
        if tuple(p.type for p in self.body.params) != (kind, *carried):
            raise IRError(f"for: parameters {_words([p.type for p in self.body.params])} do not match {_words([kind, *carried])}", self)
        if yielded(self, self.body) != carried:
            raise IRError(f"for: the body yields {_words(yielded(self, self.body))}, not {_words(carried)}", self)
        return carried

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        start, stop, step, *state = args
        if int(step) == 0:
            return state
        for i in range(int(start), int(stop), int(step)):
            state = list(program.run(self.body, (np.asarray(i, start.dtype), *state)))
        return state


class While(Op, name="while"):
    """`cond` yields a bool, then the state handed to `body`, which yields the next state."""

    init: tuple[Value, ...] = operands()
    cond: Block = block()
    body: Block = block()

    def infer(self) -> Sequence[Type]:
        carried = tuple(v.type for v in self.init)
        if yielded(self, self.cond) != (TRUTH, *carried) or yielded(self, self.body) != carried:
            raise IRError("while: cond must yield (bool, *state) and body must yield the state", self)
        if any(tuple(p.type for p in b.params) != carried for b in (self.cond, self.body)):
            raise IRError("while: the blocks' parameters must be the state", self)
        return carried

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        state = list(args)
        while True:
            go, *state = program.run(self.cond, state)
            if not go:
                return state
            state = list(program.run(self.body, state))
