"""Moving data between the lanes of a wave, a 32-bit word at a time.

Three means, cheapest first: DPP `row_xmask` (part of the instruction that uses the value, lane ^ mask within 16 lanes), `v_permlane16` and
`v_permlanex16` (any lane of the same 16, or of the other 16, chosen alike in both halves), `ds_bpermute` (any lane; takes the way through
LDS hardware, but none of its memory). A word that all lanes want from one lane is read into an SGPR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....llvmtext import Value, bits, const, element, lanes, undefined, vector
from ..layout import bit_groups
from .context import Context

# DPP control: row_xmask:n is 0x160 + n (LLVM AMDGPUUsage, SIDefines.h).
_ROW_XMASK = 0x160

_DEPTHS = {"lane": 1, "wave": 0}  # where the context makes these numbers


def to_words(cx: Context, value: Value) -> list[Value]:
    """The registers of a vector as i32 words, packed as tightly as they fill whole words; else one element a word, zero-extended."""
    f = cx.f
    count, scalar = lanes(value.type), element(value.type)
    width = bits(scalar)
    if width >= 8 and count * width % 32 == 0:
        whole = f.bitcast(value, vector(count * width // 32, "i32"))
        return [f.extract(whole, i) for i in range(count * width // 32)]
    integers = f.bitcast(value, vector(count, f"i{width}"))
    return [f.cast("zext", f.extract(integers, i), "i32") for i in range(count)]


def from_words(cx: Context, words: Sequence[Value], type_: str) -> Value:
    """The vector of type `type_` whose `to_words` are `words`."""
    f = cx.f
    count, width = lanes(type_), bits(element(type_))
    if width >= 8 and count * width % 32 == 0:
        return f.bitcast(f.build(words), type_)
    return f.bitcast(f.build([f.cast("trunc", word, f"i{width}") for word in words]), type_)


def linear(cx: Context, number: str, weights: Sequence[int]) -> Value:
    """The sum of `weights[b]` over the bits b that are set in the thread's `lane` or `wave` number (i32)."""

    def build() -> Value:
        source = cx.lane if number == "lane" else cx.wave
        total = const("i32", 0)
        for shift, mask, factor in bit_groups(weights):
            part = cx.f.and_(cx.f.lshr(source, shift), mask)
            part = cx.f.shl(part, factor.bit_length() - 1) if factor & (factor - 1) == 0 else cx.f.mul(part, factor)
            total = cx.f.add(total, part)
        return total

    return cx.cached(_DEPTHS[number], (number, tuple(weights)), build) if any(weights) else const("i32", 0)


def bit(cx: Context, number: str, index: int) -> Value:
    """Whether bit `index` of the thread's `lane` or `wave` number is set (i1)."""
    key = (number, "bit", index)
    return cx.cached(_DEPTHS[number], key, lambda: cx.f.icmp("ne", linear(cx, number, [0] * index + [1 << index]), 0))


def xor_lanes(cx: Context, word: Value, mask: int) -> Value:
    """Each lane gets the i32 `word` of lane ^ mask. All lanes are active."""
    return move(cx, word, Source(tuple((b, mask >> b & 1) for b in range(cx.arch.wave_size.bit_length() - 1))))


