"""Matrix instructions of the simulator: the layout table against AMD's calculator, the arithmetic against NumPy."""

from __future__ import annotations

import ctypes
import itertools
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera.errors import UnsupportedInstructionError
from tessera.runtime.simulator import engine, helpers, matrix
from tessera.runtime.simulator.scheduler import aligned
from tests.sim_asm import build, run

Array = np.ndarray[Any, np.dtype[Any]]
LAYOUTS = json.loads((Path(__file__).parent / "data" / "wmma_layouts_rdna3.json").read_text())["instructions"]
RNG = np.random.default_rng(11)
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i32": np.int32}


def place(operand: dict[str, Any], **coords: int) -> tuple[int, int]:
    """(lane, bit) of an element by the data file."""
    lane = bit = 0
    for name, value in coords.items():
        for index, (to_lane, to_bit) in enumerate(operand["basis"][name]):
            if value >> index & 1:
                lane, bit = lane + to_lane, bit + to_bit
    return lane, bit


@pytest.mark.parametrize("mnemonic", list(LAYOUTS))
def test_the_table_agrees_with_the_calculator(mnemonic: str) -> None:
    entry, row = LAYOUTS[mnemonic], matrix.TABLE["gfx11", mnemonic, 32]
    assert (row.m, row.n, row.depth) == (entry["M"], entry["N"], entry["K"])
    operands = entry["operands"]
    for name, minor in (("A", "i"), ("B", "j")):
        operand = operands[name]
        assert row.ab == operand["type"]
        assert row.ab_registers == operand["vgprs"]
        assert matrix.ELEMENT_BITS[row.ab] == operand["elem_bits"]
        assert operand["lane_replicas"] == [row.m * group for group in range(row.groups)]
        assert row.copied
        for k, other in itertools.product(range(16), range(16)):
            lane, bit = row.place(row.k, k)
            assert (lane + other, bit) == place(operand, k=k, **{minor: other})
    for name in ("C", "D"):
        operand = operands[name]
        assert row.cd == operand["type"]
        assert row.cd_registers == operand["vgprs"]
        for i, j in itertools.product(range(16), range(16)):
            lane, bit = row.place(row.rows, i)
            assert (lane + j, bit) == place(operand, i=i, j=j)


# ---- the helpers ----------------------------------------------------------------------------------------------------------------------


class Registers:
    """`count` rows of 32 or 64 lanes in aligned memory."""

    def __init__(self, count: int, wave: int) -> None:
        self._owner, self.address = aligned(4 * count * wave)
        self.words: Array = np.frombuffer((ctypes.c_uint32 * (count * wave)).from_address(self.address), np.uint32).reshape(count, wave)

    def put(self, lane: int, bit: int, width: int, value: int) -> None:
        register, low = divmod(bit, 32)
        mask = ((1 << width) - 1) << low
        self.words[register, lane] = int(self.words[register, lane]) & ~mask | value << low & mask

    def get(self, lane: int, bit: int, width: int) -> int:
        register, low = divmod(bit, 32)
        return int(self.words[register, lane]) >> low & ((1 << width) - 1)


def bits_of(value: Any, kind: str) -> int:
    """The bit pattern of one element (a NumPy scalar or an int)."""
    if kind in ("iu8", "iu4"):
        return int(value)
    return int(np.asarray(value, TYPES[kind]).view({2: np.uint16, 4: np.uint32}[np.dtype(TYPES[kind]).itemsize]))


def fragments(row: matrix.MatrixInstruction, a: Array, b: Array, c: Array, high: int = 0) -> tuple[Registers, Registers, Registers]:
    """The registers of matrices (i, k), (k, j), (i, j)."""
    ra, rb, rc = Registers(row.ab_registers, row.wave), Registers(row.ab_registers, row.wave), Registers(row.cd_registers, row.wave)
    width = matrix.ELEMENT_BITS[row.ab]
    for k, other, group in itertools.product(range(row.depth), range(row.m), range(row.groups)):
        lane, bit = row.place(row.k, k)
        ra.put(lane + other + group * row.m, bit, width, bits_of(a[other, k], row.ab))
        rb.put(lane + other + group * row.m, bit, width, bits_of(b[k, other], row.ab))
    for i, j in itertools.product(range(row.m), range(row.n)):
        lane, bit = row.place(row.rows, i)
        rc.put(lane + j, bit + 16 * high, matrix.ELEMENT_BITS[row.cd], bits_of(c[i, j], row.cd))
    return ra, rb, rc


