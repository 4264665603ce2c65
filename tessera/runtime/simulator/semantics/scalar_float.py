"""Float arithmetic of the scalar ALU (gfx11.5 and later). f16 operands are the low halves of SGPRs; f16 results have a zero upper half."""

from __future__ import annotations

from .convert import from_integer, pack
from .floating import fma16
from .numeric import (
    ceil,
    fadd,
    float_to_half_toward_zero,
    floor,
    fma,
    fmul,
    fsub,
    half_to_float,
    maximum,
    maximum16,
    maximum_number,
    maximum_number16,
    minimum,
    minimum16,
    minimum_number,
    minimum_number16,
    round_even,
    to_integer,
    trunc,
    truncate,
)
from .table import GFX11_ON, GFX12_ON, Emit, rows, semantics

rows("f32 f32 -> f32", on=GFX11_ON, s_add_f32=fadd, s_sub_f32=fsub, s_mul_f32=fmul)
rows("f16 f16 -> f16", on=GFX11_ON, s_add_f16=fadd, s_sub_f16=fsub, s_mul_f16=fmul)
rows("f32 f32 @f32 -> f32", on=GFX11_ON, s_fmac_f32=fma)
rows("f16 f16 @f16 -> f16", on=GFX11_ON, s_fmac_f16=fma16)
rows("f32 f32 f32 -> f32", on=GFX11_ON, s_fmaak_f32=fma, s_fmamk_f32=lambda b, x, k, y: fma(b, x, k, y))

_GFX11 = GFX11_ON - GFX12_ON
rows(
    "mode f32 f32 -> f32",
    on=_GFX11,
    s_min_f32=lambda b, m, x, y: minimum_number(b, m, x, y),
    s_max_f32=lambda b, m, x, y: maximum_number(b, m, x, y),
)
rows(
    "mode h16 h16 -> h16",
    on=_GFX11,
    s_min_f16=lambda b, m, x, y: minimum_number16(b, m, x, y),
    s_max_f16=lambda b, m, x, y: maximum_number16(b, m, x, y),
)
rows(
    "mode f32 f32 -> f32",
    on=GFX12_ON,
    s_min_num_f32=lambda b, m, x, y: minimum_number(b, m.without_ieee(), x, y),
    s_max_num_f32=lambda b, m, x, y: maximum_number(b, m.without_ieee(), x, y),
)
rows(
    "mode h16 h16 -> h16",
    on=GFX12_ON,
    s_min_num_f16=lambda b, m, x, y: minimum_number16(b, m.without_ieee(), x, y),
    s_max_num_f16=lambda b, m, x, y: maximum_number16(b, m.without_ieee(), x, y),
)
rows("f32 f32 -> f32", on=GFX12_ON, s_minimum_f32=minimum, s_maximum_f32=maximum)
rows("h16 h16 -> h16", on=GFX12_ON, s_minimum_f16=minimum16, s_maximum_f16=maximum16)

for _name, _round in {"ceil": ceil, "floor": floor, "trunc": trunc, "rndne": round_even}.items():
    for _kind in ("f32", "f16"):
        semantics(f"s_{_name}_{_kind}", f"{_kind} -> {_kind}", on=GFX11_ON)(_round)

rows(
    "i32 -> f32",
    on=GFX11_ON,
    s_cvt_f32_i32=lambda b, x: from_integer(b, x, "float", True),
    s_cvt_f32_u32=lambda b, x: from_integer(b, x, "float", False),
)
rows(
    "f32 -> i32",
    on=GFX11_ON,
    s_cvt_i32_f32=lambda b, x: to_integer(b, x, "i32", True),
    s_cvt_u32_f32=lambda b, x: to_integer(b, x, "i32", False),
)
rows("f32 -> f16", on=GFX11_ON, s_cvt_f16_f32=lambda b, x: x)
rows("f16 -> f32", on=GFX11_ON, s_cvt_f32_f16=lambda b, x: x)
rows("u32 -> f32", on=GFX11_ON, s_cvt_hi_f32_f16=lambda b, x: half_to_float(b, truncate(b, b.lshr(x, 16), "i16")))
rows(
    "f32 f32 -> u32",
    on=GFX11_ON,
    s_cvt_pk_rtz_f16_f32=lambda b, x, y: pack(b, float_to_half_toward_zero(b, x), float_to_half_toward_zero(b, y)),
)

_ORDERED = {"lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord"}
_UNORDERED = {"u": "uno", "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge"}


def _compare(predicate: str) -> Emit:
    return lambda b, x, y: b.fcmp(predicate, x, y)


for _name, _predicate in (_ORDERED | _UNORDERED).items():
    for _kind in ("f32", "f16"):
        semantics(f"s_cmp_{_name}_{_kind}", f"{_kind} {_kind} -> scc", on=GFX11_ON)(_compare(_predicate))
