"""Pass 4: the next tile is loaded while this one is computed on.

In a loop whose loads only feed LDS, the registers between load and LDS store become carried values:

    %x0 = load … start                        in front of the loop
    for %i … [%x = %x0] {
      rocm.lds_store %l %x                    the tile that was fetched an iteration ago
      rocm.barrier
      %y = load … %i + step                   the next one
      rocm.schedule_fence %y                  keeps it here: its latency hides behind the matrix ops below
      rocm.lds_load …; rocm.wmma …
      yield [%y]
    }

Which loads: those directly in the loop's body whose offsets come from the counter and from outside the loop by pure scalar ops; whose tile
goes, perhaps through pure ops, into LDS stores of the body and nowhere else; and whose array nothing in the loop may write. The load
in front of the loop and that of the last iteration may lie beyond the range: what is outside the array is not touched, and what is inside
is not used. `stages=1` on a loop turns it off. One tile is in flight; more would be more carried values, shifted by one each iteration.

Registers. The tiles in flight stay in registers while the matrix ops run. Where an estimate says that all this doesn't fit a wave's
registers, nothing is prefetched, and each load stands just before its use: waiting for memory costs less than spilling.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, cast

from ...errors import at
from ...ir.core import Block, Kernel, Kind, Op, Trait, Value, replace_uses
from ...ir.ops.arith import Add, Const
from ...ir.ops.control import For, Yield
from ...ir.ops.memory import Load, Store, array_type
from ...ir.ops.shape import Broadcast, Splat
from .arch import Arch
from .layout import Layout
from .matrix import instruction
from .ops import Barrier, LdsStore, ScheduleFence, Wmma

_SPARE = 24  # registers that addresses and temporary values need besides tiles (an estimate)


def prefetch(kernel: Kernel, arch: Arch) -> None:
    """Prefetch in every loop of a kernel."""
    _in_block(kernel.body, arch)


def _in_block(block: Block, arch: Arch) -> None:
    ops: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in block.ops:
        for nested in op.blocks:
            _in_block(nested, arch)
        found = _candidates(op) if isinstance(op, For) else []
        if isinstance(op, For) and found and op.stages != 1 and _fits(op, found, arch):
            before, loop = _pipeline(op, found)
            ops += [*before, loop]
            replaced.update(zip(op.results, loop.results, strict=False))
            continue
        if isinstance(op, For):
            _sink(op.body, [candidate.load for candidate in found])
        ops.append(op)
    block.ops = ops
    replace_uses(block, replaced)


@dataclass(frozen=True)
class _Candidate:
    """A load to prefetch, the scalar ops of the body that its offsets need, and the barrier behind which the next load goes."""

    load: Load
    address: tuple[Op, ...]
    barrier: Barrier


def _candidates(loop: For) -> list[_Candidate]:
    body = loop.body
    inside = {result: op for op in body.ops for result in op.results}
    inside_block = set(inside) | set(body.params)
    users: dict[Value, list[Op]] = {}
    for op in body.ops:
        for value in op.operands:
            users.setdefault(value, []).append(op)
    written = [op.array for op in body.walk() if isinstance(op, Store)]
    found: list[_Candidate] = []
    for op in body.ops:
        if not isinstance(op, Load) or not op.result.layout or any(_may_alias(op, array) for array in written):
            continue
        address = _address(op, body, inside, inside_block)
        last = _last_store(op.result, users, body)
        if address is None or last is None:
            continue
        barrier = next((later for later in body.ops[last + 1 :] if isinstance(later, Barrier)), None)
        if barrier is not None:
            found.append(_Candidate(op, tuple(address), barrier))
    return found


def _sink(body: Block, loads: list[Load]) -> None:
    """Move loads down to their first users, so that tiles on their way to LDS don't wait in registers for each other."""
    for load in loads:
        body.ops.remove(load)
        first = next(at for at, op in enumerate(body.ops) if load.result in op.operands)
        body.ops.insert(first, load)