def result(row: matrix.MatrixInstruction, rd: Registers, high: int = 0) -> Array:
    width = matrix.ELEMENT_BITS[row.cd]
    raw = np.zeros((row.m, row.n), {16: np.uint16, 32: np.uint32}[width])
    for i, j in itertools.product(range(row.m), range(row.n)):
        lane, bit = row.place(row.rows, i)
        raw[i, j] = rd.get(lane + j, bit + 16 * high, width)
    return raw.view(TYPES[row.cd])


def call(row: matrix.MatrixInstruction, modifiers: matrix.Modifiers, d: Registers, a: Registers, b: Registers, c: Registers) -> None:
    address = helpers.address(f"sim.matrix.{row.mnemonic}.{row.wave}.{modifiers}")
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address)(d.address, a.address, b.address, c.address)


def floats(kind: str) -> tuple[Array, Array]:
    return tuple(RNG.standard_normal((16, 16)).astype(TYPES[kind]) for _ in range(2))  # type: ignore[return-value]


FLOATS = [(cd, ab) for cd, ab in (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16"))]


def within(got: Array, a: Array, b: Array, c: Array, cd: str) -> None:
    """Within K + 1 roundings of f32, and one of the result's type."""
    wide = [x.astype(np.float64) for x in (a, b, c)]
    exact = wide[0] @ wide[1] + wide[2]
    size = np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])
    last = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}[cd]
    assert (np.abs(got.astype(np.float64) - exact) <= 17 * 2.0**-24 * size + last * np.abs(exact) * 1.01).all()


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(("cd", "ab"), FLOATS)
def test_products(cd: str, ab: str, wave: int) -> None:
    row = matrix.TABLE["gfx11", f"v_wmma_{cd}_16x16x16_{ab}", wave]
    a, b = floats(ab)
    c = RNG.standard_normal((16, 16)).astype(TYPES[cd])
    highs = (0, 1) if cd in ("f16", "bf16") else (0,)
    for high in highs:
        ra, rb, rc = fragments(row, a, b, c, high)
        rd = Registers(row.cd_registers, wave)
        rd.words[:] = 0x12345678
        call(row, matrix.Modifiers(high=high), rd, ra, rb, rc)
        within(result(row, rd, high), a, b, c, cd)
        if len(highs) == 2:
            assert (rd.words >> (0 if high else 16) & 0xFFFF == (0x5678 if high else 0x1234)).all()
        call(row, matrix.Modifiers(high=high), rc, ra, rb, rc)  # in place
        np.testing.assert_array_equal(result(row, rc, high), result(row, rd, high))


@pytest.mark.parametrize(("cd", "ab"), FLOATS)
def test_signs(cd: str, ab: str) -> None:
    """neg_lo flips even k of A and B, neg_hi odd k; of C neg_hi takes the magnitude, then neg_lo flips."""
    row = matrix.TABLE["gfx11", f"v_wmma_{cd}_16x16x16_{ab}", 32]
    a, b = floats(ab)
    c = RNG.standard_normal((16, 16)).astype(TYPES[cd])
    ra, rb, rc = fragments(row, a, b, c)
    for lo, hi in ((1, 0), (0, 1), (2, 2), (4, 0), (0, 4), (5, 6), (7, 7)):
        rd = Registers(row.cd_registers, 32)
        call(row, matrix.Modifiers(lo, hi), rd, ra, rb, rc)
        sign = [np.where(np.arange(16) % 2, 1 - 2 * (hi >> n & 1), 1 - 2 * (lo >> n & 1)) for n in range(2)]
        third = np.abs(c) if hi & 4 else c
        third = -third if lo & 4 else third
        within(result(row, rd), (a * sign[0]).astype(a.dtype), (b * sign[1][:, None]).astype(b.dtype), third.astype(c.dtype), cd)


