"""Who touched each byte: the records by which races are found, and the helpers that keep them.

A byte of LDS, and of each global buffer that may be written, has three records of 8 bytes: the last write and two reads by different waves.
A record says who and when:

    bits 40-63  workgroup + 1 (0: no record)
    bits 35-39  wave
    bits 15-34  phase: barriers that the wave had passed
    bit 14      atomic
    bits 0-13   the instruction (its number among those that touch memory)

Two accesses of which one writes, by different waves, are ordered only by a barrier that both pass: they race if their phases are equal, in
whatever order they happen to run here. Workgroups are never ordered. Atomics don't race with atomics. Two reads by different waves are
enough to keep: whoever writes in the same phase differs from one of them.

An access that may not have finished when its wave reaches a barrier belongs to the phase behind it too. Instructions that may do so
(`waits`) note their accesses in a ring per queue; at a barrier those that no wait has covered are entered again with the next phase
(`sim.race.cross`).

Loads of global memory also go through a cache of their compute unit. Where a workgroup may run on two (WGP mode), a wave sees another's
write only if it has invalidated that cache since the barrier behind the write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ....llvmtext import Function, Module, Value, const, vector
from ..accesses import fault
from ..helpers import Context, Fault, builds, each_lane, get, helper_function, loop, when
from ..state import Field

RECORD = 24  # bytes a byte
NO_RECORD = 0
GROUP_SHIFT, WAVE_SHIFT, PHASE_SHIFT, ATOMIC_BIT = 40, 35, 15, 14
MAX_GROUPS, MAX_SITES, MAX_PHASE = (1 << 24) - 1, 1 << 14, (1 << 20) - 1
RING = 64  # operations that a wave can have under way in one queue


class Hook(IntEnum):
    """Byte offsets of the checking mode's fields in the context, 8 bytes each."""

    LDS_BYTES = Context.HOOKS  # of the workgroup's LDS, in whole 64 bytes; its shadow follows it, and the records follow that
    BUFFERS = Context.HOOKS + 8  # writable ranges: {start, size, records} x BUFFER_COUNT
    BUFFER_COUNT = Context.HOOKS + 16
    LAST_BASE = Context.HOOKS + 24  # the range used last
    LAST_SIZE = Context.HOOKS + 32
    LAST_RECORDS = Context.HOOKS + 40
    SCRATCH_BYTES = Context.HOOKS + 48  # of a wave's scratch; its shadow follows it
    # What was found first.
    FINDING = Context.HOOKS + 64  # a `Finding`
    SITE = Context.HOOKS + 72  # the instruction that was found out
    LANE = Context.HOOKS + 80
    ADDRESS = Context.HOOKS + 88
    OTHER = Context.HOOKS + 96  # the record that it collides with
    MINE = Context.HOOKS + 104
    GROUP = Context.HOOKS + 112
    WAVE = Context.HOOKS + 120
    # The first store of undefined data, which doesn't stop the run: a race may be behind it.
    UNDEFINED_SITE = Context.HOOKS + 128  # site + 1
    UNDEFINED_LANE = Context.HOOKS + 136
    UNDEFINED_GROUP = Context.HOOKS + 144
    UNDEFINED_WAVE = Context.HOOKS + 152
    END = Context.HOOKS + 160


MIRROR = 2048  # offset in the context of a second one, which helpers get to move shadows


class Finding(IntEnum):
    """What the checking mode found."""

    NOTHING = 0
    LDS_RACE = 1
    GLOBAL_RACE = 2
    STALE = 3  # a write that may be hidden behind the reader's cache
    UNDEFINED = 4
    TOO_MANY_BARRIERS = 5


class Mark(IntEnum):
    """Offsets in the state block of what the checking mode keeps for a wave (i32)."""

    BEGUN = Field.SPILL  # whether the shadow has been set up
    PHASE = Field.SPILL + 4
    CLEAN = Field.SPILL + 8  # the phase in which the wave invalidated its cache last, + 1
    ISSUED = Field.SPILL + 16  # operations issued, by ring
    DONE = Field.SPILL + 32  # and known to be finished


