"""Each vector instruction of RDNA3 against an oracle that is written from AMD's "RDNA3 Instruction Set Architecture", in plain Python.

Sources are special values, one-hot words, numbers of ordinary size and random bits; half of the runs have a partial EXEC. Results are
compared bit for bit, all NaNs being one; transcendental instructions within their bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from semantics_harness import BITS, VCC, State, build, decode, divide, encode, fma, is_nan, is_signalling, sample

from tessera.runtime.simulator.semantics import Generation, lookup, mnemonics
from tessera.runtime.simulator.semantics.table import TABLE, check_table, rows, semantics

ROUNDS = {32: 6, 64: 3}  # states per instruction and wave size
GFX11 = Generation.GFX11

# None: the document leaves the result open.
Oracle = Callable[..., "int | tuple[int, ...] | None"]
ORACLES: dict[str, tuple[str, Oracle]] = {}


def row(signature: str, **oracles: Oracle) -> None:
    for mnemonic, oracle in oracles.items():
        assert mnemonic not in ORACLES, mnemonic
        ORACLES[mnemonic] = signature, oracle


def signed(x: int, width: int) -> int:
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def unsigned(x: int, width: int) -> int:
    return x & ((1 << width) - 1)


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


# ---- integers ----------------------------------------------------------------------------------------------------------------------

M = 0xFFFFFFFF


def s24(x: int) -> int:
    return signed(x, 24)


def u24(x: int) -> int:
    return x & 0xFFFFFF


row("b32 -> b32", v_mov_b32=lambda x: x)
row("b16 -> b16", v_mov_b16=lambda x: x, v_not_b16=lambda x: ~x & 0xFFFF)
row("u32 -> u32", v_not_b32=lambda x: ~x & M, v_bfrev_b32=lambda x: int(f"{x:032b}"[::-1], 2))
row(
    "u32 u32 -> u32",
    v_and_b32=lambda x, y: x & y,
    v_or_b32=lambda x, y: x | y,
    v_xor_b32=lambda x, y: x ^ y,
    v_xnor_b32=lambda x, y: ~(x ^ y) & M,
    v_lshlrev_b32=lambda n, x: x << (n & 31) & M,
    v_lshrrev_b32=lambda n, x: x >> (n & 31),
    v_ashrrev_i32=lambda n, x: signed(x, 32) >> (n & 31) & M,
    v_min_i32=lambda x, y: min(signed(x, 32), signed(y, 32)) & M,
    v_max_i32=lambda x, y: max(signed(x, 32), signed(y, 32)) & M,
    v_min_u32=min,
    v_max_u32=max,
    v_mul_lo_u32=lambda x, y: x * y & M,
    v_mul_hi_u32=lambda x, y: x * y >> 32,
    v_mul_hi_i32=lambda x, y: signed(x, 32) * signed(y, 32) >> 32 & M,
    v_mul_u32_u24=lambda x, y: u24(x) * u24(y) & M,
    v_mul_i32_i24=lambda x, y: s24(x) * s24(y) & M,
    v_mul_hi_u32_u24=lambda x, y: u24(x) * u24(y) >> 32,
    v_mul_hi_i32_i24=lambda x, y: s24(x) * s24(y) >> 32 & M,
    v_bfm_b32=lambda n, at: ((1 << (n & 31)) - 1) << (at & 31) & M,
    v_bcnt_u32_b32=lambda x, y: x.bit_count() + y & M,
    v_add_nc_u32=lambda x, y: x + y & M,
    v_sub_nc_u32=lambda x, y: x - y & M,
    v_subrev_nc_u32=lambda x, y: y - x & M,
    v_add_nc_i32=lambda x, y: x + y & M,
    v_sub_nc_i32=lambda x, y: x - y & M,
    v_cvt_pk_u16_u32=lambda x, y: min(x, 65535) | min(y, 65535) << 16,
    v_cvt_pk_i16_i32=lambda x, y: snorm_pack(clamp(signed(x, 32), -32768, 32767), clamp(signed(y, 32), -32768, 32767)),
)


def snorm_pack(x: int, y: int) -> int:
    return x & 0xFFFF | (y & 0xFFFF) << 16


def absolute_differences(x: int, y: int, z: int, width: int, masked: bool = False) -> int:
    for at in range(0, 32, width):
        s, t = x >> at & ((1 << width) - 1), y >> at & ((1 << width) - 1)
        if not (masked and t == 0):
            z += abs(s - t)
    return z & M


def byte_permute(high: int, low: int, selectors: int) -> int:
    data = high << 32 | low
    result = 0
    for i in range(4):
        sel = selectors >> 8 * i & 255
        if sel >= 13:
            byte = 255
        elif sel == 12:
            byte = 0
        elif sel >= 8:
            byte = 255 * (data >> (16 * (sel - 8) + 15) & 1)
        else:
            byte = data >> 8 * sel & 255
        result |= byte << 8 * i
    return result


row(
    "u32 u32 u32 -> u32",
    v_add3_u32=lambda x, y, z: x + y + z & M,
    v_lshl_add_u32=lambda x, n, z: (x << (n & 31)) + z & M,
    v_add_lshl_u32=lambda x, y, n: (x + y & M) << (n & 31) & M,
    v_lshl_or_b32=lambda x, n, z: x << (n & 31) & M | z,
    v_and_or_b32=lambda x, y, z: x & y | z,
    v_or3_b32=lambda x, y, z: x | y | z,
    v_xor3_b32=lambda x, y, z: x ^ y ^ z,
    v_xad_u32=lambda x, y, z: (x ^ y) + z & M,
    v_bfi_b32=lambda m, x, y: m & x | ~m & y & M,
    v_min3_i32=lambda *v: min(signed(x, 32) for x in v) & M,
    v_max3_i32=lambda *v: max(signed(x, 32) for x in v) & M,
    v_med3_i32=lambda *v: sorted(signed(x, 32) for x in v)[1] & M,
    v_min3_u32=lambda *v: min(v),
    v_max3_u32=lambda *v: max(v),
    v_med3_u32=lambda *v: sorted(v)[1],
    v_maxmin_u32=lambda x, y, z: min(max(x, y), z),
    v_minmax_u32=lambda x, y, z: max(min(x, y), z),
    v_maxmin_i32=lambda x, y, z: min(max(signed(x, 32), signed(y, 32)), signed(z, 32)) & M,
    v_minmax_i32=lambda x, y, z: max(min(signed(x, 32), signed(y, 32)), signed(z, 32)) & M,
    v_mad_u32_u24=lambda x, y, z: u24(x) * u24(y) + z & M,
    v_mad_i32_i24=lambda x, y, z: s24(x) * s24(y) + z & M,
    v_bfe_u32=lambda x, at, n: x >> (at & 31) & ((1 << (n & 31)) - 1),
    v_bfe_i32=lambda x, at, n: signed(signed(x, 32) >> (at & 31), n & 31) & M if n & 31 else 0,
    v_alignbit_b32=lambda x, y, n: (x << 32 | y) >> (n & 31) & M,
    v_alignbyte_b32=lambda x, y, n: (x << 32 | y) >> 8 * (n & 3) & M,
    v_sad_u8=lambda x, y, z: absolute_differences(x, y, z, 8),
    v_sad_u16=lambda x, y, z: absolute_differences(x, y, z, 16),
    v_sad_u32=lambda x, y, z: absolute_differences(x, y, z, 32),
    v_msad_u8=lambda x, y, z: absolute_differences(x, y, z, 8, True),
    v_sad_hi_u8=lambda x, y, z: (absolute_differences(x, y, 0, 8) << 16) + z & M,
    v_lerp_u8=lambda x, y, z: sum(((x >> i & 255) + (y >> i & 255) + (z >> i & 1) >> 1) << i for i in (0, 8, 16, 24)),
    v_perm_b32=byte_permute,
)


def leading_zeros(x: int) -> int:
    return 32 - x.bit_length() if x else M


def sign_bits(x: int) -> int:
    return next((i for i in range(1, 32) if x >> (31 - i) & 1 != x >> 31), M)


row(
    "u32 -> u32",
    v_clz_i32_u32=leading_zeros,
    v_ctz_i32_b32=lambda x: (x & -x).bit_length() - 1 if x else M,
    v_cls_i32=sign_bits,
)
row(
    "u32 u32 -> u32 mask",
    v_add_co_u32=lambda x, y: (x + y & M, x + y >> 32),
    v_sub_co_u32=lambda x, y: (x - y & M, int(x < y)),
    v_subrev_co_u32=lambda x, y: (y - x & M, int(y < x)),
)
row(
    "u32 u32 mask -> u32 mask",
    v_add_co_ci_u32=lambda x, y, c: (x + y + c & M, x + y + c >> 32),
    v_sub_co_ci_u32=lambda x, y, c: (x - y - c & M, int(x < y + c)),
    v_subrev_co_ci_u32=lambda x, y, c: (y - x - c & M, int(y < x + c)),
)
M64 = (1 << 64) - 1
row(
    "u32 u32 u64 -> u64 mask",
    v_mad_u64_u32=lambda x, y, z: (x * y + z & M64, x * y + z >> 64),
    v_mad_i64_i32=lambda x, y, z: (
        signed(x, 32) * signed(y, 32) + signed(z, 64) & M64,
        signed(x, 32) * signed(y, 32) + signed(z, 64) >> 64 & 1,
    ),
)
row("b32 b32 mask -> b32", v_cndmask_b32=lambda x, y, c: y if c else x)
row("b16 b16 mask -> b16", v_cndmask_b16=lambda x, y, c: y if c else x)
row(
    "u32 u64 -> u64",
    v_lshlrev_b64=lambda n, x: x << (n & 63) & M64,
    v_lshrrev_b64=lambda n, x: x >> (n & 63),
    v_ashrrev_i64=lambda n, x: signed(x, 64) >> (n & 63) & M64,
)
H = 0xFFFF
row(
    "u16 u16 -> u16",
    v_lshlrev_b16=lambda n, x: x << (n & 15) & H,
    v_lshrrev_b16=lambda n, x: x >> (n & 15),
    v_ashrrev_i16=lambda n, x: signed(x, 16) >> (n & 15) & H,
    v_min_i16=lambda x, y: min(signed(x, 16), signed(y, 16)) & H,
    v_max_i16=lambda x, y: max(signed(x, 16), signed(y, 16)) & H,
    v_min_u16=min,
    v_max_u16=max,
    v_mul_lo_u16=lambda x, y: x * y & H,
    v_and_b16=lambda x, y: x & y,
    v_or_b16=lambda x, y: x | y,
    v_xor_b16=lambda x, y: x ^ y,
    v_add_nc_u16=lambda x, y: x + y & H,
    v_sub_nc_u16=lambda x, y: x - y & H,
    v_add_nc_i16=lambda x, y: x + y & H,
    v_sub_nc_i16=lambda x, y: x - y & H,
)
row(
    "u16 u16 u16 -> u16",
    v_mad_u16=lambda x, y, z: x * y + z & H,
    v_mad_i16=lambda x, y, z: x * y + z & H,
    v_min3_i16=lambda *v: min(signed(x, 16) for x in v) & H,
    v_max3_i16=lambda *v: max(signed(x, 16) for x in v) & H,
    v_med3_i16=lambda *v: sorted(signed(x, 16) for x in v)[1] & H,
    v_min3_u16=lambda *v: min(v),
    v_max3_u16=lambda *v: max(v),
    v_med3_u16=lambda *v: sorted(v)[1],
)
row(
    "u16 u16 u32 -> u32",
    v_mad_u32_u16=lambda x, y, z: x * y + z & M,
    v_mad_i32_i16=lambda x, y, z: signed(x, 16) * signed(y, 16) + z & M,
)

# ---- comparisons -------------------------------------------------------------------------------------------------------------------

RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda x, y: x < y,
    "eq": lambda x, y: x == y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "lg": lambda x, y: x < y or x > y,
    "ge": lambda x, y: x >= y,
    "o": lambda x, y: x == x and y == y,
    "u": lambda x, y: x != x or y != y,
    "nge": lambda x, y: not x >= y,
    "nlg": lambda x, y: not (x < y or x > y),
    "ngt": lambda x, y: not x > y,
    "nle": lambda x, y: not x <= y,
    "neq": lambda x, y: x != y,
    "nlt": lambda x, y: not x < y,
    "f": lambda x, y: False,
    "t": lambda x, y: True,
}


def class_of(kind: str, x: int, wanted: int) -> int:
    value, negative = decode(kind, x), bool(x >> (BITS[kind] - 1))
    smallest = {"f16": 2.0**-14, "f32": 2.0**-126, "f64": 2.0**-1022}[kind]
    if math.isnan(value):
        number = 0 if is_signalling(kind, x) else 1
    elif math.isinf(value):
        number = 2 if negative else 9
    elif value == 0:
        number = 5 if negative else 6
    elif abs(value) < smallest:
        number = 4 if negative else 7
    else:
        number = 3 if negative else 8
    return wanted >> number & 1


def _comparisons() -> None:
    for kind in ("f16", "f32", "f64"):
        for name, relation in RELATIONS.items():
            oracle: Oracle = lambda x, y, k=kind, r=relation: int(r(decode(k, x), decode(k, y)))  # noqa: E731
            row(f"{kind} {kind} -> mask", **{f"v_cmp_{name}_{kind}": oracle})
            row(f"{kind} {kind} -> exec", **{f"v_cmpx_{name}_{kind}": oracle})
        second = "u16" if kind == "f16" else "u32"
        row(f"{kind} {second} -> mask", **{f"v_cmp_class_{kind}": lambda x, w, k=kind: class_of(k, x, w)})
        row(f"{kind} {second} -> exec", **{f"v_cmpx_class_{kind}": lambda x, w, k=kind: class_of(k, x, w)})
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        width = int(kind[1:])
        read = signed if kind[0] == "i" else unsigned
        for name in ("lt", "eq", "le", "gt", "ne", "ge") + (("f", "t") if width > 16 else ()):
            relation = RELATIONS["neq" if name == "ne" else name]
            integer: Oracle = lambda x, y, r=relation, w=width, d=read: int(r(d(x, w), d(y, w)))  # noqa: E731
            row(f"{kind} {kind} -> mask", **{f"v_cmp_{name}_{kind}": integer})
            row(f"{kind} {kind} -> exec", **{f"v_cmpx_{name}_{kind}": integer})


_comparisons()

# ---- float arithmetic --------------------------------------------------------------------------------------------------------------


def arithmetic(kind: str, operation: Callable[..., float]) -> Oracle:
    """In double, rounded once more: right for f16 and f32 sums and products, whose double rounding is innocuous."""
    return lambda *v: encode(kind, operation(*(decode(kind, x) for x in v)))


def legacy_product(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


def lesser(kind: str) -> Callable[[int, int], int]:
    """V_MIN_F32 of the ISA document, in IEEE mode."""

    def choose(x: int, y: int) -> int:
        if is_signalling(kind, x) or is_signalling(kind, y):
            return encode(kind, math.nan)
        if is_nan(kind, x):
            return y
        if is_nan(kind, y):
            return x
        a, b = decode(kind, x), decode(kind, y)
        if a == b == 0:
            return x if math.copysign(1, a) < 0 else y
        return x if a < b else y

    return choose


def greater(kind: str) -> Callable[[int, int], int]:
    def choose(x: int, y: int) -> int:
        if is_signalling(kind, x) or is_signalling(kind, y):
            return encode(kind, math.nan)
        if is_nan(kind, x):
            return y
        if is_nan(kind, y):
            return x
        a, b = decode(kind, x), decode(kind, y)
        if a == b == 0:
            return x if math.copysign(1, a) > 0 else y
        return x if a >= b else y

    return choose


def median(kind: str) -> Oracle:
    low, high = lesser(kind), greater(kind)

    def choose(x: int, y: int, z: int) -> int:
        if is_nan(kind, x) or is_nan(kind, y) or is_nan(kind, z):
            return low(low(x, y), z)
        top = decode(kind, high(high(x, y), z))
        if top == decode(kind, x):
            return high(y, z)
        return high(x, z) if top == decode(kind, y) else high(x, y)

    return choose


def fused(kind: str) -> Oracle:
    return lambda x, y, z: fma(kind, decode(kind, x), decode(kind, y), decode(kind, z))


def fused_legacy(x: int, y: int, z: int) -> int:
    a, b, c = (decode("f32", v) for v in (x, y, z))
    return encode("f32", 0.0 + c) if a == 0 or b == 0 else fma("f32", a, b, c)


def round_half_even(x: float) -> float:
    if math.isnan(x) or math.isinf(x) or abs(x) >= 2.0**52:
        return x
    return math.copysign(float(round(x)), x)


def whole(function: Callable[[float], int]) -> Callable[[float], float]:
    def apply(x: float) -> float:
        return x if math.isnan(x) or math.isinf(x) else math.copysign(float(function(x)), x)

    return apply


def fraction(kind: str) -> Oracle:
    def apply(x: int) -> int:
        value = decode(kind, x)
        if math.isnan(value) or math.isinf(value):
            return encode(kind, math.nan)
        below_one = encode(kind, 1.0) - 1
        return min(encode(kind, Fraction(value) - math.floor(value)), below_one)

    return apply


def significand(kind: str) -> Oracle:
    def apply(x: int) -> int:
        value = decode(kind, x)
        return x if math.isnan(value) or math.isinf(value) else encode(kind, math.frexp(value)[0])

    return apply


def exponent(kind: str, width: int) -> Oracle:
    def apply(x: int) -> int:
        value = decode(kind, x)
        return 0 if math.isnan(value) or math.isinf(value) else math.frexp(value)[1] & ((1 << width) - 1)

    return apply


def scaled(kind: str, width: int) -> Oracle:
    def apply(x: int, n: int) -> int:
        value = decode(kind, x)
        if math.isnan(value) or math.isinf(value) or value == 0:
            return encode(kind, value)
        return encode(kind, Fraction(value) * Fraction(2) ** clamp(signed(n, width), -3000, 3000))

    return apply


for _kind in ("f16", "f32", "f64"):
    _low, _high = lesser(_kind), greater(_kind)
    _two = f"{_kind} {_kind} -> {_kind}"
    _three = f"{_kind} {_two}"
    row(
        _two,
        **{
            f"v_add_{_kind}": arithmetic(_kind, lambda x, y: x + y),
            f"v_mul_{_kind}": arithmetic(_kind, lambda x, y: x * y),
            f"v_min_{_kind}": _low,
            f"v_max_{_kind}": _high,
        },
    )
    row(_three, **{f"v_fma_{_kind}": fused(_kind)})
    row(
        f"{_kind} -> {_kind}",
        **{
            f"v_trunc_{_kind}": arithmetic(_kind, whole(math.trunc)),
            f"v_ceil_{_kind}": arithmetic(_kind, whole(math.ceil)),
            f"v_floor_{_kind}": arithmetic(_kind, whole(math.floor)),
            f"v_rndne_{_kind}": arithmetic(_kind, round_half_even),
            f"v_fract_{_kind}": fraction(_kind),
            f"v_frexp_mant_{_kind}": significand(_kind),
        },
    )
    if _kind == "f64":
        continue
    row(
        _two,
        **{
            f"v_sub_{_kind}": arithmetic(_kind, lambda x, y: x - y),
            f"v_subrev_{_kind}": arithmetic(_kind, lambda x, y: y - x),
        },
    )
    row(
        _three,
        **{
            f"v_min3_{_kind}": lambda x, y, z, f=_low: f(f(x, y), z),
            f"v_max3_{_kind}": lambda x, y, z, f=_high: f(f(x, y), z),
            f"v_med3_{_kind}": median(_kind),
            f"v_minmax_{_kind}": lambda x, y, z, f=_low, g=_high: g(f(x, y), z),
            f"v_maxmin_{_kind}": lambda x, y, z, f=_low, g=_high: f(g(x, y), z),
        },
    )
    row(f"{_kind} {_kind} @{_kind} -> {_kind}", **{f"v_fmac_{_kind}": fused(_kind)})
row("f32 f32 -> f32", v_mul_dx9_zero_f32=arithmetic("f32", legacy_product), v_mul_legacy_f32=arithmetic("f32", legacy_product))
row("f32 f32 f32 -> f32", v_fma_dx9_zero_f32=fused_legacy)
row("f32 f32 @f32 -> f32", v_fmac_dx9_zero_f32=fused_legacy)
row("f32 i32 -> f32", v_ldexp_f32=scaled("f32", 32))
row("f64 i32 -> f64", v_ldexp_f64=scaled("f64", 32))
row("f16 i16 -> f16", v_ldexp_f16=scaled("f16", 16))
row("f32 -> i32", v_frexp_exp_i32_f32=exponent("f32", 32))
row("f64 -> i32", v_frexp_exp_i32_f64=exponent("f64", 32))
row("f16 -> i16", v_frexp_exp_i16_f16=exponent("f16", 16))

# ---- division ------------------------------------------------------------------------------------------------------------------------


def division_scale(kind: str) -> Oracle:
    """The rules that AMD's own emulator gives as checked on gfx1100 and gfx1201 (github.com/ROCm/rocm-systems, pull request 11613)."""
    field, shift, bias = (0xFF, 23, 127) if kind == "f32" else (0x7FF, 52, 1023)
    scale, gap, tiny = (64, 96, 24) if kind == "f32" else (128, 768, 53)

    def apply(x: int, d: int, n: int) -> tuple[int, int]:
        upper, lower = n >> shift & field, d >> shift & field
        difference, is_denominator = upper - lower, x == d
        power = flag = 0
        if difference >= gap:
            power, flag = (scale if is_denominator else 0), 1
        elif lower == 0:
            power = scale
        elif lower >= 2 * bias - 1:
            flag = int(difference <= -gap)
            power = 0 if flag and not is_denominator else -scale
        elif difference <= -gap:
            power, flag = (0 if is_denominator else scale), 1
        elif upper <= tiny:
            power = scale
        value = decode(kind, x)
        if decode(kind, d) == 0 or decode(kind, n) == 0:
            return encode(kind, math.nan), flag
        if not math.isfinite(value):
            return x, flag
        return encode(kind, Fraction(value) * Fraction(2) ** power, bool(x >> (BITS[kind] - 1))), flag

    return apply