def _registers(value: Value) -> int:
    """The 32-bit registers that a tile takes in each lane."""
    return -(-value.layout.count * value.tile.dtype.bits // 32)


def _fits(loop: For, found: list[_Candidate], arch: Arch) -> bool:
    """Whether the tiles in flight, what the loop carries, what it uses from outside and the operands of a matrix op fit the registers.

    Of a matrix op's operands, all of B and two fragments of A are held at a time. Constants and repeated values take next to nothing.
    """
    body = loop.body
    inside = {value for op in body.walk() for value in op.results} | set(body.params)
    outside = {v for op in body.walk() for v in op.operands if v not in inside and not isinstance(v.owner, (Const, Splat, Broadcast))}
    steps = [op for op in body.walk() if isinstance(op, Wmma)]
    held = [v for v in (*body.params, *outside) if isinstance(v.layout, Layout)]
    working = max((_registers(op.b) + min(_registers(op.a), 2 * _fragment(op, arch)) for op in steps), default=0)
    total = sum(map(_registers, held)) + sum(_registers(candidate.load.result) for candidate in found) + working
    return total + _SPARE <= arch.addressable_vgprs


def _fragment(op: Wmma, arch: Arch) -> int:
    """The registers of one fragment of A."""
    row = instruction(arch, op.instruction, op.a.tile.dtype, op.b.tile.dtype)
    return row.a_layout.count * row.a.bits // 32


def _may_alias(load: Load, written: Value) -> bool:
    return load.array is written or not (array_type(load, load.array).disjoint and array_type(load, written).disjoint)


def _address(load: Load, body: Block, inside: dict[Value, Op], defined: set[Value]) -> list[Op] | None:
    """The body's ops that compute the load's scalar operands, in order; None where they need more than the counter."""
    needed: set[Op] = set()
    queue = [v for v in load.operands if v in defined]
    while queue:
        value = queue.pop()
        if value is body.params[0]:
            continue
        op = inside.get(value)
        if op is None or not op.has(Trait.PURE) or op.blocks:
            return None
        if op not in needed:
            needed.add(op)
            queue += [v for v in op.operands if v in defined]
    return [op for op in body.ops if op in needed]


def _last_store(tile: Value, users: dict[Value, list[Op]], body: Block) -> int | None:
    """The place of the last LDS store that a tile feeds; None if it goes anywhere else, or nowhere."""
    last, queue, seen = -1, [tile], {tile}
    nested = {value for op in body.ops for block in op.blocks for inner in block.walk() for value in inner.operands}
    while queue:
        value = queue.pop()
        if value in nested:
            return None
        for user in users.get(value, ()):
            if isinstance(user, LdsStore):
                last = max(last, body.ops.index(user))
            elif user.has(Trait.PURE) and not user.blocks:
                queue += [r for r in user.results if r not in seen]
                seen.update(user.results)
            else:
                return None
    return last if last >= 0 else None


def _clone(op: Op, mapping: dict[Value, Value]) -> Op:
    """The same op on other operands; its results go into `mapping`."""
    given: dict[str, Any] = {}
    for f in fields(cast(Any, op)):
        held = getattr(op, f.name)
        if f.metadata["kind"] is Kind.OPERAND:
            held = mapping.get(held, held)
        elif f.metadata["kind"] is Kind.OPERANDS:
            held = tuple(mapping.get(v, v) for v in held)
        given[f.name] = held
    with at(op.location):
        made = type(op)(**given)
    for old, new in zip(op.results, made.results, strict=True):
        new.layout = old.layout
        mapping[old] = new
    return made


def _loads(found: list[_Candidate], counter: Value, at_value: Value) -> tuple[list[Op], dict[Value, Value]]:
    """The loads of one iteration, and what their addresses need, with the counter being `at_value`."""
    mapping = {counter: at_value}
    ops: list[Op] = []
    for candidate in found:
        ops += [_clone(op, mapping) for op in candidate.address if op.results[0] not in mapping]
        ops.append(_clone(candidate.load, mapping))
    return ops, mapping


def _pipeline(loop: For, found: list[_Candidate]) -> tuple[list[Op], For]:
    body, counter = loop.body, loop.body.params[0]
    before, first = _loads(found, counter, loop.start)
    carried: dict[Value, Value] = {}
    for candidate in found:
        old = candidate.load.result
        carried[old] = Value(old.type, body, old.name, old.layout)
        first[old].name = ""
    with at(loop.location):
        following = Add(counter, loop.step)
    after: dict[Barrier, list[Op]] = {}
    next_tiles: dict[Value, Value] = {}
    for barrier in dict.fromkeys(candidate.barrier for candidate in found):
        here = [candidate for candidate in found if candidate.barrier is barrier]
        ops, mapping = _loads(here, counter, following.result)
        loaded = {candidate.load.result: mapping[candidate.load.result] for candidate in here}
        next_tiles.update(loaded)
        with at(loop.location):
            after[barrier] = [*ops, ScheduleFence(tuple(loaded.values()))]
    loads = {candidate.load for candidate in found}
    ops: list[Op] = [following]
    for op in body.ops:
        if op not in loads:
            ops.append(op)
        ops += after.get(op, ()) if isinstance(op, Barrier) else ()
    olds = [candidate.load.result for candidate in found]
    last = cast(Yield, ops[-1])
    last.values = (*last.values, *(next_tiles[old] for old in olds))
    body.params += [carried[old] for old in olds]
    body.ops = ops
    replace_uses(body, carried)
    with at(loop.location):
        made = For(
            loop.start, loop.stop, loop.step, (*loop.init, *(first[old] for old in olds)), stages=loop.stages, body=body
        )  # fmt: skip
    for result, old in zip(made.results, (*loop.results, *olds), strict=True):
        result.layout, result.name = old.layout, old.name if old not in carried else ""
    return before, made
