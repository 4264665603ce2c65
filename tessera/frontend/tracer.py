"""The trace in progress: the block that ops go to, and which blocks are still open.

A value may be used while the block that made it is open. One that leaves its loop or branch by a back door (a Python list, say) is caught
at its next use.
"""

from __future__ import annotations

import types
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import KernelError, KernelTypeError, Location, current_location
from ..ir.core import Block, IRError, Op, Value
from .captures import Captures
from .source import Source


class Tracer:
    """One trace: `body` is the kernel's block; `prologue` holds what is made once at its start (extents and strides)."""

    def __init__(self) -> None:
        self.body = Block()
        self.prologue = Block()
        self.block = self.body
        self.open: set[Block] = {self.body, self.prologue}
        self.adopted: dict[Block, Block] = {}  # blocks whose ops were moved, and to where
        self.made_in: dict[Block, Location | None] = {}
        self.captures = Captures()
        self.active: list[Source] = []  # the functions that are being staged, outermost first
        self.uses_tessera: dict[types.CodeType, bool] = {}  # what calls.py found out about functions

    def emit(self, op: Op) -> Value:
        """Append an op that has one result."""
        self.block.ops.append(op)
        return op.results[0]

    @contextmanager
    def inside(self, block: Block) -> Generator[Block]:
        """Ops go to `block`, whose values can be used until the end of the `with`. It may be entered again to add to it."""
        before, was_open = self.block, block in self.open
        self.made_in.setdefault(block, current_location())
        self.block = block
        self.open.add(block)
        try:
            yield block
        finally:
            self.block = before
            if not was_open:
                self.open.discard(block)

    def adopt(self, block: Block) -> None:
        """Move the ops of a finished block to the current one; its values are then this block's."""
        self.block.ops += block.ops
        block.ops = []
        self.adopted[block] = self.block

    def is_open(self, block: Block) -> bool:
        """Whether the values of a block can be used."""
        while block in self.adopted:
            block = self.adopted[block]
        return block in self.open

    def check_open(self, block: Block) -> None:
        """Raises KernelError where a value was made in a block that has ended."""
        if block in self.open or self.is_open(block):
            return
        where = self.made_in.get(block)
        origin = f"inside the loop or branch on line {where.line}" if where is not None else "by another kernel's trace"
        raise KernelError(f"this value was made {origin} and can't be used here; pass it on through a variable that is set before")


_active: ContextVar[Tracer | None] = ContextVar("tracer", default=None)


def tracer() -> Tracer:
    """The trace in progress. Raises KernelError outside of one."""
    found = _active.get()
    if found is None:
        raise KernelError("this works only inside a kernel: decorate the function with @ts.jit and launch it as kernel[grid](…)")
    return found


def tracing() -> bool:
    """Whether a kernel is being traced."""
    return _active.get() is not None


@contextmanager
def activate(trace: Tracer) -> Generator[None]:
    """Make `trace` the one in progress. Type rules that the frontend leaves to the IR become errors at the user's line."""
    token = _active.set(trace)
    try:
        yield
    except IRError as error:
        raise KernelTypeError(str(error)) from error
    finally:
        _active.reset(token)
