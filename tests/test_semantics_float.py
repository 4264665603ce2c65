"""Each vector instruction of RDNA3 on floats, packed values and dot products against an oracle written from AMD's "RDNA3 Instruction Set
Architecture" in plain Python, with exact rational arithmetic where rounding matters.

Results are compared bit for bit, all NaNs being one; transcendental instructions within their bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import test_semantics as integers
from semantics_harness import (
    BITS,
    Oracle,
    Oracles,
    State,
    arithmetic,
    assembly,
    bound,
    build,
    compare_all,
    decode,
    divide,
    encode,
    fma,
    is_nan,
    prepare,
    same,
    signed,
    to_integer,
    toward_zero,
    whole,
)

from tessera.runtime.simulator.semantics import Generation, lookup, mnemonics

ROUNDS = {32: 6, 64: 3}  # states per instruction and wave size
GFX11 = Generation.GFX11
M, H = 0xFFFFFFFF, 0xFFFF
ORACLES = Oracles()


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


# ---- float arithmetic --------------------------------------------------------------------------------------------------------------


def legacy_product(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


def median(kind: str) -> Oracle:
    low, high = bound(kind, False), bound(kind, True)

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
    _low, _high = bound(_kind, False), bound(_kind, True)
    _two = f"{_kind} {_kind} -> {_kind}"
    _three = f"{_kind} {_two}"
    ORACLES.row(
        _two,
        **{
            f"v_add_{_kind}": arithmetic(_kind, lambda x, y: x + y),
            f"v_mul_{_kind}": arithmetic(_kind, lambda x, y: x * y),
            f"v_min_{_kind}": _low,
            f"v_max_{_kind}": _high,
        },
    )
    ORACLES.row(_three, **{f"v_fma_{_kind}": fused(_kind)})
    ORACLES.row(
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
    ORACLES.row(
        _two,
        **{
            f"v_sub_{_kind}": arithmetic(_kind, lambda x, y: x - y),
            f"v_subrev_{_kind}": arithmetic(_kind, lambda x, y: y - x),
        },
    )
    ORACLES.row(
        _three,
        **{
            f"v_min3_{_kind}": lambda x, y, z, f=_low: f(f(x, y), z),
            f"v_max3_{_kind}": lambda x, y, z, f=_high: f(f(x, y), z),
            f"v_med3_{_kind}": median(_kind),
            f"v_minmax_{_kind}": lambda x, y, z, f=_low, g=_high: g(f(x, y), z),
            f"v_maxmin_{_kind}": lambda x, y, z, f=_low, g=_high: f(g(x, y), z),
        },
    )
    ORACLES.row(f"{_kind} {_kind} @{_kind} -> {_kind}", **{f"v_fmac_{_kind}": fused(_kind)})
ORACLES.row("f32 f32 -> f32", v_mul_dx9_zero_f32=arithmetic("f32", legacy_product), v_mul_legacy_f32=arithmetic("f32", legacy_product))
ORACLES.row("f32 f32 f32 -> f32", v_fma_dx9_zero_f32=fused_legacy)
ORACLES.row("f32 f32 @f32 -> f32", v_fmac_dx9_zero_f32=fused_legacy)
ORACLES.row("f32 i32 -> f32", v_ldexp_f32=scaled("f32", 32))
ORACLES.row("f64 i32 -> f64", v_ldexp_f64=scaled("f64", 32))
ORACLES.row("f16 i16 -> f16", v_ldexp_f16=scaled("f16", 16))
ORACLES.row("f32 -> i32", v_frexp_exp_i32_f32=exponent("f32", 32))
ORACLES.row("f64 -> i32", v_frexp_exp_i32_f64=exponent("f64", 32))
ORACLES.row("f16 -> i16", v_frexp_exp_i16_f16=exponent("f16", 16))

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


ORACLES.row("f32 f32 f32 -> f32 mask", v_div_scale_f32=division_scale("f32"))
ORACLES.row("f64 f64 f64 -> f64 mask", v_div_scale_f64=division_scale("f64"))
ORACLES.row("f32 f32 f32 vcc -> f32", v_div_fmas_f32=division_fmas("f32"))
ORACLES.row("f64 f64 f64 vcc -> f64", v_div_fmas_f64=division_fmas("f64"))
for _kind in ("f16", "f32", "f64"):
    ORACLES.row(f"{_kind} {_kind} {_kind} -> {_kind}", **{f"v_div_fixup_{_kind}": division_fixup(_kind)})

# ---- conversions -----------------------------------------------------------------------------------------------------------------------


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


I16, U16, I32, U32 = (-(1 << 15), (1 << 15) - 1), (0, H), (-(1 << 31), (1 << 31) - 1), (0, M)
ORACLES.row(
    "i32 -> f32",
    v_cvt_f32_i32=lambda x: encode("f32", Fraction(signed(x, 32))),
    v_cvt_f32_u32=lambda x: encode("f32", Fraction(x)),
    v_cvt_f32_ubyte0=lambda x: encode("f32", Fraction(x & 255)),
    v_cvt_f32_ubyte1=lambda x: encode("f32", Fraction(x >> 8 & 255)),
    v_cvt_f32_ubyte2=lambda x: encode("f32", Fraction(x >> 16 & 255)),
    v_cvt_f32_ubyte3=lambda x: encode("f32", Fraction(x >> 24)),
    v_cvt_off_f32_i4=lambda x: encode("f32", Fraction(signed(x, 4), 16)),
)
ORACLES.row(
    "i32 -> f64", v_cvt_f64_i32=lambda x: encode("f64", Fraction(signed(x, 32))), v_cvt_f64_u32=lambda x: encode("f64", Fraction(x))
)
ORACLES.row(
    "i16 -> f16", v_cvt_f16_i16=lambda x: encode("f16", Fraction(signed(x, 16))), v_cvt_f16_u16=lambda x: encode("f16", Fraction(x))
)
ORACLES.row("i16 -> i32", v_cvt_i32_i16=lambda x: signed(x, 16) & M, v_cvt_u32_u16=lambda x: x)
ORACLES.row(
    "f32 -> i32",
    v_cvt_i32_f32=to_width(32, to_integer("f32", *I32)),
    v_cvt_u32_f32=to_width(32, to_integer("f32", *U32)),
    v_cvt_floor_i32_f32=to_width(32, to_integer("f32", *I32, whole(math.floor))),
    v_cvt_nearest_i32_f32=to_width(32, to_integer("f32", *I32, lambda x: whole(math.floor)(single_sum(x)))),
)
ORACLES.row("f64 -> i32", v_cvt_i32_f64=to_width(32, to_integer("f64", *I32)), v_cvt_u32_f64=to_width(32, to_integer("f64", *U32)))
ORACLES.row(
    "f16 -> i16",
    v_cvt_i16_f16=to_width(16, to_integer("f16", *I16)),
    v_cvt_u16_f16=to_width(16, to_integer("f16", *U16)),
    v_cvt_norm_i16_f16=to_width(16, normalised("f16", 32767, -32767)),
    v_cvt_norm_u16_f16=to_width(16, normalised("f16", 65535, 0)),
)
ORACLES.row("f16 -> f32", v_cvt_f32_f16=lambda x: encode("f32", decode("f16", x)))
ORACLES.row("f32 -> f16", v_cvt_f16_f32=lambda x: encode("f16", decode("f32", x)))
ORACLES.row("f32 -> f64", v_cvt_f64_f32=lambda x: encode("f64", decode("f32", x)))
ORACLES.row("f64 -> f32", v_cvt_f32_f64=lambda x: encode("f32", decode("f64", x)))
ORACLES.row(
    "f32 f32 -> 2f16",
    v_cvt_pk_rtz_f16_f32=pack2(toward_zero),
)
ORACLES.row(
    "f32 f32 -> u32",
    v_cvt_pk_norm_i16_f32=pack2(normalised("f32", 32767, -32767)),
    v_cvt_pk_norm_u16_f32=pack2(normalised("f32", 65535, 0)),
    v_cvt_pk_i16_f32=pack2(to_integer("f32", *I16)),
    v_cvt_pk_u16_f32=pack2(to_integer("f32", *U16)),
)
ORACLES.row(
    "f16 f16 -> u32",
    v_cvt_pk_norm_i16_f16=pack2(normalised("f16", 32767, -32767)),
    v_cvt_pk_norm_u16_f16=pack2(normalised("f16", 65535, 0)),
)
ORACLES.row("u16 u16 -> u32", v_pack_b32_f16=lambda x, y: x | y << 16)
ORACLES.row("u32 -> u16", v_sat_pk_u8_i16=lambda x: clamp(signed(x, 16), 0, 255) | clamp(signed(x >> 16, 16), 0, 255) << 8)
ORACLES.row(
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


ORACLES.row(
    "2f16 2f16 -> 2f16",
    v_pk_add_f16=halves(arithmetic("f16", lambda x, y: x + y)),
    v_pk_mul_f16=halves(arithmetic("f16", lambda x, y: x * y)),
    v_pk_min_f16=halves(bound("f16", False)),
    v_pk_max_f16=halves(bound("f16", True)),
)
ORACLES.row("2f16 2f16 2f16 -> 2f16", v_pk_fma_f16=halves(fused("f16")))
ORACLES.row("2f16 2f16 @2f16 -> 2f16", v_pk_fmac_f16=halves(fused("f16")))
ORACLES.row(
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
ORACLES.row("u32 u32 u32 -> u32", v_pk_mad_u16=halves(lambda x, y, z: x * y + z & H), v_pk_mad_i16=halves(lambda x, y, z: x * y + z & H))


def parts(x: int, size: int, sign: bool) -> list[int]:
    values = [x >> at & ((1 << size) - 1) for at in range(0, 32, size)]
    return [signed(v, size) for v in values] if sign else values


def dot_integers(size: int, sign: bool) -> Oracle:
    return lambda x, y, z: sum(a * b for a, b in zip(parts(x, size, sign), parts(y, size, sign), strict=True)) + z & M


ORACLES.row(
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


ORACLES.row("2f16 2f16 f32 -> f32", v_dot2_f32_f16=dot2("f16", "f32"))
ORACLES.row("2f16 2f16 @f32 -> f32", v_dot2acc_f32_f16=dot2("f16", "f32"))
ORACLES.row("2bf16 2bf16 f32 -> f32", v_dot2_f32_bf16=dot2("bf16", "f32"))
ORACLES.row("2f16 2f16 f16 -> f16", v_dot2_f16_f16=dot2("f16", "f16"))
ORACLES.row("2bf16 2bf16 bf16 -> bf16", v_dot2_bf16_bf16=dot2("bf16", "bf16"))

ORACLES.row("f32 f32 f32 -> f32", v_fma_mix_f32=fused("f32"))
ORACLES.row("f32 f32 f32 -> f16", v_fma_mixlo_f16=lambda x, y, z: encode("f16", decode("f32", fused("f32")(x, y, z))))

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

# ---- the tests -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wave", [32, 64])
def test_against_the_isa(wave: int) -> None:
    compare_all(ORACLES, wave, ROUNDS[wave], 0)


@pytest.mark.slow
@pytest.mark.parametrize("wave", [32, 64])
def test_against_the_isa_at_length(wave: int) -> None:
    compare_all(ORACLES, wave, 60, 500_000)


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
    tested = {id(lookup(name, GFX11)) for name in (*integers.ORACLES.rows, *ORACLES.rows, *BOUNDED, *ELSEWHERE)}
    assert not [name for name in mnemonics(GFX11) if name[0] == "v" and id(lookup(name, GFX11)) not in tested]