@dataclass(frozen=True)
class Source:
    """Which lane a lane reads: bit b of its number is bit `bits[b][0]` of the reader's (0 where that is None), xor `bits[b][1]`, and, if
    there are `waves`, xor the sum of their weights over the bits of the wave's number."""

    bits: tuple[tuple[int | None, int], ...]
    waves: tuple[int, ...] = ()

    @property
    def mask(self) -> int:
        """The lane that lane 0 of wave 0 reads."""
        return sum(flip << b for b, (_, flip) in enumerate(self.bits))

    @property
    def is_xor(self) -> bool:
        """Whether each lane reads lane ^ mask."""
        return not self.waves and all(origin == b for b, (origin, _) in enumerate(self.bits))

    @property
    def is_one_lane(self) -> bool:
        return all(origin is None for origin, _ in self.bits)

    @property
    def is_row_permutation(self) -> bool:
        """Whether each lane reads from its own 16 lanes, or all from the other 16 of 32, by a table that serves both."""
        low = all(origin is None or origin < 4 for origin, _ in self.bits[:4])
        return not self.waves and low and all(origin == b and (b == 4 or not flip) for b, (origin, flip) in list(enumerate(self.bits))[4:])

    def rows(self) -> tuple[Source, Source] | None:
        """Where all lanes read from one of the two rows of 16: the sources of the lanes in that row, and of those in the other."""
        if len(self.bits) < 5 or self.bits[4][0] is not None:
            return None
        own, other = (Source((*self.bits[:4], (4, flip), *self.bits[5:]), self.waves) for flip in (0, 1))
        return (own, other) if own.is_row_permutation else None

    def lane(self, reader: int) -> int:
        """The lane that a lane of wave 0 reads."""
        return sum(((0 if origin is None else reader >> origin & 1) ^ flip) << b for b, (origin, flip) in enumerate(self.bits))


def cost(source: Source, has_rows: bool) -> int:
    """VALU instructions that a `move` takes, roughly; `ds_bpermute` counts as eight."""
    if source.is_xor and source.mask == 0:
        return 0
    if has_rows and (source.is_row_permutation or source.is_one_lane):
        return 1
    return 2 if has_rows and source.rows() is not None else 8


def move(cx: Context, word: Value, source: Source, made: dict[tuple[Value, Source], Value] | None = None) -> Value:
    """Each lane gets the i32 `word` of the lane that `source` says. All lanes are active. `made` remembers what can be used again."""
    if made is None:
        return _move(cx, word, source, {})
    if (word, source) not in made:
        made[word, source] = _move(cx, word, source, made)
    return made[word, source]


def _move(cx: Context, word: Value, source: Source, made: dict[tuple[Value, Source], Value]) -> Value:
    f = cx.f
    if word.is_constant or (source.is_xor and source.mask == 0):
        return word
    if source.is_xor and source.mask < 16 and cx.arch.has_dpp_row_xmask:
        every = const("i32", 15)
        operands = [undefined("i32"), word, const("i32", _ROW_XMASK + source.mask), every, every, const("i1", 1)]
        return f.intrinsic("amdgcn.update.dpp", operands, "i32", ["i32"])
    if source.is_row_permutation and cx.arch.has_permlanex16:
        table = [source.lane(reader) & 15 for reader in range(16)]
        low, high = (const("i32", sum(lane << 4 * i for i, lane in enumerate(half))) for half in (table[:8], table[8:]))
        name = "amdgcn.permlanex16" if source.mask & 16 else "amdgcn.permlane16"
        return f.intrinsic(name, [undefined("i32"), word, low, high, const("i1", 0), const("i1", 0)], "i32", ["i32"])
    if source.is_one_lane:
        return f.intrinsic("amdgcn.readlane", [word, _address(cx, source, 0)], "i32", ["i32"])
    rows = source.rows()
    if rows is not None and cx.arch.has_permlanex16:
        own, other = (move(cx, word, row, made) for row in rows)
        in_high_row = bit(cx, "lane", 4)
        return f.select(in_high_row, own, other) if source.bits[4][1] else f.select(in_high_row, other, own)
    return f.call("llvm.amdgcn.ds.bpermute", "i32", [_address(cx, source, 2), word])


def _address(cx: Context, source: Source, scale: int) -> Value:
    """The number of the lane to read, times 2**scale."""
    weights = [0] * len(source.bits)
    for b, (origin, _) in enumerate(source.bits):
        if origin is not None:
            weights[origin] += 1 << b + scale
    at = cx.f.xor(linear(cx, "lane", weights), source.mask << scale)
    return cx.f.xor(at, linear(cx, "wave", [w << scale for w in source.waves])) if source.waves else at
