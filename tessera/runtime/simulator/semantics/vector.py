"""Vector ALU on integers of 16, 32 and 64 bits: arithmetic, logic, shifts, selection. Encodings (VOP1, 2, 3, dual issue) share rows."""

from __future__ import annotations

from tessera.llvmtext import Function, Value, bits, element

from .numeric import constant, extend, intrinsic, truncate
from .table import BEFORE_GFX11, CDNA, GFX11_ON, GFX12_ON, GFX125_ON, RDNA, aliases, rows, semantics


def count(b: Function, n: Value) -> Value:
    """A shift count: the hardware looks at as many bits as the width needs."""
    return b.and_(n, bits(element(n.type)) - 1)


def shl(b: Function, n: Value, x: Value) -> Value:
    return b.shl(x, count(b, n))


def lshr(b: Function, n: Value, x: Value) -> Value:
    return b.lshr(x, count(b, n))


def ashr(b: Function, n: Value, x: Value) -> Value:
    return b.ashr(x, count(b, n))


# ---- integers of 32 bits -------------------------------------------------------------------------------------------------------


def low24(b: Function, x: Value) -> Value:
    return b.and_(x, 0xFFFFFF)


def signed24(b: Function, x: Value) -> Value:
    return b.ashr(b.shl(x, 8), 8)


def multiply_high(b: Function, x: Value, y: Value, signed: bool) -> Value:
    """The upper half of a product."""
    wide = "i64" if element(x.type) == "i32" else "i128"
    half = 32 if wide == "i64" else 64
    return truncate(b, b.lshr(b.mul(extend(b, x, wide, signed), extend(b, y, wide, signed)), half), element(x.type))


def smin(b: Function, x: Value, y: Value) -> Value:
    return intrinsic(b, "smin", x, y)


def smax(b: Function, x: Value, y: Value) -> Value:
    return intrinsic(b, "smax", x, y)


def umin(b: Function, x: Value, y: Value) -> Value:
    return intrinsic(b, "umin", x, y)


def umax(b: Function, x: Value, y: Value) -> Value:
    return intrinsic(b, "umax", x, y)


rows("b32 -> b32", v_mov_b32=lambda b, x: x)
rows("b16 -> b16", on=GFX11_ON, v_mov_b16=lambda b, x: x, v_not_b16=lambda b, x: b.not_(x))
rows("b64 -> b64", on=CDNA | GFX125_ON, v_mov_b64=lambda b, x: x)
rows(
    "u32 -> u32",
    v_not_b32=lambda b, x: b.not_(x),
    v_bfrev_b32=lambda b, x: intrinsic(b, "bitreverse", x),
)
rows(
    "u32 u32 -> u32",
    v_and_b32=lambda b, x, y: b.and_(x, y),
    v_or_b32=lambda b, x, y: b.or_(x, y),
    v_xor_b32=lambda b, x, y: b.xor(x, y),
    v_xnor_b32=lambda b, x, y: b.not_(b.xor(x, y)),
    v_lshlrev_b32=shl,
    v_lshrrev_b32=lshr,
    v_ashrrev_i32=ashr,
    v_min_i32=smin,
    v_max_i32=smax,
    v_min_u32=umin,
    v_max_u32=umax,
    v_mul_lo_u32=lambda b, x, y: b.mul(x, y),
    v_mul_hi_u32=lambda b, x, y: multiply_high(b, x, y, False),
    v_mul_hi_i32=lambda b, x, y: multiply_high(b, x, y, True),
    v_mul_u32_u24=lambda b, x, y: b.mul(low24(b, x), low24(b, y)),
    v_mul_i32_i24=lambda b, x, y: b.mul(signed24(b, x), signed24(b, y)),
    v_mul_hi_u32_u24=lambda b, x, y: multiply_high(b, low24(b, x), low24(b, y), False),
    v_mul_hi_i32_i24=lambda b, x, y: multiply_high(b, signed24(b, x), signed24(b, y), True),
    v_bfm_b32=lambda b, n, at: b.shl(b.sub(b.shl(constant(n, 1), count(b, n)), 1), count(b, at)),
    v_bcnt_u32_b32=lambda b, x, y: b.add(intrinsic(b, "ctpop", x), y),
)
semantics("v_add_nc_u32", "u32 u32 -> u32", clamp=lambda b, x, y: intrinsic(b, "uadd.sat", x, y))(lambda b, x, y: b.add(x, y))
semantics("v_sub_nc_u32", "u32 u32 -> u32", clamp=lambda b, x, y: intrinsic(b, "usub.sat", x, y))(lambda b, x, y: b.sub(x, y))
semantics("v_subrev_nc_u32", "u32 u32 -> u32", clamp=lambda b, x, y: intrinsic(b, "usub.sat", y, x))(lambda b, x, y: b.sub(y, x))
semantics("v_add_nc_i32", "i32 i32 -> i32", clamp=lambda b, x, y: intrinsic(b, "sadd.sat", x, y))(lambda b, x, y: b.add(x, y))
semantics("v_sub_nc_i32", "i32 i32 -> i32", clamp=lambda b, x, y: intrinsic(b, "ssub.sat", x, y))(lambda b, x, y: b.sub(x, y))
aliases(
    CDNA,
    v_add_u32="v_add_nc_u32",
    v_sub_u32="v_sub_nc_u32",
    v_subrev_u32="v_subrev_nc_u32",
    v_add_i32="v_add_nc_i32",
    v_sub_i32="v_sub_nc_i32",
)

