"""Common subexpressions: of two pure ops with the same operands and attributes, the later uses the earlier's results.

Contract: an op is replaced only by one that dominates it; loads are never merged, since a store may stand between them.
"""

from __future__ import annotations

from ..core import Block, Kernel, Op, Trait, Value


def _key(op: Op) -> tuple[object, ...]:
    operands = [id(v) for v in op.operands]
    if op.has(Trait.COMMUTATIVE):
        operands[:2] = sorted(operands[:2])
    # repr tells 0.0 from -0.0, 1 from True, and NaN from NaN not at all.
    return (op.name, *operands, *(repr(a) for a in op.attrs.values()), *(r.type for r in op.results), *(str(r.layout) for r in op.results))


def cse(kernel: Kernel) -> None:
    """Merge common subexpressions in place."""
    _block(kernel.body, {}, {})


def _block(block: Block, outer: dict[tuple[object, ...], Op], known: dict[Value, Value]) -> None:
    seen = dict(outer)
    kept: list[Op] = []
    for op in block.ops:
        op.replace_operands(known)
        if op.has(Trait.PURE) and not op.blocks:
            earlier = seen.setdefault(_key(op), op)
            if earlier is not op:
                known.update(zip(op.results, earlier.results, strict=True))
                continue
        for nested in op.blocks:
            _block(nested, seen, known)
        kept.append(op)
    block.ops = kept
