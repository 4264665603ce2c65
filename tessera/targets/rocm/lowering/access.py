"""How the elements of one load or store are grouped and what each group's address is made of.

Coordinates. Along each axis, an element's coordinate is the sum of a uniform part (the tile's offset and the wave's part), the lane's
part and a constant of the register. Only three things depend on the lane: its part, whether it is inside, and the offset that follows.

Groups. Registers that hold neighbours along the array's contiguous axis are accessed together, as many as the alignment of the array, of
the offset and of the layout allow, at most 16 bytes.

Offsets. Buffer instructions add an unsigned 32-bit offset to a base and drop (or read as zero) what lies at or past `num_records`, which is
2**31 here. For each axis and each distinct register constant, a lane's offset along that axis is a number below 2**31 where the coordinate
is inside the array, and OUTSIDE = 2**31 where it isn't. The offsets of the axes are added with saturation: one axis outside suffices to put
the sum at 2**31 or above, whatever the strides (0, negative, overlapping) are, and inside ones can't reach it. So no branch, no mask and no
assumption about the order of the axes is needed, and the cost is paid per row and per column, not per element.

Bases. In an array of the class `small` all elements lie within 2**31 bytes of the lowest: one descriptor per array, based there, serves
every access, and offsets are computed modulo 2**32 (a coordinate along an axis of negative stride counts from its far end). In other
arrays the descriptor is based at the tile's first element by 64-bit scalar arithmetic, and offsets count from there; this needs strides
that aren't negative and a tile that spans less than 2**31 bytes, which a uniform test finds out (`Plan.reachable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....ir.core import Value as IRValue
from ....llvmtext import Value, const
from ..layout import Layout
from .context import Array, Context
from .indices import divisor, narrow, value_range
from .shape import thread_part

OUTSIDE = 0x8000_0000
"""An offset that every descriptor refuses: also the number of bytes each descriptor spans."""


@dataclass(frozen=True)
class Group:
    """Registers accessed by one instruction: neighbours along the contiguous axis. `at` is the register constant of the first."""

    at: tuple[int, ...]
    registers: tuple[int, ...]


def groups(layout: Layout, axis: int | None, width: int) -> list[Group]:
    """The registers of a layout in groups of `width` along `axis`, in the order of their first registers."""
    found: dict[tuple[int, ...], list[int]] = {}
    for register, at in enumerate(layout.register_offsets):
        first = at if axis is None or width == 1 else (*at[:axis], at[axis] - at[axis] % width, *at[axis + 1 :])
        found.setdefault(first, []).append(register)
    offsets = layout.register_offsets
    return [Group(at, tuple(sorted(registers, key=lambda r: offsets[r]))) for at, registers in found.items()]


def group_width(cx: Context, array: Array, layout: Layout, offsets: tuple[IRValue, ...]) -> int:
    """How many elements one access may hold: a power of two."""
    axis = array.type.axis
    if axis is None or not layout.rank:
        return 1
    size = array.type.dtype.bytes
    steps = {step for a, step in layout.registers if a == axis}
    width = 1
    while width in steps and 2 * width * size <= min(16, array.type.align):
        width *= 2
    return min(width, divisor(cx, offsets[axis]))


class Axis:
    """One axis of an access."""

    def __init__(self, cx: Context, array: Array, layout: Layout, offset: IRValue, index: int, *, moving: bool) -> None:
        """`moving`: the offset changes in the innermost loop around."""
        self.cx, self.array, self.layout, self.offset, self.index = cx, array, layout, offset, index
        self.small = array.type.small
        self.depth = cx.depth(offset)
        self.size = layout.shape[index]
        self.contiguous = array.type.axis == index
        self.moving = moving
        self.nonnegative = value_range(cx, offset)[0] >= 0
        self.guard: Value | None = None  # a condition of the lane that must hold besides
        self._key = (id(array), index, layout.weights(layout.lanes, index), layout.weights(layout.waves, index))

    # Uniform values.

    def uniform(self, value: Value) -> Value:
        return self.cx.f.cast("trunc", value, "i32")

    @property
    def extent(self) -> Value:
        """The array's extent (i32), of a small array."""
        return self.cx.once(("extent", self.array.extents[self.index]), lambda: self.uniform(self.array.extents[self.index]))

    @property
    def step(self) -> Value:
        """The stride in bytes (i32), modulo 2**32."""
        step = self.array.steps[self.index]
        return self.cx.once(("step", step), lambda: self.uniform(step))

    @property
    def far_end(self) -> Value:
        """The offset of the lowest address along this axis from element 0, of a small array (i32, not positive)."""
        if self.contiguous:
            return const("i32", 0)
        f = self.cx.f

        def build() -> Value:
            return f.intrinsic("smin", [f.mul(f.sub(self.extent, 1), self.step), const("i32", 0)])

        return self.cx.once(("far end", id(self.array), self.index), build)

    @property
    def start(self) -> Value:
        """The tile's offset (i32, `narrow`), of a small array."""
        cx = self.cx
        if not (self.moving and cx.floor):
            return narrow(cx, self.offset)
        # In code set aside, hidden: else LLVM's strength reduction would keep induction variables for it in the loop.
        return cx.cached(cx.current_depth, ("hidden", self.offset), lambda: cx.uniform(narrow(cx, self.offset)))

    # Parts of the thread.

    def lane_offset(self) -> Value:
        """The lane's part times the stride (i32)."""
        cx = self.cx
        lane, _ = thread_part(cx, self.layout, self.index)
        return cx.cached(1, ("lane offset", *self._key), lambda: cx.f.mul(lane, self.step))

    def thread_offset(self) -> Value:
        """The lane's and the wave's part times the stride (i32)."""
        _, wave = thread_part(self.cx, self.layout, self.index)
        return self.cx.f.add(self.lane_offset(), self.cx.f.mul(wave, self.step))

    def checked(self, at: int | Value) -> Value:
        """The lane's offset along this axis (i32) at register constant `at`: below 2**31 inside the array, OUTSIDE outside."""
        return self._at_own_depth(("checked", at, self.guard), lambda: self._checked(at))

    def _at_own_depth(self, key: tuple[object, ...], build: Callable[[], Value]) -> Value:
        return self.cx.cached(max(self.depth, 1), (*key, *self._key, self.offset), build)

    def _checked(self, at: int | Value) -> Value:
        return self.cx.f.select(self.inside(at), self.cx.f.add(self.first(), self.along(at)), const("i32", OUTSIDE))

    def first(self) -> Value:
        """The lane's offset at register constant 0 (i32), not checked."""
        f = self.cx.f

        def build() -> Value:
            _, wave = thread_part(self.cx, self.layout, self.index)
            uniform = f.mul(f.add(self.start, wave) if self.small else wave, self.step)
            return f.add(self.lane_offset(), f.sub(uniform, self.far_end) if self.small else uniform)

        return self._at_own_depth(("first",), build)

    def along(self, at: int | Value) -> Value:
        """What a register constant adds to the offset (i32, uniform)."""
        return self.cx.f.mul(self.step, at)

    def inside(self, at: int | Value) -> Value:
        """Whether the lane's element at register constant `at` is inside the array, and the lane takes part (i1)."""
        lane, wave = thread_part(self.cx, self.layout, self.index)
        inside = self._inside(lane, wave, at)
        return inside if self.guard is None else self.cx.f.and_(inside, self.guard)

    def _inside(self, lane: Value, wave: Value, at: int | Value) -> Value:
        f = self.cx.f
        if self.nonnegative:  # compared with how many elements the array has from the lane's first on
            left = self._at_own_depth(("left",), lambda: f.sub(f.sub(self._left() if self.small else self._window()[1], wave), lane))
            return f.icmp("sgt", left, at)
        if self.small:
            place = self._at_own_depth(("place",), lambda: f.add(lane, f.add(self.start, wave)))
            return f.icmp("ult", f.add(place, at), self.extent)
        first, last = self._window()
        return f.icmp("ult", f.sub(f.add(f.add(lane, wave), at), first), f.sub(last, first))

    def _left(self) -> Value:
        """How many elements there are from the tile's start on (i32, not negative), of a small array and a start that isn't negative."""
        f = self.cx.f

        def build() -> Value:  # signed: the unsigned form would become a saturating subtraction, which only vector units have
            return f.sub(self.extent, f.intrinsic("smin", [self.start, self.extent]))

        return self.cx.cached(self.depth, ("left", id(self.array), self.index, self.offset), build)

    def _window(self) -> tuple[Value, Value]:
        """The part of the tile that is inside, [first, last), of any array (i32): 0 <= first <= last <= size, up to emptiness."""
        f, extent, size = self.cx.f, self.array.extents[self.index], const("i64", self.size)

        def clamp(value: Value) -> Value:
            # Two comparisons with selects: a minimum and a maximum would become one vector instruction.
            low = f.select(f.icmp("slt", value, 0), const("i64", 0), value)
            return f.cast("trunc", f.select(f.icmp("slt", low, size), low, size), "i32")

        def build() -> tuple[Value, Value]:
            offset = self.cx.get(self.offset)
            last = clamp(f.intrinsic("ssub.sat", [extent, offset]))
            if self.nonnegative:
                return const("i32", 0), last
            return clamp(f.intrinsic("ssub.sat", [const("i64", 0), offset])), last

        return self.cx.cached(self.depth, ("window", id(self.array), self.index, self.offset, self.size), build)

    def far(self, at: Value) -> tuple[Value, Value]:
        """Whether the lane's element at register constant `at` is inside (i1), and its offset along the axis (i64)."""
        f, offset = self.cx.f, self.cx.get(self.offset)
        lane, wave = thread_part(self.cx, self.layout, self.index)
        part = f.cast("zext", f.add(lane, f.add(wave, at)), "i64")
        # Compared without adding: an offset near the limits of i64 must not wrap into the array.
        last = f.intrinsic("ssub.sat", [self.array.extents[self.index], offset])
        first = f.intrinsic("ssub.sat", [const("i64", 0), offset])
        inside = f.and_(f.icmp("slt", part, last), f.icmp("sge", part, first))
        return inside, f.mul(f.add(offset, part), self.array.steps[self.index])

    # Tests.

    def limit(self) -> Value:
        """The tile is inside the array where its start is below this, both unsigned: i32 for a small array, else i64."""
        f = self.cx.f

        def build() -> Value:
            if self.small:
                return f.intrinsic("smax", [f.sub(self.extent, self.size - 1), const("i32", 0)])
            room = f.sub(self.array.extents[self.index], self.size - 1)
            return f.select(f.icmp("slt", room, 0), const("i64", 0), room)

        return self.cx.once(("limit", id(self.array), self.index, self.size), build)

    def below(self, limit: Value) -> Value:
        """A number (i32) that is negative where the tile's start is neither negative nor at or past a limit.

        Two scalar instructions or three; a comparison whose result is used twice, by a branch and by a selection, costs more.
        """
        f = self.cx.f
        start = self.start if self.small else self.cx.get(self.offset)
        sign = f.sub(start, limit)
        if not self.nonnegative:
            sign = f.and_(sign, f.not_(start))
        return sign if self.small else f.cast("trunc", f.lshr(sign, 32), "i32")

    def uncut(self, width: int) -> Value:
        """A number (i32) that is negative only where no group of `width` elements is cut by the array's end."""
        f = self.cx.f

        def multiple() -> Value:
            rest = f.and_(f.cast("trunc", self.array.extents[self.index], "i32"), width - 1)
            return f.select(f.icmp("eq", rest, 0), const("i32", OUTSIDE), const("i32", 0))

        return f.or_(self.below(self.limit()), self.cx.once(("multiple", id(self.array), self.index, width), multiple))


