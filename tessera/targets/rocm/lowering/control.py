"""Loops and branches.

Each loop and each branch gets a block in front of it that stays open while its inside is lowered (`Context.scope`): what is invariant is
built there. Loops are tested at the bottom, and guarded at the top where a first trip isn't certain. No test depends on a counter that may
have overflowed: with a step of 1 or -1 the loop ends where the counter equals the bound; other constant steps compare the distance to the
bound, which fits the unsigned type; in 64 bits, or where the step isn't a constant, the trips are counted beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.core import Op
from ....ir.core import Value as IRValue
from ....ir.ops.control import For, If, While
from ....llvmtext import Phi, Value, bits, const
from .context import Context, lower_block, lowers


class _State:
    """Values that a loop carries: phis at its head."""

    def __init__(self, cx: Context, params: Sequence[IRValue], inits: Sequence[Value], block: str) -> None:
        self.phis: list[Phi] = []
        for param, init in zip(params, inits, strict=True):
            phi = cx.f.phi(cx.llvm_type(param))
            phi.add(init, block)
            cx.set(param, phi.value)
            self.phis.append(phi)

    def feed(self, values: Sequence[Value], block: str) -> None:
        for phi, value in zip(self.phis, values, strict=True):
            phi.add(value, block)

    @property
    def values(self) -> list[Value]:
        return [phi.value for phi in self.phis]


def _merge(cx: Context, results: Sequence[IRValue], sources: Sequence[tuple[str, Sequence[Value]]]) -> None:
    """Phis for an op's results at the present place: one list of values per predecessor block."""
    for index, result in enumerate(results):
        phi = cx.f.phi(cx.llvm_type(result))
        for block, values in sources:
            phi.add(values[index], block)
        cx.set(result, phi.value)


def _yielded(cx: Context, last: Op) -> list[Value]:
    return [cx.get(v) for v in last.operands]


@lowers(If)
def lower_if(cx: Context, op: If) -> None:
    f = cx.f
    condition = cx.get(op.cond)
    join = f.label("join")
    entries: list[str] = []
    sources: list[tuple[str, list[Value]]] = []
    debug = f.debug
    here = f.current
    for block in (op.then, op.orelse):
        if len(block.ops) == 1:  # nothing but its yield
            entries.append(join)
            sources.append((here, _yielded(cx, block.terminator)))
            continue
        front, inside = f.label("branch"), f.label("inside")
        f.position(front)
        f.position(inside)
        with cx.scope(front):
            values = _yielded(cx, lower_block(cx, block))
        f.debug = debug
        sources.append((f.current, values))
        f.branch(join)
        f.position(front)
        f.branch(inside)
        entries.append(front)
    f.position(here)
    if entries == [join, join]:  # both are empty: a choice between values
        for index, result in enumerate(op.results):
            cx.set(result, f.select(condition, sources[0][1][index], sources[1][1][index]))
        return
    f.branch_if(condition, *entries)
    f.position(join)
    _merge(cx, op.results, sources)


