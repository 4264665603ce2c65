"""Loops and branches.

Each loop and each branch gets a block in front of it that stays open while its inside is lowered (`Context.scope`): what is invariant is
built there. Loops are tested at the bottom, and guarded at the top where a first trip isn't certain. No test depends on a counter that may
have overflowed: with a step of 1 or -1 the loop ends where the counter equals the bound; other constant steps compare the distance to the
bound, which fits the unsigned type; in 64 bits, or where the step isn't a constant, the trips are counted beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dtypes import Kind
from ....ir.core import Value as IRValue
from ....ir.ops.control import For, If, While
from ....llvmtext import Phi, Value, bits, const, element, vector
from .context import Context, lower_block, lowers
from .indices import value_range


def _carried(cx: Context, value: IRValue) -> tuple[tuple[int, ...], ...]:
    """The registers of each piece in which a tile is carried around a loop.

    Phis of 16 to 32 bytes, which is what instructions load and what fragments are made of: LLVM takes wider ones apart at a price.
    """
    if not value.tile.shape:
        return ()
    count, size = cx.registers(value), value.tile.dtype.bytes
    step = count if value.tile.dtype.kind is Kind.BOOL else max(8 // max(1, size // 4), 16 // size)
    return tuple(tuple(range(at, min(at + step, count))) for at in range(0, count, step))


def _phi_type(type_: str) -> str:
    """The type in which a piece is carried: bytes as whole words, where they fill them."""
    return vector(bits(type_) // 32, "i32") if element(type_) == "i8" and bits(type_) % 32 == 0 else type_


class _State:
    """Values that meet in phis: those of a loop at its head or behind it, those of branches where they join."""

    def __init__(self, cx: Context, values: Sequence[IRValue]) -> None:
        """`values` give the types."""
        self.cx = cx
        self.pieces = [_carried(cx, value) for value in values]
        self.types: list[str] = []
        for value, pieces in zip(values, self.pieces, strict=True):
            own = value.tile.dtype.llvm
            self.types += [_phi_type(vector(len(registers), own)) for registers in pieces] if pieces else [own]
        self.phis: list[Phi] = []

    def parts(self, values: Sequence[IRValue]) -> list[Value]:
        """The pieces of values, in the types in which they are carried."""
        cx, found = self.cx, list[Value]()
        for value, pieces in zip(values, self.pieces, strict=True):
            parts = [cx.take(value, registers) for registers in pieces] if len(pieces) > 1 else [cx.get(value)]
            found += [cx.f.bitcast(part, _phi_type(part.type)) for part in parts]
        return found

    def begin(self) -> None:
        """Make the phis, before anything else in the block."""
        self.phis = [self.cx.f.phi(type_) for type_ in self.types]

    def feed(self, parts: Sequence[Value], block: str) -> None:
        """What comes from a predecessor block."""
        for phi, value in zip(self.phis, parts, strict=True):
            phi.add(value, block)

    def define(self, values: Sequence[IRValue], parts: Sequence[Value] | None = None) -> None:
        """Let `values` be what the phis hold, or what `parts` are the pieces of."""
        cx = self.cx
        given = iter([phi.value for phi in self.phis] if parts is None else parts)
        for value, pieces in zip(values, self.pieces, strict=True):
            if not pieces:
                cx.set(value, next(given))
                continue
            own = value.tile.dtype.llvm
            cx.set_pieces(value, [(registers, cx.f.bitcast(next(given), vector(len(registers), own))) for registers in pieces])


@lowers(If)
def lower_if(cx: Context, op: If) -> None:
    f = cx.f
    condition = cx.get(op.cond)
    join = f.label("join")
    entries: list[str] = []
    state = _State(cx, op.results)
    sources: list[tuple[str, list[Value]]] = []
    debug = f.debug
    here = f.current
    for block in (op.then, op.orelse):
        if len(block.ops) == 1:  # nothing but its yield
            f.position(here)
            entries.append(join)
            sources.append((here, state.parts(block.terminator.operands)))
            continue
        front, inside = f.label("branch"), f.label("inside")
        f.position(front)
        f.position(inside)
        with cx.scope(front):
            parts = state.parts(lower_block(cx, block).operands)
        f.debug = debug
        sources.append((f.current, parts))
        f.branch(join)
        f.position(front)
        f.branch(inside)
        entries.append(front)
    f.position(here)
    if entries == [join, join]:  # both are empty: a choice between values
        state.define(op.results, [f.select(condition, x, y) for x, y in zip(sources[0][1], sources[1][1], strict=True)])
        return
    f.branch_if(condition, *entries)
    f.position(join)
    state.begin()
    for block, parts in sources:
        state.feed(parts, block)
    state.define(op.results)


@lowers(For)
def lower_for(cx: Context, op: For) -> None:
    f = cx.f
    signed = op.start.tile.dtype.is_signed
    start, stop, step = cx.get(op.start), cx.get(op.stop), cx.get(op.step)
    by = step.integer
    if by is not None and not signed:
        by &= (1 << bits(step.type)) - 1
    state, result = _State(cx, op.results), _State(cx, op.results)
    inits = state.parts(op.init)
    if by == 0:
        state.define(op.results, inits)
        return
    debug = f.debug
    kind = start.type
    if _fits_32_bits(cx, op):
        start, stop, step = (f.cast("trunc", v, "i32") for v in (start, stop, step))
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
        state.define(op.results, inits)
        return
    if known == 1:
        f.branch(front)
    else:
        f.branch_if(enter, front, after)
    f.position(front)
    f.position(head)
    cx.counters[op.body.params[0]] = op
    with cx.scope(front, loop=True):
        counting = f.phi(start.type)
        counting.add(start, front)
        rest = f.phi(start.type) if trips is not None else None
        state.begin()
        state.feed(inits, front)
        cx.set(op.body.params[0], f.cast("sext", counting.value, kind))
        if kind == "i64" and start.type == "i32":
            cx.short_counters[op.body.params[0]] = counting.value
        state.define(op.body.params[1:])
        values = state.parts(lower_block(cx, op.body).operands)
        f.debug = debug
        counter = counting.value
        following = f.add(counter, step)
        if rest is not None and trips is not None:
            rest.add(trips, front)
            left = f.sub(rest.value, 1)
            rest.add(left, f.current)
            more = f.icmp("ne", left, 0)
        elif by in (1, -1):
            more = f.icmp("ne", following, stop)
        elif by is not None and by > 0 and value_range(cx, op.start)[0] >= 0 and value_range(cx, op.stop)[1] + by <= 1 << bits(start.type):
            more = f.icmp("ult", following, stop)
        elif by is not None and by > 0:
            more = f.icmp("ugt", f.sub(stop, counter), by)
        else:
            more = f.icmp("ugt", f.sub(counter, stop), -(by or 0))
        last = f.current
        counting.add(following, last)
        state.feed(values, last)
    f.branch_if(more, head, after)
    f.position(front)
    f.branch(head)
    f.position(after)
    result.begin()
    result.feed(values, last)
    if known is None:
        result.feed(inits, outside)
    result.define(op.results)


def _fits_32_bits(cx: Context, op: For) -> bool:
    """Whether a loop of 64 bits can count in 32: its bounds and so its counter are proven to fit."""
    if op.start.tile.dtype.bits != 64 or not op.start.tile.dtype.is_signed:
        return False
    ranges = [value_range(cx, bound) for bound in (op.start, op.stop, op.step)]
    return all(low >= -(1 << 31) and high < 1 << 31 for low, high in ranges)


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
    state, result = _State(cx, op.results), _State(cx, op.results)
    inits = state.parts(op.init)
    f.branch(front)
    f.position(front)
    f.position(head)
    with cx.scope(front, loop=True):
        state.begin()
        state.feed(inits, front)
        state.define(op.cond.params)
        go, *held = lower_block(cx, op.cond).operands
        values = state.parts(held)
        f.debug = debug
        f.branch_if(cx.get(go), inside, after)
        tested = f.current
        f.position(inside)
        state.define(op.body.params, values)
        state.feed(state.parts(lower_block(cx, op.body).operands), f.current)
        f.debug = debug
        f.branch(head)
    f.position(front)
    f.branch(head)
    f.position(after)
    result.begin()
    result.feed(values, tested)
    result.define(op.results)
