"""Helpers that move data between memory and rows of vector registers: `sim.load.<form>.<op>.<wave>` and `sim.store.…`.

A helper gets the context, the first row of the data registers in the state block, the lanes' addresses in one of the forms below, the
active lanes as an integer, and the pc for fault reports. Loads write rows in memory under the mask; the registers must not be remembered
elsewhere.

form      arguments                                             address of a lane
vector    <W x i64> a                                           a
scalar    i64 base, <W x i32> o                                 base + o (o unsigned)
buffer    i64 base, <W x i32> o, <W x i32> check, i32 limit     base + o where check + size <= limit, else 0 is read and nothing written
lds       <W x i32> a, i32 offset                               a + offset within the workgroup's LDS
scratch   i64 base, <W x i32> o                                 byte o of the lane's scratch: dwords of the lanes are interleaved

Three paths: all lanes active and consecutive in memory (one vector access, transposed where a lane has several dwords); all lanes active,
8 or 16 bytes each (a vector load a lane, transposed in registers); otherwise one lane after the other. Whatever the path, an address is
used only after it was found in a buffer of the launch, or within LDS or scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import llvm
from ...llvmtext import Function, Module, Value, const, lanes, vector, vector_const
from .helpers import Context, Fault, add_to, builds, each_lane, get, helper_function, loop, put, stack, when


@dataclass(frozen=True)
class Access:
    """What one lane moves: `size` bytes, to or from `dwords` registers; smaller values extend by sign or zero, or fill one half."""

    size: int
    dwords: int = 1
    signed: bool = False
    half: str = ""


LOADS = {
    "u8": Access(1),
    "i8": Access(1, signed=True),
    "u16": Access(2),
    "i16": Access(2, signed=True),
    "d16_u8": Access(1, half="l"),
    "d16_i8": Access(1, signed=True, half="l"),
    "d16_b16": Access(2, half="l"),
    "d16_hi_u8": Access(1, half="h"),
    "d16_hi_i8": Access(1, signed=True, half="h"),
    "d16_hi_b16": Access(2, half="h"),
    "b32": Access(4),
    "b64": Access(8, 2),
    "b96": Access(12, 3),
    "b128": Access(16, 4),
}
STORES = {
    "b8": Access(1),
    "b16": Access(2),
    "d16_hi_b8": Access(1, half="h"),
    "d16_hi_b16": Access(2, half="h"),
    "b32": Access(4),
    "b64": Access(8, 2),
    "b96": Access(12, 3),
    "b128": Access(16, 4),
}
FORMS = ("vector", "scalar", "buffer", "lds", "scratch")


# ---- finding the buffer ------------------------------------------------------------------------------------------------------


@builds("fault")
def build_fault(module: Module, name: str) -> None:
    """`sim.fault(g, kind, address, size, write, lane, pc)`: note the first fault of the thread, and let its wave stop."""
    parameters = [("ptr", "g"), ("i32", "kind"), ("i64", "address"), ("i32", "size"), ("i32", "write"), ("i32", "lane"), ("i32", "pc")]
    f = helper_function(module, name, "void", parameters)
    g, kind, address, size, write, lane, pc = f.arguments
    put(f, g, Context.BUDGET, const("i64", -1))
    with when(f, f.icmp("eq", get(f, g, Context.FAULT, "i32"), 0)):
        put(f, g, Context.FAULT, kind)
        put(f, g, Context.FAULT_PC, pc)
        put(f, g, Context.FAULT_LANE, lane)
        put(f, g, Context.FAULT_SIZE, size)
        put(f, g, Context.FAULT_ADDRESS, address)
        put(f, g, Context.FAULT_WRITE, write)
        put(f, g, Context.FAULT_GROUP, get(f, g, Context.GROUP))
        put(f, g, Context.FAULT_WAVE, get(f, g, Context.WAVE))
    f.ret()


def fault(f: Function, g: Value, kind: Fault, address: Value, size: int, write: bool, lane: Value, pc: Value) -> None:
    """Call `sim.fault`."""
    operands = [g, const("i32", kind), f.cast("zext", address, "i64"), const("i32", size), const("i32", int(write))]
    f.call("sim.fault", "void", [*operands, f.cast("trunc", lane, "i32"), pc])


@builds("find")
def build_find(module: Module, name: str) -> None:
    """`i1 sim.find(g, address, size, write, lane, pc)`: whether an access is inside a buffer that allows it; a fault where not. The
    buffer becomes the one that is tried first from now on."""
    f = helper_function(
        module, name, "i1", [("ptr", "g"), ("i64", "address"), ("i32", "size"), ("i32", "write"), ("i32", "lane"), ("i32", "pc")]
    )
    g, address, size, write, lane, pc = f.arguments
    count = get(f, g, Context.TABLE_COUNT)
    table = get(f, g, Context.TABLE, "ptr")
    writes = f.icmp("ne", write, 0)
    wide = f.cast("zext", size, "i64")
    with loop(f, 0, count) as index:
        entry = f.gep(table, f.mul(index, 24))
        start = f.load("i64", entry, 8)
        length = f.load("i64", f.gep(entry, 8), 8)
        distance = f.sub(address, start)
        inside = f.and_(f.icmp("uge", length, wide), f.icmp("ule", distance, f.sub(length, wide)))
        writable = f.icmp("ne", f.load("i64", f.gep(entry, 16), 8), 0)
        allowed = f.or_(writable, f.not_(writes))
        with when(f, f.and_(inside, allowed)):
            put(f, g, Context.READ_BASE, start)
            put(f, g, Context.READ_SIZE, length)
            with when(f, writes):
                put(f, g, Context.WRITE_BASE, start)
                put(f, g, Context.WRITE_SIZE, length)
            f.ret(const("i1", True))
    f.call("sim.fault", "void", [g, const("i32", Fault.GLOBAL), address, size, write, lane, pc])
    f.ret(const("i1", False))


def _in_cached(f: Function, g: Value, first: Value, length: Value | int, write: bool) -> Value:
    """i1: whether [first, first + length) lies in the buffer used last. Lengths are below 2^40, so nothing wraps twice."""
    base = get(f, g, Context.WRITE_BASE if write else Context.READ_BASE)
    size = get(f, g, Context.WRITE_SIZE if write else Context.READ_SIZE)
    wide = const("i64", length) if isinstance(length, int) else length
    room = f.intrinsic("usub.sat", [size, f.sub(wide, 1)])
    return f.icmp("ult", f.sub(first, base), room)


def checked(f: Function, g: Value, address: Value, size: int, write: bool, lane: Value, pc: Value) -> Value:
    """i1: whether a lane may access `size` bytes at a global address."""
    quick, join, slow = f.current, f.label("checked"), f.label("find")
    hit = _in_cached(f, g, address, size, write)
    quick = f.current
    f.branch_if(hit, join, slow)
    f.position(slow)
    operands = [g, address, const("i32", size), const("i32", int(write)), f.cast("trunc", lane, "i32"), pc]
    found = f.call("sim.find", "i1", operands)
    f.branch(join)
    f.position(join)
    result = f.phi("i1")
    result.add(const("i1", True), quick)
    result.add(found, slow)
    return result.value


# ---- transposing --------------------------------------------------------------------------------------------------------------


def chunk(wave: int) -> int:
    """Lanes that one host register of i32 holds."""
    return min(wave, max(4, llvm.host().vector_bits // 32))


def _take(f: Function, x: Value, y: Value, odd: int) -> Value:
    """Every second element of x and y."""
    count = lanes(x.type)
    return f.shuffle(x, y, [2 * i + odd for i in range(count)])


def deinterleave(f: Function, parts: Sequence[Value]) -> list[Value]:
    """1, 2 or 4 consecutive vectors of memory to as many registers: element i of result d is element count·i + d of the whole."""
    if len(parts) == 1:
        return list(parts)
    if len(parts) == 2:
        return [_take(f, parts[0], parts[1], 0), _take(f, parts[0], parts[1], 1)]
    even = [_take(f, parts[0], parts[1], 0), _take(f, parts[2], parts[3], 0)]
    odd = [_take(f, parts[0], parts[1], 1), _take(f, parts[2], parts[3], 1)]
    return [_take(f, pair[0], pair[1], which) for which in (0, 1) for pair in (even, odd)]


def _zip(f: Function, x: Value, y: Value) -> list[Value]:
    """x0 y0 x1 y1 …, in two vectors."""
    count = lanes(x.type)
    order = [i // 2 + (count if i % 2 else 0) for i in range(2 * count)]
    return [f.shuffle(x, y, order[:count]), f.shuffle(x, y, order[count:])]


def interleave(f: Function, rows: Sequence[Value]) -> list[Value]:
    """The inverse of `deinterleave`."""
    if len(rows) == 1:
        return list(rows)
    if len(rows) == 2:
        return _zip(f, rows[0], rows[1])
    even, odd = _zip(f, rows[0], rows[2]), _zip(f, rows[1], rows[3])
    return [*_zip(f, even[0], odd[0]), *_zip(f, even[1], odd[1])]


def _concatenate(f: Function, parts: Sequence[Value]) -> Value:
    while len(parts) > 1:
        count = lanes(parts[0].type)
        parts = [f.shuffle(parts[i], parts[i + 1], list(range(2 * count))) for i in range(0, len(parts), 2)]
    return parts[0]


# ---- address forms ----------------------------------------------------------------------------------------------------------------


class _Form:
    """The lanes' addresses of one helper call."""

    def __init__(self, f: Function, form: str, wave: int, g: Value, arguments: Sequence[Value], access: Access, write: bool) -> None:
        self.f, self.form, self.wave, self.g, self.arguments, self.access, self.write = f, form, wave, g, arguments, access, write
        self.pc = f.arguments[-1]
        self.mask = f.arguments[-2]
        self.spilled: list[Value] = []
        self.lds = get(f, g, Context.LDS, "ptr") if form == "lds" else None
        self.lds_size = get(f, g, Context.LDS_SIZE) if form == "lds" else None

    def spill(self) -> None:
        """Put the lanes' addresses where a lane's own can be read."""
        vectors = [a for a in self.arguments if a.type.startswith("<")]
        if len(vectors) == 2 and vectors[0] == vectors[1]:
            vectors.pop()
        for value in vectors:
            place = stack(self.f, value.type)
            self.f.store(value, place, 64)
            self.spilled.append(place)

    def _own(self, lane: Value, which: int = 0) -> Value:
        """A lane's element of a vector argument, as i64."""
        place = self.spilled[min(which, len(self.spilled) - 1)]
        if self.form == "vector":
            return self.f.load("i64", self.f.gep(place, lane, "i64"), 8)
        return self.f.cast("zext", self.f.load("i32", self.f.gep(place, lane, "i32"), 4), "i64")

    def address(self, lane: Value) -> Value:
        """The i64 address of a lane: global, or the offset in LDS."""
        own = self._own(lane)
        if self.form in ("scalar", "buffer"):
            return self.f.add(own, self.arguments[0])
        if self.form == "lds":
            return self.f.add(own, self.f.cast("zext", self.arguments[1], "i64"))
        return own

    def check_offset(self, lane: Value) -> Value:
        """What is compared with a buffer's limit, as i64."""
        return self._own(lane, 1)

    @property
    def limit(self) -> Value:
        return self.f.cast("zext", self.arguments[3], "i64")

    def allowed(self, address: Value, size: int, lane: Value) -> Value:
        """i1: the lane may access; a fault where not."""
        if self.form != "lds":
            return checked(self.f, self.g, address, size, self.write, lane, self.pc)
        assert self.lds_size is not None
        f = self.f
        good = f.icmp("ule", f.add(address, size), self.lds_size)
        with when(f, f.not_(good), likely=False):
            fault(f, self.g, Fault.LDS, address, size, self.write, lane, self.pc)
        return good

    def pointer(self, address: Value) -> Value:
        if self.form != "lds":
            return self.f.emit("ptr", f"inttoptr {address} to ptr")
        assert self.lds is not None
        return self.f.gep(self.lds, address)

    # Facts about all lanes at once.

    def consecutive(self) -> Value:
        """i1: lane i is i · size bytes past lane 0 (and nothing wraps)."""
        f, size = self.f, self.access.size
        own = self.arguments[0] if self.form in ("vector", "lds") else self.arguments[1]
        first, last = f.extract(own, 0), f.extract(own, self.wave - 1)
        steps = vector_const("i64" if self.form == "vector" else "i32", [size * i for i in range(self.wave)])
        same = f.icmp("eq", f.sub(own, f.splat(first, self.wave)), steps)
        every = f.icmp("eq", f.bitcast(same, f"i{self.wave}"), -1)
        result = f.and_(every, f.icmp("uge", last, first))
        if self.form == "buffer" and self.arguments[1] != self.arguments[2]:
            check = self.arguments[2]
            also = f.icmp("eq", f.sub(check, f.splat(f.extract(check, 0), self.wave)), steps)
            result = f.and_(result, f.icmp("eq", f.bitcast(also, f"i{self.wave}"), -1))
        return result

    def first_address(self) -> Value:
        f = self.f
        if self.form == "vector":
            return f.extract(self.arguments[0], 0)
        own = f.extract(self.arguments[0] if self.form == "lds" else self.arguments[1], 0)
        base = f.cast("zext", self.arguments[1], "i64") if self.form == "lds" else self.arguments[0]
        return f.add(f.cast("zext", own, "i64"), base)

    def range_allowed(self, first: Value, length: Value | int) -> Value:
        """i1: all of [first, first + length) may be accessed. No fault where not: the lanes find out one by one."""
        f = self.f
        wide = const("i64", length) if isinstance(length, int) else length
        if self.form == "lds":
            assert self.lds_size is not None
            return f.icmp("ule", f.add(first, wide), self.lds_size)
        before, search, join = f.current, f.label("search"), f.label("searched")
        hit = _in_cached(f, self.g, first, wide, self.write)
        before = f.current
        f.branch_if(hit, join, search)
        f.position(search)
        f.call("sim.prefer", "void", [self.g, first, const("i32", int(self.write))])
        again = _in_cached(f, self.g, first, wide, self.write)
        f.branch(join)
        f.position(join)
        result = f.phi("i1")
        result.add(const("i1", True), before)
        result.add(again, search)
        return result.value

    def in_limit(self) -> Value:
        """i1: no lane is beyond a buffer's limit (true for the other forms)."""
        if self.form != "buffer":
            return const("i1", True)
        f = self.f
        top = f.cast("zext", f.intrinsic("vector.reduce.umax", [self.arguments[2]], "i32"), "i64")
        return f.icmp("ule", f.add(top, self.access.size), self.limit)

    def span(self) -> tuple[Value, Value]:
        """Lowest address of any lane, and bytes up to the end of the highest."""
        f = self.f
        own = self.arguments[0] if self.form in ("vector", "lds") else self.arguments[1]
        scalar = "i64" if self.form == "vector" else "i32"
        low = f.cast("zext", f.intrinsic("vector.reduce.umin", [own], scalar), "i64")
        high = f.cast("zext", f.intrinsic("vector.reduce.umax", [own], scalar), "i64")
        length = f.add(f.sub(high, low), self.access.size)
        if self.form == "vector":
            return low, length
        base = f.cast("zext", self.arguments[1], "i64") if self.form == "lds" else self.arguments[0]
        return f.add(low, base), length


