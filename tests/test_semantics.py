"""Each vector instruction of RDNA3 on integers, and each comparison, against an oracle written from AMD's "RDNA3 Instruction Set
Architecture" in plain Python; laws of the table of semantics. Floats are in test_semantics_float.py.

Sources are special values, one-hot words, numbers of ordinary size and random bits; half of the runs have a partial EXEC. Results are
compared bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from semantics_harness import BITS, RELATIONS, Oracle, Oracles, compare_all, decode, is_signalling, signed

from tessera.runtime.simulator.semantics import Generation, lookup, mnemonics
from tessera.runtime.simulator.semantics.table import TABLE, check_table, rows, semantics

GFX11 = Generation.GFX11
ORACLES = Oracles()


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


ORACLES.row("b32 -> b32", v_mov_b32=lambda x: x)
ORACLES.row("b16 -> b16", v_mov_b16=lambda x: x, v_not_b16=lambda x: ~x & 0xFFFF)
ORACLES.row("u32 -> u32", v_not_b32=lambda x: ~x & M, v_bfrev_b32=lambda x: int(f"{x:032b}"[::-1], 2))
ORACLES.row(
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


ORACLES.row(
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


ORACLES.row(
    "u32 -> u32",
    v_clz_i32_u32=leading_zeros,
    v_ctz_i32_b32=lambda x: (x & -x).bit_length() - 1 if x else M,
    v_cls_i32=sign_bits,
)
ORACLES.row(
    "u32 u32 -> u32 mask",
    v_add_co_u32=lambda x, y: (x + y & M, x + y >> 32),
    v_sub_co_u32=lambda x, y: (x - y & M, int(x < y)),
    v_subrev_co_u32=lambda x, y: (y - x & M, int(y < x)),
)
ORACLES.row(
    "u32 u32 mask -> u32 mask",
    v_add_co_ci_u32=lambda x, y, c: (x + y + c & M, x + y + c >> 32),
    v_sub_co_ci_u32=lambda x, y, c: (x - y - c & M, int(x < y + c)),
    v_subrev_co_ci_u32=lambda x, y, c: (y - x - c & M, int(y < x + c)),
)
M64 = (1 << 64) - 1
ORACLES.row(
    "u32 u32 u64 -> u64 mask",
    v_mad_u64_u32=lambda x, y, z: (x * y + z & M64, x * y + z >> 64),
    v_mad_i64_i32=lambda x, y, z: (
        signed(x, 32) * signed(y, 32) + signed(z, 64) & M64,
        signed(x, 32) * signed(y, 32) + signed(z, 64) >> 64 & 1,
    ),
)
ORACLES.row("b32 b32 mask -> b32", v_cndmask_b32=lambda x, y, c: y if c else x)
ORACLES.row("b16 b16 mask -> b16", v_cndmask_b16=lambda x, y, c: y if c else x)
ORACLES.row(
    "u32 u64 -> u64",
    v_lshlrev_b64=lambda n, x: x << (n & 63) & M64,
    v_lshrrev_b64=lambda n, x: x >> (n & 63),
    v_ashrrev_i64=lambda n, x: signed(x, 64) >> (n & 63) & M64,
)
H = 0xFFFF
ORACLES.row(
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
ORACLES.row(
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
ORACLES.row(
    "u16 u16 u32 -> u32",
    v_mad_u32_u16=lambda x, y, z: x * y + z & M,
    v_mad_i32_i16=lambda x, y, z: signed(x, 16) * signed(y, 16) + z & M,
)

# ---- comparisons -------------------------------------------------------------------------------------------------------------------

CONSTANT: dict[str, Callable[[float, float], bool]] = {"f": lambda x, y: False, "t": lambda x, y: True}


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
        for name, relation in (RELATIONS | CONSTANT).items():
            oracle: Oracle = lambda x, y, k=kind, r=relation: int(r(decode(k, x), decode(k, y)))  # noqa: E731
            ORACLES.row(f"{kind} {kind} -> mask", **{f"v_cmp_{name}_{kind}": oracle})
            ORACLES.row(f"{kind} {kind} -> exec", **{f"v_cmpx_{name}_{kind}": oracle})
        second = "u16" if kind == "f16" else "u32"
        ORACLES.row(f"{kind} {second} -> mask", **{f"v_cmp_class_{kind}": lambda x, w, k=kind: class_of(k, x, w)})
        ORACLES.row(f"{kind} {second} -> exec", **{f"v_cmpx_class_{kind}": lambda x, w, k=kind: class_of(k, x, w)})
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        width = int(kind[1:])
        read = signed if kind[0] == "i" else unsigned
        for name in ("lt", "eq", "le", "gt", "ne", "ge") + (("f", "t") if width > 16 else ()):
            relation = (RELATIONS | CONSTANT)["neq" if name == "ne" else name]
            integer: Oracle = lambda x, y, r=relation, w=width, d=read: int(r(d(x, w), d(y, w)))  # noqa: E731
            ORACLES.row(f"{kind} {kind} -> mask", **{f"v_cmp_{name}_{kind}": integer})
            ORACLES.row(f"{kind} {kind} -> exec", **{f"v_cmpx_{name}_{kind}": integer})


_comparisons()

# ---- the tests -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wave", [32, 64])
def test_against_the_isa(wave: int) -> None:
    compare_all(ORACLES, wave, {32: 6, 64: 3}[wave], 0)


@pytest.mark.slow
@pytest.mark.parametrize("wave", [32, 64])
def test_against_the_isa_at_length(wave: int) -> None:
    compare_all(ORACLES, wave, 60, 500_000)


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
