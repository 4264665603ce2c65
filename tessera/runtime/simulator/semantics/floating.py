"""Vector float arithmetic: sums, products, fused multiply-add, minimum and maximum, rounding, exponents, division's helpers.

f16 arithmetic runs in float: a sum, product, quotient or square root of f16 values that was rounded to 24 bits rounds to the right 11
(24 >= 2*11 + 2). A fused multiply-add doesn't, and takes the way of `numeric.fma16`.
"""

from __future__ import annotations

from tessera.llvmtext import Function, Value, element, like

from .numeric import (
    as_float,
    bits_of,
    ceil,
    constant,
    fabs,
    fadd,
    floor,
    fma,
    fma16,
    fmul,
    fsub,
    intrinsic,
    is_nan,
    is_nan16,
    maximum,
    maximum16,
    maximum_number,
    maximum_number16,
    minimum,
    minimum16,
    minimum_number,
    minimum_number16,
    multiply_add_to_odd,
    narrow,
    quiet,
    round_even,
    trunc,
    two_sum,
    widen,
)
from .table import BEFORE_GFX12, CDNA, GFX11_ON, GFX12_ON, RDNA, FloatMode, aliases, rows, semantics

rows("f32 f32 -> f32", v_add_f32=fadd, v_mul_f32=fmul, v_sub_f32=fsub, v_subrev_f32=lambda b, x, y: fsub(b, y, x))
rows("f16 f16 -> f16", v_add_f16=fadd, v_mul_f16=fmul, v_sub_f16=fsub, v_subrev_f16=lambda b, x, y: fsub(b, y, x))
rows("f64 f64 -> f64", v_add_f64=fadd, v_mul_f64=fmul)


def multiply_legacy(b: Function, x: Value, y: Value) -> Value:
    """Anything times zero is +0, whatever the sign, infinities and NaN included."""
    zero = constant(x, 0.0)
    either = b.or_(b.fcmp("oeq", x, zero), b.fcmp("oeq", y, zero))
    return b.select(either, zero, fmul(b, x, y))


def fma_legacy(b: Function, x: Value, y: Value, z: Value) -> Value:
    """As `fma`, but a zero factor makes the product +0."""
    zero = constant(x, 0.0)
    either = b.or_(b.fcmp("oeq", x, zero), b.fcmp("oeq", y, zero))
    return b.select(either, fadd(b, z, zero), fma(b, x, y, z))


rows("f32 f32 -> f32", v_mul_legacy_f32=multiply_legacy)
aliases(GFX11_ON, v_mul_dx9_zero_f32="v_mul_legacy_f32")
rows("f32 f32 f32 -> f32", on=RDNA, v_fma_legacy_f32=fma_legacy)
aliases(GFX11_ON, v_fma_dx9_zero_f32="v_fma_legacy_f32")
rows("f32 f32 @f32 -> f32", on=RDNA, v_fmac_legacy_f32=fma_legacy)
aliases(GFX11_ON, v_fmac_dx9_zero_f32="v_fmac_legacy_f32")

rows("f32 f32 f32 -> f32", v_fma_f32=fma, v_fmaak_f32=fma, v_fmamk_f32=lambda b, x, k, y: fma(b, x, k, y))
rows("f32 f32 @f32 -> f32", v_fmac_f32=fma)
rows("f64 f64 f64 -> f64", v_fma_f64=fma)
rows("f64 f64 @f64 -> f64", on=CDNA, v_fmac_f64=fma)
rows("f16 f16 f16 -> f16", v_fma_f16=fma16, v_fmaak_f16=fma16, v_fmamk_f16=lambda b, x, k, y: fma16(b, x, k, y))
rows("f16 f16 @f16 -> f16", v_fmac_f16=fma16)