@builds("prefer")
def build_prefer(module: Module, name: str) -> None:
    """`sim.prefer(g, address, write)`: make the buffer that holds an address the one that is tried first, if there is one."""
    f = helper_function(module, name, "void", [("ptr", "g"), ("i64", "address"), ("i32", "write")])
    g, address, write = f.arguments
    table, writes = get(f, g, Context.TABLE, "ptr"), f.icmp("ne", write, 0)
    with loop(f, 0, get(f, g, Context.TABLE_COUNT)) as index:
        entry = f.gep(table, f.mul(index, 24))
        start, length = f.load("i64", entry, 8), f.load("i64", f.gep(entry, 8), 8)
        writable = f.icmp("ne", f.load("i64", f.gep(entry, 16), 8), 0)
        with when(f, f.and_(f.icmp("ult", f.sub(address, start), length), f.or_(writable, f.not_(writes)))):
            put(f, g, Context.READ_BASE, start)
            put(f, g, Context.READ_SIZE, length)
            with when(f, writes):
                put(f, g, Context.WRITE_BASE, start)
                put(f, g, Context.WRITE_SIZE, length)
            f.ret()
    f.ret()


# ---- one lane --------------------------------------------------------------------------------------------------------------------


def _slot(f: Function, row: Value, wave: int, dword: int, lane: Value, half: str) -> Value:
    """Where a lane's dword (or half of it) is in the state block."""
    return f.gep(f.gep(row, f.add(lane, dword * wave), "i32"), 2 if half == "h" else 0)


