"""Running workgroups: the loop over them in host code, the threads that run it, and what they hand back.

Each thread makes one foreign call, which releases the interpreter's lock, and takes workgroups from a shared counter until there are none
left (`sim.run`). A workgroup runs its waves in turn, each until it ends, waits at a barrier, sleeps or has used up its slice. When all
wait, the barrier opens; where some have ended and others wait, that is reported as a deadlock (RDNA hardware would let the others go on,
but no portable program may count on it). A workgroup that sleeps, or has been at it for long, steps aside for others (`SLOTS` may be begun
at a time), so that workgroups that wait for one another get on.

A wave's registers start from an image that Python prepares once a launch; workgroup ids are patched in, and what nothing sets is all ones
(a NaN in every float format, an address in no buffer). LDS starts as all ones too.

The first workgroup runs in the caller, unless the code needs a deep stack; the rest go to a pool of threads only where the first has shown
that they are worth waking.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from ...llvmtext import Function, Module, Value, const
from . import helpers
from .helpers import Context, Fault, builds, get, helper_function, loop, put, when
from .lifter import Reason
from .state import Field

SLICE = 1 << 16  # wave instructions before a wave must let others run; less where the cap on run-away loops asks for it
ROTATE = 1 << 21  # wave instructions before a workgroup must let others run
SLOTS = 64  # workgroups that a thread may have begun
SLOT_MEMORY = 1 << 28  # bytes that a thread's workgroups may take
_NO_LIMIT = 1 << 62
WORTH_WAKING = 4e-4  # seconds of work that other threads are woken for
STACK = 1 << 27  # bytes of address space; a frame of the quickly compiled code of a huge kernel takes some 300 an instruction


class Job(IntEnum):
    """Byte offsets of the fields of a job: what all threads of a launch share. 8 bytes each."""

    NEXT = 0  # the next workgroup, an atomic counter
    TOTAL = 64  # on a cache line of its own
    GRID_X = 72
    GRID_Y = 80
    WAVES = 88
    STATE_SIZE = 96
    IMAGE = 104
    IMAGE_SIZE = 112  # bytes a wave
    KERNEL = 120
    LDS_SIZE = 128
    SCRATCH_SIZE = 136  # bytes a wave
    MAX_INSTRUCTIONS = 144
    STOP = 152
    PATCHES = 160  # count, then pairs (offset in the state block, Id)
    FIRST_PATCH = 168
    SLICE = 256
    SIZE = 320


class Id(IntEnum):
    """What is patched into a wave's registers for each workgroup."""

    X = 0
    Y = 1
    Z = 2
    Y_AND_Z = 3  # y | z << 16


class Slot(IntEnum):
    """Byte offsets in a slot: a workgroup that has been begun. The waves' states follow, then LDS, then scratch."""

    ACTIVE = 0
    GROUP = 8
    USED = 16  # wave instructions so far
    X = 24
    Y = 32
    Z = 40
    SIZE = 64


class Verdict(IntEnum):
    """How `sim.group` left a workgroup."""

    DONE = 0
    ASIDE = 1
    STOP = 2


_RUNNING, _WAITING, _ENDED = 0, 1, 2  # Field.STATUS


def _job(f: Function, job: Value, item: Job, type_: str = "i64") -> Value:
    return f.load(type_, f.gep(job, int(item)), 8)


def _fill(f: Function, start: Value, size: Value) -> None:
    """Set `size` bytes (a multiple of 64) to ones."""
    with loop(f, 0, size, 64) as at:
        f.store(const("<16 x i32>", -1), f.gep(start, at), 64)