def test_one_hot_elements_meet() -> None:
    """A has a one at (i, k), B at (k, j): exactly D[i, j] is one."""
    row = matrix.TABLE["gfx11", "v_wmma_f32_16x16x16_f16", 32]
    for i, j, k in ((0, 0, 0), (1, 2, 3), (15, 0, 7), (8, 13, 15), (7, 8, 4)):
        a, b, c = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float32)
        a[i, k] = b[k, j] = 1
        ra, rb, rc = fragments(row, a, b, c)
        call(row, matrix.Modifiers(), rc, ra, rb, rc)
        expected = np.zeros((16, 16))
        expected[i, j] = 1
        np.testing.assert_array_equal(result(row, rc), expected)


def test_special_values_and_subnormals() -> None:
    row = matrix.TABLE["gfx11", "v_wmma_f32_16x16x16_f16", 32]
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float16)
    a[0, 0], b[0, 0] = np.inf, 2
    a[1, 1], b[1, 1] = np.nan, 1
    a[2, 2], b[2, 2] = 2.0**-24, 2.0**-24
    a[3, 3], b[3, 3] = 65504, 65504
    b[0, 5] = 1
    ra, rb, rc = fragments(row, a, b, np.zeros((16, 16), np.float32))
    call(row, matrix.Modifiers(), rc, ra, rb, rc)
    d = result(row, rc)
    assert d[0, 0] == np.inf
    assert d[0, 5] == np.inf
    assert np.isnan(d[0, 1])  # infinity times zero
    assert np.isnan(d[1]).all()
    assert d[2, 2] == np.float32(2.0**-48)
    assert d[3, 3] == np.float32(65504.0 * 65504.0)
    assert (d[4:] == 0).all()


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("ab", ["iu8", "iu4"])
def test_integer_products_are_exact(ab: str, wave: int) -> None:
    row = matrix.TABLE["gfx11", f"v_wmma_i32_16x16x16_{ab}", wave]
    width = matrix.ELEMENT_BITS[ab]
    a, b = (RNG.integers(0, 1 << width, (16, 16)) for _ in range(2))
    a[0], b[:, 0] = (1 << width) - 1, (1 << width) - 1  # the largest sums
    a[1], b[:, 1] = 1 << (width - 1), 1 << (width - 1)
    c = RNG.integers(-(1 << 31), 1 << 31, (16, 16)).astype(np.int32)
    c[0, 0], c[1, 1] = 0x7FFFFFFF, -(1 << 31)
    ra, rb, rc = fragments(row, a, b, c)
    for signs, clamp in itertools.product(range(4), range(2)):
        wide = [np.where((x >> (width - 1) & 1).astype(bool) & bool(signs >> n & 1), x - (1 << width), x) for n, x in enumerate((a, b))]
        exact = wide[0].astype(np.int64) @ wide[1].astype(np.int64) + c.astype(np.int64)
        expected = np.clip(exact, -(1 << 31), (1 << 31) - 1) if clamp else exact
        rd = Registers(row.cd_registers, wave)
        call(row, matrix.Modifiers(neg_lo=signs, clamp=clamp), rd, ra, rb, rc)
        np.testing.assert_array_equal(result(row, rd), expected.astype(np.uint64).astype(np.uint32).view(np.int32))


