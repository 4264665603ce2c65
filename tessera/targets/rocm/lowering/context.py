"""What the lowering functions share: the function under construction, the values lowered so far, and the thread's place.

A tile value of R registers per thread is one LLVM value: `<R x T>` (R = 1 too), T being the dtype's register type; registers are numbered
as its layout numbers them. Where it was made of pieces (fragments of matrix operands, what one instruction loaded) it may be kept as these,
and is put together when it is asked for as a whole: `take` gives a piece back as it was. A scalar (a tile of no axes) is a plain T. An
array is its base pointer, extents and strides (`Array`). LDS is a byte offset (int).

Depths. Code nests in scopes: depth 0 is the function's entry, which depends on the thread and the arguments only; depth 1 is the kernel's
body; each loop, and each branch of an `if`, is one deeper. In front of each scope stands a block of its own that stays open while the scope
is built: `at_depth(d)` builds there, for values that need nothing deeper than d. So loop-invariant address arithmetic is emitted where it
belongs, and no optimiser pass is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ....errors import CompilerBug, Location
from ....ir.core import Block, Kernel, Op
from ....ir.core import Value as IRValue
from ....ir.ops.control import For
from ....ir.types import ArrayType
from ....llvmtext import Function, Module, Value, bits, const, lanes, vector
from ..arch import Arch

T = TypeVar("T")

Piece = tuple[tuple[int, ...], Value]
"""Some registers of a tile, and the vector that holds them."""

Lower = Callable[["Context", Any], None]

LOWERINGS: dict[type[Op], Lower] = {}


def lowers(*classes: type[Op]) -> Callable[[Lower], Lower]:
    """Register the lowering of op classes: a function `(cx, op) -> None` that sets the op's results with `cx.set`."""

    def register(lower: Lower) -> Lower:
        for cls in classes:
            if cls in LOWERINGS:
                raise TypeError(f"{cls.name} is lowered twice")
            LOWERINGS[cls] = lower
        return lower

    return register


@dataclass(frozen=True, slots=True)
class Array:
    """An array parameter in LLVM terms: pointer to element [0, …, 0], extents in elements and strides in bytes (i64).

    `steps` are the strides with that of the contiguous axis as a constant: for addresses, where an axis of one element has no stride.
    """

    type: ArrayType
    base: Value
    extents: tuple[Value, ...]
    strides: tuple[Value, ...]
    steps: tuple[Value, ...]


