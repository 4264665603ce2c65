"""Conversions between float and integer types, and packing."""

from __future__ import annotations

from tessera.llvmtext import Function, Value, like

from .numeric import (
    constant,
    extend,
    fadd,
    float_to_half_toward_zero,
    floor,
    fmul,
    intrinsic,
    narrow,
    round_even,
    to_integer,
    truncate,
    widen,
)
from .table import BEFORE_GFX11, GFX11_ON, aliases, rows, semantics


def from_integer(b: Function, x: Value, to: str, signed: bool) -> Value:
    return b.cast("sitofp" if signed else "uitofp", x, like(x.type, to))


rows(
    "i32 -> f32",
    v_cvt_f32_i32=lambda b, x: from_integer(b, x, "float", True),
    v_cvt_f32_u32=lambda b, x: from_integer(b, x, "float", False),
    v_cvt_f32_ubyte0=lambda b, x: from_integer(b, b.and_(x, 255), "float", True),
    v_cvt_f32_ubyte1=lambda b, x: from_integer(b, b.and_(b.lshr(x, 8), 255), "float", True),
    v_cvt_f32_ubyte2=lambda b, x: from_integer(b, b.and_(b.lshr(x, 16), 255), "float", True),
    v_cvt_f32_ubyte3=lambda b, x: from_integer(b, b.lshr(x, 24), "float", True),
)
rows(
    "i32 -> f64",
    v_cvt_f64_i32=lambda b, x: from_integer(b, x, "double", True),
    v_cvt_f64_u32=lambda b, x: from_integer(b, x, "double", False),
)
# 65535 is beyond f16's exact integers but float holds it, so that writing the f16 rounds once.
rows(
    "i16 -> f16",
    v_cvt_f16_i16=lambda b, x: from_integer(b, x, "float", True),
    v_cvt_f16_u16=lambda b, x: from_integer(b, x, "float", False),
)
rows(
    "f32 -> i32",
    v_cvt_i32_f32=lambda b, x: to_integer(b, x, "i32", True),
    v_cvt_u32_f32=lambda b, x: to_integer(b, x, "i32", False),
    v_cvt_floor_i32_f32=lambda b, x: to_integer(b, floor(b, x), "i32", True),
    v_cvt_nearest_i32_f32=lambda b, x: to_integer(b, nearest(b, x), "i32", True),
)
aliases(BEFORE_GFX11, v_cvt_flr_i32_f32="v_cvt_floor_i32_f32", v_cvt_rpi_i32_f32="v_cvt_nearest_i32_f32")
rows(
    "f64 -> i32",
    v_cvt_i32_f64=lambda b, x: to_integer(b, x, "i32", True),
    v_cvt_u32_f64=lambda b, x: to_integer(b, x, "i32", False),
)
rows(
    "f16 -> i16",
    v_cvt_i16_f16=lambda b, x: to_integer(b, x, "i16", True),
    v_cvt_u16_f16=lambda b, x: to_integer(b, x, "i16", False),
)
rows("f16 -> f32", v_cvt_f32_f16=lambda b, x: x)
rows("f32 -> f16", v_cvt_f16_f32=lambda b, x: x)
rows("f32 -> f64", v_cvt_f64_f32=widen)
rows("f64 -> f32", v_cvt_f32_f64=narrow)


def nearest(b: Function, x: Value) -> Value:
    """floor(x + 0.5), the sum being rounded, as the ISA writes it."""
    return floor(b, fadd(b, x, constant(x, 0.5)))


rows("i16 -> i32", on=GFX11_ON, v_cvt_i32_i16=lambda b, x: extend(b, x, "i32", True), v_cvt_u32_u16=lambda b, x: extend(b, x, "i32", False))


def pack(b: Function, low: Value, high: Value) -> Value:
    """Two i16 in a dword."""
    return b.or_(extend(b, low, "i32", False), b.shl(extend(b, high, "i32", False), 16))