# Unfused, of CDNA: the product is rounded, and subnormals are flushed whatever the mode (v_mac and v_mad have no other form).
rows("f32 f32 @f32 -> f32", on=CDNA, v_mac_f32=lambda b, x, y, z: fadd(b, fmul(b, x, y), z))
rows("f32 f32 f32 -> f32", on=CDNA, v_mad_f32=lambda b, x, y, z: fadd(b, fmul(b, x, y), z))

# ---- minimum and maximum -------------------------------------------------------------------------------------------------------

# Before gfx12 v_max_f32 honours the IEEE mode; gfx12 has no such mode: v_max_num_f32 takes a signalling NaN as missing, too.
_NO_IEEE = FloatMode(ieee=False)
_BOUNDS = {"f16": (minimum_number16, maximum_number16), "f32": (minimum_number, maximum_number), "f64": (minimum_number, maximum_number)}
_IEEE_2019 = {"f16": (minimum16, maximum16), "f32": (minimum, maximum), "f64": (minimum, maximum)}


def _define_bounds(suffix: str) -> None:
    kind = "h16" if suffix == "f16" else suffix
    low, high = _BOUNDS[suffix]
    two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
    semantics(f"v_min_{suffix}", f"mode {two} -> {kind}", on=BEFORE_GFX12)(lambda b, m, x, y: low(b, m, x, y))
    semantics(f"v_max_{suffix}", f"mode {two} -> {kind}", on=BEFORE_GFX12)(lambda b, m, x, y: high(b, m, x, y))
    semantics(f"v_min_num_{suffix}", f"{two} -> {kind}", on=GFX12_ON)(lambda b, x, y: low(b, _NO_IEEE, x, y))
    semantics(f"v_max_num_{suffix}", f"{two} -> {kind}", on=GFX12_ON)(lambda b, x, y: high(b, _NO_IEEE, x, y))
    below, above = _IEEE_2019[suffix]
    semantics(f"v_minimum_{suffix}", f"{two} -> {kind}", on=GFX12_ON)(lambda b, x, y: below(b, x, y))
    semantics(f"v_maximum_{suffix}", f"{two} -> {kind}", on=GFX12_ON)(lambda b, x, y: above(b, x, y))
    if suffix == "f64":
        return

    def median(b: Function, m: FloatMode, x: Value, y: Value, z: Value) -> Value:
        """The middle of three numbers; the smallest number where there is a NaN. The choice goes by value, the zeros being equal."""
        top = high(b, m, high(b, m, x, y), z)
        third = b.select(_same(b, top, y), high(b, m, x, z), high(b, m, x, y))
        middle = b.select(_same(b, top, x), high(b, m, y, z), third)
        nan = is_nan16 if suffix == "f16" else is_nan
        any_nan = b.or_(b.or_(nan(b, x), nan(b, y)), nan(b, z))
        return b.select(any_nan, low(b, m, low(b, m, x, y), z), middle)

    semantics(f"v_min3_{suffix}", f"mode {three} -> {kind}", on=BEFORE_GFX12)(lambda b, m, x, y, z: low(b, m, low(b, m, x, y), z))
    semantics(f"v_max3_{suffix}", f"mode {three} -> {kind}", on=BEFORE_GFX12)(lambda b, m, x, y, z: high(b, m, high(b, m, x, y), z))
    semantics(f"v_med3_{suffix}", f"mode {three} -> {kind}", on=BEFORE_GFX12)(median)
    if suffix in ("f16", "f32"):
        gfx11 = GFX11_ON - GFX12_ON
        semantics(f"v_minmax_{suffix}", f"mode {three} -> {kind}", on=gfx11)(lambda b, m, x, y, z: high(b, m, low(b, m, x, y), z))
        semantics(f"v_maxmin_{suffix}", f"mode {three} -> {kind}", on=gfx11)(lambda b, m, x, y, z: low(b, m, high(b, m, x, y), z))
    m = _NO_IEEE
    semantics(f"v_min3_num_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: low(b, m, low(b, m, x, y), z))
    semantics(f"v_max3_num_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: high(b, m, high(b, m, x, y), z))
    semantics(f"v_med3_num_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: median(b, m, x, y, z))
    semantics(f"v_minmax_num_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: high(b, m, low(b, m, x, y), z))
    semantics(f"v_maxmin_num_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: low(b, m, high(b, m, x, y), z))
    semantics(f"v_minimum3_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: below(b, below(b, x, y), z))
    semantics(f"v_maximum3_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: above(b, above(b, x, y), z))
    semantics(f"v_minimummaximum_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: above(b, below(b, x, y), z))
    semantics(f"v_maximumminimum_{suffix}", f"{three} -> {kind}", on=GFX12_ON)(lambda b, x, y, z: below(b, above(b, x, y), z))


def _same(b: Function, x: Value, y: Value) -> Value:
    """Equality of floats that are no NaN; f16 by patterns, where only the zeros differ."""
    if element(x.type) == "i16":
        zeros = b.icmp("eq", b.shl(b.or_(x, y), 1), 0)
        return b.or_(b.icmp("eq", x, y), zeros)
    return b.fcmp("oeq", x, y)


for _suffix in ("f16", "f32", "f64"):
    _define_bounds(_suffix)

# ---- rounding to integers, parts of a float ------------------------------------------------------------------------------------


def fraction(b: Function, x: Value, largest: float) -> Value:
    """x - floor(x), below 1: what rounds up to 1 becomes the largest value below it. Infinities give NaN."""
    part = fsub(b, x, floor(b, x))
    return b.select(b.fcmp("oge", part, constant(part, 1.0)), constant(part, largest), part)


for _kind in ("f16", "f32", "f64"):
    semantics(f"v_trunc_{_kind}", f"{_kind} -> {_kind}")(trunc)
    semantics(f"v_ceil_{_kind}", f"{_kind} -> {_kind}")(ceil)
    semantics(f"v_floor_{_kind}", f"{_kind} -> {_kind}")(floor)
    semantics(f"v_rndne_{_kind}", f"{_kind} -> {_kind}")(round_even)


rows("f32 -> f32", v_fract_f32=lambda b, x: fraction(b, x, 1 - 2.0**-24))
rows("f64 -> f64", v_fract_f64=lambda b, x: fraction(b, x, 1 - 2.0**-53))


@semantics("v_fract_f16", "f16 -> f16")
def fraction16(b: Function, x: Value) -> Value:
    """The difference is exact in float and above 1 - 2^-12 would round to 1."""
    part = fsub(b, x, floor(b, x))
    largest = constant(part, 1 - 2.0**-11)
    return b.select(b.fcmp("ogt", part, largest), largest, part)


def power_of_two(b: Function, n: Value, wide: bool) -> Value:
    """2.0**n as float (double if `wide`), for n in the range of normal exponents."""
    bias, shift = (1023, 52) if wide else (127, 23)
    if wide and element(n.type) == "i32":
        n = b.cast("sext", n, like(n.type, "i64"))
    return as_float(b, b.shl(b.add(n, bias), shift))


def clamp_integer(b: Function, n: Value, low: int, high: int) -> Value:
    return intrinsic(b, "smin", intrinsic(b, "smax", n, constant(n, low)), constant(n, high))


def scale(b: Function, x: Value, n: Value) -> Value:
    """x * 2**n rounded once: float through double, where two factors span every exponent; double in three steps that round only once."""
    if element(x.type) == "float":
        n = clamp_integer(b, n, -400, 400)
        return b.cast("fptrunc", fmul(b, widen(b, x), power_of_two(b, n, True)), x.type)
    n = clamp_integer(b, n, -2200, 2200)
    # Down: normalise by 2^-n first so that only the last product can round; up: overflow is the same at any step.
    step = clamp_integer(b, n, -900, 1000)
    rest = b.sub(n, step)
    second = clamp_integer(b, rest, -900, 1000)
    third = b.sub(rest, second)
    up = fmul(b, fmul(b, fmul(b, x, power_of_two(b, step, True)), power_of_two(b, second, True)), power_of_two(b, third, True))
    return b.select(b.icmp("sge", n, -900), up, _scale_down(b, x, n))


def _scale_down(b: Function, x: Value, n: Value) -> Value:
    """x * 2**n for n < -900 in double: the exponent is moved in the bit pattern while it stays normal, then one product rounds."""
    raw = bits_of(b, x)
    exponent = b.cast("trunc", b.and_(b.lshr(raw, 52), 0x7FF), n.type)
    normal = b.and_(b.icmp("ne", exponent, 0), b.icmp("ne", exponent, 0x7FF))
    room = b.select(normal, b.sub(constant(n, 1), exponent), constant(n, 0))  # how far down the pattern can go, <= 0
    first = intrinsic(b, "smax", room, n)
    moved = as_float(b, b.add(raw, b.shl(b.cast("sext", first, raw.type), 52)))
    rest = clamp_integer(b, b.sub(n, first), -1022, 0)
    return fmul(b, moved, power_of_two(b, rest, True))


def scale16(b: Function, x: Value, n: Value) -> Value:
    """f16 in float: |n| beyond 40 can't matter, and within it float is exact."""
    n = clamp_integer(b, n, -60, 60)
    return fmul(b, x, power_of_two(b, b.cast("sext", n, like(n.type, "i32")), False))


rows("f32 i32 -> f32", v_ldexp_f32=scale)
rows("f64 i32 -> f64", v_ldexp_f64=scale)
rows("f16 i16 -> f16", v_ldexp_f16=scale16)


def _is_finite(b: Function, x: Value) -> Value:
    return b.fcmp("one", fabs(b, x), constant(x, float("inf")))


def split(b: Function, x: Value) -> tuple[Value, Value]:
    """The significand in [0.5, 1) with x's sign, and the exponent (of the pattern's integer type), for finite x other than 0."""
    wide = element(x.type) == "double"
    shift, bias, ones = (52, 1022, 0x7FF) if wide else (23, 126, 0xFF)
    lift = 54 if wide else 25
    raw = bits_of(b, x)
    subnormal = b.icmp("eq", b.and_(b.lshr(raw, shift), ones), 0)
    normal = bits_of(b, b.select(subnormal, fmul(b, x, constant(x, 2.0**lift)), x))
    exponent = b.sub(b.and_(b.lshr(normal, shift), ones), bias)
    exponent = b.select(subnormal, b.sub(exponent, lift), exponent)
    significand = b.or_(b.and_(normal, ~(ones << shift)), bias << shift)
    return as_float(b, significand), exponent


def significand(b: Function, x: Value) -> Value:
    """frexp's significand; zeros, infinities and NaN give themselves."""
    part, _ = split(b, x)
    plain = b.and_(_is_finite(b, x), b.fcmp("one", x, constant(x, 0.0)))
    return b.select(plain, part, x)


def exponent(b: Function, x: Value, to: str) -> Value:
    """frexp's exponent as element type `to`; zeros, infinities and NaN give 0."""
    _, power = split(b, x)
    plain = b.and_(_is_finite(b, x), b.fcmp("one", x, constant(x, 0.0)))
    return b.cast("trunc", b.select(plain, power, constant(power, 0)), like(x.type, to))


rows("f32 -> f32", v_frexp_mant_f32=significand)
rows("f64 -> f64", v_frexp_mant_f64=significand)
rows("f16 -> f16", v_frexp_mant_f16=significand)
rows("f32 -> i32", v_frexp_exp_i32_f32=lambda b, x: exponent(b, x, "i32"))
rows("f64 -> i32", v_frexp_exp_i32_f64=lambda b, x: exponent(b, x, "i32"))
rows("f16 -> i16", v_frexp_exp_i16_f16=lambda b, x: exponent(b, x, "i16"))

# ---- division ------------------------------------------------------------------------------------------------------------------


def _layout(x: Value) -> tuple[int, int]:
    """Bits of the stored significand, and the exponent field's mask."""
    return (52, 0x7FF) if element(x.type) == "double" else (23, 0xFF)


def _biased(b: Function, x: Value) -> Value:
    """The exponent field."""
    shift, ones = _layout(x)
    return b.and_(b.lshr(bits_of(b, x), shift), ones)


def division_scale(b: Function, s0: Value, denominator: Value, numerator: Value) -> tuple[Value, Value]:
    """v_div_scale: whichever of numerator and denominator s0 is, scaled so that the division's steps neither overflow nor lose bits; and
    whether the quotient must be scaled back (v_div_fmas).

    The pseudocode of AMD's ISA documents tests for subnormal reciprocals and quotients and then divides wrongly. The hardware looks at
    exponent fields; the rules here are those that AMD's emulator states as checked on gfx1100 and gfx1201 (github.com/ROCm/rocm-systems,
    pull request 11613). The first that holds decides, so the selections are built from the last to the first.
    """
    wide = element(s0.type) == "double"
    up, gap, tiny, large = (128, 768, 53, 2045) if wide else (64, 96, 24, 253)
    zero = constant(s0, 0.0)
    scaled_up, scaled_down = fmul(b, s0, constant(s0, 2.0**up)), fmul(b, s0, constant(s0, 2.0**-up))
    is_denominator = b.icmp("eq", bits_of(b, s0), bits_of(b, denominator))
    above, below = _biased(b, numerator), _biased(b, denominator)
    much_larger = b.icmp("sge", b.sub(above, below), gap)
    much_smaller = b.icmp("sle", b.sub(above, below), -gap)
    subnormal = b.icmp("eq", below, 0)

    result = b.select(b.icmp("sle", above, tiny), scaled_up, s0)
    result = b.select(much_smaller, b.select(is_denominator, s0, scaled_up), result)
    untouched = b.and_(much_smaller, b.not_(is_denominator))
    result = b.select(b.icmp("sge", below, large), b.select(untouched, s0, scaled_down), result)
    result = b.select(subnormal, scaled_up, result)
    result = b.select(much_larger, b.select(is_denominator, scaled_up, s0), result)
    invalid = b.or_(b.fcmp("oeq", numerator, zero), b.fcmp("oeq", denominator, zero))
    result = b.select(invalid, constant(s0, float("nan")), result)
    return result, b.or_(much_larger, b.and_(b.not_(subnormal), much_smaller))


semantics("v_div_scale_f32", "f32 f32 f32 -> f32 mask")(division_scale)
semantics("v_div_scale_f64", "f64 f64 f64 -> f64 mask")(division_scale)


def division_fmas(b: Function, x: Value, y: Value, z: Value, scaled: Value) -> Value:
    """v_div_fmas_f32: x*y + z, where v_div_scale said so times 2^64 or its inverse, by the size of z; rounded once, so that subnormal
    quotients come out right."""
    odd = multiply_add_to_odd(b, widen(b, x), widen(b, y), widen(b, z))
    big = b.icmp("sgt", _biased(b, z), 127)
    factor = b.select(big, constant(odd, 2.0**64), constant(odd, 2.0**-64))
    return b.select(scaled, narrow(b, fmul(b, odd, factor)), fma(b, x, y, z))


def division_fmas_64(b: Function, x: Value, y: Value, z: Value, scaled: Value) -> Value:
    """v_div_fmas_f64: likewise, with 2^128. Scaling down rounds a second time where the result is subnormal. That is wrong only if the
    first rounding made a tie, which the sign of its error breaks."""
    near = fma(b, x, y, z)
    big = b.icmp("sgt", _biased(b, z), 1023)
    up, down = fmul(b, near, constant(x, 2.0**128)), fmul(b, near, constant(x, 2.0**-128))
    past = fsub(b, near, fmul(b, down, constant(x, 2.0**128)))  # what the second rounding dropped
    error = _fma_error(b, x, y, z, near)
    tie = b.fcmp("oeq", fabs(b, past), constant(x, 2.0 ** (128 - 1075)))
    same_side = b.fcmp("ogt", fmul(b, past, b.intrinsic("copysign", [constant(x, 1.0), error])), constant(x, 0.0))
    wrong = b.and_(b.and_(tie, same_side), b.fcmp("one", error, constant(x, 0.0)))
    step = b.intrinsic("copysign", [constant(x, 2.0**-1074), past])
    down = b.select(wrong, fadd(b, down, step), down)
    return b.select(scaled, b.select(big, up, down), near)


def _fma_error(b: Function, x: Value, y: Value, z: Value, near: Value) -> Value:
    """x*y + z - near: its sign, and whether it is zero, where nothing overflows or underflows."""
    p = fmul(b, x, y)
    low = fma(b, x, y, b.fneg(p))
    s, t = two_sum(b, z, p)
    tail, rest = two_sum(b, t, low)
    return fadd(b, fadd(b, fsub(b, s, near), tail), rest)


rows("f32 f32 f32 mask -> f32", v_div_fmas_f32=division_fmas)
rows("f64 f64 f64 mask -> f64", v_div_fmas_f64=division_fmas_64)


def division_fixup(b: Function, quotient: Value, denominator: Value, numerator: Value) -> Value:
    """v_div_fixup: the quotient of a division, or what IEEE 754 says of the special cases.

    A quotient that is NaN although neither operand is special comes from an overflow in the division's steps, and is infinite: hardware
    does so (see `division_scale`), the ISA document doesn't say it.
    """
    overflow = constant(quotient, float("inf"))
    return _fixup(b, b.select(is_nan(b, quotient), overflow, fabs(b, quotient)), denominator, numerator)


def _fixup(b: Function, size: Value, denominator: Value, numerator: Value) -> Value:
    """`size` is the quotient's, where nothing is special."""
    infinity = constant(size, float("inf"))
    zero = constant(size, 0.0)
    wide = element(size.type) == "double"
    sign_bit = 1 << (63 if wide else 31)
    sign = b.and_(b.xor(bits_of(b, denominator), bits_of(b, numerator)), sign_bit)
    n_infinite, d_infinite = b.fcmp("oeq", fabs(b, numerator), infinity), b.fcmp("oeq", fabs(b, denominator), infinity)
    n_zero, d_zero = b.fcmp("oeq", numerator, zero), b.fcmp("oeq", denominator, zero)

    gap = b.sub(_biased(b, numerator), _biased(b, denominator))
    size = b.select(b.icmp("slt", gap, -1075 if wide else -150), zero, size)
    size = b.select(b.or_(d_infinite, n_zero), zero, size)
    size = b.select(b.or_(d_zero, n_infinite), infinity, size)
    signed = as_float(b, b.or_(bits_of(b, size), sign))
    invalid = b.or_(b.and_(d_zero, n_zero), b.and_(d_infinite, n_infinite))
    result = b.select(invalid, b.fneg(constant(size, float("nan"))), signed)
    result = b.select(is_nan(b, denominator), quiet(b, denominator), result)
    return b.select(is_nan(b, numerator), quiet(b, numerator), result)


rows("f32 f32 f32 -> f32", v_div_fixup_f32=division_fixup)
rows("f64 f64 f64 -> f64", v_div_fixup_f64=division_fixup)


@semantics("v_div_fixup_f16", "f16 f16 f16 -> f16")
def division_fixup16(b: Function, quotient: Value, denominator: Value, numerator: Value) -> Value:
    """Its steps are done in f32, where nothing overflows: a NaN stays one."""
    return _fixup(b, fabs(b, quotient), denominator, numerator)