@pytest.mark.parametrize("wave", [32, 64])
def test_lane_groups_whose_copies_differ_multiply_their_own(wave: int) -> None:
    row = matrix.TABLE["gfx11", "v_wmma_f32_16x16x16_f16", wave]
    c = RNG.standard_normal((16, 16)).astype(np.float32)
    pairs = [floats("f16") for _ in range(row.groups)]
    ra, rb, rc = fragments(row, *pairs[0], c)
    for group, (a, b) in enumerate(pairs):
        ga, gb, _ = fragments(row, a, b, c)
        lanes = slice(group * row.m, (group + 1) * row.m)
        ra.words[:, lanes], rb.words[:, lanes] = ga.words[:, lanes], gb.words[:, lanes]
    expected = np.zeros((16, 16))
    for i in range(16):
        group = row.place(row.rows, i)[0] // row.m
        a, b = (x.astype(np.float64) for x in pairs[group])
        expected[i] = a[i] @ b + c[i]
    call(row, matrix.Modifiers(), rc, ra, rb, rc)
    np.testing.assert_allclose(result(row, rc), expected, rtol=0, atol=17 * 2.0**-24 * 64)


@pytest.mark.parametrize("mnemonic", ["v_wmma_f32_16x16x16_f16", "v_wmma_f32_16x16x16_bf16", "v_wmma_f16_16x16x16_f16"])
def test_a_host_without_vector_extensions_gives_the_same(mnemonic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_HOST_FEATURES", "baseline")
    row = matrix.TABLE["gfx11", mnemonic, 32]
    a, b = floats(row.ab)
    a[3, 4] = np.asarray(2.0**-20, a.dtype)  # a subnormal half
    c = RNG.standard_normal((16, 16)).astype(TYPES[row.cd])
    ra, rb, rc = fragments(row, a, b, c)
    call(row, matrix.Modifiers(), rc, ra, rb, rc)
    within(result(row, rc), a, b, c, row.cd)


# ---- lifting --------------------------------------------------------------------------------------------------------------------------

SETUP = """
  s_load_b128 s[8:11], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  v_and_b32 v1, 0x3ff, v0
  v_lshlrev_b32 v10, 7, v1
"""


def kernel(matrix_code: str) -> bytes:
    """Each lane loads 32 registers, v20 to v51, runs the code, and stores them back."""
    load = "".join(f"global_load_b128 v[{20 + i}:{23 + i}], v10, s[8:9] offset:{4 * i}\n" for i in range(0, 32, 4))
    store = "".join(f"global_store_b128 v10, v[{20 + i}:{23 + i}], s[10:11] offset:{4 * i}\n" for i in range(0, 32, 4))
    return build(SETUP + load + "s_waitcnt vmcnt(0)\n" + matrix_code + "\n" + store + "s_endpgm")


def lifted(code: str, inputs: dict[int, Registers], threads: int = 32) -> Array:
    """The registers v20 to v51 afterwards, (32, lanes)."""
    a, b = np.full((32, 32), 0x7E7E7E7E, np.uint32), np.zeros((32, 32), np.uint32)
    for first, rows in inputs.items():
        a[:, first - 20 : first - 20 + len(rows.words)] = rows.words.T
    run(kernel(code), [a, b], block=(threads, 1, 1))
    return b.T


def as_result(row: matrix.MatrixInstruction, words: Array, high: int = 0) -> Array:
    registers = Registers(row.cd_registers, 32)
    registers.words[:] = words
    return result(row, registers, high)


def test_lifted_products_with_registers_and_constants() -> None:
    row = matrix.TABLE["gfx11", "v_wmma_f32_16x16x16_f16", 32]
    a, b = floats("f16")
    c = RNG.standard_normal((16, 16)).astype(np.float32)
    ra, rb, rc = fragments(row, a, b, c)
    inputs = {20: ra, 28: rb, 36: rc}
    got = lifted("v_wmma_f32_16x16x16_f16 v[44:51], v[20:27], v[28:35], v[36:43]", inputs)
    within(as_result(row, got[24:32]), a, b, c, "f32")
    np.testing.assert_array_equal(got[16:24], rc.words)
    # D in A's registers, the matrix computed from values that the block holds in registers; then D shifted over C.
    got = lifted("v_xor_b32 v20, 0x80008000, v20\nv_wmma_f32_16x16x16_f16 v[20:27], v[20:27], v[28:35], v[36:43]", inputs)
    flipped = a.copy()
    flipped[:, :2] *= -1
    within(as_result(row, got[:8]), flipped, b, c, "f32")
    got = lifted("v_wmma_f32_16x16x16_f16 v[38:45], v[20:27], v[28:35], v[36:43]", inputs)
    within(as_result(row, got[18:26]), a, b, c, "f32")
    zeros = np.zeros((16, 16), np.float32)
    got = lifted("v_wmma_f32_16x16x16_f16 v[44:51], v[20:27], v[28:35], 0", inputs)
    within(as_result(row, got[24:32]), a, b, zeros, "f32")
    got = lifted("v_wmma_f32_16x16x16_f16 v[44:51], v[20:27], v[28:35], 1.0 neg_lo:[1,0,1]", inputs)
    half_flipped = a.copy()
    half_flipped[:, ::2] *= -1
    within(as_result(row, got[24:32]), half_flipped, b, zeros - 1, "f32")


def test_exec_does_not_matter() -> None:
    row = matrix.TABLE["gfx11", "v_wmma_f32_16x16x16_f16", 32]
    a, b = floats("f16")
    c = RNG.standard_normal((16, 16)).astype(np.float32)
    ra, rb, rc = fragments(row, a, b, c)
    code = "s_mov_b32 s20, exec_lo\ns_mov_b32 exec_lo, 5\nv_wmma_f32_16x16x16_f16 v[36:43], v[20:27], v[28:35], v[36:43]\n"
    got = lifted(code + "v_add_f32 v36, 1.0, v36\ns_mov_b32 exec_lo, s20", {20: ra, 28: rb, 36: rc})
    expected = c.copy()
    expected[0, 0] += 1
    expected[0, 2] += 1
    within(as_result(row, got[16:24]), a, b, expected, "f32")


def test_lifted_integers_with_clamp() -> None:
    row = matrix.TABLE["gfx11", "v_wmma_i32_16x16x16_iu8", 32]
    a, b = RNG.integers(0, 256, (16, 16)), RNG.integers(0, 256, (16, 16))
    c = RNG.integers(-(1 << 31), 1 << 31, (16, 16)).astype(np.int32)
    c[2, 3] = 0x7FFFFFFF
    ra, rb, rc = fragments(row, a, b, c)
    code = "v_wmma_i32_16x16x16_iu8 v[36:43], v[20:23], v[28:31], v[36:43] neg_lo:[0,1,0] clamp"
    got = lifted(code, {20: ra, 28: rb, 36: rc})
    exact = a.astype(np.int64) @ b.astype(np.uint8).astype(np.int8).astype(np.int64) + c
    np.testing.assert_array_equal(as_result(row, got[16:24]), np.clip(exact, -(1 << 31), (1 << 31) - 1))


def test_lifted_halves_keep_the_other_half() -> None:
    row = matrix.TABLE["gfx11", "v_wmma_f16_16x16x16_f16", 32]
    a, b = floats("f16")
    c = RNG.standard_normal((16, 16)).astype(np.float16)
    ra, rb, rc = fragments(row, a, b, c, high=1)
    rc.words[:] |= 0x1234
    got = lifted("v_wmma_f16_16x16x16_f16 v[36:43], v[20:27], v[28:35], v[36:43] op_sel:[0,0,1]", {20: ra, 28: rb, 36: rc})
    within(as_result(row, got[16:24], high=1), a, b, c, "f16")
    assert (got[16:24] & 0xFFFF == 0x1234).all()


def test_what_is_unknown_is_refused() -> None:
    code = "v_wmma_f32_16x16x16_f16 v[8:15], v[16:19], v[20:23], v[8:15]\ns_endpgm"
    with pytest.raises(UnsupportedInstructionError, match=r"v_wmma_f32_16x16x16_f16.*gfx1201.*doesn't know") as caught:
        engine.prepare(build(code, arch="gfx1201"))
    assert caught.value.pc is not None