def division_fmas(kind: str) -> Oracle:
    def apply(x: int, y: int, z: int, scale: int) -> int | None:
        a, b, c = (decode(kind, v) for v in (x, y, z))
        plain = fma(kind, a, b, c)
        if not scale or not all(map(math.isfinite, (a, b, c))):
            return plain
        power = 64 if kind == "f32" else 128
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        size = abs(decode(kind, plain))
        if exact == 0:
            return plain
        if math.isinf(size) or size < (2.0**-126 if kind == "f32" else 2.0**-960):
            return None  # v_div_scale keeps the steps of a division away from here
        return encode(kind, exact * Fraction(2) ** (power if abs(c) >= 2 else -power))

    return apply


def division_fixup(kind: str) -> Oracle:
    field, shift, least = {"f16": (0x1F, 10, -100), "f32": (0xFF, 23, -150), "f64": (0x7FF, 52, -1075)}[kind]
    sign_bit = 1 << (BITS[kind] - 1)

    def apply(q: int, d: int, n: int) -> int:
        den, num = decode(kind, d), decode(kind, n)
        sign = (d ^ n) & sign_bit
        if math.isnan(num) or math.isnan(den) or (den == 0 and num == 0) or (math.isinf(den) and math.isinf(num)):
            return encode(kind, math.nan)
        if den == 0 or math.isinf(num):
            return sign | encode(kind, math.inf)
        if math.isinf(den) or num == 0 or (n >> shift & field) - (d >> shift & field) < least:
            return sign
        if kind != "f16" and is_nan(kind, q):
            return sign | encode(kind, math.inf)  # an overflow in the steps before
        return sign | q & ~sign_bit

    return apply