class Address(NamedTuple):
    """Where a group lies from its descriptor's base on: a lane's offset, at or above OUTSIDE to drop the access, and a uniform one.

    The uniform offset takes no part in the hardware's check: it holds only what is known to be inside.
    """

    lane: Value
    uniform: Value


def moving_gate(cx: Context, plans: Sequence[Plan]) -> Value:
    """A number (i32) that is negative where `moving_addresses` of all plans may be used: one test for all that start at one place."""
    f = cx.f
    grouped: dict[IRValue, list[tuple[Axis, Value]]] = {}
    for plan in plans:
        for axis, limit in plan.bounds():
            grouped.setdefault(axis.offset, []).append((axis, limit))
    result: Value | None = None
    for bounds in grouped.values():
        axis, lowest = bounds[0]
        for other, limit in bounds[1:]:
            if other.small != axis.small:  # limits of different widths
                inside = other.below(limit)
                result = inside if result is None else f.and_(result, inside)
            elif limit != lowest:
                depth = max(0, axis.depth - 1)
                lowest = cx.cached(depth, ("lower of", lowest, limit), lambda x=lowest, y=limit: f.intrinsic("umin", [x, y]))
        inside = axis.below(lowest)
        result = inside if result is None else f.and_(result, inside)
    if result is None:
        raise ValueError("no axis moves")
    return result