rows(
    "u32 u32 u32 -> u32",
    v_add3_u32=lambda b, x, y, z: b.add(b.add(x, y), z),
    v_lshl_add_u32=lambda b, x, n, z: b.add(shl(b, n, x), z),
    v_add_lshl_u32=lambda b, x, y, n: shl(b, n, b.add(x, y)),
    v_lshl_or_b32=lambda b, x, n, z: b.or_(shl(b, n, x), z),
    v_and_or_b32=lambda b, x, y, z: b.or_(b.and_(x, y), z),
    v_or3_b32=lambda b, x, y, z: b.or_(b.or_(x, y), z),
    v_bfi_b32=lambda b, m, x, y: b.or_(b.and_(m, x), b.and_(b.not_(m), y)),
    v_min3_i32=lambda b, x, y, z: smin(b, smin(b, x, y), z),
    v_max3_i32=lambda b, x, y, z: smax(b, smax(b, x, y), z),
    v_min3_u32=lambda b, x, y, z: umin(b, umin(b, x, y), z),
    v_max3_u32=lambda b, x, y, z: umax(b, umax(b, x, y), z),
    v_med3_i32=lambda b, x, y, z: smax(b, smin(b, smax(b, x, y), z), smin(b, x, y)),
    v_med3_u32=lambda b, x, y, z: umax(b, umin(b, umax(b, x, y), z), umin(b, x, y)),
    v_mad_u32_u24=lambda b, x, y, z: b.add(b.mul(low24(b, x), low24(b, y)), z),
    v_mad_i32_i24=lambda b, x, y, z: b.add(b.mul(signed24(b, x), signed24(b, y)), z),
)
rows(
    "u32 u32 u32 -> u32",
    on=RDNA,
    v_xor3_b32=lambda b, x, y, z: b.xor(b.xor(x, y), z),
    v_xad_u32=lambda b, x, y, z: b.add(b.xor(x, y), z),
)
rows(
    "u32 u32 u32 -> u32",
    on=GFX11_ON,
    v_maxmin_u32=lambda b, x, y, z: umin(b, umax(b, x, y), z),
    v_minmax_u32=lambda b, x, y, z: umax(b, umin(b, x, y), z),
    v_maxmin_i32=lambda b, x, y, z: smin(b, smax(b, x, y), z),
    v_minmax_i32=lambda b, x, y, z: smax(b, smin(b, x, y), z),
)


def field(b: Function, x: Value, at: Value, size: Value, signed: bool) -> Value:
    """`size` bits of x from bit `at` on (both taken modulo the width); nothing gives 0."""
    at, size = count(b, at), count(b, size)
    width = bits(element(x.type))
    moved = b.ashr(x, at) if signed else b.lshr(x, at)
    rest = count(b, b.sub(constant(size, width), size))
    top = b.shl(moved, rest)
    return b.select(b.icmp("eq", size, 0), constant(x, 0), b.ashr(top, rest) if signed else b.lshr(top, rest))


rows(
    "u32 u32 u32 -> u32",
    v_bfe_u32=lambda b, x, at, size: field(b, x, at, size, False),
    v_bfe_i32=lambda b, x, at, size: field(b, x, at, size, True),
    v_alignbit_b32=lambda b, high, low, n: intrinsic(b, "fshr", high, low, count(b, n)),
    v_alignbyte_b32=lambda b, high, low, n: intrinsic(b, "fshr", high, low, b.shl(b.and_(n, 3), 3)),
    v_sad_u8=lambda b, x, y, z: sum_of_differences(b, x, y, z, 8),
    v_sad_u16=lambda b, x, y, z: sum_of_differences(b, x, y, z, 16),
    v_sad_u32=lambda b, x, y, z: sum_of_differences(b, x, y, z, 32),
    v_msad_u8=lambda b, x, y, z: masked_sum_of_differences(b, x, y, z),
    v_lerp_u8=lambda b, x, y, z: average_bytes(b, x, y, z),
    v_sad_hi_u8=lambda b, x, y, z: b.add(b.shl(sum_of_differences(b, x, y, constant(z, 0), 8), 16), z),
)


