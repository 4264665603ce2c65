"""Missing waits, found on every path through the machine code before anything runs.

A load's registers are pending from its issue to the wait that covers it. What may be pending at an instruction is the union over all paths
to it, and for each load the path counts on which the fewest operations were issued behind it: a wait for a counter value of N finishes
those with N or more behind them in their queue (all, for N = 0; nothing else is sure of queues that are served out of order). The rules
of transfer distribute over that minimum, so that what is found is a path in the control-flow graph and never a mixture of two.

The alternative, to follow each wave's counters as it runs, would miss the paths that a launch doesn't take. What it would gain is silence
about paths that no launch can take; compilers insert waits for those too, for they know no better than this analysis.

Overwriting counts as using, for the load would come later and win; but a load behind another of its queue that is served in order may
write the same register. The registers that a store reads are safe, for the hardware holds back whoever would overwrite them.

The same walk notes which memory accesses may be under way when a wave reaches a barrier: those must be followed as the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....errors import Location, MissingWaitError
from ..lifter import Kernel, vector_registers
from ..state import VGPR_KEY
from .effects import COUNTERS, LIMIT, Effects, Graph, Queue, in_order, register_name

Lines = Callable[[int], "Location | None"]
BARRIERS = frozenset(("s_barrier", "s_barrier_signal"))
# What a wait for a counter is called before gfx12, where one instruction holds several; from then on `s_wait_<counter>`.
_OLD_WAITS = {"vmcnt": "s_waitcnt vmcnt", "lgkmcnt": "s_waitcnt lgkmcnt", "vscnt": "s_waitcnt_vscnt"}


@dataclass(frozen=True)
class Hazard:
    """`user` touches `register` while `load`, in `queue`, may not have finished. `writes`: it only overwrites it."""

    user: Effects
    load: Effects
    register: int
    queue: Queue
    writes: bool


@dataclass(frozen=True)
class Analysis:
    """`unfinished` are pcs of accesses that a wave may take over a barrier, with their queues."""

    hazards: tuple[Hazard, ...]
    unfinished: Mapping[int, frozenset[Queue]]


class _Pending:
    """What may be under way at one point: for each register and each access (by pc) its queue and the operations behind it."""

    def __init__(self) -> None:
        self.registers: dict[tuple[int, Queue], tuple[int, int]] = {}  # (register, queue) -> (number in the queue, pc)
        self.accesses: dict[tuple[int, Queue], int] = {}  # (pc, queue) -> number in the queue
        self.issued: dict[Queue, int] = dict.fromkeys(Queue, 0)

    def copy(self) -> _Pending:
        other = _Pending()
        other.registers, other.accesses, other.issued = dict(self.registers), dict(self.accesses), dict(self.issued)
        return other

    def behind(self, number: int, queue: Queue) -> int:
        return self.issued[queue] - number

    def join(self, other: _Pending) -> bool:
        """Take in what may be pending on another path; whether that was news."""
        news = False
        for key, (number, pc) in other.registers.items():
            mine = self.registers.get(key)
            behind = other.behind(number, key[1])
            if mine is None or behind < self.behind(mine[0], key[1]):
                self.registers[key] = (self.issued[key[1]] - behind, pc)
                news = True
        for key, number in other.accesses.items():
            known = self.accesses.get(key)
            behind = other.behind(number, key[1])
            if known is None or behind < self.behind(known, key[1]):
                self.accesses[key] = self.issued[key[1]] - behind
                news = True
        return news

    def wait(self, counter: str, value: int, counters: Mapping[Queue, str]) -> None:
        self._finish({queue: value for queue in Queue if counters[queue] == counter and (value == 0 or in_order(queue))})

    def _finish(self, at_least: Mapping[Queue, int]) -> None:
        """Forget what has this many operations behind it in its queue."""

        def kept(queue: Queue, number: int) -> bool:
            return queue not in at_least or self.behind(number, queue) < at_least[queue]

        self.registers = {key: value for key, value in self.registers.items() if kept(key[1], value[0])}
        self.accesses = {key: number for key, number in self.accesses.items() if kept(key[1], number)}

    def issue(self, effects: Effects) -> None:
        for queue in effects.issues:
            self.issued[queue] += 1
            if in_order(queue) and self.issued[queue] % LIMIT == 0:
                self._finish({queue: LIMIT})
            if queue is not Queue.STORE:
                for register in effects.writes:
                    self.registers[register, queue] = (self.issued[queue], effects.instruction.pc)
            if effects.access:
                self.accesses[effects.instruction.pc, queue] = self.issued[queue]


def analyse(graph: Graph) -> Analysis:
    """Find the missing waits of a kernel."""
    return _Walk(graph).run()


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.effects = graph.effects
        self.counters = COUNTERS[graph.kernel.generation]
        self.hazards: dict[tuple[int, int], Hazard] = {}
        self.unfinished: dict[int, set[Queue]] = {}

    def run(self) -> Analysis:
        entry = self.graph.kernel.entry
        starts = {entry: _Pending()}
        queue = {entry}
        while queue:
            head = min(queue)  # in order of address, a block mostly comes after those that lead to it
            queue.discard(head)
            state = self.block(head, starts[head].copy(), report=False)
            for target in self.graph.successors[head]:
                if target not in starts:
                    starts[target] = state.copy()
                elif not starts[target].join(state):
                    continue
                queue.add(target)
        for head, state in starts.items():
            self.block(head, state.copy(), report=True)
        hazards = tuple(hazard for _, hazard in sorted(self.hazards.items(), key=lambda item: item[0]))
        return Analysis(hazards, {pc: frozenset(queues) for pc, queues in self.unfinished.items()})

    def block(self, head: int, state: _Pending, report: bool) -> _Pending:
        """The state at the end of a block."""
        for pc in self.graph.blocks[head]:
            effects = self.effects[pc]
            if report:
                self.look(effects, state)
            for counter, value in effects.waits:
                state.wait(counter, value, self.counters)
            state.issue(effects)
        return state

    def look(self, effects: Effects, state: _Pending) -> None:
        if effects.instruction.mnemonic in BARRIERS:
            for pc, queue in state.accesses:
                self.unfinished.setdefault(pc, set()).add(queue)
        if not state.registers:
            return
        for register in sorted(effects.reads | effects.writes):
            for queue in Queue:
                found = state.registers.get((register, queue))
                if found is None:
                    continue
                writes = register not in effects.reads
                if writes and queue in effects.issues and in_order(queue):
                    continue
                key = (effects.instruction.pc, found[1])
                self.hazards.setdefault(key, Hazard(effects, self.effects[found[1]], register, queue, writes))


def missing_wait(hazard: Hazard, kernel: Kernel, lines: Lines | None) -> MissingWaitError:
    """The error that tells of a hazard."""
    user, load = hazard.user.instruction, hazard.load.instruction
    counter = COUNTERS[kernel.generation][hazard.queue]
    wait = _OLD_WAITS.get(counter, f"s_wait_{counter}")
    vgprs = 1 << 30 if hazard.register < VGPR_KEY else _vgprs(kernel)
    does = "overwrites" if hazard.writes else "reads"
    message = (
        f"{user.mnemonic} at pc 0x{user.pc:x} {does} {register_name(hazard.register, vgprs)} before it has been loaded: "
        f"no {wait} covers {load.mnemonic} at pc 0x{load.pc:x}{_line(lines, load.pc)} on every path between them"
    )
    location = lines(user.pc) if lines is not None else None
    return MissingWaitError(message, location, mnemonic=user.mnemonic, pc=user.pc)


def _line(lines: Lines | None, pc: int) -> str:
    location = lines(pc) if lines is not None else None
    return f" ({location})" if location is not None else ""


def _vgprs(kernel: Kernel) -> int:
    return max(vector_registers(kernel.instructions)[0], kernel.initial_vgprs)