row("f32 f32 f32 -> f32 mask", v_div_scale_f32=division_scale("f32"))
row("f64 f64 f64 -> f64 mask", v_div_scale_f64=division_scale("f64"))
row("f32 f32 f32 vcc -> f32", v_div_fmas_f32=division_fmas("f32"))
row("f64 f64 f64 vcc -> f64", v_div_fmas_f64=division_fmas("f64"))
for _kind in ("f16", "f32", "f64"):
    row(f"{_kind} {_kind} {_kind} -> {_kind}", **{f"v_div_fixup_{_kind}": division_fixup(_kind)})

# ---- conversions -----------------------------------------------------------------------------------------------------------------------


def to_integer(kind: str, low: int, high: int, prepare: Callable[[float], float] = lambda x: x) -> Callable[[int], int]:
    def apply(x: int) -> int:
        value = prepare(decode(kind, x))
        if math.isnan(value):
            return 0
        return (low if value < 0 else high) if math.isinf(value) else clamp(math.trunc(value), low, high)

    return apply


def to_width(width: int, function: Callable[[int], int]) -> Oracle:
    return lambda x: function(x) & ((1 << width) - 1)


def single_sum(x: float) -> float:
    return float(np.float32(x) + np.float32(0.5))


def normalised(kind: str, scale: int, low: int) -> Callable[[int], int]:
    def apply(x: int) -> int:
        value = decode(kind, x)
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return low if value < 0 else scale
        product = decode("f32", encode("f32", value * scale))
        return (low if product < 0 else scale) if math.isinf(product) else clamp(round(product), low, scale)

    return apply


