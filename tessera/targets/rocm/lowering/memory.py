"""Global memory: loads and stores of tiles, and the program's place in the grid.

`access.py` says how addresses are made. A load or store has up to two forms: wide groups, right where the array's end cuts none of them (in
a loop: and where the tile is inside along the axes that move), and one element at a time. Where the first isn't right its descriptor is
made to refuse everything, and a branch, rarely taken, runs the second. (A branch with two sides would cost more: LLVM makes a chain of
such.) The second form makes what it needs anew, so that it costs the first no registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....dtypes import DType, Kind
from ....ir.core import Op
from ....ir.core import Value as IRValue
from ....ir.ops.memory import Extent, Load, NumPrograms, ProgramId, Store, Stride
from ....llvmtext import Function, Value, bits, const, like, vector
from ..layout import Layout, replicated
from ..ops import MemoryFence, ScheduleFence
from .access import Address, Axis, Group, Plan, moving_gate
from .context import Context, lowers

_LIKELY = '!{!"branch_weights", i32 2000, i32 1}'

_MOVING_LIMIT = 64  # registers beyond which a loop's access has one form only: more code would cost more than it saves


# ---- the grid and the arguments ----------------------------------------------------------------------------------------------


@lowers(ProgramId)
def lower_program_id(cx: Context, op: ProgramId) -> None:
    def build() -> Value:
        return cx.f.cast("zext", cx.f.call(f"llvm.amdgcn.workgroup.id.{'xyz'[op.axis]}", "i32", []), "i64")

    cx.set(op.result, cx.once(("program id", op.axis), build))


@lowers(NumPrograms)
def lower_num_programs(cx: Context, op: NumPrograms) -> None:
    """From the dispatch packet, which counts work-items (HSA: grid_size_x, _y, _z at bytes 12, 16 and 20)."""

    def build() -> Value:
        f = cx.f
        packet = cx.once("dispatch packet", lambda: f.call("llvm.amdgcn.dispatch.ptr", "ptr addrspace(4)", []))
        items = f.load("i32", f.gep(packet, 12 + 4 * op.axis), 4, f", !invariant.load !{cx.module.metadata('!{}')}")
        threads = cx.num_waves * cx.arch.wave_size if op.axis == 0 else 1
        return f.cast("zext", f.binary("udiv", items, const("i32", threads)), "i64")

    cx.set(op.result, cx.once(("number of programs", op.axis), build))


@lowers(Extent)
def lower_extent(cx: Context, op: Extent) -> None:
    cx.set(op.result, cx.arrays[op.array].extents[op.axis])


@lowers(Stride)
def lower_stride(cx: Context, op: Stride) -> None:
    cx.set(op.result, cx.arrays[op.array].strides[op.axis])


# ---- pieces of tiles ---------------------------------------------------------------------------------------------------------


def raw_type(size: int) -> str:
    """The integer type in which `size` bytes (a power of two, at most 16) are loaded and stored."""
    return f"i{8 * size}" if size <= 4 else vector(size // 4, "i32")


def from_memory(f: Function, raw: Value, dtype: DType, count: int) -> Value:
    """Raw bytes as a vector of `count` elements in their register type."""
    items = f.bitcast(raw, vector(count, dtype.llvm_memory))
    return f.icmp("ne", items, 0) if dtype.kind is Kind.BOOL else items


def to_memory(f: Function, items: Value, dtype: DType) -> Value:
    """An element, or a vector of them, as raw bytes."""
    if dtype.kind is Kind.BOOL:
        items = f.cast("zext", items, like(items.type, "i8"))
    return f.bitcast(items, raw_type(bits(items.type) // 8))


# ---- loads -------------------------------------------------------------------------------------------------------------------


def _layout(cx: Context, value: IRValue) -> Layout:
    """The layout of a tile; a scalar, as an array of rank 0 has it, is one register everywhere."""
    return value.layout if value.tile.shape else replicated((), num_waves=1, wave_size=cx.arch.wave_size)


def _unless(cx: Context, gate: Value | None, usual: list[Value], build: Callable[[], list[Value]]) -> list[Value]:
    """`usual` where `gate` is negative (always, if there is none), else what `build` gives."""
    if gate is None:
        return usual
    f = cx.f
    here, front, inside, join = f.current, f.label("aside"), f.label("single"), f.label("join")
    f.branch_if(f.icmp("slt", gate, 0), join, front, f", !prof !{cx.module.metadata(_LIKELY)}")
    f.position(front)
    f.position(inside)
    with cx.aside(front):
        rare = build()
    end = f.current
    f.branch(join)
    f.position(front)
    f.branch(inside)
    f.position(join)
    merged: list[Value] = []
    for a, b in zip(usual, rare, strict=True):
        phi = f.phi(a.type)
        phi.add(a, here)
        phi.add(b, end)
        merged.append(phi.value)
    return merged


def _one_by_one(cx: Context, width: int, states: Sequence[Value], step: Callable[[Value, list[Value]], list[Value]]) -> list[Value]:
    """A loop over the elements of groups: `step(index, states)` gives the next states. `index` (i32) counts from 0."""
    if width == 1:
        return step(const("i32", 0), list(states))
    f = cx.f
    before, head, after = f.current, f.label("elements"), f.label("whole")
    f.branch(head)
    f.position(head)
    index = f.phi("i32")
    phis = [f.phi(state.type) for state in states]
    following = step(index.value, [phi.value for phi in phis])
    count = f.add(index.value, 1)
    index.add(const("i32", 0), before)
    index.add(count, f.current)
    for phi, state, new in zip(phis, states, following, strict=True):
        phi.add(state, before)
        phi.add(new, f.current)
    f.branch_if(f.icmp("ult", count, width), head, after)
    f.position(after)
    return following


def _is_moving(plan: Plan) -> bool:
    """Whether an access in a loop gets a form for tiles that are inside along the axes that move."""
    return bool(plan.moving) and (plan.width > 1 or plan.layout.count <= _MOVING_LIMIT)


class _Loading:
    """One load being lowered. Its groups of registers are raw bytes until `finish`."""

    def __init__(self, cx: Context, op: Load) -> None:
        self.cx, self.op = cx, op
        self.dtype = op.result.tile.dtype
        self.plan = Plan(cx, cx.arrays[op.array], _layout(cx, op.result), op.offsets)
        self.width = self.plan.width
        self.found = self.plan.groups(self.width)
        other = cx.get(op.other)
        self.fill = None if other.text in ("0", "0.0", "false") else other

    def groups(self, gate: Value | None, *, moving: bool) -> list[Value]:
        """Groups of the full width, where `gate` allows."""
        plan = self.plan
        addresses = plan.moving_addresses(self.found) if moving else plan.addresses(self.found)
        descriptor = plan.descriptor(gate, moving=moving)
        return [_buffer_load(self.cx, descriptor, at, self.dtype, self.width, self.fill) for at in addresses]

    def checked(self) -> list[Value]:
        """What holds whatever the offsets are."""
        gate = self.plan.gate()
        return _unless(self.cx, gate, self.groups(gate, moving=False), self.elements)

    def elements(self) -> list[Value]:
        """The groups, loaded element by element."""
        f, plan, width, bits_ = self.cx.f, self.plan, self.width, self.dtype.bits
        small, whole = plan.array.type.small, f"i{bits_ * width}"
        base, rows = plan.descriptor(), plan.rows(self.found) if small else []

        def step(index: Value, states: list[Value]) -> list[Value]:
            at = f.sub(const("i32", width - 1), index)  # the last first, so that each shifts the ones before it up
            following: list[Value] = []
            for number, (group, state) in enumerate(zip(self.found, states, strict=True)):
                if small:
                    raw = _buffer_load(self.cx, base, plan.element(rows[number], group, at), self.dtype, 1, self.fill)
                else:
                    raw = _pointer_load(self.cx, plan.array.base, *plan.pointer(group, at), self.dtype, self.fill)
                item = f.cast("zext", f.bitcast(raw, f"i{bits_}"), whole)
                following.append(item if width == 1 else f.or_(f.shl(state, bits_), item))
            return following

        packed = _one_by_one(self.cx, width, [const(whole, 0)] * len(self.found), step)
        return [f.bitcast(state, raw_type(self.dtype.bytes * width)) for state in packed]

    def finish(self, raws: Sequence[Value]) -> None:
        """Record the result."""
        cx, op = self.cx, self.op
        pieces = [from_memory(cx.f, raw, self.dtype, self.width) for raw in raws]
        if not op.shape:
            cx.set(op.result, cx.uniform(cx.f.extract(pieces[0], 0)))
        elif self.width == 1:
            cx.set(op.result, cx.f.build([cx.f.extract(piece, 0) for piece in pieces]))
        else:
            cx.set_pieces(op.result, [(group.registers, piece) for group, piece in zip(self.found, pieces, strict=True)])


@lowers(Load)
def lower_load(cx: Context, op: Load) -> None:
    """Loads in a loop that stand one behind the other share a gate and a branch."""
    loads = [_Loading(cx, op)]
    if not _is_moving(loads[0].plan):
        loads[0].finish(loads[0].checked())
        return
    for following in reversed(cx.ahead):
        if not isinstance(following, Load) or not _is_moving((loading := _Loading(cx, following)).plan):
            break
        loads.append(loading)
        cx.early.add(following)
    gate = moving_gate(cx, [load.plan for load in loads])
    usual = [raw for load in loads for raw in load.groups(gate, moving=True)]
    raws = iter(_unless(cx, gate, usual, lambda: [raw for load in loads for raw in load.checked()]))
    for load in loads:
        load.finish([next(raws) for _ in load.found])


def _buffer_load(cx: Context, descriptor: Value, at: Address, dtype: DType, count: int, fill: Value | None) -> Value:
    """A group's raw bytes; elements outside are 0, or `fill`."""
    f, type_ = cx.f, raw_type(dtype.bytes * count)
    raw = f.intrinsic("amdgcn.raw.ptr.buffer.load", [descriptor, *at, const("i32", 0)], type_, [type_])
    if fill is None:
        return raw
    return f.select(f.icmp("sgt", at.lane, -1), raw, _filled(f, fill, dtype, count))