def load_lane(f: Function, row: Value, wave: int, access: Access, pointer: Value, lane: Value) -> None:
    """Move one lane's data from memory to its registers."""
    if access.size >= 4:
        for dword in range(access.dwords):
            f.store(f.load("i32", f.gep(pointer, 4 * dword), 1), _slot(f, row, wave, dword, lane, ""), 4)
        return
    value = f.load(f"i{8 * access.size}", pointer, 1)
    wide = f.cast("sext" if access.signed else "zext", value, "i16" if access.half else "i32")
    f.store(wide, _slot(f, row, wave, 0, lane, access.half), 2 if access.half else 4)


def store_lane(f: Function, row: Value, wave: int, access: Access, pointer: Value, lane: Value) -> None:
    """Move one lane's data from its registers to memory."""
    for dword in range(access.dwords):
        piece = f"i{8 * min(4, access.size)}"
        f.store(f.load(piece, _slot(f, row, wave, dword, lane, access.half), 2), f.gep(pointer, 4 * dword), 1)


def _each(form: _Form, row: Value, lane: Value) -> None:
    """The slow path's body: one lane, checked."""
    f, access, wave = form.f, form.access, form.wave
    move = store_lane if form.write else load_lane
    counter = _counter(form)

    def go(size: int, part: Access, first_row: Value, address: Value) -> None:
        with when(f, form.allowed(address, size, lane), likely=True):
            move(f, first_row, wave, part, form.pointer(address), lane)
            add_to(f, form.g, counter, const("i64", size))

    address = form.address(lane)
    if form.form != "buffer":
        go(access.size, access, row, address)
        return
    # A buffer checks each dword by itself.
    check, limit = form.check_offset(lane), form.limit
    part = Access(4) if access.size >= 4 else access
    for dword in range(access.dwords):
        at = f.gep(row, dword * wave, "i32")
        inside = f.icmp("ule", f.add(check, 4 * dword + part.size), limit)
        if form.write:
            with when(f, inside):
                go(part.size, part, at, f.add(address, 4 * dword))
            continue
        within, beyond, join = f.label("within"), f.label("beyond"), f.label("next")
        f.branch_if(inside, within, beyond)
        f.position(beyond)
        f.store(const("i16" if access.half else "i32", 0), _slot(f, at, wave, 0, lane, access.half), 2)
        f.branch(join)
        f.position(within)
        go(part.size, part, at, f.add(address, 4 * dword))
        f.branch(join)
        f.position(join)