def pack2(function: Callable[[int], int]) -> Oracle:
    return lambda x, y: function(x) & H | (function(y) & H) << 16


def toward_zero(x: int) -> int:
    value = decode("f32", x)
    near = encode("f16", value)
    if math.isfinite(value) and abs(decode("f16", near)) > abs(value):
        near -= 1
    return near


I16, U16, I32, U32 = (-(1 << 15), (1 << 15) - 1), (0, H), (-(1 << 31), (1 << 31) - 1), (0, M)
row(
    "i32 -> f32",
    v_cvt_f32_i32=lambda x: encode("f32", Fraction(signed(x, 32))),
    v_cvt_f32_u32=lambda x: encode("f32", Fraction(x)),
    v_cvt_f32_ubyte0=lambda x: encode("f32", Fraction(x & 255)),
    v_cvt_f32_ubyte1=lambda x: encode("f32", Fraction(x >> 8 & 255)),
    v_cvt_f32_ubyte2=lambda x: encode("f32", Fraction(x >> 16 & 255)),
    v_cvt_f32_ubyte3=lambda x: encode("f32", Fraction(x >> 24)),
    v_cvt_off_f32_i4=lambda x: encode("f32", Fraction(signed(x, 4), 16)),
)
row("i32 -> f64", v_cvt_f64_i32=lambda x: encode("f64", Fraction(signed(x, 32))), v_cvt_f64_u32=lambda x: encode("f64", Fraction(x)))
row("i16 -> f16", v_cvt_f16_i16=lambda x: encode("f16", Fraction(signed(x, 16))), v_cvt_f16_u16=lambda x: encode("f16", Fraction(x)))
row("i16 -> i32", v_cvt_i32_i16=lambda x: signed(x, 16) & M, v_cvt_u32_u16=lambda x: x)
row(
    "f32 -> i32",
    v_cvt_i32_f32=to_width(32, to_integer("f32", *I32)),
    v_cvt_u32_f32=to_width(32, to_integer("f32", *U32)),
    v_cvt_floor_i32_f32=to_width(32, to_integer("f32", *I32, whole(math.floor))),
    v_cvt_nearest_i32_f32=to_width(32, to_integer("f32", *I32, lambda x: whole(math.floor)(single_sum(x)))),
)
row("f64 -> i32", v_cvt_i32_f64=to_width(32, to_integer("f64", *I32)), v_cvt_u32_f64=to_width(32, to_integer("f64", *U32)))
row(
    "f16 -> i16",
    v_cvt_i16_f16=to_width(16, to_integer("f16", *I16)),
    v_cvt_u16_f16=to_width(16, to_integer("f16", *U16)),
    v_cvt_norm_i16_f16=to_width(16, normalised("f16", 32767, -32767)),
    v_cvt_norm_u16_f16=to_width(16, normalised("f16", 65535, 0)),
)
row("f16 -> f32", v_cvt_f32_f16=lambda x: encode("f32", decode("f16", x)))
row("f32 -> f16", v_cvt_f16_f32=lambda x: encode("f16", decode("f32", x)))
row("f32 -> f64", v_cvt_f64_f32=lambda x: encode("f64", decode("f32", x)))
row("f64 -> f32", v_cvt_f32_f64=lambda x: encode("f32", decode("f64", x)))
row(
    "f32 f32 -> 2f16",
    v_cvt_pk_rtz_f16_f32=pack2(toward_zero),
)
row(
    "f32 f32 -> u32",
    v_cvt_pk_norm_i16_f32=pack2(normalised("f32", 32767, -32767)),
    v_cvt_pk_norm_u16_f32=pack2(normalised("f32", 65535, 0)),
    v_cvt_pk_i16_f32=pack2(to_integer("f32", *I16)),
    v_cvt_pk_u16_f32=pack2(to_integer("f32", *U16)),
)
row(
    "f16 f16 -> u32",
    v_cvt_pk_norm_i16_f16=pack2(normalised("f16", 32767, -32767)),
    v_cvt_pk_norm_u16_f16=pack2(normalised("f16", 65535, 0)),
)
row("u16 u16 -> u32", v_pack_b32_f16=lambda x, y: x | y << 16)
row("u32 -> u16", v_sat_pk_u8_i16=lambda x: clamp(signed(x, 16), 0, 255) | clamp(signed(x >> 16, 16), 0, 255) << 8)
row(
    "f32 u32 u32 -> u32",
    v_cvt_pk_u8_f32=lambda x, at, old: old & ~(255 << 8 * (at & 3)) | (to_integer("f32", 0, 255)(x) << 8 * (at & 3)),
)

