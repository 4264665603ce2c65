"""Scalar ALU: 32- and 64-bit integers with their SCC results, EXEC masks, and the float instructions of gfx11.5 and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tessera.llvmtext import Function, Value, bits

from .numeric import (
    constant,
    extend,
    intrinsic,
    truncate,
)
from .table import ALL, BEFORE_GFX11, GFX11_ON, GFX12_ON, Emit, aliases, rows, semantics
from .vector import count, field, leading, leading_sign, multiply_high, shift64, trailing, with_borrow, with_carry


def nonzero(b: Function, x: Value) -> tuple[Value, Value]:
    """A result, and SCC: whether it isn't zero."""
    return x, b.icmp("ne", x, 0)


Binary: TypeAlias = Callable[[Function, Value, Value], Value]


def _with_scc(body: Binary) -> Emit:
    return lambda b, x, y: nonzero(b, body(b, x, y))


_LOGIC: dict[str, Binary] = {
    "and": lambda b, x, y: b.and_(x, y),
    "or": lambda b, x, y: b.or_(x, y),
    "xor": lambda b, x, y: b.xor(x, y),
    "and_not1": lambda b, x, y: b.and_(x, b.not_(y)),
    "or_not1": lambda b, x, y: b.or_(x, b.not_(y)),
    "nand": lambda b, x, y: b.not_(b.and_(x, y)),
    "nor": lambda b, x, y: b.not_(b.or_(x, y)),
    "xnor": lambda b, x, y: b.not_(b.xor(x, y)),
}
# What saveexec does with (source, EXEC): the "not0" forms negate the source, the "not1" forms EXEC.
_SAVEEXEC: dict[str, Binary] = {
    **_LOGIC,
    "and_not0": lambda b, x, y: b.and_(b.not_(x), y),
    "or_not0": lambda b, x, y: b.or_(b.not_(x), y),
}
_OLD_NAMES = {"and_not1": "andn2", "or_not1": "orn2", "and_not0": "andn1", "or_not0": "orn1"}

for _name, _body in _LOGIC.items():
    for _w in ("32", "64"):
        semantics(f"s_{_name}_b{_w}", f"u{_w} u{_w} -> u{_w} scc")(_with_scc(_body))
        if _name in _OLD_NAMES:
            aliases(BEFORE_GFX11, **{f"s_{_OLD_NAMES[_name]}_b{_w}": f"s_{_name}_b{_w}"})
for _w in ("32", "64"):
    semantics(f"s_not_b{_w}", f"u{_w} -> u{_w} scc")(lambda b, x: nonzero(b, b.not_(x)))


def _save_exec(body: Binary) -> Emit:
    def save(b: Function, x: Value, mask: Value) -> tuple[Value, Value, Value]:
        new = body(b, x, mask)
        return mask, new, b.icmp("ne", new, 0)

    return save


def _write_exec(body: Binary) -> Emit:
    def write(b: Function, x: Value, mask: Value) -> tuple[Value, Value, Value]:
        new = body(b, x, mask)
        return new, new, b.icmp("ne", new, 0)

    return write


for _name, _body in _SAVEEXEC.items():
    for _w in ("32", "64"):
        _signature = f"u{_w} exec{_w} -> u{_w} exec{_w} scc"
        semantics(f"s_{_name}_saveexec_b{_w}", _signature)(_save_exec(_body))
        if _name in _OLD_NAMES:
            aliases(BEFORE_GFX11, **{f"s_{_OLD_NAMES[_name]}_saveexec_b{_w}": f"s_{_name}_saveexec_b{_w}"})
        if _name in ("and_not0", "and_not1"):
            semantics(f"s_{_name}_wrexec_b{_w}", _signature)(_write_exec(_body))
            aliases(BEFORE_GFX11, **{f"s_{_OLD_NAMES[_name]}_wrexec_b{_w}": f"s_{_name}_wrexec_b{_w}"})

# ---- moves and selection -------------------------------------------------------------------------------------------------------

for _w in ("32", "64"):
    semantics(f"s_mov_b{_w}", f"u{_w} -> u{_w}")(lambda b, x: x)
    semantics(f"s_brev_b{_w}", f"u{_w} -> u{_w}")(lambda b, x: intrinsic(b, "bitreverse", x))
    semantics(f"s_cmov_b{_w}", f"u{_w} @u{_w} scc -> u{_w}")(lambda b, x, old, c: b.select(c, x, old))
    semantics(f"s_cselect_b{_w}", f"u{_w} u{_w} scc -> u{_w}")(lambda b, x, y, c: b.select(c, x, y))
