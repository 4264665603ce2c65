"""Routines of host code that lifted kernels call: how they are named, built, compiled, kept and found; and the thread's context.

A helper's name says everything about it: `sim.load.lds.b128.32` is a load from LDS of 16 bytes a lane in wave32. A builder registered for
the first word after `sim.` writes its LLVM IR. Helpers are compiled one by one, on demand, and kept on disk (`cache`): JITting the
usual dozen costs far more than everything else in a cold process. A helper may call others; they are found by the same rule.

Every helper's first argument is the *context* of the thread that runs it (`Context`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from ... import llvm
from ...llvmtext import Function, Module, Value, const
from . import cache

# Host functions are small or huge, never exception-throwing; Windows' stack probe would be a symbol to find.
ATTRIBUTES = 'nounwind "no-stack-arg-probe"'


class Context(IntEnum):
    """Byte offsets of the fields of a thread's context; 8 bytes each unless stated. The scheduler fills it, helpers read it."""

    LDS = 0  # host address of the workgroup's LDS
    LDS_SIZE = 8
    BUDGET = 16  # wave instructions until the wave has to yield
    READ_BASE = 24  # the buffer that was read last: start and size
    READ_SIZE = 32
    WRITE_BASE = 40  # the buffer that was written last
    WRITE_SIZE = 48
    TABLE = 56  # buffers of the launch: {start, size, writable} x TABLE_COUNT, sorted by start
    TABLE_COUNT = 64
    COUNTS = 72  # i64 per block: how often it ran
    CODE_BASE = 80  # host address of the code object's address 0
    LOADED = 88  # bytes loaded from global memory
    STORED = 96
    LDS_LOADED = 104
    LDS_STORED = 112
    COUNT_CONFLICTS = 120  # whether to count the next two
    LDS_CYCLES = 128
    LDS_CONFLICTS = 136  # cycles beyond those that the same accesses take without conflicts
    JOB = 144
    SLOTS = 152  # memory of the workgroups that this thread has begun
    SLOT_SIZE = 160
    SLOT_COUNT = 168
    LIMIT = 176  # workgroups that this call may begin
    SLOT = 184  # address of the present slot
    GROUP = 192  # index of the present workgroup
    WAVE = 200
    SCRATCH_SIZE = 208  # bytes per lane
    # The first fault of this thread.
    FAULT = 216  # i32: a `Fault`
    FAULT_PC = 220  # i32
    FAULT_LANE = 224  # i32
    FAULT_SIZE = 228  # i32: bytes of the access
    FAULT_ADDRESS = 232
    FAULT_WRITE = 240  # i32
    FAULT_GROUP = 248
    FAULT_WAVE = 256
    PROBE = 264  # whether to return when a workgroup steps aside
    ZEROS = 320  # 64 bytes that are read in place of what is out of reach
    TEMP = 384  # 64 bytes for scalar buffer loads
    HOOKS = 512  # free for hooks
    SIZE = 4096


class Fault(IntEnum):
    """Why a thread stopped."""

    NONE = 0
    GLOBAL = 1
    LDS = 2
    SCRATCH = 3
    TRAP = 4
    RUNAWAY = 5
    DEADLOCK = 6
    DESCRIPTOR = 7  # a buffer descriptor of a kind that the simulator doesn't execute
    CHECK = 8  # found by the checking mode; what, is in its part of the context


# ---- structured control flow ---------------------------------------------------------------------------------------------------


@contextmanager
def loop(f: Function, start: Value | int, stop: Value, step: int = 1) -> Generator[Value]:
    """The body runs for each value of an i64 counter in [start, stop)."""
    head, body, end = f.label("head"), f.label("body"), f.label("end")
    entry = f.current
    f.branch(head)
    f.position(head)
    counter = f.phi("i64")
    counter.add(const("i64", start) if isinstance(start, int) else start, entry)
    f.branch_if(f.icmp("ult", counter.value, stop), body, end)
    f.position(body)
    yield counter.value
    counter.add(f.add(counter.value, step), f.current)
    f.branch(head)
    f.position(end)


@contextmanager
def each_lane(f: Function, mask: Value) -> Generator[Value]:
    """The body runs for each set bit of the integer `mask`; the lane is an i64."""
    head, body, end = f.label("lanes"), f.label("lane"), f.label("done")
    entry = f.current
    f.branch(head)
    f.position(head)
    left = f.phi(mask.type)
    left.add(mask, entry)
    f.branch_if(f.icmp("ne", left.value, 0), body, end)
    f.position(body)
    lane = f.call(f"llvm.cttz.{mask.type}", mask.type, [left.value, const("i1", True)])
    yield f.cast("zext", lane, "i64")
    left.add(f.and_(left.value, f.sub(left.value, 1)), f.current)
    f.branch(head)
    f.position(end)