# ---- packed and dot ----------------------------------------------------------------------------------------------------------------------


def halves(oracle: Oracle) -> Oracle:
    def apply(*v: int) -> int:
        low, high = (oracle(*(x >> at & H for x in v)) for at in (0, 16))
        assert isinstance(low, int)
        assert isinstance(high, int)
        return low | high << 16

    return apply


row(
    "2f16 2f16 -> 2f16",
    v_pk_add_f16=halves(arithmetic("f16", lambda x, y: x + y)),
    v_pk_mul_f16=halves(arithmetic("f16", lambda x, y: x * y)),
    v_pk_min_f16=halves(lesser("f16")),
    v_pk_max_f16=halves(greater("f16")),
)
row("2f16 2f16 2f16 -> 2f16", v_pk_fma_f16=halves(fused("f16")))
row("2f16 2f16 @2f16 -> 2f16", v_pk_fmac_f16=halves(fused("f16")))
row(
    "u32 u32 -> u32",
    v_pk_add_u16=halves(lambda x, y: x + y & H),
    v_pk_sub_u16=halves(lambda x, y: x - y & H),
    v_pk_add_i16=halves(lambda x, y: x + y & H),
    v_pk_sub_i16=halves(lambda x, y: x - y & H),
    v_pk_mul_lo_u16=halves(lambda x, y: x * y & H),
    v_pk_min_i16=halves(lambda x, y: min(signed(x, 16), signed(y, 16)) & H),
    v_pk_max_i16=halves(lambda x, y: max(signed(x, 16), signed(y, 16)) & H),
    v_pk_min_u16=halves(min),
    v_pk_max_u16=halves(max),
    v_pk_lshlrev_b16=halves(lambda n, x: x << (n & 15) & H),
    v_pk_lshrrev_b16=halves(lambda n, x: x >> (n & 15)),
    v_pk_ashrrev_i16=halves(lambda n, x: signed(x, 16) >> (n & 15) & H),
)
row("u32 u32 u32 -> u32", v_pk_mad_u16=halves(lambda x, y, z: x * y + z & H), v_pk_mad_i16=halves(lambda x, y, z: x * y + z & H))