@builds("begin")
def build_begin(module: Module, name: str) -> None:
    """`sim.begin(job, slot, index)`: set up the waves, LDS and ids of a workgroup."""
    f = helper_function(module, name, "void", [("ptr", "job"), ("ptr", "slot"), ("i64", "index")])
    job, slot, index = f.arguments
    width, height = _job(f, job, Job.GRID_X), _job(f, job, Job.GRID_Y)
    x, rest = f.emit("i64", f"urem {index}, {width.text}"), f.emit("i64", f"udiv {index}, {width.text}")
    y, z = f.emit("i64", f"urem {rest}, {height.text}"), f.emit("i64", f"udiv {rest}, {height.text}")
    fields = ((Slot.ACTIVE, const("i64", 1)), (Slot.GROUP, index), (Slot.USED, const("i64", 0)), (Slot.X, x), (Slot.Y, y), (Slot.Z, z))
    for item, value in fields:
        f.store(value, f.gep(slot, int(item)), 8)
    waves, size = _job(f, job, Job.WAVES), _job(f, job, Job.STATE_SIZE)
    image, image_size = _job(f, job, Job.IMAGE, "ptr"), _job(f, job, Job.IMAGE_SIZE)
    lds_size, scratch_size = _job(f, job, Job.LDS_SIZE), _job(f, job, Job.SCRATCH_SIZE)
    first = f.gep(slot, int(Slot.SIZE))
    lds = f.gep(first, f.mul(waves, size))
    _fill(f, lds, lds_size)
    scratch = f.emit("i64", f"ptrtoint {f.gep(lds, lds_size)} to i64")
    with loop(f, 0, waves) as wave:
        state = f.gep(first, f.mul(wave, size))
        source = f.gep(image, f.mul(wave, image_size))
        with loop(f, 0, image_size, 64) as at:
            f.store(f.load("<16 x i32>", f.gep(source, at), 64), f.gep(state, at), 64)
        _fill(f, f.gep(state, image_size), f.sub(size, image_size))
        f.store(f.add(scratch, f.mul(wave, scratch_size)), f.gep(state, int(Field.SCRATCH)), 8)
        with loop(f, 0, _job(f, job, Job.PATCHES)) as number:
            patch = f.gep(job, f.add(f.mul(number, 16), int(Job.FIRST_PATCH)))
            kind = f.load("i64", f.gep(patch, 8), 8)
            both = f.or_(y, f.shl(z, 16))
            value = f.select(
                f.icmp("eq", kind, Id.X), x, f.select(f.icmp("eq", kind, Id.Y), y, f.select(f.icmp("eq", kind, Id.Z), z, both))
            )
            f.store(f.cast("trunc", value, "i32"), f.gep(state, f.load("i64", patch, 8)), 4)
    f.ret()