def sum_of_differences(b: Function, x: Value, y: Value, z: Value, width: int) -> Value:
    """z plus the absolute differences of the unsigned fields of `width` bits."""
    for at in range(0, 32, width):
        mask = (1 << width) - 1
        s, t = b.and_(b.lshr(x, at), mask), b.and_(b.lshr(y, at), mask)
        z = b.add(z, b.sub(umax(b, s, t), umin(b, s, t)))
    return z


def masked_sum_of_differences(b: Function, x: Value, reference: Value, z: Value) -> Value:
    """As `sum_of_differences` of bytes, but for those whose reference is zero."""
    for at in range(0, 32, 8):
        s, t = b.and_(b.lshr(x, at), 255), b.and_(b.lshr(reference, at), 255)
        difference = b.sub(umax(b, s, t), umin(b, s, t))
        z = b.add(z, b.select(b.icmp("eq", t, 0), constant(z, 0), difference))
    return z


def average_bytes(b: Function, x: Value, y: Value, rounding: Value) -> Value:
    """The average of each pair of bytes, rounded up where the lowest bit of the byte of `rounding` is set."""
    result = constant(x, 0)
    for at in range(0, 32, 8):
        s, t, up = (b.and_(b.lshr(v, at), mask) for v, mask in ((x, 255), (y, 255), (rounding, 1)))
        result = b.or_(result, b.shl(b.lshr(b.add(b.add(s, t), up), 1), at))
    return result


def leading(b: Function, x: Value) -> Value:
    """Zeros above the highest one, or -1 where there is none."""
    zeros = b.intrinsic("ctlz", [x, Value("i1", "false")], x.type, [x.type])
    return b.select(b.icmp("eq", x, 0), constant(x, -1), zeros)


def trailing(b: Function, x: Value) -> Value:
    zeros = b.intrinsic("cttz", [x, Value("i1", "false")], x.type, [x.type])
    return b.select(b.icmp("eq", x, 0), constant(x, -1), zeros)


def leading_sign(b: Function, x: Value) -> Value:
    """Bits from the top that equal the sign bit, itself included; -1 for 0 and -1."""
    flipped = b.xor(x, b.ashr(x, bits(element(x.type)) - 1))
    return leading(b, flipped)


rows("u32 -> u32", v_clz_i32_u32=leading, v_ctz_i32_b32=trailing, v_cls_i32=leading_sign)
aliases(BEFORE_GFX11, v_ffbh_u32="v_clz_i32_u32", v_ffbl_b32="v_ctz_i32_b32", v_ffbh_i32="v_cls_i32")

# ---- carries -------------------------------------------------------------------------------------------------------------------


def with_carry(b: Function, x: Value, y: Value, carry: Value | None = None) -> tuple[Value, Value]:
    total = b.add(x, y)
    out = b.icmp("ult", total, x)
    if carry is None:
        return total, out
    more = b.add(total, b.cast("zext", carry, x.type))
    return more, b.or_(out, b.icmp("ult", more, total))


def with_borrow(b: Function, x: Value, y: Value, borrow: Value | None = None) -> tuple[Value, Value]:
    difference = b.sub(x, y)
    out = b.icmp("ult", x, y)
    if borrow is None:
        return difference, out
    less = b.sub(difference, b.cast("zext", borrow, x.type))
    return less, b.or_(out, b.icmp("ugt", less, difference))


rows(
    "u32 u32 -> u32 mask",
    v_add_co_u32=lambda b, x, y: with_carry(b, x, y),
    v_sub_co_u32=lambda b, x, y: with_borrow(b, x, y),
    v_subrev_co_u32=lambda b, x, y: with_borrow(b, y, x),
)
rows(
    "u32 u32 mask -> u32 mask",
    v_add_co_ci_u32=lambda b, x, y, c: with_carry(b, x, y, c),
    v_sub_co_ci_u32=lambda b, x, y, c: with_borrow(b, x, y, c),
    v_subrev_co_ci_u32=lambda b, x, y, c: with_borrow(b, y, x, c),
)
aliases(CDNA, v_addc_co_u32="v_add_co_ci_u32", v_subb_co_u32="v_sub_co_ci_u32", v_subbrev_co_u32="v_subrev_co_ci_u32")


def multiply_add_64(b: Function, x: Value, y: Value, z: Value, signed: bool) -> tuple[Value, Value]:
    product = b.mul(extend(b, x, "i64", signed), extend(b, y, "i64", signed))
    total = b.add(product, z)
    if not signed:
        return total, b.icmp("ult", total, product)
    # Signed: the carry is that of the 65-bit sum.
    return total, b.icmp("slt", b.xor(b.and_(b.xor(product, total), b.xor(z, total)), total), 0)