@contextmanager
def when(f: Function, condition: Value, likely: bool | None = None) -> Generator[None]:
    """The body runs where `condition` holds."""
    body, end = f.label("then"), f.label("join")
    tail = ""
    if likely is not None:
        weights = "i32 2000, i32 1" if likely else "i32 1, i32 2000"
        number = f.module.metadata('!{!"branch_weights", ' + weights + "}")
        tail = f", !prof !{number}"
    f.branch_if(condition, body, end, tail)
    f.position(body)
    yield
    if not f.terminated:
        f.branch(end)
    f.position(end)


def stack(f: Function, type_: str) -> Value:
    """Stack memory of the function, 64-byte aligned: made in the entry block, so that loops don't make it again."""
    place = f.emit("ptr", f"alloca {type_}, align 64")
    f.blocks["entry"].insert(0, f.blocks[f.current].pop())
    return place


def get(f: Function, g: Value, field: Context, type_: str = "i64") -> Value:
    """A field of the context."""
    return f.load(type_, f.gep(g, int(field)), 8 if type_ in ("i64", "ptr") else 4)


def put(f: Function, g: Value, field: Context, value: Value) -> None:
    """Set a field of the context."""
    f.store(value, f.gep(g, int(field)), 8 if value.type in ("i64", "ptr") else 4)


def add_to(f: Function, g: Value, field: Context, value: Value) -> None:
    """Add to an i64 field of the context."""
    put(f, g, field, f.add(get(f, g, field), value))


def new_module() -> Module:
    """A module for this host."""
    return Module(llvm.host().triple)


def helper_function(module: Module, name: str, returns: str, parameters: Sequence[tuple[str, str]]) -> Function:
    """A helper under construction, positioned in its entry block."""
    f = Function(module, name, returns, parameters, suffix=ATTRIBUTES)
    f.position("entry")
    return f


# ---- the registry --------------------------------------------------------------------------------------------------------------

Builder = Callable[[Module, str], None]
_BUILDERS: dict[str, Builder] = {}
PREFIX = "sim."


def builds(kind: str) -> Callable[[Builder], Builder]:
    """Register the builder of the helpers `sim.<kind>` and `sim.<kind>.…`."""

    def register(builder: Builder) -> Builder:
        if kind in _BUILDERS:
            raise ValueError(f"two builders of {kind!r} helpers")
        _BUILDERS[kind] = builder
        return builder

    return register


def helpers_called(module: Module) -> list[str]:
    """The helpers that a module calls and doesn't define."""
    defined = {f.name for f in module.functions}
    return [name for name in module.declarations if name.startswith(PREFIX) and name not in defined]


class _Loaded:
    """Helpers in this process, for one kind of host code."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self.code: list[llvm.HostCode] = []


_loaded: dict[tuple[str, str], _Loaded] = {}
_lock = threading.RLock()


def _compiled(name: str) -> tuple[bytes, list[str]]:
    """Object code of a helper and the helpers it calls, from the cache or freshly built."""
    key = cache.key("helper", name)
    if (entry := cache.fetch(key)) is not None:
        return entry.code, list(entry.meta["calls"])
    module = new_module()
    _BUILDERS[name.removeprefix(PREFIX).split(".")[0]](module, name)
    calls = helpers_called(module)
    code = llvm.compile_host(str(module), optimize=0, codegen=1)
    cache.keep(key, code, {"calls": calls})
    return code, calls


def _load(names: Sequence[str]) -> dict[str, int]:
    """Compile and load the helpers that aren't here yet, and those that they call. The addresses of all."""
    host = llvm.host()
    here = _loaded.setdefault((host.cpu, host.features), _Loaded())
    missing: dict[str, bytes] = {}
    queue = list(names)
    while queue:
        name = queue.pop()
        if name not in here.addresses and name not in missing:
            missing[name], more = _compiled(name)
            queue += more
    if missing:
        loaded = llvm.load_host(list(missing.values()), here.addresses)
        here.code.append(loaded)
        here.addresses.update({name: loaded.address(name) for name in missing})
    return here.addresses


def load(code: bytes, calls: Sequence[str]) -> llvm.HostCode:
    """Load object code that calls helpers into the process, and the helpers with it."""
    with _lock:
        return llvm.load_host(code, _load(calls))


def address(name: str) -> int:
    """The address of a helper, which is compiled and loaded if need be."""
    with _lock:
        return _load([name])[name]