rows("simm -> u32", s_movk_i32=lambda b, x: x)
rows("simm @u32 scc -> u32", s_cmovk_i32=lambda b, x, old, c: b.select(c, x, old))

# ---- addition ------------------------------------------------------------------------------------------------------------------


def signed_overflow(b: Function, x: Value, y: Value, total: Value) -> Value:
    return b.icmp("slt", b.and_(b.xor(x, total), b.xor(y, total)), 0)


def add_signed(b: Function, x: Value, y: Value) -> tuple[Value, Value]:
    total = b.add(x, y)
    return total, signed_overflow(b, x, y, total)


def sub_signed(b: Function, x: Value, y: Value) -> tuple[Value, Value]:
    difference = b.sub(x, y)
    return difference, signed_overflow(b, x, b.not_(y), difference)


rows(
    "u32 u32 -> u32 scc",
    s_add_u32=lambda b, x, y: with_carry(b, x, y),
    s_sub_u32=lambda b, x, y: with_borrow(b, x, y),
    s_add_i32=add_signed,
    s_sub_i32=sub_signed,
)
aliases(GFX12_ON, s_add_co_u32="s_add_u32", s_sub_co_u32="s_sub_u32", s_add_co_i32="s_add_i32", s_sub_co_i32="s_sub_i32")
rows(
    "u32 u32 scc -> u32 scc",
    s_addc_u32=lambda b, x, y, c: with_carry(b, x, y, c),
    s_subb_u32=lambda b, x, y, c: with_borrow(b, x, y, c),
)
aliases(GFX12_ON, s_add_co_ci_u32="s_addc_u32", s_sub_co_ci_u32="s_subb_u32")
rows("simm @u32 -> u32 scc", s_addk_i32=lambda b, k, x: add_signed(b, x, k))
aliases(GFX12_ON, s_addk_co_i32="s_addk_i32")
rows("simm @u32 -> u32", s_mulk_i32=lambda b, k, x: b.mul(x, k))
rows(
    "u64 u64 -> u64",
    on=GFX12_ON,
    s_add_nc_u64=lambda b, x, y: b.add(x, y),
    s_sub_nc_u64=lambda b, x, y: b.sub(x, y),
    s_mul_u64=lambda b, x, y: b.mul(x, y),
)
rows(
    "u32 u32 -> u32",
    s_mul_i32=lambda b, x, y: b.mul(x, y),
    s_mul_hi_u32=lambda b, x, y: multiply_high(b, x, y, False),
    s_mul_hi_i32=lambda b, x, y: multiply_high(b, x, y, True),
    s_pack_ll_b32_b16=lambda b, x, y: b.or_(b.and_(x, 0xFFFF), b.shl(y, 16)),
    s_pack_lh_b32_b16=lambda b, x, y: b.or_(b.and_(x, 0xFFFF), b.and_(y, 0xFFFF0000)),
    s_pack_hh_b32_b16=lambda b, x, y: b.or_(b.lshr(x, 16), b.and_(y, 0xFFFF0000)),
    s_bfm_b32=lambda b, n, at: b.shl(b.sub(b.shl(constant(n, 1), count(b, n)), 1), count(b, at)),
)
rows("u32 u32 -> u32", on=GFX11_ON, s_pack_hl_b32_b16=lambda b, x, y: b.or_(b.lshr(x, 16), b.shl(y, 16)))
rows(
    "u32 u32 -> u64",
    s_bfm_b64=lambda b, n, at: shift64(b, "shl", at, b.sub(shift64(b, "shl", n, Value("i64", "1")), 1)),
)


def add_shifted(n: int) -> Emit:
    def emit(b: Function, x: Value, y: Value) -> tuple[Value, Value]:
        total = b.add(b.shl(extend(b, x, "i64", False), n), extend(b, y, "i64", False))
        return truncate(b, total, "i32"), b.icmp("ne", b.lshr(total, 32), 0)

    return emit


for _n in (1, 2, 3, 4):
    semantics(f"s_lshl{_n}_add_u32", "u32 u32 -> u32 scc")(add_shifted(_n))

