"""Matrix instructions.

A matrix op's operands are wide register vectors made of fragments. Each fragment is cut out of its vector, the instruction is called for
every fragment of the accumulator and every step along K, and the accumulators are put together again. Cutting and joining are vector
shuffles of whole registers, which cost nothing.

Matrix instructions read all lanes of a wave, whatever EXEC says, but LLVM's machine sinking doesn't know: it would move one whose result
only a divergent branch uses (stores by some lanes) into that branch, and with it the making of its operands, which then lack lanes. So
results that go anywhere but into other matrix ops and the next iteration pass through empty assembly marked convergent, which stays put.
"""

from __future__ import annotations

from functools import cache
from itertools import product

from ....ir.core import Block
from ....ir.core import Value as IRValue
from ....ir.ops.control import Yield
from ....llvmtext import Value, bits, lanes, null, vector
from ..anchors import cut
from ..layout import Layout
from ..matrix import instruction
from ..ops import Wmma
from .context import Context, lowers


@cache
def fragments(layout: Layout, fragment: Layout) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The fragments that a wave holds, by the coordinate of their first element: the tile's register for each register of a whole fragment.

    Registers beyond a tile that is smaller than a fragment are -1.
    """
    index = {point: register for register, point in enumerate(layout.register_offsets)}
    part = cut(fragment, layout.shape)
    inside = set(part.registers)
    corners = {point for point in index if all(point[axis] & step == 0 for axis, step in inside)}
    return {
        corner: tuple(index.get(tuple(c + o for c, o in zip(corner, offset, strict=True)), -1) for offset in fragment.register_offsets)
        for corner in sorted(corners)
    }


@cache
def _repeated(layout: Layout, fragment: Layout) -> dict[tuple[int, ...], tuple[int, ...]]:
    """As `fragments`, registers beyond a small tile holding copies of those within: rows or columns that are there several times."""
    part = cut(fragment, layout.shape)
    copies = [tuple(at % extent for at, extent in zip(offset, part.shape, strict=True)) for offset in fragment.register_offsets]
    index = {point: register for register, point in enumerate(layout.register_offsets)}
    return {
        corner: tuple(index[tuple(c + o for c, o in zip(corner, offset, strict=True))] for offset in copies)
        for corner in fragments(layout, fragment)
    }


def _cut(cx: Context, tile: IRValue, registers: tuple[int, ...]) -> Value:
    """A fragment's registers; zero for those that are -1."""
    if min(registers) >= 0:
        return cx.take(tile, registers)
    whole = cx.get(tile)
    size = lanes(whole.type)
    return cx.f.shuffle(whole, null(whole.type), [r if r >= 0 else size for r in registers])


@lowers(Wmma)
def wmma(cx: Context, op: Wmma) -> None:
    """Fragments of B, then of A, then the instructions, for each step along K: B's registers are shared by all rows of A."""
    row = instruction(cx.arch, op.instruction, op.a.tile.dtype, op.b.tile.dtype)
    of_a, of_b = fragments(op.a.layout, row.a_layout), fragments(op.b.layout, row.b_layout)
    places = _repeated(op.acc.layout, row.acc_layout)
    totals = {corner: _cut(cx, op.acc, registers) for corner, registers in places.items()}
    for k in sorted({corner[1] for corner in of_a}):
        columns = {n: _cut(cx, op.b, registers) for (at, n), registers in of_b.items() if at == k}
        rows = {m: _cut(cx, op.a, registers) for (m, at), registers in of_a.items() if at == k}
        for m, n in product(rows, columns):
            totals[m, n] = row.emit(cx.f, rows[m], columns[n], totals[m, n])
    if op.result in cx.once("matrix results to pin", lambda: _escaping(cx.kernel.body)):
        totals = {corner: _pin(cx, total) for corner, total in totals.items()}
    parts = [(places[corner], totals[corner]) for corner in places]
    if all(len(set(registers)) == len(registers) for registers in places.values()):
        cx.set_pieces(op.result, parts)
    else:
        cx.set(op.result, _join(cx, parts, cx.registers(op.result)))


def _escaping(body: Block) -> set[IRValue]:
    """Results of matrix ops that something else uses: not another matrix op's accumulator, not a block's yield."""
    found: set[IRValue] = set()
    for op in body.walk():
        used = op.operands[:2] if isinstance(op, Wmma) else () if isinstance(op, Yield) else op.operands
        found.update(value for value in used if isinstance(value.owner, Wmma))
    return found


def _pin(cx: Context, value: Value) -> Value:
    """The same value, made here at the latest."""
    words = cx.f.bitcast(value, vector(bits(value.type) // 32, "i32"))
    pinned = cx.f.emit(words.type, f'call {words.type} asm "", "=v,0"({words}) convergent')
    return cx.f.bitcast(pinned, value.type)


def _join(cx: Context, parts: list[tuple[tuple[int, ...], Value]], size: int) -> Value:
    """A tile from its fragments: neighbours are concatenated, pair by pair, and the registers put in order at the end."""
    order = [register for registers, _ in parts for register in registers]
    values = [value for _, value in parts]
    while len(values) > 1:
        width = lanes(values[0].type)
        pairs = [cx.f.shuffle(x, y, range(2 * width)) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = pairs if len(values) % 2 == 0 else [*pairs, cx.f.shuffle(values[-1], None, [*range(width), *[-1] * width])]
    return cx.f.shuffle(values[0], None, [order.index(register) for register in range(size)])