class Plan:
    """The addresses of one load or store."""

    def __init__(self, cx: Context, array: Array, layout: Layout, offsets: tuple[IRValue, ...], guard: Value | None = None) -> None:
        """`guard` is a condition of the lane under which it takes part, or None where all do."""
        self.cx, self.array, self.layout, self.guard = cx, array, layout, guard
        inner = cx.loop_depths[-1] if cx.loop_depths else None
        moves = [inner is not None and cx.depth(offset) >= inner for offset in offsets]
        self.axes = [Axis(cx, array, layout, offset, index, moving=moves[index]) for index, offset in enumerate(offsets)]
        self.moving = [axis for axis in self.axes if axis.moving]
        self.resting = [axis for axis in self.axes if not axis.moving]
        self.width = group_width(cx, array, layout, offsets)

    def groups(self, width: int) -> list[Group]:
        return groups(self.layout, self.array.type.axis, width)

    # Which way to go.

    def gate(self) -> Value | None:
        """A number (i32) that is negative where groups of the full width may be used; None for always."""
        result = None if self.array.type.small else self.reachable()
        for axis in self.axes:
            if axis.contiguous and self.width > 1:
                uncut = self.cx.cached(axis.depth, ("uncut", self), lambda a=axis: a.uncut(self.width))
                result = uncut if result is None else self.cx.f.and_(result, uncut)
        return result

    def bounds(self) -> list[tuple[Axis, Value]]:
        """`moving_addresses` may be used where the tile's start along each of these axes is below a limit (`Axis.below`).

        What doesn't change in the loop is folded into the first limit, so that each moving axis costs one subtraction.
        """
        f, cx = self.cx.f, self.cx
        settled: list[Value] = []
        depth = 0
        if self.array.type.small:
            settled += [forward for axis in self.moving if (forward := self._forward(axis)) is not None]
        else:
            settled.append(self.reachable())
        for axis in self.resting:
            if axis.contiguous and self.width > 1:
                settled.append(cx.cached(axis.depth, ("uncut", self), lambda a=axis: a.uncut(self.width)))
                depth = max(depth, axis.depth)

        def first() -> Value:
            limit = self.moving[0].limit()
            for sign in settled:
                limit = f.select(f.icmp("slt", sign, 0), limit, const(limit.type, 0))
            return limit

        limits = [cx.cached(depth, ("bound", self), first), *(axis.limit() for axis in self.moving[1:])]
        return list(zip(self.moving, limits, strict=True))

    def _forward(self, axis: Axis) -> Value | None:
        """A number (i32) that is negative where the stride along `axis` isn't; None where that is known."""
        if axis.contiguous:
            return None
        return self.cx.once(("forward", id(self.array), axis.index), lambda: self.cx.f.not_(axis.step))

    def reachable(self) -> Value:
        """A number (i32) that is negative where a tile's elements lie within 2**31 bytes of its first, or the array is empty.

        Only so can a descriptor serve a large array.
        """
        f, cx = self.cx.f, self.cx

        def build() -> Value:
            ok, span = const("i1", 1), const("i64", 16)
            empty = const("i1", 0)
            for axis in self.axes:
                empty = f.or_(empty, f.icmp("eq", self.array.extents[axis.index], 0))
                step = self.array.steps[axis.index]
                if axis.size == 1 or axis.contiguous:
                    span = f.add(span, (axis.size - 1) * axis.array.type.dtype.bytes)
                    continue
                ok = f.and_(ok, f.icmp("eq", f.lshr(step, 31), 0))
                span = f.add(span, f.mul(step, axis.size - 1))
            fine = f.or_(empty, f.and_(ok, f.icmp("eq", f.lshr(span, 31), 0)))
            return f.select(fine, const("i32", OUTSIDE), const("i32", 0))

        return cx.once(("reachable", id(self.array), self.layout.shape), build)

    # Buffer addresses.

    def descriptor(self, gate: Value | None = None, *, moving: bool = False) -> Value:
        """The buffer descriptor that the addresses are relative to. Where `gate` isn't negative it refuses every offset."""
        f, cx, array = self.cx.f, self.cx, self.array

        def make(base: Value) -> Value:
            size = const("i32", OUTSIDE) if gate is None else f.and_(gate, OUTSIDE)
            flags = const("i32", cx.arch.buffer_flags)
            return f.intrinsic(
                "amdgcn.make.buffer.rsrc", [base, const("i16", 0), f.cast("zext", size, "i64"), flags],
                "ptr addrspace(8)", ["ptr addrspace(8)", "ptr addrspace(1)"],
            )  # fmt: skip

        def lowest() -> Value:
            total = const("i32", 0)
            for axis in self.axes:
                total = f.add(total, axis.far_end)
            return f.gep(array.base, f.cast("sext", total, "i64"))

        def first(base: Value, axes: list[Axis]) -> Value:
            for axis in axes:
                base = f.gep(base, f.mul(cx.get(axis.offset), array.steps[axis.index]))
            return base

        def words(base: Value) -> tuple[Value, Value]:
            whole = f.cast("ptrtoint", base, "i64")
            return f.cast("trunc", whole, "i32"), f.cast("trunc", f.and_(f.lshr(whole, 32), 0xFFFF), "i32")

        if array.type.small and (moving or cx.floor):
            low, high = cx.once(("words", id(array)), lambda: words(cx.once(("lowest", id(array)), lowest)))
            size = const("i32", OUTSIDE) if gate is None else f.and_(gate, OUTSIDE)
            if not moving:
                low, high = cx.uniform(low), cx.uniform(high)
            whole = f.bitcast(f.build([low, high, size, const("i32", cx.arch.buffer_flags)]), "i128")
            return f.cast("inttoptr", whole, "ptr addrspace(8)")
        if array.type.small:
            base = cx.once(("lowest", id(array)), lowest)
            return make(base) if gate is not None else cx.once(("descriptor", id(array)), lambda: make(base))
        resting, later = (self.resting, self.moving) if moving else (self.axes, [])
        depth = max((axis.depth for axis in resting), default=0)
        base = cx.cached(
            depth, ("base", id(array), *((axis.index, axis.offset) for axis in resting)), lambda: first(array.base, resting)
        )  # fmt: skip
        return make(first(base, later))

    def addresses(self, found: list[Group]) -> list[Address]:
        """Checked addresses: they hold whatever the offsets are."""
        zero = const("i32", 0)
        if not self.axes:
            return [Address(self._guarded(zero), zero)]
        self._guard(self.axes[-1])
        return [Address(self._sum([axis.checked(at) for axis, at in zip(self.axes, group.at, strict=True)]), zero) for group in found]

    def moving_addresses(self, found: list[Group]) -> list[Address]:
        """Addresses in a loop where the tile is inside along each axis whose offset changes: the change is in the uniform part."""
        f, cx, small = self.cx.f, self.cx, self.array.type.small
        depth = max(1, *(axis.depth for axis in self.resting)) if self.resting else 1
        if self.resting:
            self._guard(self.resting[-1])
        common = const("i32", 0)
        if small:
            for axis in self.moving:
                common = f.add(common, f.mul(axis.start, axis.step))
        result: list[Address] = []
        for group in found:

            def hoisted(at: tuple[int, ...] = group.at) -> Value:
                checked = [axis.checked(at[axis.index]) for axis in self.resting]
                total = self._sum([*checked, *(axis.thread_offset() for axis in self.moving)])
                # Room for the constants that are added below: what is outside must not wrap around.
                return f.intrinsic("umin", [total, const("i32", 0xF000_0000)]) if checked else self._guarded(total)

            lane = cx.cached(depth, ("moving", self, *(group.at[axis.index] for axis in self.resting)), hoisted)
            uniform = common
            for axis in self.moving:
                at = group.at[axis.index]
                if axis.contiguous:
                    lane = f.add(lane, at * self.array.type.dtype.bytes)
                elif at:
                    along = cx.once(("along", id(self.array), axis.index, at), lambda a=axis, at=at: f.mul(a.step, at))
                    uniform = f.add(uniform, along)
            result.append(Address(lane, uniform))
        return result

    def _guard(self, chosen: Axis) -> None:
        """Let one axis see to the guard."""
        for axis in self.axes:
            axis.guard = self.guard if axis is chosen else None

    def _guarded(self, offset: Value) -> Value:
        return offset if self.guard is None else self.cx.f.select(self.guard, offset, const("i32", OUTSIDE))

    def _sum(self, offsets: list[Value]) -> Value:
        if not offsets:
            return const("i32", 0)
        total, *rest = offsets
        for offset in rest:
            total = self.cx.f.intrinsic("uadd.sat", [total, offset])
        return total

    # Stores that leave the check along one axis to the execution mask.

    def masked(self, found: list[Group]) -> tuple[Axis, dict[int, list[Group]]] | None:
        """An axis with few register constants, each shared by several groups, and the groups by these. None where there is no such axis.

        For each constant a branch lets only those lanes store that are inside along this axis. What remains to be checked is the same for
        all constants: with 32 rows of 4 columns, 32 offsets instead of 128.
        """
        if len(self.axes) < 2 or not self.array.type.small:
            return None

        def constants(axis: Axis) -> int:
            return len({group.at[axis.index] for group in found})

        axis = min(reversed(self.axes), key=lambda axis: (constants(axis), not axis.contiguous))
        if constants(axis) > 8 or 2 * constants(axis) > len(found):
            return None
        by_constant: dict[int, list[Group]] = {}
        for group in found:
            by_constant.setdefault(group.at[axis.index], []).append(group)
        self._guard(axis)
        return axis, by_constant

    def masked_address(self, masked: Axis, group: Group) -> Address:
        """The address of a group for lanes inside along the axis `masked`."""
        f, cx = self.cx.f, self.cx
        others = [axis for axis in self.axes if axis is not masked]
        rest = masked.along(group.at[masked.index])

        def shared() -> Value:
            return f.add(others[0].checked(group.at[others[0].index]), masked.first())

        if len(others) == 1 and masked.contiguous and masked.nonnegative:  # the constant is part of the instruction: it can't wrap
            offset = f.add(cx.cached(cx.current_depth, ("masked", self, group.at[others[0].index]), shared), rest)
        else:
            offset = self._sum([f.add(masked.first(), rest), *(axis.checked(group.at[axis.index]) for axis in others)])
        return Address(offset, const("i32", 0))

    # Where groups are cut: element by element.

    def rows(self, found: list[Group]) -> list[Value | None]:
        """For each group the sum of its offsets along all axes but the contiguous one, checked; None where there are none."""
        others = [axis for axis in self.axes if not axis.contiguous]
        self._guard(next(axis for axis in self.axes if axis.contiguous))
        return [self._sum([axis.checked(group.at[axis.index]) for axis in others]) if others else None for group in found]

    def element(self, rows: Value | None, group: Group, step: Value) -> Address:
        """The address of an element of a group, `step` (i32, uniform) places behind its first along the contiguous axis."""
        axis = next(axis for axis in self.axes if axis.contiguous)
        along = axis.checked(self.cx.f.add(step, group.at[axis.index]))
        return Address(along if rows is None else self._sum([rows, along]), const("i32", 0))

    def pointer(self, group: Group, step: Value | None = None) -> tuple[Value, Value]:
        """Whether that element is inside (i1), and its address of 64 bits (meaningless outside): for large arrays that no descriptor
        reaches.

        `step` is None for groups of one element.
        """
        f, cx = self.cx.f, self.cx
        inside, offset = self.guard if self.guard is not None else const("i1", 1), const("i64", 0)
        for axis, at in zip(self.axes, group.at, strict=True):
            place = f.add(step, at) if step is not None and axis.contiguous else const("i32", at)
            ok, along = cx.cached(cx.current_depth, ("pointer", self, axis.index, place), lambda a=axis, p=place: a.far(p))
            inside, offset = f.and_(inside, ok), f.add(offset, along)
        return inside, f.gep(self.array.base, offset)