@dataclass(frozen=True)
class Entry:
    """Layout of an entry of a ring, in bytes, and of a ring."""

    wave: int

    NUMBER = 0  # i32: the operation's number in its queue
    SITE = 4  # i32
    SIZE = 8  # i32: bytes a lane
    KIND = 12  # i32: a `Kind`
    MASK = 16  # i64
    ADDRESSES = 64

    @property
    def size(self) -> int:
        return self.ADDRESSES + 8 * self.wave

    @property
    def ring(self) -> int:
        return RING * self.size


class Kind(IntEnum):
    """Accesses in a ring."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    IN_LDS = 4  # added


def _report(f: Function, g: Value, finding: Value, site: Value, lane: Value, address: Value, other: Value, mine: Value, pc: Value) -> None:
    f.call("sim.race.report", "void", [g, finding, site, lane, address, other, mine, pc])


def _put(f: Function, g: Value, hook: Hook, value: Value) -> None:
    f.store(f.cast("zext", value, "i64"), f.gep(g, int(hook)), 8)


def _hook(f: Function, g: Value, hook: Hook, type_: str = "i64") -> Value:
    return f.load(type_, f.gep(g, int(hook)), 8)


def build_report(module: Module, name: str) -> None:
    """`sim.race.report(g, finding, site, lane, address, other, mine, pc)`: note the first finding and stop the wave."""
    names = ("finding", "site", "lane", "address", "other", "mine")
    f = helper_function(module, name, "void", [("ptr", "g"), *(("i64", n) for n in names), ("i32", "pc")])
    g, finding, site, lane, address, other, mine, pc = f.arguments
    with when(f, f.icmp("eq", get(f, g, Context.FAULT, "i32"), 0)):
        values = {Hook.FINDING: finding, Hook.SITE: site, Hook.LANE: lane, Hook.ADDRESS: address, Hook.OTHER: other, Hook.MINE: mine}
        for hook, value in values.items():
            _put(f, g, hook, value)
        _put(f, g, Hook.GROUP, get(f, g, Context.GROUP))
        _put(f, g, Hook.WAVE, get(f, g, Context.WAVE))
    fault(f, g, Fault.CHECK, address, 0, False, lane, pc)
    f.ret()


def build_undefined(module: Module, name: str) -> None:
    """`sim.race.undefined(g, lanes, site, later, pc)`: note that some lanes use undefined data; nothing where there are none. With `later`
    the run goes on."""
    f = helper_function(module, name, "void", [("ptr", "g"), ("i64", "lanes"), ("i64", "site"), ("i32", "later"), ("i32", "pc")])
    g, lanes, site, later, pc = f.arguments
    with when(f, f.icmp("ne", lanes, 0), likely=False):
        lane = f.call("llvm.cttz.i64", "i64", [lanes, const("i1", True)])
        with when(f, f.icmp("ne", later, 0)):
            with when(f, f.icmp("eq", _hook(f, g, Hook.UNDEFINED_SITE), 0)):
                _put(f, g, Hook.UNDEFINED_SITE, f.add(site, 1))
                _put(f, g, Hook.UNDEFINED_LANE, lane)
                _put(f, g, Hook.UNDEFINED_GROUP, get(f, g, Context.GROUP))
                _put(f, g, Hook.UNDEFINED_WAVE, get(f, g, Context.WAVE))
            f.ret()
        nothing = const("i64", 0)
        _report(f, g, const("i64", Finding.UNDEFINED), site, lane, nothing, nothing, nothing, pc)
    f.ret()


def _me(f: Function, g: Value, phase: Value, site: Value, atomic: bool) -> Value:
    """The record of an access."""
    group = f.shl(f.add(get(f, g, Context.GROUP), 1), GROUP_SHIFT)
    wave = f.shl(get(f, g, Context.WAVE), WAVE_SHIFT)
    when_ = f.shl(f.cast("zext", phase, "i64"), PHASE_SHIFT)
    return f.or_(f.or_(group, wave), f.or_(when_, f.or_(f.cast("zext", site, "i64"), int(atomic) << ATOMIC_BIT)))


def _phase(f: Function, record: Value) -> Value:
    return f.and_(f.lshr(record, PHASE_SHIFT), MAX_PHASE)


def _other_wave(f: Function, x: Value, me: Value) -> Value:
    """i1: there is a record, of another wave (or workgroup)."""
    return f.and_(f.icmp("ne", x, NO_RECORD), f.icmp("ne", f.lshr(f.xor(x, me), WAVE_SHIFT), 0))


def _unordered(f: Function, x: Value, me: Value) -> Value:
    """i1: of another workgroup, or not of an earlier phase."""
    return f.or_(f.icmp("ne", f.lshr(f.xor(x, me), GROUP_SHIFT), 0), f.icmp("uge", _phase(f, x), _phase(f, me)))


def _races(f: Function, x: Value, me: Value) -> Value:
    """i1: the access of a record races with ours, of which one at least writes."""
    both_atomic = f.icmp("ne", f.and_(f.and_(x, me), 1 << ATOMIC_BIT), 0)
    return f.and_(f.and_(_other_wave(f, x, me), _unordered(f, x, me)), f.not_(both_atomic))


def _note_read(f: Function, at: Value, me: Value) -> None:
    """Put our read into one of the two read records of the byte at `at`: over our own, or one that is over."""
    slots = [f.gep(at, 8), f.gep(at, 16)]
    values = [f.load("i64", slot, 8) for slot in slots]
    replaced = [f.not_(f.and_(_other_wave(f, value, me), _unordered(f, value, me))) for value in values]
    mine = [f.icmp("eq", f.lshr(f.xor(value, me), WAVE_SHIFT), 0) for value in values]
    # Our own record first, so that we never fill both.
    first = f.or_(mine[0], f.and_(replaced[0], f.not_(mine[1])))
    second = f.and_(f.not_(first), replaced[1])
    for use, slot, value, own in zip((first, second), slots, values, mine, strict=True):
        # A wave that has read and done an atomic in one phase counts as a reader.
        plain = f.and_(me, f.or_(value, ~(1 << ATOMIC_BIT)))
        same_phase = f.and_(own, f.icmp("eq", _phase(f, value), _phase(f, me)))
        f.store(f.select(use, f.select(same_phase, plain, me), value), slot, 8)


def _byte(f: Function, g: Value, at: Value, me: Value, kind: str, finding: Finding, address: Value, lane: Value, pc: Value) -> None:
    """Check and enter one access of one byte; `kind` is "r", "w" or "a"."""

    def look(record: Value, ours: Value) -> None:
        with when(f, _races(f, record, ours), likely=False):
            site = f.and_(ours, MAX_SITES - 1)
            _report(f, g, const("i64", finding), site, lane, address, record, ours, pc)

    look(f.load("i64", at, 8), me)
    if kind == "r":
        # Atomics by others are in the read records too.
        for offset in (8, 16):
            record = f.load("i64", f.gep(at, offset), 8)
            is_atomic = f.icmp("ne", f.and_(record, 1 << ATOMIC_BIT), 0)
            with when(f, is_atomic, likely=False):
                look(record, me)
    else:
        for offset in (8, 16):
            look(f.load("i64", f.gep(at, offset), 8), me)
        f.store(me, at, 8)
    if kind != "w":
        _note_read(f, at, me)


def build_lds(module: Module, name: str) -> None:
    """`sim.race.lds.<bytes>.<kind>.<wave>(g, address, mask, phase, site, pc)`: lanes touch `bytes` of LDS at their addresses."""
    _, _, _, size, kind, wave = name.split(".")
    f = helper_function(module, name, "void", _parameters(int(wave)))
    g, address, mask, phase, site, pc = f.arguments
    bytes_ = _hook(f, g, Hook.LDS_BYTES)
    records = f.gep(get(f, g, Context.LDS, "ptr"), f.shl(bytes_, 1))
    me = _me(f, g, phase, site, kind == "a")
    limit = get(f, g, Context.LDS_SIZE)
    places = _spilled(f, address)
    with each_lane(f, mask) as lane:
        first = f.load("i64", f.gep(places, lane, "i64"), 8)
        with when(f, f.icmp("ule", f.add(first, int(size)), limit)), loop(f, 0, const("i64", int(size))) as byte:
            here = f.add(first, byte)
            _byte(f, g, f.gep(records, f.mul(here, RECORD)), me, kind, Finding.LDS_RACE, here, lane, pc)
    f.ret()


def _parameters(wave: int) -> list[tuple[str, str]]:
    return [("ptr", "g"), (vector(wave, "i64"), "address"), ("i64", "mask"), ("i32", "phase"), ("i32", "site"), ("i32", "pc")]


def _spilled(f: Function, address: Value) -> Value:
    place = f.emit("ptr", f"alloca {address.type}, align 64")
    f.store(address, place, 64)
    return place


def build_find_records(module: Module, name: str) -> None:
    """`sim.race.find(g, address)`: make the writable range that holds an address the one used last; size 0 where none does."""
    f = helper_function(module, name, "void", [("ptr", "g"), ("i64", "address")])
    g, address = f.arguments
    table = _hook(f, g, Hook.BUFFERS, "ptr")
    with loop(f, 0, _hook(f, g, Hook.BUFFER_COUNT)) as index:
        entry = f.gep(table, f.mul(index, 24))
        values = [f.load("i64", f.gep(entry, 8 * i), 8) for i in range(3)]
        with when(f, f.icmp("ult", f.sub(address, values[0]), values[1])):
            for hook, value in zip((Hook.LAST_BASE, Hook.LAST_SIZE, Hook.LAST_RECORDS), values, strict=True):
                _put(f, g, hook, value)
            f.ret()
    _put(f, g, Hook.LAST_SIZE, const("i64", 0))
    f.ret()


def _record_of(f: Function, g: Value, address: Value) -> tuple[Value, Value]:
    """(whether the byte has records, where they are)."""
    inside = f.icmp("ult", f.sub(address, _hook(f, g, Hook.LAST_BASE)), _hook(f, g, Hook.LAST_SIZE))
    with when(f, f.not_(inside), likely=False):
        f.call("sim.race.find", "void", [g, address])
    base, size = _hook(f, g, Hook.LAST_BASE), _hook(f, g, Hook.LAST_SIZE)
    offset = f.sub(address, base)
    return f.icmp("ult", offset, size), f.gep(_hook(f, g, Hook.LAST_RECORDS, "ptr"), f.mul(offset, RECORD))


def build_global(module: Module, name: str) -> None:
    """`sim.race.global.<bytes>.<kind>.<wave>(g, address, mask, phase, site, pc, clean)`: as `lds`; bytes of no writable buffer are
    passed over. `clean` is what `Mark.CLEAN` holds, or -1 where caches don't matter."""
    _, _, _, size, kind, wave = name.split(".")
    f = helper_function(module, name, "void", [*_parameters(int(wave)), ("i32", "clean")])
    g, address, mask, phase, site, pc, clean = f.arguments
    me = _me(f, g, phase, site, kind == "a")
    places = _spilled(f, address)
    with each_lane(f, mask) as lane:
        first = f.load("i64", f.gep(places, lane, "i64"), 8)
        with loop(f, 0, const("i64", int(size))) as byte:
            here = f.add(first, byte)
            known, at = _record_of(f, g, here)
            with when(f, known):
                _byte(f, g, at, me, kind, Finding.GLOBAL_RACE, here, lane, pc)
                if kind == "r":
                    written = f.load("i64", at, 8)
                    stale = f.and_(_other_wave(f, written, me), f.icmp("uge", f.add(_phase(f, written), 1), f.cast("zext", clean, "i64")))
                    with when(f, stale, likely=False):
                        low = f.cast("zext", site, "i64")
                        _report(f, g, const("i64", Finding.STALE), low, lane, here, written, me, pc)
    f.ret()


