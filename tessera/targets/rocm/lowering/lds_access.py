"""Reading and writing LDS: each access as wide as layout, alignment and contiguity allow (lds.accesses), and barriers.

Elements that an access needs side by side may come from anywhere in a thread's registers: a transpose on the way into LDS. 16- and 8-bit
ones are brought together by `v_perm_b32`, which picks any four bytes of two registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....llvmtext import Value, bits, const, element, lanes, vector
from .. import lds as lds_layouts
from ..layout import Layout
from ..ops import Barrier, LdsAlloc, LdsLoad, LdsStore
from .context import Context, lowers
from .lanes import linear


@lowers(LdsAlloc)
def lds_alloc(cx: Context, op: LdsAlloc) -> None:
    cx.lds[op.result] = op.offset


def owner_waves(cx: Context, layout: Layout) -> Value | None:
    """Whether this wave owns the elements it holds in `layout` (i1, uniform); None where all waves do.

    Of waves that hold copies the lowest owns them; surplus waves (beyond the layout's power of two) own nothing.
    """
    surplus = ((1 << (cx.num_waves - 1).bit_length()) - 1) & -layout.num_waves
    mask = layout.replicated_waves | surplus
    return cx.once(("owner", mask), lambda: cx.f.icmp("eq", cx.f.and_(cx.wave, mask), 0)) if mask else None


@lowers(LdsStore)
def lds_store(cx: Context, op: LdsStore) -> None:
    f = cx.f
    held: lds_layouts.LdsLayout = op.buffer.layout
    layout: Layout = op.source.layout
    value = _in_memory(cx, cx.get(op.source))
    pieces = lds_layouts.accesses(held, layout, op.offset)
    gathered = gather(cx, value, [piece.registers for piece in pieces])
    base = _base(cx, held, layout)
    owner, after = owner_waves(cx, layout), ""
    if owner is not None:
        mine, after = f.label("owner"), f.label("stored")
        f.branch_if(owner, mine, after)
        f.position(mine)
    for piece, data in zip(pieces, gathered, strict=True):
        f.store(data, f.gep(base, cx.lds[op.buffer] + piece.offset), piece.bytes)
    if owner is not None:
        f.branch(after)
        f.position(after)


@lowers(LdsLoad)
def lds_load(cx: Context, op: LdsLoad) -> None:
    f = cx.f
    held: lds_layouts.LdsLayout = op.buffer.layout
    layout: Layout = op.result.layout
    scalar = op.result.tile.dtype.llvm_memory
    base = _base(cx, held, layout)
    parts: list[Value] = []
    order: list[int] = []
    pieces = lds_layouts.accesses(held, layout, op.offset)
    for piece in pieces:
        pointer = f.gep(base, cx.lds[op.buffer] + piece.offset)
        parts.append(f.load(vector(len(piece.registers), scalar), pointer, piece.bytes))
        order += piece.registers
    if scalar == op.result.tile.dtype.llvm:
        cx.set_pieces(op.result, [(tuple(piece.registers), part) for piece, part in zip(pieces, parts, strict=True)])
        return
    places = [0] * len(order)
    for place, register in enumerate(order):
        places[register] = place
    value = f.shuffle(concatenate(cx, parts), None, places)
    cx.set(op.result, f.cast("trunc", value, cx.llvm_type(op.result)))


def _in_memory(cx: Context, value: Value) -> Value:
    """A tile as it is stored: bools are bytes."""
    return cx.f.cast("zext", value, vector(lanes(value.type), "i8")) if element(value.type) == "i1" else value


def _base(cx: Context, held: lds_layouts.LdsLayout, layout: Layout) -> Value:
    """Where the thread's part of a tile begins in LDS, as if the buffer were at 0."""
    steps = (held.weights(layout.lanes), held.weights(layout.waves))

    def build() -> Value:
        offset = cx.f.add(linear(cx, "lane", steps[0]), linear(cx, "wave", steps[1]))
        return cx.f.gep(Value("ptr addrspace(3)", "@tessera.lds"), offset)

    return cx.cached(1, ("lds", *steps), build)


def concatenate(cx: Context, parts: Sequence[Value]) -> Value:
    """One vector of all elements of `parts`, in order."""
    values = list(parts)
    while len(values) > 1:
        joined: list[Value] = []
        for at in range(0, len(values), 2):
            joined.append(_append(cx, values[at], values[at + 1]) if at + 1 < len(values) else values[at])
        values = joined
    return values[0]


def _append(cx: Context, x: Value, y: Value) -> Value:
    n, m = lanes(x.type), lanes(y.type)
    if m < n:
        y = cx.f.shuffle(y, None, [*range(m), *[-1] * (n - m)])
    elif n < m:
        x = cx.f.shuffle(x, None, [*range(n), *[-1] * (m - n)])
    wide = max(n, m)
    return cx.f.shuffle(x, y, [*range(n), *range(wide, wide + m)])


def gather(cx: Context, value: Value, groups: Sequence[tuple[int, ...]]) -> list[Value]:
    """For each group of registers of a tile, their vector."""
    f = cx.f
    count, scalar = lanes(value.type), element(value.type)
    width = bits(scalar)
    per_word = 32 // width if 8 <= width < 32 else 1
    apart = any(group[i] != group[0] + i for group in groups for i in range(len(group)))
    if per_word == 1 or count % per_word or not apart or any(len(group) % per_word for group in groups):
        return [f.shuffle(value, None, group) for group in groups]
    whole = f.bitcast(value, vector(count // per_word, "i32"))
    bytes_ = _Bytes(cx, [f.extract(whole, i) for i in range(count // per_word)], width // 8)
    found: list[Value] = []
    for group in groups:
        words = [bytes_.word(group[i : i + per_word]) for i in range(0, len(group), per_word)]
        found.append(f.bitcast(f.build(words), vector(len(group), scalar)))
    return found


class _Bytes:
    """Words put together from the elements of others by v_perm_b32; steps that several of them share are emitted once."""

    def __init__(self, cx: Context, words: list[Value], size: int) -> None:
        self.cx, self.words, self.size = cx, words, size
        self.made: dict[tuple[int, ...], Value] = {}

    def word(self, registers: tuple[int, ...]) -> Value:
        """The word that holds these elements (as many as fit), lowest first."""
        places = [(r * self.size // 4, r * self.size % 4 + b) for r in registers for b in range(self.size)]
        return self._pick(places)

    def _pick(self, places: Sequence[tuple[int, int]]) -> Value:
        """The word made of the (word, byte) places."""
        sources = sorted({word for word, _ in places})
        if len(sources) <= 2:
            low, high = sources[0], sources[-1]
            if len(sources) == 1 and [byte for _, byte in places] == [0, 1, 2, 3]:
                return self.words[low]
            return self._perm(self.words[low], self.words[high], [byte + (4 if word == high != low else 0) for word, byte in places])
        # Four elements of a byte: halves come from a pair of words each, which hold what the neighbouring column needs too.
        pairs = [self._pair(places[0], places[1]), self._pair(places[2], places[3])]
        return self._perm(pairs[0][0], pairs[1][0], [*pairs[0][1], *(byte + 4 for byte in pairs[1][1])])

    def _pair(self, x: tuple[int, int], y: tuple[int, int]) -> tuple[Value, list[int]]:
        """A word with both bytes in it, and where they are."""
        if x[0] == y[0]:
            return self.words[x[0]], [x[1], y[1]]
        if x[1] != y[1]:
            return self._perm(self.words[x[0]], self.words[y[0]], [x[1], y[1] + 4, x[1], y[1] + 4]), [0, 1]
        column = x[1] & 2
        key = (x[0], y[0], column)
        if key not in self.made:
            self.made[key] = self._perm(self.words[x[0]], self.words[y[0]], [column, column + 4, column + 1, column + 5])
        at = 2 * (x[1] & 1)
        return self.made[key], [at, at + 1]

    def _perm(self, low: Value, high: Value, picks: Sequence[int]) -> Value:
        """Bytes 0-3 of `picks` are those of `low`, 4-7 those of `high`."""
        selector = const("i32", sum(pick << 8 * i for i, pick in enumerate(picks)))
        return self.cx.f.call("llvm.amdgcn.perm", "i32", [high, low, selector])


@lowers(Barrier)
def barrier(cx: Context, op: Barrier) -> None:
    """Ordered for LDS only: without this metadata each fence would wait for the global loads in flight, without the fences LLVM might move
    LDS accesses across the barrier. A single wave's accesses are in order by themselves."""
    if cx.num_waves == 1:
        return
    node = cx.module.metadata('!{!"amdgpu-synchronize-as", !"local"}')
    # LLVM's machine sinking takes neither the fences nor the barrier for a store, and would move an LDS load that only a later branch uses
    # (that of the owning waves) down past them. Empty assembly that may write memory stops it, and costs nothing.
    cx.f.do('call void asm sideeffect "", "~{memory}"()')
    cx.f.do(f'fence syncscope("workgroup") release, !mmra !{node}')
    cx.f.call("llvm.amdgcn.s.barrier", "void", [])
    cx.f.do(f'fence syncscope("workgroup") acquire, !mmra !{node}')
