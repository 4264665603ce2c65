"""Check a kernel. The rules:

1. Every block ends in a terminator, and a terminator stands nowhere else.
2. Every operand is defined before its use, in the same block or one around it.
3. Every op's type rule holds, and the stored result types are the ones it gives.
4. A value is defined once: no op and no parameter appears twice.
5. The kernel's body yields nothing.
6. Tile extents are positive; elementwise results carry their operands' layout where layouts are set.
"""

from __future__ import annotations

from .core import Block, IRError, Kernel, Trait, Value
from .types import Tile


def verify(kernel: Kernel) -> None:
    """Raises IRError, naming the rule that is broken and the op."""
    seen_once: set[Value] = set()
    _verify_block(kernel.body, frozenset(), seen_once)
    if kernel.body.terminator.operands:
        raise IRError("rule 5: the kernel's body must yield nothing", kernel.body.terminator)


def _verify_block(block: Block, visible: frozenset[Value], once: set[Value]) -> None:
    seen = set(visible)
    _define(block.params, seen, once)
    if not block.ops:
        raise IRError("rule 1: a block must end in a terminator")
    for op in block.ops:
        for value in op.operands:
            if value not in seen:
                raise IRError(f"rule 2: {op.name}: an operand is used before it is defined", op)
        if op.has(Trait.TERMINATOR) != (op is block.ops[-1]):
            raise IRError(f"rule 1: {op.name}: a terminator ends a block, and only a terminator does", op)
        for nested in op.blocks:
            _verify_block(nested, frozenset(seen), once)
        if tuple(op.infer()) != tuple(r.type for r in op.results):
            raise IRError(f"rule 3: {op.name}: the stored result types are stale", op)
        for result in op.results:
            if isinstance(result.type, Tile) and any(extent < 1 for extent in result.type.shape):
                raise IRError(f"rule 6: {op.name}: a tile of shape {result.type.shape}", op)
        if op.has(Trait.ELEMENTWISE):
            held = {str(v.layout) for v in (*op.operands, *op.results) if isinstance(v.type, Tile) and v.type.shape}
            if len(held) > 1:
                raise IRError(f"rule 6: {op.name}: operands and result lie in different layouts: {', '.join(sorted(held))}", op)
        _define(op.results, seen, once)


def _define(values: list[Value] | tuple[Value, ...], seen: set[Value], once: set[Value]) -> None:
    for value in values:
        if value in once:
            raise IRError("rule 4: a value is defined twice")
        once.add(value)
        seen.add(value)