@builds("group")
def build_group(module: Module, name: str) -> None:
    """`i32 sim.group(job, g, slot)`: run a workgroup until it is done, steps aside, or has to stop. Returns a `Verdict`."""
    f = helper_function(module, name, "i32", [("ptr", "job"), ("ptr", "g"), ("ptr", "slot")])
    job, g, slot = f.arguments
    waves, size, kernel = _job(f, job, Job.WAVES), _job(f, job, Job.STATE_SIZE), _job(f, job, Job.KERNEL, "ptr")
    slice_ = _job(f, job, Job.SLICE)
    first = f.gep(slot, int(Slot.SIZE))
    put(f, g, Context.LDS, f.gep(first, f.mul(waves, size)))
    put(f, g, Context.SLOT, slot)
    put(f, g, Context.GROUP, f.load("i64", f.gep(slot, int(Slot.GROUP)), 8))
    used = f.gep(slot, int(Slot.USED))
    begun = f.load("i64", used, 8)
    running, waiting, ended, slept = (helpers.stack(f, "i64") for _ in range(4))

    def bump(place: Value) -> None:
        f.store(f.add(f.load("i64", place, 8), 1), place, 8)

    f.branch("turn")
    f.position("turn")
    for place in (running, waiting, ended, slept):
        f.store(const("i64", 0), place, 8)
    with loop(f, 0, waves) as wave:
        state = f.gep(first, f.mul(wave, size))
        status = f.gep(state, int(Field.STATUS))
        with when(f, f.icmp("eq", f.load("i32", status, 4), _RUNNING)):
            put(f, g, Context.WAVE, wave)
            put(f, g, Context.BUDGET, slice_)
            reason = f.emit("i32", f"call i32 {kernel.text}({state}, {g})")
            spent = f.sub(slice_, get(f, g, Context.BUDGET))
            f.store(f.add(f.load("i64", used, 8), spent), used, 8)
            with when(f, f.icmp("ne", get(f, g, Context.FAULT, "i32"), 0), likely=False):
                f.ret(const("i32", Verdict.STOP))
            with when(f, f.icmp("eq", reason, Reason.END)):
                f.store(const("i32", _ENDED), status, 4)
            with when(f, f.icmp("eq", reason, Reason.BARRIER)):
                f.store(const("i32", _WAITING), status, 4)
            with when(f, f.icmp("eq", reason, Reason.SLEEP)):
                bump(slept)
        now = f.load("i32", status, 4)
        for code, place in ((_RUNNING, running), (_WAITING, waiting), (_ENDED, ended)):
            with when(f, f.icmp("eq", now, code)):
                bump(place)
    left = f.load("i64", running, 8)
    stuck = f.load("i64", waiting, 8)
    total = f.load("i64", used, 8)
    pc = const("i32", 0)

    def stop(kind: Fault) -> None:
        f.call("sim.fault", "void", [g, const("i32", kind), total, const("i32", 0), const("i32", 0), const("i32", 0), pc])
        f.ret(const("i32", Verdict.STOP))

    with when(f, f.icmp("eq", left, 0)):
        with when(f, f.icmp("eq", stuck, 0)):
            f.ret(const("i32", Verdict.DONE))
        with when(f, f.icmp("ne", f.load("i64", ended, 8), 0), likely=False):
            stop(Fault.DEADLOCK)
        with loop(f, 0, waves) as wave:
            status = f.gep(f.gep(first, f.mul(wave, size)), int(Field.STATUS))
            f.store(const("i32", _RUNNING), status, 4)
    with when(f, f.icmp("ugt", total, _job(f, job, Job.MAX_INSTRUCTIONS)), likely=False):
        with when(f, f.and_(f.icmp("ne", left, 0), f.icmp("ne", stuck, 0))):
            stop(Fault.DEADLOCK)
        stop(Fault.RUNAWAY)
    with when(f, f.icmp("ne", f.emit("i64", f"load atomic i64, {f.gep(job, int(Job.STOP))} monotonic, align 8"), 0), likely=False):
        f.ret(const("i32", Verdict.STOP))
    all_sleep = f.and_(f.icmp("ne", left, 0), f.icmp("eq", f.load("i64", slept, 8), left))
    long = f.icmp("ugt", f.sub(total, begun), const("i64", ROTATE))
    with when(f, f.or_(all_sleep, long), likely=False):
        f.ret(const("i32", Verdict.ASIDE))
    f.branch("turn")