# ---- minimum, maximum, absolute values ------------------------------------------------------------------------------------------


def choose(predicate: str) -> Emit:
    def emit(b: Function, x: Value, y: Value) -> tuple[Value, Value]:
        first = b.icmp(predicate, x, y)
        return b.select(first, x, y), first

    return emit


for _name, _predicate in {"min_i32": "slt", "min_u32": "ult", "max_i32": "sge", "max_u32": "uge"}.items():
    semantics(f"s_{_name}", "u32 u32 -> u32 scc")(choose(_predicate))


def absolute(b: Function, x: Value) -> Value:
    return b.select(b.icmp("slt", x, 0), b.sub(constant(x, 0), x), x)


rows("u32 -> u32 scc", s_abs_i32=lambda b, x: nonzero(b, absolute(b, x)))
rows("u32 u32 -> u32 scc", s_absdiff_i32=lambda b, x, y: nonzero(b, absolute(b, b.sub(x, y))))

# ---- shifts and fields ---------------------------------------------------------------------------------------------------------

rows(
    "u32 u32 -> u32 scc",
    s_lshl_b32=lambda b, x, n: nonzero(b, b.shl(x, count(b, n))),
    s_lshr_b32=lambda b, x, n: nonzero(b, b.lshr(x, count(b, n))),
    s_ashr_i32=lambda b, x, n: nonzero(b, b.ashr(x, count(b, n))),
)
rows(
    "u64 u32 -> u64 scc",
    s_lshl_b64=lambda b, x, n: nonzero(b, shift64(b, "shl", n, x)),
    s_lshr_b64=lambda b, x, n: nonzero(b, shift64(b, "lshr", n, x)),
    s_ashr_i64=lambda b, x, n: nonzero(b, shift64(b, "ashr", n, x)),
)


def scalar_field(b: Function, x: Value, where: Value, signed: bool) -> tuple[Value, Value]:
    """Offset in the low bits of `where`, size in bits 16-22; a size of the width or more takes all that is left."""
    width = bits(x.type)
    at = b.and_(where, width - 1)
    size = b.and_(b.lshr(where, 16), 127)
    if width == 64:
        at, size = extend(b, at, "i64", False), extend(b, size, "i64", False)
    moved = b.ashr(x, at) if signed else b.lshr(x, at)
    part = field(b, moved, constant(x, 0), size, signed)
    return nonzero(b, b.select(b.icmp("uge", size, width), moved, part))


rows(
    "u32 u32 -> u32 scc",
    s_bfe_u32=lambda b, x, w: scalar_field(b, x, w, False),
    s_bfe_i32=lambda b, x, w: scalar_field(b, x, w, True),
)
rows(
    "u64 u32 -> u64 scc",
    s_bfe_u64=lambda b, x, w: scalar_field(b, x, w, False),
    s_bfe_i64=lambda b, x, w: scalar_field(b, x, w, True),
)

# ---- bits ----------------------------------------------------------------------------------------------------------------------


def low(b: Function, x: Value) -> Value:
    return truncate(b, x, "i32")


rows(
    "u32 -> u32",
    s_ctz_i32_b32=trailing,
    s_clz_i32_u32=leading,
    s_cls_i32=leading_sign,
    s_sext_i32_i8=lambda b, x: b.ashr(b.shl(x, 24), 24),
    s_sext_i32_i16=lambda b, x: b.ashr(b.shl(x, 16), 16),
)
rows(
    "u64 -> u32",
    s_ctz_i32_b64=lambda b, x: low(b, trailing(b, x)),
    s_clz_i32_u64=lambda b, x: low(b, leading(b, x)),
    s_cls_i32_i64=lambda b, x: low(b, leading_sign(b, x)),
)
aliases(
    BEFORE_GFX11,
    s_ff1_i32_b32="s_ctz_i32_b32",
    s_ff1_i32_b64="s_ctz_i32_b64",
    s_flbit_i32_b32="s_clz_i32_u32",
    s_flbit_i32_b64="s_clz_i32_u64",
    s_flbit_i32="s_cls_i32",
    s_flbit_i32_i64="s_cls_i32_i64",
)
rows(
    "u32 -> u32 scc",
    s_bcnt1_i32_b32=lambda b, x: nonzero(b, intrinsic(b, "ctpop", x)),
    s_bcnt0_i32_b32=lambda b, x: nonzero(b, intrinsic(b, "ctpop", b.not_(x))),
    s_wqm_b32=lambda b, x: nonzero(b, quads(b, x)),
    s_quadmask_b32=lambda b, x: nonzero(b, gather_quads(b, x)),
)
rows(
    "u64 -> u32 scc",
    s_bcnt1_i32_b64=lambda b, x: nonzero(b, low(b, intrinsic(b, "ctpop", x))),
    s_bcnt0_i32_b64=lambda b, x: nonzero(b, low(b, intrinsic(b, "ctpop", b.not_(x)))),
)
rows("u64 -> u64 scc", s_wqm_b64=lambda b, x: nonzero(b, quads(b, x)), s_quadmask_b64=lambda b, x: nonzero(b, gather_quads(b, x)))