def _filled(f: Function, fill: Value, dtype: DType, count: int) -> Value:
    return to_memory(f, f.splat(fill, count), dtype)


def _pointer_load(cx: Context, safe: Value, inside: Value, pointer: Value, dtype: DType, fill: Value | None) -> Value:
    """One element by a 64-bit address; lanes outside read the array's first element, and drop it. (An empty array doesn't come here.)"""
    f, type_ = cx.f, raw_type(dtype.bytes)
    raw = f.load(type_, f.select(inside, pointer, safe), dtype.bytes)
    return f.select(inside, raw, const(type_, 0) if fill is None else _filled(f, fill, dtype, 1))


# ---- stores ------------------------------------------------------------------------------------------------------------------


def owner(cx: Context, layout: Layout) -> Value | None:
    """Whether this thread is the one, of those that hold the same elements, that stores them (i1); None where each is."""
    f = cx.f

    def build() -> Value | None:
        conditions: list[Value] = []
        if layout.replicated_lanes:
            conditions.append(f.icmp("eq", f.and_(cx.lane, layout.replicated_lanes), 0))
        if layout.replicated_waves:
            conditions.append(f.icmp("eq", f.and_(cx.wave, layout.replicated_waves), 0))
        if cx.num_waves > layout.num_waves:
            conditions.append(f.icmp("ult", cx.wave, layout.num_waves))
        total = conditions[0] if conditions else None
        for condition in conditions[1:]:
            total = f.and_(condition, total) if total is not None else condition
        return total

    return cx.cached(1, ("owner", layout.replicated_lanes, layout.replicated_waves, layout.num_waves), build)