def _counter(form: _Form) -> Context:
    if form.form == "lds":
        return Context.LDS_STORED if form.write else Context.LDS_LOADED
    return Context.STORED if form.write else Context.LOADED


# ---- all lanes -------------------------------------------------------------------------------------------------------------------


def _load_consecutive(f: Function, row: Value, wave: int, access: Access, pointer: Value) -> None:
    step = chunk(wave)
    for start in range(0, wave, step):
        if access.size < 4:
            raw = f.load(vector(step, f"i{8 * access.size}"), f.gep(pointer, start * access.size), 1)
            at = f.gep(row, 4 * start)
            if not access.half:
                f.store(f.cast("sext" if access.signed else "zext", raw, vector(step, "i32")), at, 16)
                continue
            half = f.cast("zext", f.cast("sext" if access.signed else "zext", raw, vector(step, "i16")), vector(step, "i32"))
            old = f.load(vector(step, "i32"), at, 16)
            new, kept = (f.shl(half, 16), 0xFFFF) if access.half == "h" else (half, 0xFFFF0000)
            f.store(f.or_(new, f.and_(old, kept)), at, 16)
            continue
        count = access.dwords
        parts = [f.load(vector(step, "i32"), f.gep(pointer, 4 * (start * count + step * i)), 1) for i in range(count)]
        for dword, value in enumerate(deinterleave(f, parts)):
            f.store(value, f.gep(row, 4 * (dword * wave + start)), 16)


