"""What the lowering functions share: the function under construction, the values lowered so far, and the thread's place.

A tile value of R registers per thread is one LLVM value: `<R x T>` (R = 1 too), T being the dtype's register type; registers are numbered as
its layout numbers them. A scalar is a plain T. An array is its base pointer, extents and strides (`Array`). LDS is a byte offset (int).

Each loop's preheader, and the function's entry, stay open while what is inside them is built: `at_depth(d)` builds there instead, for values
that need nothing from deeper loops. So loop-invariant address arithmetic is emitted where it belongs, and no optimiser pass is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ....errors import CompilerBug
from ....ir.core import Block, Kernel, Op
from ....ir.core import Value as IRValue
from ....ir.types import ArrayType
from ....llvmtext import Function, Module, Value, const, vector
from ..arch import Arch

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
    """An array parameter in LLVM terms: pointer to element [0, …, 0], extents in elements and strides in bytes (i64)."""

    type: ArrayType
    base: Value
    extents: tuple[Value, ...]
    strides: tuple[Value, ...]


@dataclass
class Context:
    """One kernel being lowered. `f` is positioned where the current op goes."""

    kernel: Kernel
    arch: Arch
    num_waves: int
    module: Module
    f: Function
    values: dict[IRValue, Value] = field(default_factory=dict[IRValue, Value])
    arrays: dict[IRValue, Array] = field(default_factory=dict[IRValue, Array])
    lds: dict[IRValue, int] = field(default_factory=dict[IRValue, int])
    open_blocks: list[str] = field(default_factory=list[str])  # entry, then the preheader of each loop around the present place
    depths: dict[IRValue, int] = field(default_factory=dict[IRValue, int])  # loop depth at which a value is defined
    shared: dict[object, Value] = field(default_factory=dict[object, Value])  # values computed once in the entry

    # Values.

    def get(self, value: IRValue) -> Value:
        """The LLVM value of a scalar or tile."""
        return self.values[value]

    def set(self, value: IRValue, lowered: Value) -> None:
        """Record the lowering of a result; its type is checked."""
        want = self.llvm_type(value)
        if lowered.type != want:
            raise CompilerBug(f"lowering gave {lowered.type} for a value of type {value.type}, which needs {want}")
        self.values[value] = lowered
        self.depths[value] = len(self.open_blocks) - 1

    def llvm_type(self, value: IRValue) -> str:
        """The LLVM type of a scalar or tile."""
        tile = value.tile
        return tile.dtype.llvm if value.layout is None else vector(self.registers(value), tile.dtype.llvm)

    def registers(self, value: IRValue) -> int:
        """R: how many elements of a tile each thread holds."""
        return int(value.layout.count)

    def depth(self, *values: IRValue) -> int:
        """The loop depth at which all of `values` are defined (0 is outside every loop)."""
        return max((self.depths.get(v, 0) for v in values), default=0)

    # Places.

    @contextmanager
    def at_depth(self, depth: int) -> Iterator[None]:
        """Build in the preheader of the loop that encloses depth `depth` + 1 (0: in the entry), if the present place is deeper."""
        if depth >= len(self.open_blocks) - 1 and depth != 0:
            yield
            return
        here, debug = self.f.current, self.f.debug
        self.f.position(self.open_blocks[depth])
        try:
            yield
        finally:
            self.f.position(here)
            self.f.debug = debug

    def once(self, key: object, build: Callable[[], Value]) -> Value:
        """A value that depends on nothing but the thread and the arguments: built in the entry, the first time it is asked for."""
        if key not in self.shared:
            with self.at_depth(0):
                self.shared[key] = build()
        return self.shared[key]

    # The thread.

    @property
    def thread(self) -> Value:
        """The work-item's number in the workgroup (i32)."""
        return self.once("thread", lambda: self.f.call("llvm.amdgcn.workitem.id.x", "i32", []))

    @property
    def lane(self) -> Value:
        """The lane's number in the wave (i32)."""
        return self.once("lane", lambda: self.f.and_(self.thread, self.arch.wave_size - 1) if self.num_waves > 1 else self.thread)

    @property
    def wave(self) -> Value:
        """The wave's number in the workgroup (i32), uniform: what is derived from it stays in SGPRs."""
        if self.num_waves == 1:
            return const("i32", 0)

        def build() -> Value:
            number = self.f.lshr(self.thread, self.arch.wave_size.bit_length() - 1)
            return self.f.intrinsic("amdgcn.readfirstlane", [number])

        return self.once("wave", build)

    # Vectors of registers.

    def split(self, value: Value) -> list[Value]:
        """The registers of a tile, one by one."""
        return [self.f.extract(value, i) for i in range(int(value.type[1:].split(" ")[0]))]

    def join(self, items: Sequence[Value]) -> Value:
        """A tile from its registers."""
        return self.f.build(items)


def lower_block(cx: Context, block: Block) -> Op:
    """Lower the ops of a block up to its terminator, which is returned."""
    for op in block.ops[:-1]:
        lower = LOWERINGS.get(type(op))
        if lower is None:
            raise CompilerBug(f"no lowering for {op.name}", op.location)
        lower(cx, op)
    return block.terminator