def any_of_four(b: Function, x: Value) -> Value:
    """Bit 4i: whether any of bits 4i to 4i+3 is set."""
    pairs = b.or_(x, b.lshr(x, 1))
    return b.and_(b.or_(pairs, b.lshr(pairs, 2)), 0x1111_1111_1111_1111 & ((1 << bits(x.type)) - 1))


def quads(b: Function, x: Value) -> Value:
    """Whole-quad mode: all four bits of each quad that has one."""
    return b.mul(any_of_four(b, x), 15)


def gather_quads(b: Function, x: Value) -> Value:
    """Bit i: whether quad i has a bit."""
    spread = any_of_four(b, x)
    for shift, mask in ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0x000000FF000000FF), (24, 0x000000000000FFFF)):
        if shift < bits(x.type):
            spread = b.and_(b.or_(spread, b.lshr(spread, shift)), mask & ((1 << bits(x.type)) - 1))
    return spread


def set_bit(b: Function, n: Value, old: Value, one: bool) -> Value:
    bit = shift64(b, "shl", n, Value("i64", "1")) if old.type == "i64" else b.shl(constant(old, 1), count(b, n))
    return b.or_(old, bit) if one else b.and_(old, b.not_(bit))


@semantics("s_bitreplicate_b64_b32", "u32 -> u64")
def replicate_bits(b: Function, x: Value) -> Value:
    """Each bit twice."""
    wide = extend(b, x, "i64", False)
    for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333)):
        wide = b.and_(b.or_(wide, b.shl(wide, shift)), mask)
    wide = b.and_(b.or_(wide, b.shl(wide, 1)), 0x5555555555555555)
    return b.or_(wide, b.shl(wide, 1))


for _w in ("32", "64"):
    semantics(f"s_bitset1_b{_w}", f"u32 @u{_w} -> u{_w}")(lambda b, n, old: set_bit(b, n, old, True))
    semantics(f"s_bitset0_b{_w}", f"u32 @u{_w} -> u{_w}")(lambda b, n, old: set_bit(b, n, old, False))

# ---- comparisons ---------------------------------------------------------------------------------------------------------------


def compare(predicate: str) -> Emit:
    return lambda b, x, y: b.icmp(predicate, x, y)


for _name, _predicate in {"eq": "eq", "lg": "ne", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}.items():
    for _kind, _sign, _k in (("i32", "s", "simm"), ("u32", "u", "uimm")):
        _full = _predicate if _predicate in ("eq", "ne") else _sign + _predicate
        semantics(f"s_cmp_{_name}_{_kind}", "u32 u32 -> scc")(compare(_full))
        semantics(f"s_cmpk_{_name}_{_kind}", f"u32 {_k} -> scc", on=ALL - GFX12_ON)(compare(_full))
rows("u64 u64 -> scc", s_cmp_eq_u64=compare("eq"), s_cmp_lg_u64=compare("ne"))
rows(
    "u32 u32 -> scc",
    s_bitcmp1_b32=lambda b, x, n: b.icmp("ne", b.and_(b.lshr(x, count(b, n)), 1), 0),
    s_bitcmp0_b32=lambda b, x, n: b.icmp("eq", b.and_(b.lshr(x, count(b, n)), 1), 0),
)
rows(
    "u64 u32 -> scc",
    s_bitcmp1_b64=lambda b, x, n: b.icmp("ne", b.and_(shift64(b, "lshr", n, x), 1), 0),
    s_bitcmp0_b64=lambda b, x, n: b.icmp("eq", b.and_(shift64(b, "lshr", n, x), 1), 0),
)