# ---- accesses that outlive a barrier ---------------------------------------------------------------------------------------------------


def build_follow(module: Module, name: str) -> None:
    """`sim.race.follow.<wave>(ring, number, address, mask, site, size, kind)`: note an access in a ring."""
    wave = int(name.split(".")[3])
    entry = Entry(wave)
    wide = vector(wave, "i64")
    parameters = [("ptr", "ring"), ("i32", "number"), (wide, "address"), ("i64", "mask"), ("i32", "site"), ("i32", "size"), ("i32", "kind")]
    f = helper_function(module, name, "void", parameters)
    ring, number, address, mask, site, size, kind = f.arguments
    at = f.gep(ring, f.mul(f.cast("zext", f.and_(number, RING - 1), "i64"), entry.size))
    for offset, value in ((entry.NUMBER, number), (entry.SITE, site), (entry.SIZE, size), (entry.KIND, kind)):
        f.store(value, f.gep(at, offset), 4)
    f.store(mask, f.gep(at, entry.MASK), 8)
    f.store(address, f.gep(at, entry.ADDRESSES), 64)
    f.ret()


def build_cross(module: Module, name: str) -> None:
    """`sim.race.cross.<wave>(g, ring, done, issued, phase)`: at a barrier, before `phase`: the accesses in a ring that have not finished
    are entered again, with that phase."""
    wave = int(name.split(".")[3])
    entry = Entry(wave)
    f = helper_function(module, name, "void", [("ptr", "g"), ("ptr", "ring"), ("i32", "done"), ("i32", "issued"), ("i32", "phase")])
    g, ring, done, issued, phase = f.arguments
    lds_bytes = _hook(f, g, Hook.LDS_BYTES)
    lds_records = f.gep(get(f, g, Context.LDS, "ptr"), f.shl(lds_bytes, 1))
    lds_limit = get(f, g, Context.LDS_SIZE)
    oldest = f.intrinsic("umax", [done, f.intrinsic("usub.sat", [issued, const("i32", RING)])])
    with loop(f, f.cast("zext", oldest, "i64"), f.cast("zext", issued, "i64")) as before:
        number = f.add(f.cast("trunc", before, "i32"), 1)
        at = f.gep(ring, f.mul(f.cast("zext", f.and_(number, RING - 1), "i64"), entry.size))
        with when(f, f.icmp("eq", f.load("i32", f.gep(at, entry.NUMBER), 4), number)):
            kind = f.load("i32", f.gep(at, entry.KIND), 4)
            site = f.load("i32", f.gep(at, entry.SITE), 4)
            size = f.cast("zext", f.load("i32", f.gep(at, entry.SIZE), 4), "i64")
            in_lds = f.icmp("ne", f.and_(kind, Kind.IN_LDS), 0)
            atomic = f.icmp("ne", f.and_(kind, Kind.ATOMIC), 0)
            reads = f.icmp("eq", f.and_(kind, Kind.WRITE), 0)
            writes = f.icmp("ne", f.and_(kind, Kind.WRITE | Kind.ATOMIC), 0)
            me = f.or_(_me(f, g, phase, site, False), f.shl(f.cast("zext", atomic, "i64"), ATOMIC_BIT))
            with each_lane(f, f.load("i64", f.gep(at, entry.MASK), 8)) as lane:
                first = f.load("i64", f.gep(f.gep(at, entry.ADDRESSES), lane, "i64"), 8)
                with loop(f, 0, size) as byte:
                    here = f.add(first, byte)
                    with when(f, f.and_(in_lds, f.icmp("ult", here, lds_limit))):
                        _enter(f, f.gep(lds_records, f.mul(here, RECORD)), me, reads, writes)
                    with when(f, f.not_(in_lds)):
                        known, record = _record_of(f, g, here)
                        with when(f, known):
                            _enter(f, record, me, reads, writes)
    f.ret()


