"""What moves data between lanes or counts them, and byte permutations. Data-parallel primitives (DPP) are a modifier: see `shapes.py`."""

from __future__ import annotations

from tessera.llvmtext import Function, Value, const, lanes, like, vector, vector_const

from .numeric import constant, extend, intrinsic, truncate
from .table import GFX11_ON, RDNA, rows, semantics


def mask_integer(b: Function, mask: Value) -> Value:
    """A lane mask as one integer."""
    return b.bitcast(mask, f"i{lanes(mask.type)}")


def lane_index(b: Function, row: Value, index: Value) -> Value:
    """A lane number taken modulo the wave."""
    return b.and_(index, lanes(row.type) - 1)


rows("u32 s32 -> s32", v_readlane_b32=lambda b, row, index: b.extract(row, lane_index(b, row, index)))
rows("s32 s32 @u32 -> row", v_writelane_b32=lambda b, x, index, row: b.insert(row, x, lane_index(b, row, index)))


@semantics("v_readfirstlane_b32", "u32 active -> s32")
def read_first_lane(b: Function, row: Value, active: Value) -> Value:
    """The lowest active lane; lane 0 where there is none."""
    whole = mask_integer(b, active)
    first = b.intrinsic("cttz", [whole, Value("i1", "false")], whole.type, [whole.type])
    return b.extract(row, b.and_(b.cast("trunc", first, "i32") if whole.type != "i32" else first, lanes(row.type) - 1))


def mask_below(b: Function, x: Value, y: Value, lane: Value, half: int) -> Value:
    """v_mbcnt: y plus the ones of x, half of a lane mask, that belong to lower lanes than this one."""
    here = b.sub(lane, 32 * half)
    inside = b.icmp("ult", here, 32)
    below = b.sub(b.shl(constant(x, 1), b.and_(here, 31)), 1)
    beyond = constant(x, 0 if half else -1)
    return b.add(intrinsic(b, "ctpop", b.and_(x, b.select(inside, below, beyond))), y)


rows(
    "u32 u32 lane -> u32",
    v_mbcnt_lo_u32_b32=lambda b, x, y, lane: mask_below(b, x, y, lane, 0),
    v_mbcnt_hi_u32_b32=lambda b, x, y, lane: mask_below(b, x, y, lane, 1),
)


def permute(b: Function, row: Value, index: Value, scratch: Value) -> Value:
    """Lane i gets lane index[i] (below the wave's size), through memory: no host has this for every width."""
    b.store(row, scratch, 64)
    wide = b.cast("zext", index, like(index.type, "i64"))
    addresses = b.emit(vector(lanes(row.type), "ptr"), f"getelementptr i32, {scratch}, {wide}")
    everywhere = const(like(row.type, "i1"), True)
    return b.intrinsic(
        "masked.gather",
        [addresses, const("i32", 4), everywhere, constant(row, 0)],
        row.type,
        [row.type, addresses.type],
    )


def permute_rows(
    b: Function, row: Value, low: Value, high: Value, old: Value, active: Value, op_sel: tuple[int, ...], scratch: Value, other: bool
) -> Value:
    """v_permlane16: within each row of 16 lanes, lane i reads the lane that nibble i of the selectors names; of the other row of the pair
    for v_permlanex16. op_sel[0] reads inactive lanes too; else they give 0 where op_sel[1] is set, and leave the old value where not."""
    width = lanes(row.type)
    fetch_inactive, bound_control = op_sel[0], op_sel[1]
    flip = 16 if other else 0
    if low.integer is not None and high.integer is not None:
        selectors = (low.integer & 0xFFFFFFFF) | (high.integer & 0xFFFFFFFF) << 32
        source = [(i & ~15 ^ flip) | selectors >> 4 * (i & 15) & 15 for i in range(width)]
        moved = b.shuffle(row, None, source)
        valid = b.shuffle(active, None, source)
    else:
        shifts = vector_const("i32", [4 * (i & 7) for i in range(width)])
        words = b.select(vector_const("i1", [i & 8 for i in range(width)]), b.splat(high, width), b.splat(low, width))
        nibbles = b.and_(b.lshr(words, shifts), 15)
        index = b.or_(nibbles, vector_const("i32", [i & ~15 ^ flip for i in range(width)]))
        moved = permute(b, row, index, scratch)
        if fetch_inactive:
            return moved
        valid = b.icmp("ne", permute(b, extend(b, active, "i32", False), index, scratch), 0)
    if fetch_inactive:
        return moved
    return b.select(valid, moved, constant(row, 0) if bound_control else old)