def parts(x: int, size: int, sign: bool) -> list[int]:
    values = [x >> at & ((1 << size) - 1) for at in range(0, 32, size)]
    return [signed(v, size) for v in values] if sign else values


def dot_integers(size: int, sign: bool) -> Oracle:
    return lambda x, y, z: sum(a * b for a, b in zip(parts(x, size, sign), parts(y, size, sign), strict=True)) + z & M


row(
    "u32 u32 u32 -> u32",
    v_dot4_i32_iu8=dot_integers(8, False),
    v_dot8_i32_iu4=dot_integers(4, False),
    v_dot4_u32_u8=dot_integers(8, False),
    v_dot8_u32_u4=dot_integers(4, False),
)


def dot2(kind: str, result: str) -> Oracle:
    """The documented result is x0*y0 + x1*y1 + z without rounding steps; here two fused steps in f32, high half first."""

    def apply(x: int, y: int, z: int) -> int:
        (a, b), (c, d) = ((decode(kind, v & H), decode(kind, v >> 16)) for v in (x, y))
        first = decode("f32", fma("f32", b, d, decode(result, z)))
        return encode(result, decode("f32", fma("f32", a, c, first)))

    return apply


row("2f16 2f16 f32 -> f32", v_dot2_f32_f16=dot2("f16", "f32"))
row("2f16 2f16 @f32 -> f32", v_dot2acc_f32_f16=dot2("f16", "f32"))
row("2bf16 2bf16 f32 -> f32", v_dot2_f32_bf16=dot2("bf16", "f32"))
row("2f16 2f16 f16 -> f16", v_dot2_f16_f16=dot2("f16", "f16"))
row("2bf16 2bf16 bf16 -> bf16", v_dot2_bf16_bf16=dot2("bf16", "bf16"))

row("f32 f32 f32 -> f32", v_fma_mix_f32=fused("f32"))
row("f32 f32 f32 -> f16", v_fma_mixlo_f16=lambda x, y, z: encode("f16", decode("f32", fused("f32")(x, y, z))))

# ---- transcendental: within a bound ------------------------------------------------------------------------------------------------------


def guarded(function: Callable[[float], float]) -> Callable[[float], float]:
    def apply(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return apply


def reciprocal(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def sine_of_turns(x: float, quarter: int) -> float:
    """Exact reduction first: sin(2 pi x) loses everything for large x otherwise."""
    if math.isinf(x) or math.isnan(x):
        return math.nan
    eighths = Fraction(x) % 1 * 8
    octant = round(eighths / 2)
    angle = float(eighths / 8 - Fraction(octant, 4)) * 2 * math.pi
    turn = (octant + quarter) % 4
    value = math.sin(angle) if turn % 2 == 0 else math.cos(angle)
    return -value if turn >= 2 else value


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "rcp": reciprocal,
    "rsq": lambda x: math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x),
    "sqrt": math.sqrt,
    "exp": lambda x: 0.0 if x == -math.inf else 2.0**x,
    "log": lambda x: -math.inf if x == 0 else math.log2(x),
    "sin": lambda x: sine_of_turns(x, 0),
    "cos": lambda x: sine_of_turns(x, 1),
}
BOUNDED: dict[str, tuple[str, Callable[[float], float]]] = {
    f"v_{name}_{kind}": (kind, guarded(function))
    for name, function in FUNCTIONS.items()
    for kind in ("f16", "f32", "f64")
    if kind != "f64" or name in ("rcp", "rsq", "sqrt")
}
BOUNDED["v_rcp_iflag_f32"] = BOUNDED["v_rcp_f32"]

# ---- the tests ---------------------------------------------------------------------------------------------------------------------------


def source_text(index: int, kind: str, wave: int) -> str:
    register = 4 + 2 * index
    if kind == "mask":
        return f"s{40 + 2 * index}" if wave == 32 else f"s[{40 + 2 * index}:{41 + 2 * index}]"
    width = width_of(kind)
    return f"v[{register}:{register + 1}]" if width == 64 else f"v{register}.l" if width == 16 else f"v{register}"


def width_of(kind: str) -> int:
    kind = kind.lstrip("@")
    return 32 if kind[0] == "2" else int(kind.lstrip("bfiu"))


def assembly(mnemonic: str, signature: str, wave: int) -> str:
    """The instruction on the harness's registers."""
    left, _, right = signature.partition("->")
    outputs = [
        (f"s{30}" if wave == 32 else "s[30:31]") if kind == "mask" else {16: "v0.l", 32: "v0", 64: "v[0:1]"}[width_of(kind)]
        for kind in right.split()
        if kind != "exec"
    ]
    inputs = [source_text(i, kind, wave) for i, kind in enumerate(left.split()) if kind[0] != "@" and kind != "vcc"]
    return f"{mnemonic} {', '.join(outputs + inputs)}"


def patterns(kind: str, count: int) -> list[int]:
    kind = kind.lstrip("@")
    if kind[0] == "2":
        low, high = sample(kind[1:], count), sample(kind[1:], count)
        return [a | b << 16 for a, b in zip(low, high, strict=True)]
    return sample(kind, count)


def cancel(kinds: list[str], values: list[list[int]]) -> None:
    """Make every fourth addend of a fused multiply-add the product's negative, or next to it."""
    if len(kinds) != 3 or len({k.lstrip("@") for k in kinds}) != 1 or kinds[0] not in BITS:
        return
    kind = kinds[0]
    for lane in range(0, len(values[0]), 4):
        x, y = decode(kind, values[0][lane]), decode(kind, values[1][lane])
        if math.isfinite(x) and math.isfinite(y):
            near = encode(kind, -Fraction(x) * Fraction(y))
            values[2][lane] = near ^ (lane >> 2 & 1)