@builds("run")
def build_run(module: Module, name: str) -> None:
    """`sim.run(job, g)`: go on with the workgroups in the slots, and take at most LIMIT others, until there are none left. With PROBE set,
    return also when one steps aside."""
    f = helper_function(module, name, "void", [("ptr", "job"), ("ptr", "g")])
    job, g = f.arguments
    slots, slot_size, count = get(f, g, Context.SLOTS, "ptr"), get(f, g, Context.SLOT_SIZE), get(f, g, Context.SLOT_COUNT)
    total = _job(f, job, Job.TOTAL)
    limit, active, current, fresh = (helpers.stack(f, "i64") for _ in range(4))
    f.store(get(f, g, Context.LIMIT), limit, 8)
    f.store(const("i64", 0), active, 8)
    with loop(f, 0, count) as number:
        f.store(f.add(f.load("i64", active, 8), f.load("i64", f.gep(slots, f.mul(number, slot_size)), 8)), active, 8)
    f.store(const("i64", 0), current, 8)
    f.store(const("i64", 1), fresh, 8)  # whether to begin another workgroup before going on with those begun
    f.branch("next")
    f.position("next")
    may_begin = f.and_(f.icmp("ne", f.load("i64", limit, 8), 0), f.icmp("ult", f.load("i64", active, 8), count))
    wants = f.or_(f.icmp("eq", f.load("i64", active, 8), 0), f.icmp("ne", f.load("i64", fresh, 8), 0))
    with when(f, f.and_(may_begin, wants)):
        index = f.emit("i64", f"atomicrmw add {f.gep(job, int(Job.NEXT))}, i64 1 monotonic, align 8")
        inside, beyond, join = f.label("inside"), f.label("beyond"), f.label("begun")
        f.branch_if(f.icmp("ult", index, total), inside, beyond)
        f.position(beyond)
        f.store(const("i64", 0), limit, 8)
        f.branch(join)
        f.position(inside)
        free = _find(f, slots, slot_size, count, f.load("i64", current, 8), active=False)
        f.store(free, current, 8)
        f.call("sim.begin", "void", [job, f.gep(slots, f.mul(free, slot_size)), index])
        f.store(f.add(f.load("i64", active, 8), 1), active, 8)
        f.store(f.sub(f.load("i64", limit, 8), 1), limit, 8)
        f.branch(join)
        f.position(join)
    with when(f, f.icmp("eq", f.load("i64", active, 8), 0)):
        f.ret()
    at = _find(f, slots, slot_size, count, f.load("i64", current, 8), active=True)
    slot = f.gep(slots, f.mul(at, slot_size))
    verdict = f.call("sim.group", "i32", [job, g, slot])
    with when(f, f.icmp("eq", verdict, Verdict.STOP), likely=False):
        f.ret()
    done = f.icmp("eq", verdict, Verdict.DONE)
    with when(f, done):
        f.store(const("i64", 0), f.gep(slot, int(Slot.ACTIVE)), 8)
        f.store(f.sub(f.load("i64", active, 8), 1), active, 8)
    with when(f, f.and_(f.not_(done), f.icmp("ne", get(f, g, Context.PROBE), 0)), likely=False):
        f.ret()
    # A workgroup that stepped aside lets a new one begin; then those begun take turns.
    f.store(f.cast("zext", f.not_(done), "i64"), fresh, 8)
    f.store(f.select(done, at, f.emit("i64", f"urem {f.add(at, 1)}, {count.text}")), current, 8)
    f.branch("next")


def _find(f: Function, slots: Value, slot_size: Value, count: Value, start: Value, active: bool) -> Value:
    """The first slot from `start` on, in turn, that is active or free. There is one."""
    head, end = f.label("look"), f.label("found")
    entry = f.current
    f.branch(head)
    f.position(head)
    at = f.phi("i64")
    at.add(start, entry)
    is_active = f.icmp("ne", f.load("i64", f.gep(slots, f.mul(at.value, slot_size)), 8), 0)
    following = f.emit("i64", f"urem {f.add(at.value, 1)}, {count.text}")
    at.add(following, head)
    f.branch_if(is_active if active else f.not_(is_active), end, head)
    f.position(end)
    return at.value


# ---- memory that is kept ----------------------------------------------------------------------------------------------------------------


class Arena:
    """Aligned memory of one thread, grown as needed and kept for later launches."""

    def __init__(self) -> None:
        self._memory = np.zeros(0, np.uint8)

    def take(self, size: int) -> int:
        """The 64-byte aligned address of at least `size` bytes. Their contents are arbitrary."""
        if self._memory.nbytes < size + 64:
            self._memory = np.empty(size + 64, np.uint8)
        return (self._memory.ctypes.data + 63) // 64 * 64


def aligned(size: int) -> tuple[Any, int]:
    """(owner, address) of zeroed memory, 64-byte aligned."""
    memory = np.zeros(size + 64, np.uint8)
    return memory, (memory.ctypes.data + 63) // 64 * 64


def poke(address: int, value: int) -> None:
    """Write an i64."""
    ctypes.c_int64.from_address(address).value = value


def peek(address: int, size: int = 8) -> int:
    """Read an unsigned integer of 4 or 8 bytes."""
    return (ctypes.c_uint64 if size == 8 else ctypes.c_uint32).from_address(address).value


