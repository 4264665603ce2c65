"""Helpers for atomic memory operations, for lane exchange through LDS hardware, and the model of LDS bank conflicts.

`sim.atomic.<form>.<op>.<wave>(g, result, data, <form>, mask, pc)`: one lane after the other, as the hardware may. `result` is the row for
the old values (null where they aren't wanted), `data` the first row of the operands. Forms are those of `accesses`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...llvmtext import Function, Module, Value, const, vector
from .accesses import Access, checked, fault, form_parameters
from .helpers import Context, Fault, add_to, builds, each_lane, get, helper_function, loop, stack, when
from .semantics.numeric import bfloat_to_float, float_to_bfloat, float_to_half, half_to_float


@dataclass(frozen=True)
class Atomic:
    """`rmw` is LLVM's operation ("" for compare-and-swap); `type_` what memory holds."""

    rmw: str
    type_: str


_INTEGERS = {
    "add": "add",
    "sub": "sub",
    "min_i": "min",
    "min_u": "umin",
    "max_i": "max",
    "max_u": "umax",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "swap": "xchg",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
    "cmpswap": "",
}
ATOMICS = {f"{name}{size}": Atomic(rmw, f"i{size}") for name, rmw in _INTEGERS.items() for size in (32, 64)} | {
    "add_f32": Atomic("fadd", "float"),
    "add_f64": Atomic("fadd", "double"),
    "min_f32": Atomic("fmin", "float"),
    "max_f32": Atomic("fmax", "float"),
    "min_f64": Atomic("fmin", "double"),
    "max_f64": Atomic("fmax", "double"),
    "pk_add_f16": Atomic("fadd", "<2 x half>"),
    "pk_add_bf16": Atomic("fadd", "<2 x bfloat>"),
}


def _read(f: Function, row: Value, wave: int, lane: Value, dwords: int, first: int = 0) -> Value:
    """A lane's operand of 1 or 2 dwords as an integer."""
    low = f.load("i32", f.gep(row, f.add(lane, first * wave), "i32"), 4)
    if dwords == 1:
        return low
    high = f.load("i32", f.gep(row, f.add(lane, (first + 1) * wave), "i32"), 4)
    return f.or_(f.cast("zext", low, "i64"), f.shl(f.cast("zext", high, "i64"), 32))


def _write(f: Function, row: Value, wave: int, lane: Value, value: Value) -> None:
    f.store(f.cast("trunc", value, "i32"), f.gep(row, lane, "i32"), 4)
    if value.type == "i64":
        f.store(f.cast("trunc", f.lshr(value, 32), "i32"), f.gep(row, f.add(lane, wave), "i32"), 4)


def _packed_add(f: Function, pointer: Value, data: Value, element: str) -> Value:
    """Add two packed halves atomically: a loop of compare-and-swap. Each sum is rounded once: f32 holds the sum of two halves well enough
    that rounding it again changes nothing (24 ≥ 2·11 + 2 bits)."""
    widen, narrow = (half_to_float, float_to_half) if element == "half" else (bfloat_to_float, float_to_bfloat)
    head, done = f.label("again"), f.label("added")
    first = f.load("i32", pointer, 4)
    before = f.current
    f.branch(head)
    f.position(head)
    old = f.phi("i32")
    old.add(first, before)
    halves = [f.bitcast(x, "<2 x i16>") for x in (old.value, data)]
    new = f.bitcast(narrow(f, f.binary("fadd", widen(f, halves[0]), widen(f, halves[1]))), "i32")
    pair = f.emit("{ i32, i1 }", f"cmpxchg {pointer}, {old.value}, {new} seq_cst seq_cst, align 4")
    seen = f.emit("i32", f"extractvalue {pair}, 0")
    old.add(seen, f.current)
    f.branch_if(f.emit("i1", f"extractvalue {pair}, 1"), done, head)
    f.position(done)
    return old.value


def _apply(f: Function, atomic: Atomic, pointer: Value, data: Value, other: Value | None) -> Value:
    """Perform the operation; the old value as an integer."""
    size = 64 if data.type == "i64" else 32
    if other is not None:
        pair = f.emit(f"{{ {data.type}, i1 }}", f"cmpxchg {pointer}, {other}, {data} seq_cst seq_cst, align {size // 8}")
        return f.emit(data.type, f"extractvalue {pair}, 0")
    if atomic.type_.startswith("<2"):
        return _packed_add(f, pointer, data, atomic.type_.split()[-1][:-1])
    operand = f.bitcast(data, atomic.type_)
    old = f.emit(atomic.type_, f"atomicrmw {atomic.rmw} {pointer}, {operand} seq_cst, align {size // 8}")
    return f.bitcast(old, data.type)


