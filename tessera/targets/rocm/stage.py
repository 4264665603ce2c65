"""Pass 3: the operands of matrix instructions go through LDS.

An operand that reaches a matrix op by a layout conversion between lanes or waves is written to LDS once, in wide pieces, and read back by
each wave that needs it, fragment by fragment, in the step along K in which it is used:

    %x = load …                               in a layout that suits memory
    %l = rocm.lds_alloc …                     in front of the outermost loop, padded against bank conflicts
    rocm.lds_store %l %x
    rocm.barrier
    %b0 = rocm.lds_load …; %a0 = rocm.lds_load …; %t0 = rocm.wmma %a0 %b0 %acc
    %b1 = rocm.lds_load …; …

B comes before A, in LDS and in the order of reading. The barrier makes the tile complete; that nobody overwrites it too early is the
business of barriers.py. An operand whose conversion was moved out of the loop of its matrix op stays in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import at
from ...ir.core import Block, Kernel, Op, Value, replace_uses
from ...ir.passes.dce import dce
from .anchors import DotLayouts, dot_layouts, waves_of
from .arch import Arch
from .layout import Layout, Movement, movement
from .lds import choose
from .matrix import MatrixInstruction, instruction
from .ops import Barrier, ConvertLayout, LdsAlloc, LdsLoad, LdsStore, Wmma


def stage(kernel: Kernel, arch: Arch) -> None:
    """Stage what is worth it; conversions that are left are expanded later."""
    _Stage(kernel, arch).run()


@dataclass(frozen=True)
class _Operand:
    """An operand of a matrix op: its value, and the LDS that holds it if it is staged."""

    value: Value
    buffer: Value | None

    def step(self, offset: tuple[int, int], layout: Layout, ops: list[Op]) -> Value:
        """The part for one step along K."""
        if self.buffer is None:
            return self.value
        read = LdsLoad(self.buffer, offset=offset, shape=layout.shape)
        read.result.layout = layout
        ops.append(read)
        return read.result


class _Stage:
    def __init__(self, kernel: Kernel, arch: Arch) -> None:
        self.kernel, self.arch = kernel, arch
        self.allocs: list[Op] = []  # in front of the top-level op that is being rewritten
        self.replaced: dict[Value, Value] = {}
        self.buffers: dict[ConvertLayout, Value] = {}

    def run(self) -> None:
        body, ops = self.kernel.body, list[Op]()
        for op in body.ops:
            self.allocs = []
            rewritten = self._op(op, body)
            ops += [*self.allocs, *rewritten]
        body.ops = ops
        replace_uses(body, self.replaced)
        dce(self.kernel)

    def _op(self, op: Op, block: Block) -> list[Op]:
        for nested in op.blocks:
            nested.ops = [new for inner in nested.ops for new in self._op(inner, nested)]
        if not isinstance(op, Wmma):
            return [op]
        with at(op.location):
            return self._matrix(op, block)

    def _matrix(self, op: Wmma, block: Block) -> list[Op]:
        row = instruction(self.arch, op.instruction, op.a.tile.dtype, op.b.tile.dtype)
        ops: list[Op] = []
        b = self._operand(op, op.b, block, k_axis=0, ops=ops)
        a = self._operand(op, op.a, block, k_axis=1, ops=ops)
        if a.buffer is None and b.buffer is None:
            return [op]
        if ops:
            ops.append(Barrier())
        acc = op.acc
        depth = op.a.tile.shape[1]
        step = row.k if a.buffer is not None and b.buffer is not None else depth
        layouts = _step_layouts(op, row, min(step, depth))
        for k in range(0, depth, step):
            columns = b.step((k, 0), layouts.b, ops)
            rows = a.step((0, k), layouts.a, ops)
            matrix = Wmma(rows, columns, acc, instruction=op.instruction)
            acc = matrix.result
            acc.layout = layouts.acc
            ops.append(matrix)
        acc.name = op.result.name
        self.replaced[op.result] = acc
        return ops

    def _operand(self, op: Wmma, value: Value, block: Block, k_axis: int, ops: list[Op]) -> _Operand:
        convert = value.owner
        if not isinstance(convert, ConvertLayout) or convert not in block.ops:
            return _Operand(value, None)
        if convert in self.buffers:  # another matrix op has staged it
            return _Operand(value, self.buffers[convert])
        source = convert.source
        if movement(source.layout, value.layout) < Movement.LANES:
            return _Operand(value, None)
        tile = value.tile
        alloc = LdsAlloc(shape=tile.shape, dtype=tile.dtype, purpose=f"dot_operand_{'ba'[k_axis]}", offset=-1)
        order = (k_axis, 1 - k_axis)
        alloc.result.layout = choose(tile.shape, order, tile.dtype.bytes, (value.layout,), (source.layout,), self.arch.lds_banks)
        self.allocs.append(alloc)
        ops.append(LdsStore(alloc.result, source, offset=(0, 0)))
        self.buffers[convert] = alloc.result
        return _Operand(value, alloc.result)


def _step_layouts(op: Wmma, row: MatrixInstruction, k: int) -> DotLayouts:
    waves = waves_of(op.result.layout, row)
    assert waves is not None  # layout assignment made it
    m, n = op.acc.tile.shape
    return dot_layouts(row, m, n, k, waves)
