"""Each scalar instruction of RDNA3 and 3.5 against an oracle written from AMD's ISA documents, with its SCC."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
from semantics_harness import (
    BITS,
    EXEC,
    RELATIONS,
    Oracle,
    Oracles,
    State,
    arithmetic,
    bound,
    build,
    decode,
    encode,
    fma,
    is_nan,
    sample,
    signed,
    to_integer,
    toward_zero,
    whole,
)

from tessera.runtime.simulator.semantics import Generation, lookup, mnemonics

ROUNDS = {32: 30, 64: 12}
M, M64 = 0xFFFFFFFF, (1 << 64) - 1

ORACLES = Oracles()


def scc(x: int) -> tuple[int, int]:
    return x, int(x != 0)


LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "and_not1": lambda x, y: x & ~y,
    "or_not1": lambda x, y: x | ~y,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
}
SAVEEXEC = {**LOGIC, "and_not0": lambda x, e: ~x & e, "or_not0": lambda x, e: ~x | e}


def _widths() -> None:
    for w in (32, 64):
        ones = (1 << w) - 1
        u = f"u{w}"
        for name, operation in LOGIC.items():
            ORACLES.row(f"{u} {u} -> {u} scc", **{f"s_{name}_b{w}": lambda x, y, f=operation, m=ones: scc(f(x, y) & m)})
        for name, operation in SAVEEXEC.items():
            ORACLES.row(
                f"{u} exec{w} -> {u} exec{w} scc",
                **{f"s_{name}_saveexec_b{w}": lambda x, e, f=operation, m=ones: (e, f(x, e) & m, int(f(x, e) & m != 0))},
            )
            if name in ("and_not0", "and_not1"):
                ORACLES.row(
                    f"{u} exec{w} -> {u} exec{w} scc",
                    **{f"s_{name}_wrexec_b{w}": lambda x, e, f=operation, m=ones: (f(x, e) & m, f(x, e) & m, int(f(x, e) & m != 0))},
                )
        ORACLES.row(f"{u} -> {u} scc", **{f"s_not_b{w}": lambda x, m=ones: scc(~x & m)})
        ORACLES.row(f"{u} -> {u}", **{f"s_mov_b{w}": lambda x: x, f"s_brev_b{w}": lambda x, w=w: int(f"{x:0{w}b}"[::-1], 2)})
        ORACLES.row(f"{u} @{u} scc -> {u}", **{f"s_cmov_b{w}": lambda x, old, c: x if c else old})
        ORACLES.row(f"{u} {u} scc -> {u}", **{f"s_cselect_b{w}": lambda x, y, c: x if c else y})
        ORACLES.row(f"u32 @{u} -> {u}", **{f"s_bitset1_b{w}": lambda n, old, w=w: old | 1 << (n & (w - 1))})
        ORACLES.row(f"u32 @{u} -> {u}", **{f"s_bitset0_b{w}": lambda n, old, w=w: old & ~(1 << (n & (w - 1)))})
        ORACLES.row(f"{u} u32 -> scc", **{f"s_bitcmp1_b{w}": lambda x, n, w=w: x >> (n & (w - 1)) & 1})
        ORACLES.row(f"{u} u32 -> scc", **{f"s_bitcmp0_b{w}": lambda x, n, w=w: 1 - (x >> (n & (w - 1)) & 1)})
        ORACLES.row(f"{u} u32 -> {u} scc", **{f"s_lshl_b{w}": lambda x, n, w=w, m=ones: scc(x << (n & (w - 1)) & m)})
        ORACLES.row(f"{u} u32 -> {u} scc", **{f"s_lshr_b{w}": lambda x, n, w=w: scc(x >> (n & (w - 1)))})
        ORACLES.row(f"{u} u32 -> {u} scc", **{f"s_ashr_i{w}": lambda x, n, w=w, m=ones: scc(signed(x, w) >> (n & (w - 1)) & m)})
        ORACLES.row(f"{u} u32 -> {u} scc", **{f"s_bfe_u{w}": lambda x, f, w=w: scc(field(x, f, w, False))})
        ORACLES.row(f"{u} u32 -> {u} scc", **{f"s_bfe_i{w}": lambda x, f, w=w, m=ones: scc(field(x, f, w, True) & m)})
        ORACLES.row(f"u32 u32 -> {u}", **{f"s_bfm_b{w}": lambda n, at, w=w, m=ones: ((1 << (n & (w - 1))) - 1) << (at & (w - 1)) & m})
        ORACLES.row(f"{u} -> u32 scc", **{f"s_bcnt1_i32_b{w}": lambda x: scc(x.bit_count())})
        ORACLES.row(f"{u} -> u32 scc", **{f"s_bcnt0_i32_b{w}": lambda x, w=w: scc(w - x.bit_count())})
        ORACLES.row(f"{u} -> u32", **{f"s_ctz_i32_b{w}": lambda x: (x & -x).bit_length() - 1 if x else M})
        ORACLES.row(f"{u} -> u32", **{f"s_clz_i32_u{w}": lambda x, w=w: w - x.bit_length() if x else M})
        ORACLES.row(f"{u} -> u32", **{"s_cls_i32" + ("_i64" if w == 64 else ""): lambda x, w=w: sign_bits(x, w)})
        ORACLES.row(f"{u} -> {u} scc", **{f"s_wqm_b{w}": lambda x, w=w: scc(sum(15 << i for i in range(0, w, 4) if x >> i & 15))})
        ORACLES.row(f"{u} -> {u} scc", **{f"s_quadmask_b{w}": lambda x, w=w: scc(sum(1 << i // 4 for i in range(0, w, 4) if x >> i & 15))})


def field(x: int, where: int, width: int, sign: bool) -> int:
    at, size = where & (width - 1), where >> 16 & 127
    if size >= width:
        return (signed(x, width) if sign else x) >> at
    part = (signed(x, width) if sign else x) >> at & ((1 << size) - 1)
    return signed(part, size) if sign and size else part


def sign_bits(x: int, width: int) -> int:
    top = x >> (width - 1)
    return next((i for i in range(1, width) if x >> (width - 1 - i) & 1 != top), M)


_widths()


def overflow(value: int) -> tuple[int, int]:
    return value & M, int(not -(1 << 31) <= value < 1 << 31)


ORACLES.row(
    "u32 u32 -> u32 scc",
    s_add_u32=lambda x, y: (x + y & M, x + y >> 32),
    s_sub_u32=lambda x, y: (x - y & M, int(y > x)),
    s_add_i32=lambda x, y: overflow(signed(x) + signed(y)),
    s_sub_i32=lambda x, y: overflow(signed(x) - signed(y)),
    s_min_i32=lambda x, y: (x if signed(x) < signed(y) else y, int(signed(x) < signed(y))),
    s_max_i32=lambda x, y: (x if signed(x) >= signed(y) else y, int(signed(x) >= signed(y))),
    s_min_u32=lambda x, y: (min(x, y), int(x < y)),
    s_max_u32=lambda x, y: (max(x, y), int(x >= y)),
    s_absdiff_i32=lambda x, y: scc(abs(signed(x - y)) & M),
    s_lshl1_add_u32=lambda x, y: ((x << 1) + y & M, int((x << 1) + y > M)),
    s_lshl2_add_u32=lambda x, y: ((x << 2) + y & M, int((x << 2) + y > M)),
    s_lshl3_add_u32=lambda x, y: ((x << 3) + y & M, int((x << 3) + y > M)),
    s_lshl4_add_u32=lambda x, y: ((x << 4) + y & M, int((x << 4) + y > M)),
)
ORACLES.row("u32 -> u32 scc", s_abs_i32=lambda x: scc(abs(signed(x)) & M))
ORACLES.row(
    "u32 u32 scc -> u32 scc",
    s_addc_u32=lambda x, y, c: (x + y + c & M, x + y + c >> 32),
    s_subb_u32=lambda x, y, c: (x - y - c & M, int(x < y + c)),
)
ORACLES.row(
    "u32 u32 -> u32",
    s_mul_i32=lambda x, y: x * y & M,
    s_mul_hi_u32=lambda x, y: x * y >> 32,
    s_mul_hi_i32=lambda x, y: signed(x) * signed(y) >> 32 & M,
    s_pack_ll_b32_b16=lambda x, y: x & 0xFFFF | y << 16 & M,
    s_pack_lh_b32_b16=lambda x, y: x & 0xFFFF | y & 0xFFFF0000,
    s_pack_hl_b32_b16=lambda x, y: x >> 16 | y << 16 & M,
    s_pack_hh_b32_b16=lambda x, y: x >> 16 | y & 0xFFFF0000,
)
ORACLES.row("u32 -> u32", s_sext_i32_i8=lambda x: signed(x, 8) & M, s_sext_i32_i16=lambda x: signed(x, 16) & M)
ORACLES.row("u32 -> u64", s_bitreplicate_b64_b32=lambda x: sum(3 << 2 * i for i in range(32) if x >> i & 1))

# ---- the 16-bit immediates -----------------------------------------------------------------------------------------------------

ORACLES.row("simm -> u32", s_movk_i32=lambda k: k & M)
ORACLES.row("simm @u32 scc -> u32", s_cmovk_i32=lambda k, old, c: k & M if c else old)
ORACLES.row("simm @u32 -> u32 scc", s_addk_i32=lambda k, x: overflow(signed(x) + k))
ORACLES.row("simm @u32 -> u32", s_mulk_i32=lambda k, x: x * k & M)

INTEGER = {name: RELATIONS[name] for name in ("eq", "lg", "gt", "ge", "lt", "le")}
for _name, _relation in INTEGER.items():
    ORACLES.row("u32 u32 -> scc", **{f"s_cmp_{_name}_i32": lambda x, y, f=_relation: int(f(signed(x), signed(y)))})
    ORACLES.row("u32 u32 -> scc", **{f"s_cmp_{_name}_u32": lambda x, y, f=_relation: int(f(x, y))})
    ORACLES.row("u32 simm -> scc", **{f"s_cmpk_{_name}_i32": lambda x, k, f=_relation: int(f(signed(x), k))})
    ORACLES.row("u32 uimm -> scc", **{f"s_cmpk_{_name}_u32": lambda x, k, f=_relation: int(f(x, k))})
ORACLES.row("u64 u64 -> scc", s_cmp_eq_u64=lambda x, y: int(x == y), s_cmp_lg_u64=lambda x, y: int(x != y))

# ---- floats ------------------------------------------------------------------------------------------------------------------------


for _kind in ("f32", "f16"):
    _two = f"{_kind} {_kind} -> {_kind}"
    ORACLES.row(
        _two,
        **{
            f"s_add_{_kind}": arithmetic(_kind, lambda x, y: x + y),
            f"s_sub_{_kind}": arithmetic(_kind, lambda x, y: x - y),
            f"s_mul_{_kind}": arithmetic(_kind, lambda x, y: x * y),
            f"s_min_{_kind}": bound(_kind, False),
            f"s_max_{_kind}": bound(_kind, True),
        },
    )
    ORACLES.row(
        f"{_kind} {_kind} @{_kind} -> {_kind}",
        **{f"s_fmac_{_kind}": lambda x, y, z, k=_kind: fma(k, decode(k, x), decode(k, y), decode(k, z))},
    )
    ORACLES.row(
        f"{_kind} -> {_kind}",
        **{
            f"s_ceil_{_kind}": arithmetic(_kind, whole(math.ceil)),
            f"s_floor_{_kind}": arithmetic(_kind, whole(math.floor)),
            f"s_trunc_{_kind}": arithmetic(_kind, whole(math.trunc)),
            f"s_rndne_{_kind}": arithmetic(_kind, whole(round)),
        },
    )
    for _name, _relation in RELATIONS.items():
        ORACLES.row(
            f"{_kind} {_kind} -> scc",
            **{f"s_cmp_{_name}_{_kind}": lambda x, y, f=_relation, k=_kind: int(f(decode(k, x), decode(k, y)))},
        )


ORACLES.row("u32 -> f32", s_cvt_f32_i32=lambda x: encode("f32", Fraction(signed(x))), s_cvt_f32_u32=lambda x: encode("f32", Fraction(x)))
ORACLES.row(
    "f32 -> u32", s_cvt_i32_f32=lambda x: to_integer("f32", -(1 << 31), (1 << 31) - 1)(x) & M, s_cvt_u32_f32=to_integer("f32", 0, M)
)
ORACLES.row("f32 -> f16", s_cvt_f16_f32=lambda x: encode("f16", decode("f32", x)))
ORACLES.row("f16 -> f32", s_cvt_f32_f16=lambda x: encode("f32", decode("f16", x)))
ORACLES.row("u32 -> f32", s_cvt_hi_f32_f16=lambda x: encode("f32", decode("f16", x >> 16)))
ORACLES.row("f32 f32 -> 2f16", s_cvt_pk_rtz_f16_f32=lambda x, y: toward_zero(x) | toward_zero(y) << 16)

# ---- the tests ---------------------------------------------------------------------------------------------------------------------------

IMMEDIATES = {"simm": (-32768, -7, 5, 32767), "uimm": (0, 9, 0x8000, 0xFFFF)}


def width_of(kind: str) -> int:
    return 32 if kind[0] == "2" else int(kind.lstrip("@").lstrip("uf"))


def assembly(mnemonic: str, signature: str, immediate: int) -> str:
    left, _, right = signature.partition("->")
    outputs = ["s[0:1]" if width_of(kind) == 64 else "s0" for kind in right.split() if kind[0] in "uf2"]
    inputs = []
    for index, kind in enumerate(left.split()):
        if kind in IMMEDIATES:
            inputs.append(str(immediate))
        elif kind[0] in "uf":
            inputs.append(f"s[{8 + 2 * index}:{9 + 2 * index}]" if width_of(kind) == 64 else f"s{8 + 2 * index}")
    return f"{mnemonic} {', '.join(outputs + inputs)}"


def cases() -> list[tuple[str, str, Oracle, int]]:
    found = []
    for mnemonic, (signature, oracle) in ORACLES.rows.items():
        kind = next((k for k in signature.split() if k in IMMEDIATES), None)
        found += [(mnemonic, signature, oracle, immediate) for immediate in (IMMEDIATES[kind] if kind else (0,))]
    return found


@pytest.mark.parametrize("wave", [32, 64])
def test_against_the_isa(wave: int) -> None:
    rng = random.Random(5)
    every = cases()
    program = build([assembly(m, s, k) for m, s, _, k in every], wave)
    for number, (mnemonic, signature, oracle, immediate) in enumerate(every):
        left, _, right = signature.partition("->")
        for _ in range(ROUNDS[wave]):
            state = State(wave)
            state.s[:120] = [rng.getrandbits(32) for _ in range(120)]
            state.scc = rng.getrandbits(1)
            state.set_mask(EXEC, rng.getrandbits(wave))
            values = []
            for index, kind in enumerate(left.split()):
                if kind == "scc":
                    values.append(state.scc)
                elif kind.startswith("exec"):
                    values.append(state.scalar(EXEC, width_of(kind[4:])))
                elif kind in IMMEDIATES:
                    values.append(immediate)
                else:
                    (value,) = sample(kind.lstrip("@"), 1)
                    values.append(value)
                    state.set_scalar(
                        0 if kind[0] == "@" else 8 + 2 * index, value | (0xABCD0000 if width_of(kind) == 16 else 0), width_of(kind)
                    )
            before = state.copy()
            program[number](state)
            wanted = oracle(*values)
            results = wanted if isinstance(wanted, tuple) else (wanted,)
            inputs = [hex(v) for v in values]
            written = set()
            for kind, want in zip(right.split(), results, strict=True):
                if kind == "scc":
                    assert state.scc == want, f"SCC of {mnemonic}{inputs}"
                    continue
                place = EXEC if kind.startswith("exec") else 0
                width = width_of(kind.removeprefix("exec"))
                got = state.scalar(place, max(width, 32))
                written |= {place, place + (width == 64)}
                same = got == want or (kind in BITS and is_nan(kind, got) and is_nan(kind, want))
                if kind == "2f16":
                    same = all(
                        g == w or (is_nan("f16", g) and is_nan("f16", w))
                        for g, w in ((got & 0xFFFF, want & 0xFFFF), (got >> 16, want >> 16))
                    )
                assert same, f"{mnemonic}{inputs} = {got:#x}, not {want:#x}"
            if "scc" not in right:
                assert state.scc == before.scc, f"{mnemonic} wrote SCC"
            others = [n for n in range(128) if n not in written]
            assert (state.s[others] == before.s[others]).all(), f"{mnemonic} wrote other registers"


def test_every_scalar_row_is_tested() -> None:
    generation = Generation.GFX11
    tested = {id(lookup(name, generation)) for name in (*ORACLES.rows, "s_fmaak_f32", "s_fmamk_f32")}
    assert not [name for name in mnemonics(generation) if name[0] == "s" and id(lookup(name, generation)) not in tested]


def test_fused_with_a_literal() -> None:
    """s_fmaak adds a literal, s_fmamk multiplies by one."""
    program = build(["s_fmaak_f32 s0, s8, s10, 0x40400000", "s_fmamk_f32 s0, s8, 0x40400000, s10"], 32)
    state = State(32)
    state.set_scalar(8, encode("f32", 1.5))
    state.set_scalar(10, encode("f32", -7.25))
    program[0](state)
    assert decode("f32", state.scalar(0)) == 1.5 * -7.25 + 3
    program[1](state)
    assert decode("f32", state.scalar(0)) == 1.5 * 3 - 7.25


def test_computed_register_numbers() -> None:
    """s_movrels reads s[n + M0], s_movreld writes it; what was written before in the block counts."""
    program = build(
        [
            "s_mov_b32 s11, 0x1234\ns_mov_b32 m0, 3\ns_movrels_b32 s0, s8",
            "s_mov_b32 m0, 4\ns_mov_b32 s12, 7\ns_movreld_b32 s8, s20\ns_add_u32 s1, s12, 1",
            "s_mov_b32 m0, 2\ns_movrels_b64 s[0:1], s[8:9]",
            "s_mov_b32 m0, 2\ns_movreld_b64 s[8:9], s[20:21]",
            "s_mov_b32 m0, 0x1000\ns_movrels_b32 s1, s8",
        ],
        32,
    )
    start = State(32)
    start.s[:64] = range(100, 164)
    for number, (register, want) in enumerate([(0, 0x1234), (1, 121), (0, 110), (10, 120), (1, 100)]):
        state = start.copy()
        program[number](state)
        assert state.scalar(register) == want
        if number == 1:
            assert state.scalar(12) == 120
        if number == 3:
            assert state.scalar(10, 64) == 120 | 121 << 32
