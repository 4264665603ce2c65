"""Loop-invariant code motion: what is the same in every trip is computed before the loop.

Contract: pure ops move; loads move out of loops that store nothing (a load can't fault, so a loop of no trips is no obstacle). Nothing
leaves a branch of an `if`, and nothing that holds a block moves.
"""

from __future__ import annotations

from ..core import Block, Kernel, Op, Trait, Value
from ..ops.control import For, While


def licm(kernel: Kernel) -> None:
    """Hoist in place."""
    _block(kernel.body)


def _block(block: Block) -> None:
    ops, block.ops = block.ops, []
    for op in ops:
        for nested in op.blocks:
            _block(nested)
        if isinstance(op, (For, While)):
            block.ops += _hoist(op)
        block.ops.append(op)


def _hoist(loop: For | While) -> list[Op]:
    stores = any(op.traits & (Trait.WRITES | Trait.BARRIER) for nested in loop.blocks for op in nested.walk())
    inside: set[Value] = {p for nested in loop.blocks for p in nested.params}
    inside |= {r for nested in loop.blocks for op in nested.walk() for r in op.results}
    inside |= {p for nested in loop.blocks for op in nested.walk() for b in op.blocks for p in b.params}
    moved: list[Op] = []
    for nested in loop.blocks:
        kept: list[Op] = []
        for op in nested.ops:
            movable = op.has(Trait.PURE) or (op.has(Trait.READS) and not stores)
            if movable and not op.blocks and not any(v in inside for v in op.operands):
                moved.append(op)
                inside.difference_update(op.results)
            else:
                kept.append(op)
        nested.ops = kept
    return moved
