"""Pass 5: what crosses waves goes through LDS.

- A layout conversion that moves elements between waves, or that shuffles between lanes would make dearer, becomes

      %l = rocm.lds_alloc; rocm.lds_store %l %x; %y = rocm.lds_load %l        (barriers.py puts the barriers where they are needed)

- A reduction along an axis that several waves share is split: the axis is reshaped into the part within a wave and the part across waves,
  the first is reduced, the partial results change into a layout in which every wave has all of them, and those are reduced. A sum of
  float16 or bfloat16 does all this in float32 and rounds once.

Afterwards every conversion and reduction can be lowered within waves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ... import dtypes
from ...errors import CompilerBug, at
from ...ir.core import Block, Kernel, Op, Value, replace_uses
from ...ir.ops.arith import Cast
from ...ir.ops.shape import Reduce, Reshape, Sum
from . import layout as layouts
from .arch import Arch
from .layout import Layout, Movement
from .lds import LdsLayout, accesses, choose
from .lowering.convert import lane_cost
from .ops import ConvertLayout, LdsAlloc, LdsLoad, LdsStore

_LDS_LATENCY = 80  # cycles that a trip through LDS costs beyond its instructions: store, barrier, first load (an estimate)


def expand(kernel: Kernel, arch: Arch) -> None:
    """Expand all conversions and reductions that can't stay within a wave."""
    replaced: dict[Value, Value] = {}
    _block(kernel.body, arch, replaced)
    replace_uses(kernel.body, replaced)


def _block(block: Block, arch: Arch, replaced: dict[Value, Value]) -> None:
    ops: list[Op] = []
    for op in block.ops:
        for nested in op.blocks:
            _block(nested, arch, replaced)
        with at(op.location):
            ops += _op(op, arch, replaced)
    block.ops = ops


def _op(op: Op, arch: Arch, replaced: dict[Value, Value]) -> Sequence[Op]:
    if isinstance(op, ConvertLayout) and not _within_waves(op, arch):
        ops: list[Op] = []
        replaced[op.result] = _through_lds(op.source, op.result.layout, "layout conversion", arch, ops)
        return ops
    if isinstance(op, Reduce) and any(basis is not None and basis[0] == op.axis for basis in op.source.layout.waves):
        return _split(op, arch, replaced)
    return (op,)


