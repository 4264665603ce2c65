"""Packed arithmetic (two halves of a register), mixed-precision fused multiply-add, and dot products."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.llvmtext import Function, Value, const, like

from .numeric import (
    fadd,
    fma,
    fma16,
    fmul,
    intrinsic,
    maximum16,
    maximum_number16,
    minimum16,
    minimum_number16,
)
from .table import BEFORE_GFX12, CDNA, GFX11_ON, GFX12_ON, GFX125_ON, RDNA, Emit, FloatMode, aliases, rows, semantics
from .vector import ashr, lshr, shl, smax, smin, umax, umin

rows("2f16 2f16 -> 2f16", v_pk_add_f16=fadd, v_pk_mul_f16=fmul)
rows("2f16 2f16 2f16 -> 2f16", v_pk_fma_f16=fma16)
rows("2f16 2f16 @2f16 -> 2f16", v_pk_fmac_f16=fma16)
rows(
    "mode 2h16 2h16 -> 2h16",
    on=BEFORE_GFX12,
    v_pk_min_f16=lambda b, m, x, y: minimum_number16(b, m, x, y),
    v_pk_max_f16=lambda b, m, x, y: maximum_number16(b, m, x, y),
)
_NO_IEEE = FloatMode(ieee=False)
rows(
    "2h16 2h16 -> 2h16",
    on=GFX12_ON,
    v_pk_min_num_f16=lambda b, x, y: minimum_number16(b, _NO_IEEE, x, y),
    v_pk_max_num_f16=lambda b, x, y: maximum_number16(b, _NO_IEEE, x, y),
    v_pk_minimum_f16=lambda b, x, y: minimum16(b, x, y),
    v_pk_maximum_f16=lambda b, x, y: maximum16(b, x, y),
)
rows("2f32 2f32 -> 2f32", on=CDNA | GFX125_ON, v_pk_add_f32=fadd, v_pk_mul_f32=fmul)
rows("2f32 2f32 2f32 -> 2f32", on=CDNA | GFX125_ON, v_pk_fma_f32=fma)

semantics("v_pk_add_u16", "2u16 2u16 -> 2u16", clamp=lambda b, x, y: intrinsic(b, "uadd.sat", x, y))(lambda b, x, y: b.add(x, y))
semantics("v_pk_sub_u16", "2u16 2u16 -> 2u16", clamp=lambda b, x, y: intrinsic(b, "usub.sat", x, y))(lambda b, x, y: b.sub(x, y))
semantics("v_pk_add_i16", "2i16 2i16 -> 2i16", clamp=lambda b, x, y: intrinsic(b, "sadd.sat", x, y))(lambda b, x, y: b.add(x, y))
semantics("v_pk_sub_i16", "2i16 2i16 -> 2i16", clamp=lambda b, x, y: intrinsic(b, "ssub.sat", x, y))(lambda b, x, y: b.sub(x, y))
rows(
    "2u16 2u16 -> 2u16",
    v_pk_mul_lo_u16=lambda b, x, y: b.mul(x, y),
    v_pk_min_i16=smin,
    v_pk_max_i16=smax,
    v_pk_min_u16=umin,
    v_pk_max_u16=umax,
    v_pk_lshlrev_b16=shl,
    v_pk_lshrrev_b16=lshr,
    v_pk_ashrrev_i16=ashr,
)
rows(
    "2u16 2u16 2u16 -> 2u16",
    v_pk_mad_u16=lambda b, x, y, z: b.add(b.mul(x, y), z),
    v_pk_mad_i16=lambda b, x, y, z: b.add(b.mul(x, y), z),
)

# ---- mixed precision: f32 arithmetic on sources of either width -----------------------------------------------------------------

rows("mix mix mix -> f32", v_fma_mix_f32=fma)
rows("mix mix mix -> f16", v_fma_mixlo_f16=fma)
rows("mix mix mix -> f16hi", v_fma_mixhi_f16=fma)

# ---- dot products ---------------------------------------------------------------------------------------------------------------

Pair = Sequence[Value]


def dot2(b: Function, x: Pair, y: Pair, z: Value) -> Value:
    """x0*y0 + x1*y1 + z in f32, in steps of fused multiply-adds from the high half down. The order in hardware is not documented."""
    return fma(b, x[0], y[0], fma(b, x[1], y[1], z))


rows("2f16 2f16 f32 -> f32", v_dot2_f32_f16=dot2)
rows("2f16 2f16 @f32 -> f32", v_dot2acc_f32_f16=dot2)
aliases(CDNA | RDNA, v_dot2c_f32_f16="v_dot2acc_f32_f16")
rows("2bf16 2bf16 f32 -> f32", v_dot2_f32_bf16=dot2)
rows("2bf16 2bf16 @f32 -> f32", on=CDNA, v_dot2c_f32_bf16=dot2)
rows("2bf16 2bf16 @f32 -> f32", on=GFX11_ON, v_dot2acc_f32_bf16=dot2)
rows("2f16 2f16 f16 -> f16", on=GFX11_ON, v_dot2_f16_f16=dot2)
rows("2bf16 2bf16 bf16 -> bf16", on=GFX11_ON, v_dot2_bf16_bf16=dot2)


def dot_integers(b: Function, x: Pair, y: Pair, z: Value) -> Value:
    total = z
    for s, t in zip(x, y, strict=True):
        total = b.add(total, b.mul(s, t))
    return total


def dot_saturated(signed: bool) -> Emit:
    """The sum of products and addend at full precision, saturated to 32 bits."""

    def emit(b: Function, x: Pair, y: Pair, z: Value) -> Value:
        wide = like(z.type, "i64")
        op = "sext" if signed else "zext"
        total = b.cast(op, z, wide)
        for s, t in zip(x, y, strict=True):
            total = b.add(total, b.cast("sext", b.mul(s, t), wide))
        if signed:
            total = smin(b, smax(b, total, const(wide, -(2**31))), const(wide, 2**31 - 1))
        else:
            total = umin(b, total, const(wide, 2**32 - 1))
        return b.cast("trunc", total, z.type)

    return emit


for _name, _signature, _signed, _on in (
    ("v_dot4_i32_iu8", "4x8 4x8 i32 -> i32", True, GFX11_ON),
    ("v_dot8_i32_iu4", "8x4 8x4 i32 -> i32", True, GFX11_ON),
    ("v_dot4_u32_u8", "4u8 4u8 u32 -> u32", False, CDNA | RDNA),
    ("v_dot8_u32_u4", "8u4 8u4 u32 -> u32", False, CDNA | RDNA),
    ("v_dot4_i32_i8", "4i8 4i8 i32 -> i32", True, CDNA | RDNA - GFX11_ON),
    ("v_dot8_i32_i4", "8i4 8i4 i32 -> i32", True, CDNA | RDNA - GFX11_ON),
    ("v_dot4c_i32_i8", "4i8 4i8 @i32 -> i32", True, CDNA | RDNA - GFX11_ON),
):
    semantics(_name, _signature, on=_on, clamp=dot_saturated(_signed))(dot_integers)
