"""Pass 6: LDS offsets. Buffers that are never in use at the same time share memory.

A buffer is in use from its first access to its last; where one of them is in a loop that doesn't hold the buffer's `rocm.lds_alloc`, from
the loop's beginning to its end, since the content lives on to the next iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import CompilerBug, Location, ResourceError
from ...ir.core import Block, Kernel, Value
from .arch import Arch
from .lds import LdsLayout
from .ops import LdsAlloc, LdsLoad, LdsStore

_ALIGNMENT = 16  # bytes: the widest access


@dataclass(frozen=True)
class Buffer:
    """What one tile takes of LDS."""

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    purpose: str
    location: Location | None


class LdsOverflowError(ResourceError):
    """A kernel needs more LDS than a workgroup can have: `need` and `limit` in bytes, and the buffers that are in use together."""

    def __init__(self, message: str, location: Location | None, need: int, limit: int, buffers: tuple[Buffer, ...]) -> None:
        super().__init__(message, location)
        self.need, self.limit, self.buffers = need, limit, buffers


@dataclass
class _Use:
    """A buffer being placed: the range of positions in which it is in use."""

    alloc: LdsAlloc
    bytes: int
    first: int
    last: int
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def meets(self, other: _Use) -> bool:
        """Whether both are in use at some point."""
        return self.first <= other.last and other.first <= self.last


def allocate(kernel: Kernel, arch: Arch) -> None:
    """Set the offset of every buffer. Raises LdsOverflowError where they don't fit, at the line of the largest."""
    uses = _uses(kernel)
    placed: list[_Use] = []
    for use in sorted(uses, key=lambda u: (-u.bytes, u.first)):
        taken = sorted((other for other in placed if other.meets(use)), key=lambda other: other.offset)
        for other in taken:
            if use.offset + use.bytes <= other.offset:
                break
            use.offset = max(use.offset, -(-other.end // _ALIGNMENT) * _ALIGNMENT)
        placed.append(use)
    for use in placed:
        use.alloc.offset = use.offset
    need = max((use.end for use in placed), default=0)
    if need > arch.lds_bytes:
        _refuse(arch, need, placed)


def lds_bytes(kernel: Kernel) -> int:
    """The LDS that a kernel uses, once allocated."""
    held = [op for op in kernel.body.walk() if isinstance(op, LdsAlloc)]
    return max((op.offset + _layout(op.result).bytes for op in held), default=0)


def _layout(buffer: Value) -> LdsLayout:
    if not isinstance(buffer.layout, LdsLayout):
        raise CompilerBug("an LDS buffer without a layout")
    return buffer.layout


def _uses(kernel: Kernel) -> list[_Use]:
    found: dict[Value, _Use] = {}
    depth_of: dict[Value, int] = {}
    position = 0

    def visit(block: Block, loops: list[tuple[int, list[Value]]]) -> None:
        nonlocal position
        for op in block.ops:
            position += 1
            if isinstance(op, LdsAlloc):
                depth_of[op.result] = len(loops)
                found[op.result] = _Use(op, _layout(op.result).bytes, 1 << 60, -1)
            for buffer in (v for v in op.operands if v in found):
                if not isinstance(op, (LdsLoad, LdsStore)):
                    raise CompilerBug(f"{op.name} takes an LDS buffer")
                use = found[buffer]
                use.first, use.last = min(use.first, position), max(use.last, position)
                for outer, (start, touched) in enumerate(loops):
                    if outer >= depth_of[buffer]:
                        use.first = min(use.first, start)
                        touched.append(buffer)
            for nested in op.blocks:
                touched: list[Value] = []
                visit(nested, [*loops, (position, touched)])
                for buffer in touched:
                    found[buffer].last = max(found[buffer].last, position)

    visit(kernel.body, [])
    return [use for use in found.values() if use.last >= 0]


def _refuse(arch: Arch, need: int, placed: list[_Use]) -> None:
    highest = max(placed, key=lambda use: use.end)
    together = sorted((use for use in placed if use.meets(highest)), key=lambda use: -use.bytes)
    buffers = tuple(
        Buffer(use.bytes, use.alloc.shape, use.alloc.dtype.name, use.alloc.purpose, use.alloc.location) for use in together
    )  # fmt: skip
    lines = [f"  {b.bytes:,} bytes: {'x'.join(map(str, b.shape))} {b.dtype} ({b.purpose}), {b.location or 'unknown line'}" for b in buffers]
    message = f"the kernel needs {need:,} bytes of LDS; a workgroup on {arch} has at most {arch.lds_bytes:,}. In use together:\n"
    raise LdsOverflowError(message + "\n".join(lines), together[0].alloc.location, need, arch.lds_bytes, buffers)