@lowers(Store)
def lower_store(cx: Context, op: Store) -> None:
    f, dtype, layout = cx.f, op.source.tile.dtype, _layout(cx, op.source)
    array = cx.arrays[op.array]
    plan = Plan(cx, array, layout, op.offsets, owner(cx, layout))
    width, found = plan.width, plan.groups(plan.width)

    def pieces() -> list[Value]:
        if not op.source.tile.shape:
            return [to_memory(f, cx.get(op.source), dtype)]
        if width == 1:
            return [to_memory(f, cx.take_one(op.source, group.registers[0]), dtype) for group in found]
        return [to_memory(f, cx.take(op.source, group.registers), dtype) for group in found]

    def moving() -> list[Value]:
        gate = moving_gate(cx, [plan])
        plain(plan.moving_addresses(found), plan.descriptor(gate, moving=True))
        return _unless(cx, gate, [], checked)

    def checked() -> list[Value]:
        gate = plan.gate()
        masked = plan.masked(found)
        if masked is not None:
            _masked_stores(cx, plan, *masked, plan.descriptor(gate), dict(zip(found, pieces(), strict=True)))
        else:
            plain(plan.addresses(found), plan.descriptor(gate))
        return _unless(cx, gate, [], elements)

    def plain(addresses: list[Address], descriptor: Value) -> None:
        for raw, at in zip(pieces(), addresses, strict=True):
            _buffer_store(cx, descriptor, at, raw)

    def elements() -> list[Value]:
        plan.guard = owner(cx, layout)  # anew: it isn't kept in registers for this
        base, rows = plan.descriptor(), plan.rows(found) if array.type.small else []
        small_type = raw_type(dtype.bytes)

        def step(index: Value, states: list[Value]) -> list[Value]:
            following: list[Value] = []
            for number, (group, state) in enumerate(zip(found, states, strict=True)):
                item = f.bitcast(f.cast("trunc", state, f"i{dtype.bits}"), small_type)
                if array.type.small:
                    _buffer_store(cx, base, plan.element(rows[number], group, index), item)
                else:
                    _pointer_store(cx, *plan.pointer(group, index), item, dtype.bytes)
                following.append(f.lshr(state, dtype.bits) if width > 1 else state)
            return following

        _one_by_one(cx, width, [f.bitcast(raw, f"i{dtype.bits * width}") for raw in pieces()], step)
        return []

    if _is_moving(plan):
        moving()
    else:
        checked()