def same(kind: str, got: int, want: int) -> bool:
    if kind in BITS:
        return got == want or (is_nan(kind, got) and is_nan(kind, want))
    if kind[0] == "2":
        return all(same(kind[1:], got >> at & H, want >> at & H) for at in (0, 16))
    return got == want


def prepare(signature: str, wave: int, partial: bool, seed: int) -> tuple[State, list[list[int]], list[int]]:
    """A state with the inputs of a signature, the inputs, and the lanes that are active."""
    state = State(wave)
    rng = np.random.default_rng(seed)
    state.v[:] = rng.integers(0, 1 << 32, state.v.shape, dtype=np.uint32)
    kinds = signature.partition("->")[0].split()
    values = [patterns(kind, wave) if kind not in ("mask", "vcc") else [int(x) for x in rng.integers(0, 2, wave)] for kind in kinds]
    cancel(kinds, values)
    for index, (kind, column) in enumerate(zip(kinds, values, strict=True)):
        if kind in ("mask", "vcc"):
            state.set_mask(VCC if kind == "vcc" else 40 + 2 * index, sum(bit << lane for lane, bit in enumerate(column)))
        else:
            state.set_lanes(0 if kind[0] == "@" else 4 + 2 * index, width_of(kind), column)
    active = int(rng.integers(0, 1 << wave, dtype=np.uint64)) if partial else (1 << wave) - 1
    state.set_mask(126, active)
    return state, values, [lane for lane in range(wave) if active >> lane & 1]


def check(mnemonic: str, signature: str, oracle: Oracle, before: State, after: State, values: list[list[int]], active: list[int]) -> None:
    outputs = signature.partition("->")[2].split()
    answers = {lane: oracle(*(column[lane] for column in values)) for lane in active}
    wanted = {lane: answer for lane, answer in answers.items() if answer is not None}
    for position, kind in enumerate(outputs):
        results = {lane: w if isinstance(w, int) else w[position] for lane, w in wanted.items()}
        if kind in ("mask", "exec"):
            got = after.exec if kind == "exec" else after.mask(30)
            for lane in range(before.wave):
                assert got >> lane & 1 == results.get(lane, 0), f"{mnemonic} lane {lane}: {[hex(c[lane]) for c in values]}"
            continue
        width = width_of(kind)
        lanes = after.lanes(0, width)
        for lane, want in results.items():
            inputs = [hex(column[lane]) for column in values]
            assert same(kind, lanes[lane], want), f"{mnemonic}({', '.join(inputs)}) = {lanes[lane]:#x}, not {want:#x}"
        untouched = [lane for lane in range(before.wave) if lane not in answers]
        assert (after.v[0][untouched] == before.v[0][untouched]).all(), f"{mnemonic} wrote inactive lanes"
        if width == 16:
            assert (after.v[0] >> 16 == before.v[0] >> 16).all(), f"{mnemonic} wrote the upper half"
    assert (after.v[4:] == before.v[4:]).all()


@pytest.mark.parametrize("wave", [32, 64])
def test_against_the_isa(wave: int) -> None:
    compare_all(wave, ROUNDS[wave], 0)


@pytest.mark.slow
@pytest.mark.parametrize("wave", [32, 64])
def test_against_the_isa_at_length(wave: int) -> None:
    compare_all(wave, 60, 500_000)


def compare_all(wave: int, turns: int, seed: int) -> None:
    program = build([assembly(m, signature, wave) for m, (signature, _) in ORACLES.items()], wave)
    for number, (mnemonic, (signature, oracle)) in enumerate(ORACLES.items()):
        run = program[number]
        for turn in range(turns):
            before, values, active = prepare(signature, wave, turn % 2 == 1, seed + 1000 * number + turn)
            after = before.copy()
            run(after)
            check(mnemonic, signature, oracle, before, after, values, active)


def ulps(kind: str, got: int, want: float) -> float:
    """The distance of a result from the true value, in units of the last place of the value's rounding."""
    if math.isnan(want) or math.isinf(want):
        return 0.0 if got == encode(kind, want) or (math.isnan(want) and is_nan(kind, got)) else math.inf
    if math.isnan(decode(kind, got)) or math.isinf(decode(kind, got)):
        return 0.0 if got == encode(kind, want) else math.inf
    near = encode(kind, want) & ~(1 << (BITS[kind] - 1))
    step = Fraction(decode(kind, near + 1)) - Fraction(decode(kind, near)) if decode(kind, near + 1) != math.inf else Fraction(2) ** 104
    return float(abs(Fraction(decode(kind, got)) - Fraction(want)) / step)


@pytest.mark.parametrize("wave", [32, 64])
def test_transcendental_bounds(wave: int) -> None:
    """f16 results are correctly rounded, f32 ones within 0.51 ulp; f32 inputs and results that are subnormal count as zero."""
    program = build([assembly(m, f"{kind} -> {kind}", wave) for m, (kind, _) in BOUNDED.items()], wave)
    for number, (mnemonic, (kind, function)) in enumerate(BOUNDED.items()):
        flushes = kind == "f32" and not mnemonic.startswith(("v_sin", "v_cos"))
        for turn in range(2 * ROUNDS[wave]):
            before, values, active = prepare(f"{kind} -> {kind}", wave, turn % 2 == 1, turn)
            after = before.copy()
            program[number](after)
            got = after.lanes(0, BITS[kind])
            for lane in active:
                x = decode(kind, values[0][lane])
                if flushes and abs(x) < 2.0**-126:
                    x = math.copysign(0.0, x)
                want = function(x)
                if flushes and abs(want) < 2.0**-126:
                    want = math.copysign(0.0, want)
                bound = {"f16": 0.502, "f32": 0.51, "f64": 1.0}[kind]
                distance = ulps(kind, got[lane], want)
                assert distance <= bound, f"{mnemonic}({values[0][lane]:#x}) = {got[lane]:#x}, {distance} ulp from {want}"
            idle = [lane for lane in range(wave) if lane not in active]
            assert (after.v[0][idle] == before.v[0][idle]).all()