def _within_waves(op: ConvertLayout, arch: Arch) -> bool:
    source, target, dtype = op.source.layout, op.result.layout, op.result.tile.dtype
    kind = layouts.movement(source, target)
    if kind is not Movement.LANES:
        return kind is not Movement.LDS
    width = 1 if dtype is dtypes.bool_ else dtype.bits
    shuffles = lane_cost(source, target, width, arch.has_permlanex16)
    assert shuffles is not None
    held = buffer_layout(source, target, dtype.bytes, arch)
    cycles = sum(max(1, piece.bytes // 4) for layout in (source, target) for piece in accesses(held, layout))
    return shuffles <= _LDS_LATENCY + cycles


@cache
def buffer_layout(source: Layout, target: Layout, element_bytes: int, arch: Arch) -> LdsLayout:
    """How a tile lies in LDS between a store in the layout `source` and a load in `target`: with the fewest cycles for both."""

    def cycles(axis: int) -> int:
        plain = LdsLayout(source.shape, _order(source.rank, axis), element_bytes)
        return sum(max(1, piece.bytes // 4) for layout in (source, target) for piece in accesses(plain, layout))

    axis = min(reversed(range(source.rank)), key=cycles)
    order = _order(source.rank, axis)
    padded = choose(source.shape, order, element_bytes, (target,), (source,), arch.lds_banks)
    return padded if padded.bytes <= arch.lds_bytes else LdsLayout(source.shape, order, element_bytes)


def _order(rank: int, fastest: int) -> tuple[int, ...]:
    return (fastest, *(axis for axis in reversed(range(rank)) if axis != fastest))


def _through_lds(source: Value, target: Layout, purpose: str, arch: Arch, ops: list[Op]) -> Value:
    """Append the ops that bring a tile into the layout `target`, and return it."""
    tile = source.tile
    origin = (0,) * len(tile.shape)
    buffer = LdsAlloc(shape=tile.shape, dtype=tile.dtype, purpose=purpose, offset=-1)
    buffer.result.layout = buffer_layout(source.layout, target, tile.dtype.bytes, arch)
    load = LdsLoad(buffer.result, offset=origin, shape=tile.shape)
    load.result.layout = target
    ops += [buffer, LdsStore(buffer.result, source, offset=origin), load]
    return load.result


# ---- reductions --------------------------------------------------------------------------------------------------------------


def _split(op: Reduce, arch: Arch, replaced: dict[Value, Value]) -> Sequence[Op]:
    ops: list[Op] = []
    dtype = op.source.tile.dtype
    wide = isinstance(op, Sum) and dtype.is_float and dtype.bits == 16
    value = _append(Cast(op.source, to=dtypes.float32), op.source.layout, ops) if wide else op.source
    factors = _factors(value.layout, op.axis)
    shape = value.tile.shape
    split_shape = (*shape[: op.axis], *(extent for extent, _ in factors), *shape[op.axis + 1 :])
    held = layouts.reshape(value.layout, split_shape)
    if held is None:  # an extent that isn't a power of two: bring the whole axis into each wave
        value = _through_lds(value, _gathered(value.layout, range(op.axis, op.axis + 1)), "reduction across waves", arch, ops)
        value = _append(type(op)(value, axis=op.axis), layouts.slice_axis(value.layout, op.axis), ops)
    else:
        value = _append(Reshape(value, shape=split_shape), held, ops)
        inner = [op.axis + n for n, (_, crosses) in enumerate(factors) if not crosses]
        for axis in reversed(inner):
            value = _append(type(op)(value, axis=axis), layouts.slice_axis(value.layout, axis), ops)
        left = range(op.axis, op.axis + len(factors) - len(inner))
        value = _through_lds(value, _gathered(value.layout, left), "reduction across waves", arch, ops)
        for axis in reversed(left):
            value = _append(type(op)(value, axis=axis), layouts.slice_axis(value.layout, axis), ops)
    if wide:
        value = _append(Cast(value, to=dtype), value.layout, ops)
    if value.layout != op.result.layout:
        raise CompilerBug(f"{op.name} across waves gives the layout {value.layout}, not {op.result.layout}")
    replaced[op.result] = value
    return ops


def _append(op: Op, layout: Layout | None, ops: list[Op]) -> Value:
    ops.append(op)
    op.results[0].layout = layout if op.results[0].tile.shape else None
    return op.results[0]


def _factors(layout: Layout, axis: int) -> list[tuple[int, bool]]:
    """Split an axis into extents, outermost first, each of which lies wholly across waves (True) or wholly within one."""
    across = {basis for basis in layout.waves if basis is not None and basis[0] == axis}
    factors: list[tuple[int, bool]] = []
    step = 1
    while step < layout.unit[axis]:
        crosses = (axis, step) in across
        if factors and factors[-1][1] == crosses:
            factors[-1] = (factors[-1][0] * 2, crosses)
        else:
            factors.append((2, crosses))
        step *= 2
    odd = layout.repeats[axis]
    if odd > 1 and factors[-1][1]:
        factors.append((odd, False))
    elif odd > 1:
        factors[-1] = (factors[-1][0] * odd, False)
    return factors[::-1]


def _gathered(layout: Layout, axes: range) -> Layout:
    """The layout in which every wave holds all of `axes`: their wave bits become register bits."""
    moved = [basis for basis in layout.waves if basis is not None and basis[0] in axes]
    waves = tuple(None if basis in moved else basis for basis in layout.waves)
    return Layout(layout.shape, (*layout.registers, *moved), layout.lanes, waves)
