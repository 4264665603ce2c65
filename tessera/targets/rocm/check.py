"""Check the layouts of a kernel at the ROCm level. The rules:

1. Every tile value has a layout of its shape over the lanes and waves of the workgroup; scalars and arrays have none.
2. Elementwise ops: operands and results share one layout (also rule 6 of the IR's verifier).
3. A view's operand lies as the result implies: `restrict` of a broadcast's, the same reshape or transpose of the layouts.
4. A reduction's result is the slice of its operand's layout.
5. Carried values: what enters, circulates and leaves a loop or a branch shares one layout.
6. A matrix op's operands are the fragments of its instruction, split alike over the waves.
7. LDS: the buffer has a layout of its shape and element size.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.core import IRError, Kernel, Op, Trait, Value
from ...ir.ops.control import For, If, While
from ...ir.ops.shape import Broadcast, Reduce, Reshape, Transpose
from ...ir.types import LdsType, Tile
from . import layout as layouts
from .anchors import dot_layouts, waves_of
from .arch import Arch
from .layout import Layout, bits_of
from .lds import LdsLayout
from .matrix import instruction
from .ops import Wmma


def check_layouts(kernel: Kernel, arch: Arch) -> None:
    """Raises IRError, naming the rule and the op."""
    waves = 1 << bits_of(kernel.num_waves)
    for op in kernel.body.walk():
        for value in (*op.results, *(p for block in op.blocks for p in block.params)):
            _has_layout(op, value, arch.wave_size, waves)
        _check(op, arch)


def _has_layout(op: Op, value: Value, lanes: int, waves: int) -> None:
    held = value.layout
    if isinstance(value.type, LdsType):
        if not isinstance(held, LdsLayout) or held.shape != value.type.shape or held.element_bytes != value.type.dtype.bytes:
            raise IRError(f"rule 7: {op.name}: {value.type} has the layout {held}", op)
    elif not isinstance(value.type, Tile) or not value.type.shape:
        if held is not None:
            raise IRError(f"rule 1: {op.name}: {value.type} has the layout {held}", op)
    elif not isinstance(held, Layout) or (held.shape, held.wave_size, held.num_waves) != (value.type.shape, lanes, waves):
        raise IRError(f"rule 1: {op.name}: {value.type} has the layout {held}", op)


def _same(op: Op, rule: int, got: object, want: object) -> None:
    if got != want:
        raise IRError(f"rule {rule}: {op.name}: the layout is {got}, not {want}", op)


def _check(op: Op, arch: Arch) -> None:
    match op:
        case Broadcast():
            _same(op, 3, op.source.layout, layouts.restrict(op.result.layout, op.source.tile.shape))
        case Reshape():
            if op.source.layout is not None and op.result.layout is not None:
                _same(op, 3, layouts.reshape(op.source.layout, op.shape), op.result.layout)
        case Transpose():
            _same(op, 3, layouts.transpose(op.source.layout, op.order), op.result.layout)
        case Reduce():
            if op.result.layout is not None:
                _same(op, 4, op.result.layout, layouts.slice_axis(op.source.layout, op.axis))
        case For():
            _carried(op, op.init, op.body.params[1:], op.body.terminator.operands)
        case While():
            state = op.cond.terminator.operands[1:]
            _carried(op, op.init, op.cond.params, state, op.body.params, op.body.terminator.operands)
        case If():
            _carried(op, op.then.terminator.operands, op.orelse.terminator.operands)
        case Wmma():
            _matrix(op, arch)
        case _ if op.has(Trait.ELEMENTWISE):
            for value in op.operands:
                _same(op, 2, value.layout, op.results[0].layout)
        case _:
            pass


def _carried(op: Op, *groups: Sequence[Value]) -> None:
    for group in groups:
        for value, result in zip(group, op.results, strict=True):
            _same(op, 5, value.layout, result.layout)


def _matrix(op: Wmma, arch: Arch) -> None:
    row = instruction(arch, op.instruction, op.a.tile.dtype, op.b.tile.dtype)
    waves = waves_of(op.result.layout, row)
    if waves is None:
        raise IRError(f"rule 6: {op.name}: {op.result.layout} isn't made of accumulators of {row}", op)
    (m, k), n = op.a.tile.shape, op.b.tile.shape[1]
    want = dot_layouts(row, m, n, k, waves)
    for value, layout in ((op.a, want.a), (op.b, want.b), (op.acc, want.acc)):
        _same(op, 6, value.layout, layout)