@builds("atomic")
def build_atomic(module: Module, name: str) -> None:
    _, _, form_name, op, lane_count = name.split(".")
    wave, atomic = int(lane_count), ATOMICS[op]
    dwords = 2 if atomic.type_ in ("i64", "double") else 1
    access = Access(4 * dwords, dwords)
    parameters = [("ptr", "g"), ("ptr", "result"), ("ptr", "data"), *form_parameters(form_name, wave), (f"i{wave}", "mask"), ("i32", "pc")]
    f = helper_function(module, name, "void", parameters)
    g, result, data = f.arguments[:3]
    mask, pc = f.arguments[-2:]
    arguments = f.arguments[3:-2]
    places = {a: stack(f, a.type) for a in arguments if a.type.startswith("<")}
    for value, place in places.items():
        f.store(value, place, 64)

    def own(value: Value, lane: Value) -> Value:
        scalar = "i64" if form_name == "vector" else "i32"
        return f.cast("zext", f.load(scalar, f.gep(places[value], lane, scalar), 4), "i64")

    with each_lane(f, mask) as lane:
        skip = f.label("skip")
        if form_name == "lds":
            address = f.add(own(arguments[0], lane), f.cast("zext", arguments[1], "i64"))
            good, kind = f.icmp("ule", f.add(address, access.size), get(f, g, Context.LDS_SIZE)), Fault.LDS
            with when(f, f.not_(good), likely=False):
                fault(f, g, kind, address, access.size, True, lane, pc)
            pointer = f.gep(get(f, g, Context.LDS, "ptr"), address)
        else:
            address = own(arguments[0], lane) if form_name == "vector" else f.add(arguments[0], own(arguments[1], lane))
            if form_name == "buffer":  # all or nothing, and the old value reads as zero
                inside = f.icmp("ule", f.add(own(arguments[2], lane), access.size), f.cast("zext", arguments[3], "i64"))
                within, beyond = f.label("within"), f.label("beyond")
                f.branch_if(inside, within, beyond)
                f.position(beyond)
                with when(f, f.icmp("ne", result, Value("ptr", "null"))):
                    _write(f, result, wave, lane, const(f"i{32 * dwords}", 0))
                f.branch(skip)
                f.position(within)
            good, kind = checked(f, g, address, access.size, True, lane, pc), Fault.GLOBAL
            pointer = f.emit("ptr", f"inttoptr {address} to ptr")
        aligned = f.icmp("eq", f.and_(address, access.size - 1), 0)
        with when(f, f.and_(good, f.not_(aligned)), likely=False):
            fault(f, g, kind, address, access.size, True, lane, pc)
        with when(f, f.and_(good, aligned), likely=True):
            other = _read(f, data, wave, lane, dwords, dwords) if not atomic.rmw else None
            old = _apply(f, atomic, pointer, _read(f, data, wave, lane, dwords), other)
            with when(f, f.icmp("ne", result, Value("ptr", "null"))):
                _write(f, result, wave, lane, old)
            if form_name == "lds":
                add_to(f, g, Context.LDS_STORED, const("i64", access.size))
            else:
                add_to(f, g, Context.STORED, const("i64", access.size))
        f.branch(skip)
        f.position(skip)
    f.ret()


# ---- lane exchange ----------------------------------------------------------------------------------------------------------------


@builds("bpermute")
def build_bpermute(module: Module, name: str) -> None:
    """`sim.bpermute.<wave>.<group>(result, address, data, mask)`: each active lane reads the data of lane address/4 of its group of lanes;
    inactive lanes give 0."""
    _, _, lane_count, group_count = name.split(".")
    wave, group = int(lane_count), int(group_count)
    row = vector(wave, "i32")
    f = helper_function(module, name, "void", [("ptr", "result"), (row, "address"), (row, "data"), (f"i{wave}", "mask")])
    result, address, data, mask = f.arguments
    places = [stack(f, row), stack(f, row)]
    active = f.bitcast(mask, vector(wave, "i1"))
    f.store(address, places[0], 64)
    f.store(f.select(active, data, const(row, 0)), places[1], 64)
    with each_lane(f, mask) as lane:
        source = f.and_(f.lshr(f.load("i32", f.gep(places[0], lane, "i32"), 4), 2), group - 1)
        index = f.or_(f.and_(lane, -group), f.cast("zext", source, "i64"))
        f.store(f.load("i32", f.gep(places[1], index, "i32"), 4), f.gep(result, lane, "i32"), 4)
    f.ret()