_PERMLANE = "u32 s32 s32 @u32 active op_sel scratch -> u32"
semantics("v_permlane16_b32", _PERMLANE, on=RDNA)(
    lambda b, row, low, high, old, active, op_sel, scratch: permute_rows(b, row, low, high, old, active, op_sel, scratch, False)
)
semantics("v_permlanex16_b32", _PERMLANE, on=RDNA)(
    lambda b, row, low, high, old, active, op_sel, scratch: permute_rows(b, row, low, high, old, active, op_sel, scratch, True)
)


@semantics("v_permlane64_b32", "u32 -> u32", on=GFX11_ON)
def swap_halves(b: Function, row: Value) -> Value:
    """The halves of a wave of 64 exchanged; nothing in a wave of 32."""
    width = lanes(row.type)
    return row if width == 32 else b.shuffle(row, None, [i ^ 32 for i in range(width)])


@semantics("v_perm_b32", "u32 u32 u32 -> u32")
def permute_bytes(b: Function, high: Value, low: Value, selectors: Value) -> Value:
    """Each byte of the result by a selector: 0-7 a byte of {high, low}; 8-11 the sign of byte 1, 3, 5, 7 spread; 12 zero; above, ones."""
    wide = like(high.type, "i64")
    both = b.or_(b.cast("zext", low, wide), b.shl(b.cast("zext", high, wide), 32))
    known = constant_lanes(selectors)
    result = constant(high, 0)
    for at in range(4):
        if known is not None:
            byte = _byte_by_number(b, both, high, known >> 8 * at & 255)
        else:
            byte = _byte_by_value(b, both, high, b.and_(b.lshr(selectors, 8 * at), 255))
        result = b.or_(result, b.shl(byte, 8 * at))
    return result


def constant_lanes(x: Value) -> int | None:
    """The number that all lanes hold, where it is a constant."""
    if x.text == "zeroinitializer":
        return 0
    if x.text.startswith("splat (i32 "):
        return int(x.text[11:-1]) & 0xFFFFFFFF
    return None


def _byte_by_number(b: Function, both: Value, like_: Value, selector: int) -> Value:
    if selector >= 13:
        return constant(like_, 255)
    if selector == 12:
        return constant(like_, 0)
    if selector >= 8:
        sign = b.ashr(b.shl(both, 48 - 16 * (selector - 8)), 63)
        return b.and_(truncate(b, sign, "i32"), 255)
    return b.and_(truncate(b, b.lshr(both, 8 * selector), "i32"), 255)


def _byte_by_value(b: Function, both: Value, like_: Value, selector: Value) -> Value:
    wide = both.type
    plain = b.lshr(both, b.cast("zext", b.shl(b.and_(selector, 7), 3), wide))
    # The sign of byte 1 + 2k: bit 15 + 16k moved to the top and spread.
    up = b.cast("zext", b.sub(constant(selector, 48), b.shl(b.and_(selector, 3), 4)), wide)
    sign = b.ashr(b.shl(both, up), 63)
    byte = truncate(b, b.select(b.icmp("uge", selector, 8), sign, plain), "i32")
    byte = b.select(b.icmp("eq", selector, 12), constant(like_, 0), byte)
    byte = b.select(b.icmp("ugt", selector, 12), constant(like_, 255), byte)
    return b.and_(byte, 255)