def test_documented_examples() -> None:
    """The functional examples that the ISA document gives."""
    examples = {
        "v_exp_f32": {0xFF800000: 0, 0x80000000: 0x3F800000, 0x7F800000: 0x7F800000},
        "v_log_f32": {0xFF800000: None, 0xBF800000: None, 0x80000000: 0xFF800000, 0: 0xFF800000, 0x3F800000: 0, 0x7F800000: 0x7F800000},
        "v_rcp_f32": {0xFF800000: 0x80000000, 0xC0000000: 0xBF000000, 0x80000000: 0xFF800000, 0: 0x7F800000, 0x7F800000: 0},
        "v_rsq_f32": {0xFF800000: None, 0x80000000: 0xFF800000, 0: 0x7F800000, 0x40800000: 0x3F000000, 0x7F800000: 0},
        "v_sqrt_f32": {0xFF800000: None, 0x80000000: 0x80000000, 0: 0, 0x40800000: 0x40000000, 0x7F800000: 0x7F800000},
        "v_sin_f32": {0xFF800000: None, 0xFF7FFFFF: 0, 0x80000000: 0x80000000, 0x3E800000: 0x3F800000, 0x7F800000: None},
        "v_cos_f32": {0xFF7FFFFF: 0x3F800000, 0x80000000: 0x3F800000, 0x3E800000: 0, 0x7F800000: None},
        "v_clz_i32_u32": {0: M, 0x800000FF: 0, 0x100000FF: 3, 0xFFFF: 16, 1: 31},
        "v_ctz_i32_b32": {0: M, 0xFF000001: 0, 0xFF000008: 3, 0xFFFF0000: 16, 0x80000000: 31},
        "v_cls_i32": {0: M, 0x40000000: 1, 0x80000000: 1, 0x0FFFFFFF: 4, 0xFFFF0000: 16, 0xFFFFFFFE: 31, M: M},
    }
    program = build([f"{mnemonic} v0, v4" for mnemonic in examples], 32)
    for number, (mnemonic, pairs) in enumerate(examples.items()):
        state = State(32)
        state.v[4][: len(pairs)] = list(pairs)
        program[number](state)
        for got, want in zip(state.v[0].tolist(), pairs.values(), strict=False):
            assert is_nan("f32", got) if want is None else got == want, mnemonic


# How these instructions divide: Newton's steps on the reciprocal, then on the quotient.
DIVISION_F32 = """
v_div_scale_f32 v0, null, v6, v6, v4
v_div_scale_f32 v1, vcc_lo, v4, v6, v4
v_rcp_f32 v2, v0
v_fma_f32 v3, -v0, v2, 1.0
v_fmac_f32 v2, v3, v2
v_mul_f32 v3, v1, v2
v_fma_f32 v8, -v0, v3, v1
v_fmac_f32 v3, v8, v2
v_fma_f32 v0, -v0, v3, v1
v_div_fmas_f32 v0, v0, v2, v3
v_div_fixup_f32 v0, v0, v6, v4
"""
DIVISION_F64 = """
v_div_scale_f64 v[0:1], null, v[6:7], v[6:7], v[4:5]
v_div_scale_f64 v[2:3], vcc_lo, v[4:5], v[6:7], v[4:5]
v_rcp_f64 v[8:9], v[0:1]
v_fma_f64 v[10:11], -v[0:1], v[8:9], 1.0
v_fma_f64 v[8:9], v[8:9], v[10:11], v[8:9]
v_fma_f64 v[10:11], -v[0:1], v[8:9], 1.0
v_fma_f64 v[8:9], v[8:9], v[10:11], v[8:9]
v_mul_f64 v[10:11], v[2:3], v[8:9]
v_fma_f64 v[0:1], -v[0:1], v[10:11], v[2:3]
v_div_fmas_f64 v[0:1], v[0:1], v[8:9], v[10:11]
v_div_fixup_f64 v[0:1], v[0:1], v[6:7], v[4:5]
"""


def test_division_is_correctly_rounded() -> None:
    program = build([DIVISION_F32, DIVISION_F64], 32)
    for number, kind in enumerate(("f32", "f64")):
        for turn in range(60):
            state, values, _ = prepare(f"{kind} {kind} -> {kind}", 32, False, turn)
            program[number](state)
            for x, y, got in zip(*values, state.lanes(0, BITS[kind]), strict=True):
                want = divide(kind, decode(kind, x), decode(kind, y))
                assert same(kind, got, want), f"{kind} {x:#x} / {y:#x} = {got:#x}, not {want:#x}"


# Instructions whose effect is no function of one lane's sources: tested in test_semantics_shapes.py.
ELSEWHERE = frozenset(
    {"v_readlane_b32", "v_writelane_b32", "v_readfirstlane_b32", "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32", "v_permlane16_b32"}
    | {"v_permlanex16_b32", "v_permlane64_b32", "v_fma_mixhi_f16", "v_fmaak_f32", "v_fmamk_f32", "v_fmaak_f16", "v_fmamk_f16"}
    | {"v_dot2acc_f32_bf16"}
)


def test_every_vector_row_is_tested() -> None:
    """Every row of RDNA3 that works on lanes has an oracle (an alias counts as its row)."""
    tested = {id(lookup(name, GFX11)) for name in (*ORACLES, *BOUNDED, *ELSEWHERE)}
    assert not [name for name in mnemonics(GFX11) if name[0] == "v" and id(lookup(name, GFX11)) not in tested]


def test_the_table_has_at_least_350_mnemonics_of_rdna3() -> None:
    assert len(mnemonics(GFX11)) >= 350


@pytest.mark.parametrize(
    ("signature", "function", "message"),
    [
        ("f32 f32 -> f32", lambda b, x: x, "does not fit a function of 2 arguments"),
        ("f32 f33 -> f32", lambda b, x, y: x, "bad signature"),
        ("f32 f32 f32", lambda b, x, y, z: x, "bad signature"),
        ("f32 ->", lambda b, x: x, "bad signature"),
    ],
)
def test_the_table_refuses_rows_that_are_wrong(signature: str, function: Callable[..., object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        semantics("v_made_up_f32", signature)(function)
    assert lookup("v_made_up_f32", GFX11) is None


def test_the_table_refuses_duplicates_and_unknown_generations() -> None:
    with pytest.raises(ValueError, match="v_add_f32 is defined twice"):
        rows("f32 f32 -> f32", v_add_f32=lambda b, x, y: x)
    with pytest.raises(ValueError, match="unknown generations"):
        semantics("v_made_up_f32", "f32 -> f32", on=frozenset())
    check_table()
    assert all(name.startswith(("v_", "s_")) for _, name in TABLE)
