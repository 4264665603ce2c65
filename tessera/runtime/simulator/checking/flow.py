"""What is known of registers at the edges of blocks without running: which are defined in all lanes, and which may be read later.

Most registers of most kernels are defined whatever path is taken; the shadow code leaves those alone (`shadow.ShadowState`). Where this
analysis can't tell, as for what comes from LDS or is written under a partial EXEC, the shadow is followed as the kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..memory import canonical
from ..state import EXEC, VGPR_KEY
from .effects import LANE_EXCHANGES, Effects, Graph, halves


@dataclass(frozen=True)
class Flow:
    """By the first pc of a block: registers defined in all lanes when it begins, and those that may be read after it ends. Register keys
    as in `Effects`."""

    defined: Mapping[int, frozenset[int]]
    live: Mapping[int, frozenset[int]]


def initially_defined(scalars: Iterable[int], vectors: int) -> frozenset[int]:
    """What is defined when a wave starts: the scalar registers that the ABI sets, EXEC, and the work-item ids in the first `vectors`."""
    return frozenset({*scalars, EXEC, EXEC + 1, *halves(range(vectors))})


def flow(graph: Graph, initial: frozenset[int]) -> Flow:
    """Solve both problems."""
    return Flow(_defined(graph, initial), _live(graph))


def _defined(graph: Graph, initial: frozenset[int]) -> dict[int, frozenset[int]]:
    """Forward, and at a join what is defined on all paths. Unvisited blocks count as defining everything (None)."""
    starts: dict[int, frozenset[int] | None] = dict.fromkeys(graph.blocks)
    starts[graph.kernel.entry] = initial
    queue = {graph.kernel.entry}
    while queue:
        head = min(queue)
        queue.discard(head)
        start = starts[head]
        assert start is not None
        state = set(start)
        for pc in graph.blocks[head]:
            _define(graph, graph.effects[pc], state)
        for target in graph.successors[head]:
            before = starts[target]
            after = frozenset(state) if before is None else before & state
            if after != before:
                starts[target] = after
                queue.add(target)
    return {head: start if start is not None else frozenset() for head, start in starts.items()}


def _define(graph: Graph, effects: Effects, defined: set[int]) -> None:
    name = canonical(effects.instruction.mnemonic)
    if name.startswith(("ds_", "scratch_load", "flat_")) and not name.startswith(LANE_EXCHANGES):
        comes_defined = False
    elif name.startswith(("global_", "buffer_", "s_load", "s_buffer_load")):
        comes_defined = True
    else:
        comes_defined = effects.reads <= defined
    for key in effects.writes:
        if not comes_defined:
            defined.discard(key)
        elif key < VGPR_KEY or graph.kernel.full_exec:
            defined.add(key)
        # Else some lanes keep what they had: as defined as before.


def _live(graph: Graph) -> dict[int, frozenset[int]]:
    """Backward. A write under a partial EXEC doesn't end the life of the other lanes' values."""
    used: dict[int, frozenset[int]] = {}
    written: dict[int, frozenset[int]] = {}
    for head, inside in graph.blocks.items():
        reads: set[int] = set()
        writes: set[int] = set()
        for pc in inside:
            effects = graph.effects[pc]
            reads |= effects.reads - writes
            writes |= {key for key in effects.writes if key < VGPR_KEY or graph.kernel.full_exec}
        used[head], written[head] = frozenset(reads), frozenset(writes)
    begin = dict(used)
    changed = True
    while changed:
        changed = False
        for head in sorted(graph.blocks, reverse=True):
            after = frozenset[int]().union(*(begin[target] for target in graph.successors[head]))
            new = used[head] | (after - written[head])
            if new != begin[head]:
                begin[head], changed = new, True
    return {head: frozenset[int]().union(*(begin[t] for t in graph.successors[head])) for head in graph.blocks}