@builds("permute")
def build_permute(module: Module, name: str) -> None:
    """`sim.permute.<wave>.<group>(result, address, data, mask)`: each active lane sends its data to lane address/4 of its group; the
    highest sender wins; lanes that nobody sends to get 0."""
    _, _, lane_count, group_count = name.split(".")
    wave, group = int(lane_count), int(group_count)
    row = vector(wave, "i32")
    f = helper_function(module, name, "void", [("ptr", "result"), (row, "address"), (row, "data"), (f"i{wave}", "mask")])
    result, address, data, mask = f.arguments
    places = [stack(f, row) for _ in range(3)]
    f.store(address, places[0], 64)
    f.store(data, places[1], 64)
    f.store(const(row, 0), places[2], 64)
    with each_lane(f, mask) as lane:
        target = f.and_(f.lshr(f.load("i32", f.gep(places[0], lane, "i32"), 4), 2), group - 1)
        index = f.or_(f.and_(lane, -group), f.cast("zext", target, "i64"))
        f.store(f.load("i32", f.gep(places[1], lane, "i32"), 4), f.gep(places[2], index, "i32"), 4)
    with each_lane(f, mask) as lane:
        f.store(f.load("i32", f.gep(places[2], lane, "i32"), 4), f.gep(result, lane, "i32"), 4)
    f.ret()


# ---- bank conflicts -----------------------------------------------------------------------------------------------------------------

BANKS = 32


@builds("conflicts")
def build_conflicts(module: Module, name: str) -> None:
    """`sim.conflicts.<size>.<wave>(g, address, mask)`: count LDS cycles and conflicts of one access.

    The model: 32 banks of 4 bytes. Lanes are served in groups of neighbours that ask for 32 dwords together (32 lanes of 4 bytes, 16 of
    8, 8 of 12 or 16). A group takes as many cycles as the busiest bank has different dwords; equal dwords are broadcast. Conflicts are the
    cycles beyond one a group. Groups without an active lane take none.
    """
    _, _, size_text, lane_count = name.split(".")
    size, wave = int(size_text), int(lane_count)
    dwords = size // 4
    group = 32 // (4 if dwords == 3 else dwords)
    slots = group * dwords
    row = vector(wave, "i32")
    f = helper_function(module, name, "void", [("ptr", "g"), (row, "address"), (f"i{wave}", "mask")])
    g, address, mask = f.arguments
    places, asked, banks = stack(f, row), stack(f, vector(slots, "i32")), stack(f, vector(BANKS, "i32"))
    f.store(f.lshr(address, 2), places, 64)
    most = stack(f, "i32")
    wide = f.cast("zext", mask, "i64")
    with loop(f, 0, const("i64", wave), group) as start:
        active = f.and_(f.lshr(wide, start), (1 << group) - 1)
        with when(f, f.icmp("ne", active, 0)):
            f.store(const(vector(BANKS, "i32"), 0), banks, 64)
            f.store(const("i32", 0), most, 4)
            # Inactive lanes ask for what no lane can ask for, and aren't counted.
            f.store(const(vector(slots, "i32"), -1), asked, 64)
            with each_lane(f, active) as lane:
                first = f.load("i32", f.gep(places, f.add(start, lane), "i32"), 4)
                for dword in range(dwords):
                    value = f.add(first, dword)
                    seen = f.icmp("eq", f.load(vector(slots, "i32"), asked, 64), f.splat(value, slots))
                    new = f.icmp("eq", f.intrinsic("vector.reduce.or", [seen], "i1"), const("i1", False))
                    f.store(value, f.gep(asked, f.add(f.mul(lane, dwords), dword), "i32"), 4)
                    with when(f, new):
                        bank = f.gep(banks, f.and_(value, BANKS - 1), "i32")
                        count = f.add(f.load("i32", bank, 4), 1)
                        f.store(count, bank, 4)
                        f.store(f.intrinsic("umax", [count, f.load("i32", most, 4)]), most, 4)
            cycles = f.cast("zext", f.load("i32", most, 4), "i64")
            add_to(f, g, Context.LDS_CYCLES, cycles)
            add_to(f, g, Context.LDS_CONFLICTS, f.sub(cycles, 1))
    f.ret()
