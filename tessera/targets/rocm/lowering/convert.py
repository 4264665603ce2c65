"""Conversions between layouts that stay within a wave: by moving registers, or by shuffles between lanes (layout.Shuffle)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ....errors import CompilerBug
from ....llvmtext import Value, bits, element, lanes, vector
from .. import layout as layouts
from ..layout import Layout, Movement, Shuffle
from ..ops import ConvertLayout
from .context import Context, lowers
from .lanes import Source, bit, cost, from_words, move, to_words
from .lds_access import gather


@lowers(ConvertLayout)
def convert_layout(cx: Context, op: ConvertLayout) -> None:
    source, target = op.source.layout, op.result.layout
    cx.set(op.result, convert(cx, cx.get(op.source), source, target))


def convert(cx: Context, value: Value, source: Layout, target: Layout) -> Value:
    """The registers of a tile in `target`, from those in `source`. Raises CompilerBug where elements must change waves."""
    kind = layouts.movement(source, target)
    if kind is Movement.NONE:
        return value
    mapping = layouts.register_map(source, target)
    if mapping is not None:
        return gather(cx, value, [mapping])[0]
    if layouts.shuffle(source, target) is None:
        raise CompilerBug(f"a conversion from {source} to {target} reached the lowering; it must go through LDS")
    packed = _pack(source, target, bits(element(value.type)))
    (value,) = gather(cx, value, [_registers(source, packed.source)])
    value = _shuffle(cx, value, packed)
    return gather(cx, value, [_registers(packed.target, target)])[0]


def _registers(source: Layout, target: Layout) -> tuple[int, ...]:
    mapping = layouts.register_map(source, target)
    assert mapping is not None
    return mapping


def lane_cost(source: Layout, target: Layout, element_bits: int, has_rows: bool) -> int | None:
    """About how many VALU instructions a conversion by shuffles takes; None where it is impossible."""
    if layouts.shuffle(source, target) is None:
        return None
    packed = _pack(source, target, element_bits)
    plan = packed.plan
    choices = len(plan.exchanges) + sum(origin is not None and origin[0] == "wave" for origin in plan.register_sources)
    swaps = sum(x.register is not None for x in plan.exchanges)
    each = (1 << choices) - 1 + swaps
    rounds = _rounds(plan, len(packed.target.registers) - packed.bits, packed.bits)
    repeats = target.count >> len(target.registers)
    return sum(cost(current.source, has_rows) + each for current in rounds) * max(1, element_bits // 32) * repeats


@dataclass(frozen=True)
class _Packed:
    """A conversion whose registers are ordered such that the lowest `bits` register bits agree: so many neighbours move as one word."""

    source: Layout
    target: Layout
    plan: Shuffle
    bits: int


@cache
def _pack(source: Layout, target: Layout, width: int) -> _Packed:
    """Order the registers of both sides so that as many elements of `width` bits share a word as fit."""
    plan = layouts.shuffle(source, target)
    assert plan is not None
    room = (32 // width).bit_length() - 1 if 8 <= width < 32 else 0
    carried = [target.registers[origin[1]] for origin in plan.register_sources if origin is not None and origin[0] == "register"][:room]

    def first(layout: Layout) -> Layout:
        rest = [basis for basis in layout.registers if basis not in carried]
        return Layout(layout.shape, (*carried, *rest), layout.lanes, layout.waves)

    ordered = first(source), first(target)
    moved = layouts.shuffle(*ordered)
    assert moved is not None
    return _Packed(*ordered, moved, len(carried))


@dataclass(frozen=True)
class _Round:
    """Round t: where each lane reads, and the bits of the sender's register that t alone decides."""

    source: Source
    register: int