def _masked_stores(
    cx: Context, plan: Plan, axis: Axis, by_constant: dict[int, list[Group]], descriptor: Value, raws: dict[Group, Value]
) -> None:
    f = cx.f
    addresses = {group: plan.masked_address(axis, group) for groups in by_constant.values() for group in groups}
    for constant, groups in by_constant.items():
        write, after = f.label("write"), f.label("written")
        f.branch_if(axis.inside(constant), write, after)
        f.position(write)
        for group in groups:
            _buffer_store(cx, descriptor, addresses[group], raws[group])
        f.branch(after)
        f.position(after)


def _buffer_store(cx: Context, descriptor: Value, at: Address, raw: Value) -> None:
    cx.f.intrinsic("amdgcn.raw.ptr.buffer.store", [raw, descriptor, *at, const("i32", 0)], "void")


def _pointer_store(cx: Context, inside: Value, pointer: Value, raw: Value, align: int) -> None:
    f = cx.f
    write, after = f.label("write"), f.label("after")
    f.branch_if(inside, write, after)
    f.position(write)
    f.store(raw, pointer, align)
    f.branch(after)
    f.position(after)


# ---- fences ------------------------------------------------------------------------------------------------------------------


@lowers(MemoryFence)
def lower_memory_fence(cx: Context, op: Op) -> None:
    """Without the restriction to LDS that `rocm.barrier` has: global accesses are complete before, and later ones read anew.

    The empty assembly keeps loads in front: LLVM's machine sinking takes neither fence nor barrier for a store.
    """
    cx.f.do('call void asm sideeffect "", "~{memory}"()')
    cx.f.do('fence syncscope("workgroup") release')
    cx.f.call("llvm.amdgcn.s.barrier", "void", [])
    cx.f.do('fence syncscope("workgroup") acquire')


@lowers(ScheduleFence)
def lower_schedule_fence(cx: Context, op: Op) -> None:
    cx.f.call("llvm.amdgcn.sched.barrier", "void", [const("i32", 0)])