_local = threading.local()


def _arena() -> Arena:
    if not hasattr(_local, "arena"):
        _local.arena = Arena()
    return _local.arena


_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_pool_lock = threading.Lock()


@contextmanager
def _deep_stacks() -> Generator[None, None, None]:
    """Threads that begin in here have room for any frame. The setting is the process's, so that only one thread may change it at a time."""
    with _pool_lock:
        before = threading.stack_size(STACK)
        try:
            yield
        finally:
            threading.stack_size(before)


def _submit(count: int, work: Callable[[], None]) -> list[Future[None]]:
    """Have `count` threads of a pool, which is kept for the life of the process, do the work."""
    global _pool, _pool_size
    with _deep_stacks():
        if _pool is None or _pool_size < count:
            _pool, _pool_size = ThreadPoolExecutor(count, "tessera-sim"), count
        return [_pool.submit(work) for _ in range(count)]


def _aside(work: Callable[[], None]) -> None:
    """Do the work in a thread of its own and wait for it: those of the pool may all be waiting."""
    with ThreadPoolExecutor(1, "tessera-sim-deep") as own:
        with _deep_stacks():
            future = own.submit(work)
        future.result()


# ---- a launch ----------------------------------------------------------------------------------------------------------------------------


@dataclass
class Launch:
    """What `run` needs. `image` is (waves, image_size) bytes; `patches` pairs of offset in the state block and Id; `table` rows of
    (start, size, writable), sorted; `deep`: the kernel's code may need more stack than a caller has."""

    kernel: int
    total: int
    grid: tuple[int, int, int]
    waves: int
    state_size: int
    image: np.ndarray[Any, np.dtype[np.uint8]]
    patches: Sequence[tuple[int, Id]]
    lds_size: int
    lds_limit: int
    scratch_lane: int
    wave: int
    blocks: int
    table: np.ndarray[Any, np.dtype[np.int64]]
    code_base: int
    max_instructions: int
    count_conflicts: bool
    threads: int
    deep: bool = False  # the kernel's host function may need much stack
    prepare_context: Callable[[int], None] | None = None
    finish_context: Callable[[int], None] | None = None


@dataclass
class Outcome:
    """Sums over all threads, and the first fault."""

    counts: np.ndarray[Any, np.dtype[np.int64]]
    sums: dict[Context, int] = field(default_factory=dict[Context, int])
    fault: FaultRecord | None = None


@dataclass(frozen=True)
class FaultRecord:
    """Why a thread stopped. `waves` are (status, resume point) of the workgroup's waves."""

    kind: Fault
    pc: int
    lane: int
    size: int
    address: int
    write: bool
    group: int
    wave: int
    waves: tuple[tuple[int, int], ...]


_SUMS = (
    Context.LOADED, Context.STORED, Context.LDS_LOADED, Context.LDS_STORED, Context.LDS_CYCLES, Context.LDS_CONFLICTS,
)  # fmt: skip