@cache
def _rounds(plan: Shuffle, target_bits: int, packed: int) -> tuple[_Round, ...]:
    """The rounds over the register bits above the packed ones; repeats go alike."""
    carriers = {x.carrier: x for x in plan.exchanges if x.register is not None}
    found: list[_Round] = []
    for round_ in range(1 << target_bits):
        t = round_ << packed
        origins: list[tuple[int | None, int]] = []
        waves: dict[int, int] = {}
        for b, (kind, n) in enumerate(plan.lane_sources):
            if b in carriers:
                origins.append((carriers[b].lane, t >> n & 1))
            elif kind == "lane":
                origins.append((n, 0))
            elif kind == "register":
                origins.append((None, t >> n & 1))
            else:
                origins.append((None, 0))
                waves[n] = 1 << b
        register = 0
        for b, origin in enumerate(plan.register_sources):
            if origin is not None and origin[0] == "register":
                register |= (t >> origin[1] & 1) << b
        weights = tuple(waves.get(n, 0) for n in range(max(waves) + 1)) if waves else ()
        found.append(_Round(Source(tuple(origins), weights), register >> packed))
    return tuple(found)


def _shuffle(cx: Context, value: Value, pack: _Packed) -> Value:
    source, target, plan, packed = pack.source, pack.target, pack.plan, pack.bits
    f, width = cx.f, bits(element(value.type))
    group = 1 << packed  # elements that share a word
    per_element = max(1, width // 32)
    words = _words(cx, value, group)
    result_words: list[Value] = []
    source_bits, target_bits = len(source.registers) - packed, len(target.registers) - packed
    rounds = _rounds(plan, target_bits, packed)
    made: dict[tuple[Value, Source], Value] = {}
    for repeat in range(target.count >> len(target.registers)):
        halves: list[list[Value]] = []
        for half in range(per_element):
            held = [words[((repeat << source_bits) + r) * per_element + half] for r in range(1 << source_bits)]
            sent = [_sent(cx, held, plan, current.register, t << packed, packed) for t, current in enumerate(rounds)]
            got = [move(cx, word, current.source, made) for word, current in zip(sent, rounds, strict=True)]
            for x in plan.exchanges:
                if x.register is not None:
                    flip, moved = 1 << (x.register - packed), bit(cx, "lane", x.lane)
                    got = [f.select(moved, got[t ^ flip], got[t]) for t in range(len(got))]
            halves.append(got)
        result_words += [halves[half][t] for t in range(len(rounds)) for half in range(per_element)]
    return _unwords(cx, result_words, vector(target.count, element(value.type)), group)


def _sent(cx: Context, held: Sequence[Value], plan: Shuffle, register: int, t: int, packed: int) -> Value:
    """What a lane sends in round t: a choice, by its own lane and wave, among its words `held`."""
    choices: list[tuple[int, Value, bool]] = []
    for x in plan.exchanges:
        inverted = x.register is not None and bool(t >> x.register & 1)
        choices.append((x.source_register - packed, bit(cx, "lane", x.carrier), inverted))
    for b, origin in enumerate(plan.register_sources):
        if origin is not None and origin[0] == "wave":
            choices.append((b - packed, bit(cx, "wave", origin[1]), False))

    def choose(level: int, at: int) -> Value:
        if level == len(choices):
            return held[at]
        place, condition, inverted = choices[level]
        zero, one = choose(level + 1, at), choose(level + 1, at | 1 << place)
        return cx.f.select(condition, zero, one) if inverted else cx.f.select(condition, one, zero)

    return choose(0, register)


def _words(cx: Context, value: Value, group: int) -> list[Value]:
    """The words of a tile: `group` neighbouring registers to a word, or several words to a register."""
    f, count, width = cx.f, lanes(value.type), bits(element(value.type))
    if group * width >= 32:
        return to_words(cx, value)
    whole = f.bitcast(value, vector(count // group, f"i{group * width}"))
    return [f.cast("zext", f.extract(whole, i), "i32") for i in range(count // group)]


def _unwords(cx: Context, words: Sequence[Value], type_: str, group: int) -> Value:
    f, width = cx.f, bits(element(type_))
    if group * width >= 32:
        return from_words(cx, words, type_)
    return f.bitcast(f.build([f.cast("trunc", word, f"i{group * width}") for word in words]), type_)