rows(
    "f32 f32 -> u32",
    v_cvt_pk_rtz_f16_f32=lambda b, x, y: pack(b, float_to_half_toward_zero(b, x), float_to_half_toward_zero(b, y)),
    v_cvt_pk_norm_i16_f32=lambda b, x, y: pack(b, normalised(b, x, True), normalised(b, y, True)),
    v_cvt_pk_norm_u16_f32=lambda b, x, y: pack(b, normalised(b, x, False), normalised(b, y, False)),
)
aliases(
    BEFORE_GFX11,
    v_cvt_pkrtz_f16_f32="v_cvt_pk_rtz_f16_f32",
    v_cvt_pknorm_i16_f32="v_cvt_pk_norm_i16_f32",
    v_cvt_pknorm_u16_f32="v_cvt_pk_norm_u16_f32",
)
rows(
    "f16 f16 -> u32",
    v_cvt_pk_norm_i16_f16=lambda b, x, y: pack(b, normalised(b, x, True), normalised(b, y, True)),
    v_cvt_pk_norm_u16_f16=lambda b, x, y: pack(b, normalised(b, x, False), normalised(b, y, False)),
)
aliases(BEFORE_GFX11, v_cvt_pknorm_i16_f16="v_cvt_pk_norm_i16_f16", v_cvt_pknorm_u16_f16="v_cvt_pk_norm_u16_f16")
rows(
    "f16 -> i16",
    v_cvt_norm_i16_f16=lambda b, x: normalised(b, x, True),
    v_cvt_norm_u16_f16=lambda b, x: normalised(b, x, False),
)


def normalised(b: Function, x: Value, signed: bool) -> Value:
    """[-1, 1] or [0, 1] over the integers of 16 bits: scaled, rounded to nearest even, clamped."""
    scaled = round_even(b, fmul(b, x, constant(x, 32767.0 if signed else 65535.0)))
    if signed:
        scaled = b.select(b.fcmp("olt", scaled, constant(x, -32767.0)), constant(x, -32767.0), scaled)
    return to_integer(b, scaled, "i16", signed)


rows(
    "u32 u32 -> u32",
    v_cvt_pk_u16_u32=lambda b, x, y: pack(b, *(truncate(b, intrinsic(b, "umin", v, constant(v, 65535)), "i16") for v in (x, y))),
    v_cvt_pk_i16_i32=lambda b, x, y: pack(b, *(truncate(b, saturated16(b, v), "i16") for v in (x, y))),
)
rows(
    "f32 f32 -> u32",
    on=GFX11_ON,
    v_cvt_pk_i16_f32=lambda b, x, y: pack(b, to_integer(b, x, "i16", True), to_integer(b, y, "i16", True)),
    v_cvt_pk_u16_f32=lambda b, x, y: pack(b, to_integer(b, x, "i16", False), to_integer(b, y, "i16", False)),
)


def saturated16(b: Function, x: Value) -> Value:
    return intrinsic(b, "smin", intrinsic(b, "smax", x, constant(x, -32768)), constant(x, 32767))


@semantics("v_cvt_pk_u8_f32", "f32 u32 u32 -> u32")
def pack_byte(b: Function, x: Value, at: Value, old: Value) -> Value:
    """x as an unsigned byte, put at byte `at` of old."""
    place = b.shl(b.and_(at, 3), 3)
    byte = extend(b, to_integer(b, x, "i8", False), "i32", False)
    return b.or_(b.and_(old, b.not_(b.shl(constant(old, 255), place))), b.shl(byte, place))


semantics("v_pack_b32_f16", "h16 h16 -> u32")(pack)
semantics("v_sat_pk_u8_i16", "2i16 -> u16")(
    lambda b, pair: b.or_(_byte(b, pair[0]), b.shl(_byte(b, pair[1]), 8)),
)


def _byte(b: Function, x: Value) -> Value:
    return intrinsic(b, "smin", intrinsic(b, "smax", x, constant(x, 0)), constant(x, 255))


def off_by_sixteenths(b: Function, x: Value) -> Value:
    """v_cvt_off_f32_i4: the signed low nibble in sixteenths."""
    nibble = b.ashr(b.shl(x, 28), 28)
    scaled = from_integer(b, nibble, "float", True)
    return fmul(b, scaled, constant(scaled, 0.0625))


rows("u32 -> f32", v_cvt_off_f32_i4=off_by_sixteenths)