def run(launch: Launch) -> Outcome:
    """Run all workgroups of a launch."""
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(helpers.address("sim.run"))
    job_memory, job = aligned(Job.SIZE)
    image_memory, image = aligned(launch.image.nbytes)
    ctypes.memmove(image, launch.image.ctypes.data, launch.image.nbytes)
    scratch_wave = (launch.scratch_lane + 3) // 4 * 4 * launch.wave
    scratch_wave = (scratch_wave + 63) // 64 * 64
    lds = (launch.lds_size + 63) // 64 * 64
    slot_size = Slot.SIZE + launch.waves * (launch.state_size + scratch_wave) + lds
    fields = {
        Job.NEXT: 0,
        Job.TOTAL: launch.total,
        Job.GRID_X: launch.grid[0],
        Job.GRID_Y: launch.grid[1],
        Job.WAVES: launch.waves,
        Job.STATE_SIZE: launch.state_size,
        Job.IMAGE: image,
        Job.IMAGE_SIZE: launch.image.shape[1],
        Job.KERNEL: launch.kernel,
        Job.LDS_SIZE: lds,
        Job.SCRATCH_SIZE: scratch_wave,
        Job.MAX_INSTRUCTIONS: launch.max_instructions,
        Job.SLICE: min(SLICE, launch.max_instructions // launch.waves + 1),
        Job.PATCHES: len(launch.patches),
    }
    for item, value in fields.items():
        poke(job + item, value)
    for index, (offset, kind) in enumerate(launch.patches):
        poke(job + Job.FIRST_PATCH + 16 * index, offset)
        poke(job + Job.FIRST_PATCH + 16 * index + 8, kind)
    table = np.ascontiguousarray(launch.table)
    outcome = Outcome(np.zeros(launch.blocks, np.int64), dict.fromkeys(_SUMS, 0))
    lock = threading.Lock()

    def work(probe: bool) -> None:
        """Run workgroups in this thread; after a probe of one, wake the others if it took long enough."""
        memory, g = aligned(Context.SIZE)
        counts = np.zeros(launch.blocks + 8, np.int64)
        slots = max(1, min(SLOTS, launch.total, SLOT_MEMORY // slot_size))
        first = _arena().take(slots * slot_size)
        for index in range(slots):
            poke(first + index * slot_size, 0)
        values = {
            Context.LDS_SIZE: launch.lds_limit,
            Context.TABLE: table.ctypes.data,
            Context.TABLE_COUNT: len(table),
            Context.COUNTS: counts.ctypes.data,
            Context.CODE_BASE: launch.code_base,
            Context.COUNT_CONFLICTS: int(launch.count_conflicts),
            Context.JOB: job,
            Context.SLOTS: first,
            Context.SLOT_SIZE: slot_size,
            Context.SLOT_COUNT: slots,
            Context.LIMIT: 1 if probe else _NO_LIMIT,
            Context.PROBE: int(probe),
            Context.SCRATCH_SIZE: (launch.scratch_lane + 3) // 4 * 4,
        }
        for item, value in values.items():
            poke(g + item, value)
        if launch.prepare_context is not None:
            launch.prepare_context(g)
        futures: list[Future[None]] = []
        started = time.perf_counter()
        entry(job, g)
        if probe and not peek(g + Context.FAULT, 4):
            if (time.perf_counter() - started) * (launch.total - 1) >= WORTH_WAKING:
                futures = _submit(threads - 1, lambda: work(False))
            poke(g + Context.LIMIT, _NO_LIMIT)
            poke(g + Context.PROBE, 0)
            entry(job, g)
        with lock:
            if launch.finish_context is not None:
                launch.finish_context(g)
            outcome.counts += counts[: launch.blocks]
            for item in _SUMS:
                outcome.sums[item] += peek(g + item)
            if peek(g + Context.FAULT, 4):
                poke(job + Job.STOP, 1)
                record = _fault(g, launch)
                if outcome.fault is None or record.group < outcome.fault.group:
                    outcome.fault = record
        for future in futures:
            future.result()
        del memory

    threads = min(launch.threads, launch.total)
    if launch.deep:
        _aside(lambda: work(threads > 1))
    else:
        work(threads > 1)
    del job_memory, image_memory
    return outcome


def _fault(g: int, launch: Launch) -> FaultRecord:
    slot = peek(g + Context.SLOT)
    waves: list[tuple[int, int]] = []
    for wave in range(launch.waves):
        state = slot + Slot.SIZE + wave * launch.state_size
        waves.append((peek(state + Field.STATUS, 4), peek(state + Field.RESUME, 4)))
    return FaultRecord(
        Fault(peek(g + Context.FAULT, 4)),
        peek(g + Context.FAULT_PC, 4),
        peek(g + Context.FAULT_LANE, 4),
        peek(g + Context.FAULT_SIZE, 4),
        peek(g + Context.FAULT_ADDRESS),
        bool(peek(g + Context.FAULT_WRITE, 4)),
        peek(g + Context.FAULT_GROUP),
        peek(g + Context.FAULT_WAVE),
        tuple(waves),
    )