rows(
    "u32 u32 u64 -> u64 mask",
    v_mad_u64_u32=lambda b, x, y, z: multiply_add_64(b, x, y, z, False),
    v_mad_i64_i32=lambda b, x, y, z: multiply_add_64(b, x, y, z, True),
)
aliases(GFX12_ON, v_mad_co_u64_u32="v_mad_u64_u32", v_mad_co_i64_i32="v_mad_i64_i32")

# ---- selection -----------------------------------------------------------------------------------------------------------------

rows("b32 b32 mask -> b32", v_cndmask_b32=lambda b, x, y, c: b.select(c, y, x))
rows("b16 b16 mask -> b16", on=GFX11_ON, v_cndmask_b16=lambda b, x, y, c: b.select(c, y, x))

# ---- 64 bits -------------------------------------------------------------------------------------------------------------------


def shift64(b: Function, op: str, n: Value, x: Value) -> Value:
    return b.binary(op, x, extend(b, b.and_(n, 63), "i64", False))


rows(
    "u32 u64 -> u64",
    v_lshlrev_b64=lambda b, n, x: shift64(b, "shl", n, x),
    v_lshrrev_b64=lambda b, n, x: shift64(b, "lshr", n, x),
    v_ashrrev_i64=lambda b, n, x: shift64(b, "ashr", n, x),
)
rows("u64 u32 u64 -> u64", on=CDNA | GFX125_ON, v_lshl_add_u64=lambda b, x, n, z: b.add(shift64(b, "shl", b.and_(n, 7), x), z))

# ---- integers of 16 bits -------------------------------------------------------------------------------------------------------

rows(
    "u16 u16 -> u16",
    v_lshlrev_b16=shl,
    v_lshrrev_b16=lshr,
    v_ashrrev_i16=ashr,
    v_min_i16=smin,
    v_max_i16=smax,
    v_min_u16=umin,
    v_max_u16=umax,
    v_mul_lo_u16=lambda b, x, y: b.mul(x, y),
)
rows(
    "u16 u16 -> u16",
    on=GFX11_ON,
    v_and_b16=lambda b, x, y: b.and_(x, y),
    v_or_b16=lambda b, x, y: b.or_(x, y),
    v_xor_b16=lambda b, x, y: b.xor(x, y),
)
semantics("v_add_nc_u16", "u16 u16 -> u16", clamp=lambda b, x, y: intrinsic(b, "uadd.sat", x, y))(lambda b, x, y: b.add(x, y))
semantics("v_sub_nc_u16", "u16 u16 -> u16", clamp=lambda b, x, y: intrinsic(b, "usub.sat", x, y))(lambda b, x, y: b.sub(x, y))
semantics("v_add_nc_i16", "i16 i16 -> i16", clamp=lambda b, x, y: intrinsic(b, "sadd.sat", x, y))(lambda b, x, y: b.add(x, y))
semantics("v_sub_nc_i16", "i16 i16 -> i16", clamp=lambda b, x, y: intrinsic(b, "ssub.sat", x, y))(lambda b, x, y: b.sub(x, y))
rows("u16 u16 -> u16", on=CDNA, v_subrev_u16=lambda b, x, y: b.sub(y, x))
aliases(CDNA, v_add_u16="v_add_nc_u16", v_sub_u16="v_sub_nc_u16", v_add_i16="v_add_nc_i16", v_sub_i16="v_sub_nc_i16")
rows(
    "u16 u16 u16 -> u16",
    v_mad_u16=lambda b, x, y, z: b.add(b.mul(x, y), z),
    v_mad_i16=lambda b, x, y, z: b.add(b.mul(x, y), z),
    v_min3_i16=lambda b, x, y, z: smin(b, smin(b, x, y), z),
    v_max3_i16=lambda b, x, y, z: smax(b, smax(b, x, y), z),
    v_min3_u16=lambda b, x, y, z: umin(b, umin(b, x, y), z),
    v_max3_u16=lambda b, x, y, z: umax(b, umax(b, x, y), z),
    v_med3_i16=lambda b, x, y, z: smax(b, smin(b, smax(b, x, y), z), smin(b, x, y)),
    v_med3_u16=lambda b, x, y, z: umax(b, umin(b, umax(b, x, y), z), umin(b, x, y)),
)
rows(
    "u16 u16 u32 -> u32",
    v_mad_u32_u16=lambda b, x, y, z: b.add(b.mul(extend(b, x, "i32", False), extend(b, y, "i32", False)), z),
    v_mad_i32_i16=lambda b, x, y, z: b.add(b.mul(extend(b, x, "i32", True), extend(b, y, "i32", True)), z),
)