def _enter(f: Function, record: Value, me: Value, reads: Value, writes: Value) -> None:
    with when(f, writes):
        f.store(me, record, 8)
    with when(f, reads):
        _note_read(f, record, me)


def build_begin(module: Module, name: str) -> None:
    """`sim.race.begin(g, scratch)`: a wave starts: its scratch is undefined; the first wave of a workgroup clears the records of LDS."""
    f = helper_function(module, name, "void", [("ptr", "g"), ("i64", "scratch")])
    g, scratch = f.arguments
    size = _hook(f, g, Hook.SCRATCH_BYTES)
    start = f.emit("ptr", f"inttoptr {f.add(scratch, size)} to ptr")
    with loop(f, 0, size, 64) as at:
        f.store(const("<16 x i32>", -1), f.gep(start, at), 64)
    with when(f, f.icmp("eq", get(f, g, Context.WAVE), 0)):
        lds_bytes = _hook(f, g, Hook.LDS_BYTES)
        records = f.gep(get(f, g, Context.LDS, "ptr"), f.shl(lds_bytes, 1))
        with loop(f, 0, f.mul(lds_bytes, RECORD), 64) as at:
            f.store(const("<16 x i32>", 0), f.gep(records, at), 64)
    f.ret()


_BUILDERS = {
    "begin": build_begin,
    "report": build_report,
    "undefined": build_undefined,
    "lds": build_lds,
    "global": build_global,
    "find": build_find_records,
    "follow": build_follow,
    "cross": build_cross,
}


@builds("race")
def build_race(module: Module, name: str) -> None:
    """The helpers of the checking mode, by the second word of their name."""
    _BUILDERS[name.split(".")[2]](module, name)