@dataclass
class Context:
    """One kernel being lowered. `f` is positioned where the current op goes."""

    kernel: Kernel
    arch: Arch
    num_waves: int
    module: Module
    f: Function
    values: dict[IRValue, Value] = field(default_factory=dict[IRValue, Value])
    pieces: dict[IRValue, list[Piece]] = field(default_factory=dict[IRValue, "list[Piece]"])  # of tiles not in `values`
    arrays: dict[IRValue, Array] = field(default_factory=dict[IRValue, Array])
    lds: dict[IRValue, int] = field(default_factory=dict[IRValue, int])
    open_blocks: list[str] = field(default_factory=list[str])  # open_blocks[d] is where code of depth d goes from deeper places
    depths: dict[IRValue, int] = field(default_factory=dict[IRValue, int])  # depth at which a value is defined; arguments: 0
    loop_depths: list[int] = field(default_factory=list[int])  # the depth of the body of each loop around the present place
    made: list[dict[object, Any]] = field(default_factory=lambda: [{}])  # made[d]: what `cached` made in place at depth d
    hoisted: list[dict[object, Any]] = field(default_factory=list[dict[object, Any]])  # hoisted[d]: the same in open_blocks[d]
    floor: int = 0  # what `cached` would make at depths 1 .. floor - 1, it makes in place
    counters: dict[IRValue, For] = field(default_factory=dict[IRValue, For])  # the loops around the present place, by their counter
    short_counters: dict[IRValue, Value] = field(default_factory=dict[IRValue, Value])  # i64 counters of loops that count in 32 bits
    ahead: list[Op] = field(default_factory=list[Op])  # the ops behind the current one in its block, the last first
    early: set[Op] = field(default_factory=set[Op])  # ops lowered before their turn
    facts: dict[object, Any] = field(default_factory=dict[object, Any])  # what analyses found out about IR values (indices.py)
    fp_contract: bool = False
    locate: Callable[[Location | None], int | None] = field(default=lambda _: None)  # metadata number of a DILocation

    # Values.

    def get(self, value: IRValue) -> Value:
        """The LLVM value of a scalar or tile."""
        known = self.values.get(value)
        if known is not None:
            return known
        pieces = self.pieces[value]
        whole = concatenate(self.f, [piece for _, piece in pieces])
        places = {register: at for at, register in enumerate(r for registers, _ in pieces for r in registers)}
        whole = self.f.shuffle(whole, None, [places[register] for register in range(self.registers(value))])
        if self.current_depth == self.depths[value]:  # made deeper, it couldn't be used everywhere
            self.values[value] = whole
        return whole

    def take(self, value: IRValue, registers: Sequence[int]) -> Value:
        """Some registers of a tile, as a vector."""
        found = self._within(value, registers)
        return self.f.shuffle(*found) if found is not None else self.f.shuffle(self.get(value), None, registers)

    def take_one(self, value: IRValue, register: int) -> Value:
        """One register of a tile."""
        found = self._within(value, [register])
        return self.f.extract(found[0], found[2][0]) if found is not None else self.f.extract(self.get(value), register)

    def _within(self, value: IRValue, registers: Sequence[int]) -> tuple[Value, Value | None, list[int]] | None:
        """The one or two pieces that hold all of some registers, and where in them they are."""
        if value not in self.pieces:
            return None
        wanted = set(registers)
        used = [(held, piece) for held, piece in self.pieces[value] if not wanted.isdisjoint(held)]
        if len(used) > 2 or used[0][1].type != used[-1][1].type:
            return None
        order = [register for held, _ in used for register in held]
        return used[0][1], used[1][1] if len(used) == 2 else None, [order.index(r) for r in registers]

    def set(self, value: IRValue, lowered: Value) -> None:
        """Record the lowering of a result; its type is checked."""
        want = self.llvm_type(value)
        if lowered.type != want:
            raise CompilerBug(f"lowering gave {lowered.type} for a value of type {value.type}, which needs {want}")
        self.values[value] = lowered
        self.depths[value] = self.current_depth

    def set_pieces(self, value: IRValue, pieces: list[Piece]) -> None:
        """Record a tile by its pieces: for each the registers that it holds, and their vector. Together they hold every register once."""
        if len(pieces) == 1 and pieces[0][0] == tuple(range(self.registers(value))):
            self.set(value, pieces[0][1])
            return
        if sorted(register for registers, _ in pieces for register in registers) != list(range(self.registers(value))):
            raise CompilerBug(
                f"pieces of {[registers for registers, _ in pieces]} don't make up a tile of {self.registers(value)} registers"
            )
        self.pieces[value] = pieces
        self.depths[value] = self.current_depth

    def llvm_type(self, value: IRValue) -> str:
        """The LLVM type of a scalar or tile."""
        tile = value.tile
        return vector(self.registers(value), tile.dtype.llvm) if tile.shape else tile.dtype.llvm

    def registers(self, value: IRValue) -> int:
        """R: how many elements of a tile each thread holds."""
        return int(value.layout.count)

    def depth(self, *values: IRValue) -> int:
        """The depth at which all of `values` are defined (0: they are arguments)."""
        return max((self.depths.get(v, 0) for v in values), default=0)

    # Places.

    @property
    def current_depth(self) -> int:
        """The depth of what is built at the present place."""
        return len(self.open_blocks)

    @contextmanager
    def at_depth(self, depth: int) -> Generator[None]:
        """Build at `depth` (in front of the scopes that are deeper), if the present place is deeper than that."""
        if depth >= len(self.open_blocks):
            yield
            return
        here, debug, outer, loops = self.f.current, self.f.debug, self.open_blocks, self.loop_depths
        made, hoisted = self.made, self.hoisted
        self.f.position(outer[depth])
        floor = self.floor
        self.open_blocks, self.loop_depths = outer[:depth], [d for d in loops if d <= depth]
        self.made, self.hoisted, self.floor = [*made[:depth], hoisted[depth]], hoisted[:depth], min(floor, depth)
        try:
            yield
        finally:
            self.open_blocks, self.loop_depths, self.made, self.hoisted, self.floor = outer, loops, made, hoisted, floor
            self.f.position(here)
            self.f.debug = debug

    def cached(self, depth: int, key: object, build: Callable[[], T]) -> T:
        """What `build` makes at `depth`, made the first time that `key` is asked for there; usable from there on inward."""
        if 0 < depth < self.floor:
            inner = self.loop_depths[-1] if self.loop_depths else 1
            if depth >= inner and key in self.made[depth]:  # made just before, in the same trip of the loop
                return self.made[depth][key]
            depth = self.current_depth
        depth = min(depth, self.current_depth)
        known = self.made[depth]
        if key not in known and depth < self.current_depth:
            known = self.hoisted[depth]
        if key not in known:
            with self.at_depth(depth):
                known[key] = build()
        return known[key]

    def once(self, key: object, build: Callable[[], T]) -> T:
        """What depends on nothing but the thread and the arguments: built in the entry, the first time it is asked for."""
        return self.cached(0, key, build)

    @contextmanager
    def scope(self, open_block: str, *, loop: bool = False) -> Generator[None]:
        """Everything built inside is one deeper; `open_block` is the unfinished block in front of it."""
        self.open_blocks.append(open_block)
        self.hoisted.append({})
        self.made.append({})
        if loop:
            self.loop_depths.append(self.current_depth)
        try:
            yield
        finally:
            self.made.pop()
            self.hoisted.pop()
            self.open_blocks.pop()
            if loop:
                self.loop_depths.pop()
                if self.current_depth:
                    self.made[-1].clear()  # what was made before the loop isn't kept in registers through it

    @contextmanager
    def aside(self, open_block: str) -> Generator[None]:
        """A scope of rarely run code: it makes what it needs in place, so that nothing is held in registers for it."""
        floor = self.floor
        with self.scope(open_block):
            self.floor = self.current_depth
            try:
                yield
            finally:
                self.floor = floor

    # The thread.

    @property
    def thread(self) -> Value:
        """The work-item's number in the workgroup (i32)."""
        return self.once("thread", lambda: self.f.call("llvm.amdgcn.workitem.id.x", "i32", []))

    @property
    def lane(self) -> Value:
        """The lane's number in the wave (i32). Asked for anew behind each loop: that is cheaper than a register held through it."""

        def build() -> Value:
            all_lanes, zero = const("i32", -1), const("i32", 0)
            number = self.f.call("llvm.amdgcn.mbcnt.lo", "i32", [all_lanes, zero])
            return self.f.call("llvm.amdgcn.mbcnt.hi", "i32", [all_lanes, number]) if self.arch.wave_size == 64 else number

        return self.cached(1, "lane", build)

    @property
    def wave(self) -> Value:
        """The wave's number in the workgroup (i32), uniform: what is derived from it stays in SGPRs."""
        if self.num_waves == 1:
            return const("i32", 0)

        def build() -> Value:
            number = self.f.lshr(self.thread, self.arch.wave_size.bit_length() - 1)
            return self.f.intrinsic("amdgcn.readfirstlane", [number])

        return self.once("wave", build)

    def uniform(self, value: Value) -> Value:
        """A scalar that is equal in all lanes, as LLVM can see: from the first lane."""
        if value.is_constant:
            return value
        width = bits(value.type)
        whole = value if value.type[0] == "i" else self.f.bitcast(value, f"i{width}")
        if width < 32:
            whole = self.f.cast("zext", whole, "i32")
        whole = self.f.intrinsic("amdgcn.readfirstlane", [whole])
        if width < 32:
            whole = self.f.cast("trunc", whole, f"i{width}")
        return self.f.bitcast(whole, value.type)

    # Vectors of registers.

    def split(self, value: Value) -> list[Value]:
        """The registers of a tile, one by one."""
        return [self.f.extract(value, i) for i in range(int(value.type[1:].split(" ")[0]))]

    def join(self, items: Sequence[Value]) -> Value:
        """A tile from its registers."""
        return self.f.build(items)


def concatenate(f: Function, pieces: Sequence[Value]) -> Value:
    """One vector of the elements of several (vectors of one element type), in order."""
    if len(pieces) == 1:
        return pieces[0]
    half = 1 << (len(pieces) - 1).bit_length() - 1
    left, right = concatenate(f, pieces[:half]), concatenate(f, pieces[half:])
    a, b = lanes(left.type), lanes(right.type)
    if b < a:
        right = f.shuffle(right, None, [*range(b), *[-1] * (a - b)])
    elif a < b:
        left = f.shuffle(left, None, [*range(a), *[-1] * (b - a)])
    wide = max(a, b)
    return f.shuffle(left, right, [*range(a), *range(wide, wide + b)])


def lower_block(cx: Context, block: Block) -> Op:
    """Lower the ops of a block up to its terminator, which is returned."""
    ahead = cx.ahead
    cx.ahead = rest = block.ops[:-1][::-1]
    while rest:
        op = rest.pop()
        if op in cx.early:
            continue
        cx.f.debug = cx.locate(op.location)
        lower = LOWERINGS.get(type(op))
        if lower is None:
            raise CompilerBug(f"no lowering for {op.name}", op.location)
        lower(cx, op)
    cx.ahead = ahead
    return block.terminator