def _store_consecutive(f: Function, row: Value, wave: int, access: Access, pointer: Value) -> None:
    step = chunk(wave)
    for start in range(0, wave, step):
        if access.size < 4:
            raw = f.load(vector(step, "i32"), f.gep(row, 4 * start), 16)
            narrow = f.cast("trunc", f.lshr(raw, 16) if access.half == "h" else raw, vector(step, f"i{8 * access.size}"))
            f.store(narrow, f.gep(pointer, start * access.size), 1)
            continue
        count = access.dwords
        rows = [f.load(vector(step, "i32"), f.gep(row, 4 * (dword * wave + start)), 16) for dword in range(count)]
        for i, value in enumerate(interleave(f, rows)):
            f.store(value, f.gep(pointer, 4 * (start * count + step * i)), 1)


def _gather(form: _Form, row: Value) -> None:
    """All lanes, 8 or 16 bytes each, anywhere: lanes j, j+q, j+2q … share a host register, so that the transpose stays within groups."""
    f, wave, count = form.f, form.wave, form.access.dwords
    step = chunk(wave)
    group = step // count  # lanes' pieces that one register holds
    for start in range(0, wave, step):
        # parts[j] holds lanes start + count*i + j for i < group, `count` dwords each.
        parts: list[Value] = []
        for j in range(count):
            pieces = [
                f.load(vector(count, "i32"), form.pointer(form.address(const("i64", start + count * i + j))), 1) for i in range(group)
            ]
            parts.append(_concatenate(f, pieces))
        for dword, value in enumerate(_transpose_groups(f, parts, count)):
            f.store(value, f.gep(row, 4 * (dword * wave + start)), 16)