@lowers(For)
def lower_for(cx: Context, op: For) -> None:
    f = cx.f
    signed = op.start.tile.dtype.is_signed
    start, stop, step = cx.get(op.start), cx.get(op.stop), cx.get(op.step)
    by = step.integer
    if by is not None and not signed:
        by &= (1 << bits(step.type)) - 1
    inits = [cx.get(v) for v in op.init]
    if by == 0:
        for result, value in zip(op.results, inits, strict=True):
            cx.set(result, value)
        return
    debug = f.debug
    outside, front, head, after = f.current, f.label("preheader"), f.label("loop"), f.label("after")
    less, greater = ("slt", "sgt") if signed else ("ult", "ugt")
    trips: Value | None = None
    if by is None or (bits(start.type) == 64 and abs(by) != 1):  # scalar instructions can't compare 64 bits for order
        trips = _trip_count(cx, start, stop, step, signed)
        enter = const("i1", trips.integer != 0) if trips.integer is not None else f.icmp("ne", trips, 0)
    else:
        enter = f.icmp(less if by > 0 else greater, start, stop)
        if start.integer is not None and stop.integer is not None:
            enter = const("i1", start.integer < stop.integer if by > 0 else start.integer > stop.integer)
    known = enter.integer
    if known == 0:
        for result, value in zip(op.results, inits, strict=True):
            cx.set(result, value)
        return
    if known == 1:
        f.branch(front)
    else:
        f.branch_if(enter, front, after)
    f.position(front)
    f.position(head)
    cx.counters[op.body.params[0]] = op
    with cx.scope(front, loop=True):
        state = _State(cx, op.body.params, [start, *inits], front)
        rest = f.phi(start.type) if trips is not None else None
        values = _yielded(cx, lower_block(cx, op.body))
        f.debug = debug
        counter = state.values[0]
        following = f.add(counter, step)
        if rest is not None and trips is not None:
            rest.add(trips, front)
            left = f.sub(rest.value, 1)
            rest.add(left, f.current)
            more = f.icmp("ne", left, 0)
        elif by in (1, -1):
            more = f.icmp("ne", following, stop)
        elif by is not None and by > 0:
            more = f.icmp("ugt", f.sub(stop, counter), by)
        else:
            more = f.icmp("ugt", f.sub(counter, stop), -(by or 0))
        last = f.current
        state.feed([following, *values], last)
    f.branch_if(more, head, after)
    f.position(front)
    f.branch(head)
    f.position(after)
    sources = [(last, values)]
    if known is None:
        sources.insert(0, (outside, inits))
    _merge(cx, op.results, sources)


def _trip_count(cx: Context, start: Value, stop: Value, step: Value, signed: bool) -> Value:
    """How often `range(start, stop, step)` runs, in the counter's type, unsigned; 0 for a step of 0."""
    f = cx.f

    def count(low: Value, high: Value, by: Value) -> Value:
        distance = f.sub(f.sub(high, low), 1)
        if (known := by.integer) is not None and known > 0 and known & (known - 1) == 0:
            trips = f.add(f.lshr(distance, known.bit_length() - 1), 1)
            return f.select(f.icmp("sgt" if signed else "ugt", high, low), trips, const(start.type, 0))
        some = f.icmp("sgt" if signed else "ugt", high, low)
        return f.select(some, f.add(f.binary("udiv", distance, by), 1), const(start.type, 0))

    one = const(start.type, 1)
    if (by := step.integer) is not None and signed and by:
        return count(start, stop, step) if by > 0 else count(stop, start, const(step.type, -by))
    if not signed:
        nonzero = f.icmp("ne", step, 0)
        return f.select(nonzero, count(start, stop, f.select(nonzero, step, one)), const(start.type, 0))
    forward, backward = f.icmp("sgt", step, 0), f.icmp("slt", step, 0)
    low, high = f.select(backward, stop, start), f.select(backward, start, stop)
    by = f.select(forward, step, f.select(backward, f.sub(const(step.type, 0), step), one))
    return f.select(f.or_(forward, backward), count(low, high, by), const(start.type, 0))


@lowers(While)
def lower_while(cx: Context, op: While) -> None:
    f = cx.f
    debug = f.debug
    front, head, inside, after = f.label("preheader"), f.label("while"), f.label("do"), f.label("after")
    inits = [cx.get(v) for v in op.init]
    f.branch(front)
    f.position(front)
    f.position(head)
    with cx.scope(front, loop=True):
        state = _State(cx, op.cond.params, inits, front)
        go, *values = _yielded(cx, lower_block(cx, op.cond))
        f.debug = debug
        f.branch_if(go, inside, after)
        tested = f.current
        f.position(inside)
        for param, value in zip(op.body.params, values, strict=True):
            cx.set(param, value)
        state.feed(_yielded(cx, lower_block(cx, op.body)), f.current)
        f.debug = debug
        f.branch(head)
    f.position(front)
    f.branch(head)
    f.position(after)
    _merge(cx, op.results, [(tested, values)])