def _scatter(form: _Form, row: Value) -> None:
    f, wave, count = form.f, form.wave, form.access.dwords
    step = chunk(wave)
    for start in range(0, wave, step):
        rows = [f.load(vector(step, "i32"), f.gep(row, 4 * (dword * wave + start)), 16) for dword in range(count)]
        for j, value in enumerate(_transpose_groups(f, rows, count)):
            for i in range(step // count):
                piece = f.shuffle(value, None, list(range(count * i, count * i + count)))
                f.store(piece, form.pointer(form.address(const("i64", start + count * i + j))), 1)


def _transpose_groups(f: Function, parts: Sequence[Value], count: int) -> list[Value]:
    """Transpose count x count blocks that lie side by side in `count` vectors (count 2 or 4)."""
    width = lanes(parts[0].type)

    def pick(x: Value, y: Value, low: Sequence[int]) -> Value:
        order = [base + (i % count) + (width if i >= count else 0) for base in range(0, width, count) for i in low]
        return f.shuffle(x, y, order)

    if count == 2:
        return [pick(parts[0], parts[1], (0, 2)), pick(parts[0], parts[1], (1, 3))]
    low01, high01 = pick(parts[0], parts[1], (0, 4, 1, 5)), pick(parts[0], parts[1], (2, 6, 3, 7))
    low23, high23 = pick(parts[2], parts[3], (0, 4, 1, 5)), pick(parts[2], parts[3], (2, 6, 3, 7))
    return [
        pick(low01, low23, (0, 1, 4, 5)),
        pick(low01, low23, (2, 3, 6, 7)),
        pick(high01, high23, (0, 1, 4, 5)),
        pick(high01, high23, (2, 3, 6, 7)),
    ]


# ---- the helpers -------------------------------------------------------------------------------------------------------------------


def form_parameters(form: str, wave: int) -> list[tuple[str, str]]:
    """Parameters of an address form."""
    wide, narrow = vector(wave, "i64"), vector(wave, "i32")
    return {
        "vector": [(wide, "address")],
        "scalar": [("i64", "base"), (narrow, "offset")],
        "buffer": [("i64", "base"), (narrow, "offset"), (narrow, "check"), ("i32", "limit")],
        "lds": [(narrow, "address"), ("i32", "offset")],
        "scratch": [("i64", "base"), (narrow, "offset")],
    }[form]


@builds("load")
def build_load(module: Module, name: str) -> None:
    _build(module, name, write=False)


@builds("store")
def build_store(module: Module, name: str) -> None:
    _build(module, name, write=True)


def _build(module: Module, name: str, write: bool) -> None:
    _, _, form_name, op, lane_count = name.split(".")
    wave = int(lane_count)
    access = (STORES if write else LOADS)[op]
    parameters = [("ptr", "g"), ("ptr", "row"), *form_parameters(form_name, wave), (f"i{wave}", "mask"), ("i32", "pc")]
    f = helper_function(module, name, "void", parameters)
    g, row = f.arguments[:2]
    form = _Form(f, form_name, wave, g, f.arguments[2:-2], access, write)
    if form_name == "scratch":
        _build_scratch(form, row)
        return
    if form_name == "lds":
        with when(f, f.icmp("ne", get(f, g, Context.COUNT_CONFLICTS), 0), likely=False):
            size = max(4, access.size)
            f.call(f"sim.conflicts.{size}.{wave}", "void", [g, f.add(f.arguments[2], f.splat(f.arguments[3], wave)), form.mask])
    total = wave * access.size
    with when(f, f.icmp("eq", form.mask, -1)):
        if access.dwords != 3:
            with when(f, f.and_(form.consecutive(), form.in_limit())):
                first = form.first_address()
                with when(f, form.range_allowed(first, total), likely=True):
                    (_store_consecutive if write else _load_consecutive)(f, row, wave, access, form.pointer(first))
                    add_to(f, g, _counter(form), const("i64", total))
                    f.ret()
        if access.dwords in (2, 4):
            first, length = form.span()
            reachable = f.and_(form.in_limit(), f.icmp("ult", length, const("i64", 1 << 40)))
            with when(f, reachable), when(f, form.range_allowed(first, length)):
                form.spill()
                (_scatter if write else _gather)(form, row)
                form.spilled.clear()
                add_to(f, g, _counter(form), const("i64", total))
                f.ret()
    form.spill()
    with each_lane(f, form.mask) as lane:
        _each(form, row, lane)
    f.ret()


def _build_scratch(form: _Form, row: Value) -> None:
    """Scratch: byte o of lane l is byte o % 4 of dword (o / 4) * wave + l, as the hardware swizzles it."""
    f, wave, access = form.f, form.wave, form.access
    size = get(f, form.g, Context.SCRATCH_SIZE)
    base = form.pointer(form.arguments[0])
    form.spill()
    move = store_lane if form.write else load_lane
    active = f.cast("zext", f.intrinsic("ctpop", [form.mask]), "i64")
    add_to(f, form.g, _counter(form), f.mul(active, access.size))
    with each_lane(f, form.mask) as lane:
        offset = form.address(lane)
        good = f.icmp("ule", f.add(offset, access.size), size)
        with when(f, f.not_(good), likely=False):
            fault(f, form.g, Fault.SCRATCH, offset, access.size, form.write, lane, form.pc)
        with when(f, good, likely=True):
            whole, odd, done = f.label("whole"), f.label("odd"), f.label("moved")
            inside_dword = (
                f.icmp("ule", f.add(f.and_(offset, 3), access.size), 4) if access.size < 4 else f.icmp("eq", f.and_(offset, 3), 0)
            )
            f.branch_if(inside_dword, whole, odd)
            f.position(whole)
            for dword in range(access.dwords):
                at = f.add(f.mul(f.add(f.lshr(offset, 2), dword), 4 * wave), f.add(f.shl(lane, 2), f.and_(offset, 3)))
                part = Access(4) if access.size >= 4 else access
                move(f, f.gep(row, dword * wave, "i32"), wave, part, f.gep(base, at), lane)
            f.branch(done)
            f.position(odd)
            # Across dwords: gather the bytes in a copy that is contiguous.
            copy = stack(f, "i128")
            if form.write:
                move(f, row, wave, access, copy, lane)
            for byte in range(access.size):
                here = f.add(offset, byte)
                at = f.gep(base, f.add(f.mul(f.lshr(here, 2), 4 * wave), f.add(f.shl(lane, 2), f.and_(here, 3))))
                source, target = (f.gep(copy, byte), at) if form.write else (at, f.gep(copy, byte))
                f.store(f.load("i8", source, 1), target, 1)
            if not form.write:
                move(f, row, wave, access, copy, lane)
            f.branch(done)
            f.position(done)
    f.ret()
