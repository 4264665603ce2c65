"""Matrix-instruction rows: layouts against AMD's calculator element by element, selection, and every refusal's text."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tessera import dtypes, llvm
from tessera.dtypes import DType
from tessera.errors import KernelValueError, UnsupportedDtypeError
from tessera.llvmtext import Function, Module, Value, lanes, vector
from tessera.targets.rocm import matrix
from tessera.targets.rocm.arch import arch, arches, supported_names
from tessera.targets.rocm.layout import Layout

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "wmma_layouts_rdna3.json").read_text())["instructions"]
F16, BF16, F32, F64, I8, U8, I32 = (
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    dtypes.int8,
    dtypes.uint8,
    dtypes.int32,
)


def places(operand: dict[str, Any], element: dict[str, int]) -> set[tuple[int, int]]:
    """(lane, bit position) of all copies of an element, by the calculator's map."""
    lane = bit = 0
    for coordinate, value in element.items():
        for b, (d_lane, d_bit) in enumerate(operand["basis"][coordinate]):
            lane += d_lane * (value >> b & 1)
            bit += d_bit * (value >> b & 1)
    return {(lane + r, bit) for r in operand["lane_replicas"]}


def ours(layout: Layout, slot_bits: int) -> dict[tuple[int, ...], set[tuple[int, int]]]:
    found: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for lane, register in product(range(32), range(layout.count)):
        found.setdefault(layout.coordinates(register, lane), set()).add((lane, register * slot_bits))
    return found


@pytest.mark.parametrize("row", matrix.ROWS, ids=lambda r: f"{r.mnemonic}-{r.a}-{r.b}")
def test_layouts_agree_with_the_calculator(row: matrix.MatrixInstruction) -> None:
    fact = FACTS[row.mnemonic]
    assert (row.m, row.n, row.k) == (fact["M"], fact["N"], fact["K"])
    assert f"llvm.{row.intrinsic}" in {re.sub(r"(\.v\d+[if]\d+)+$", "", name) for name in fact["llvm_intrinsics"]}
    for operand, layout, dtype, type_ in (
        ("A", row.a_layout, row.a, row.operand_type),
        ("B", row.b_layout, row.b, row.operand_type),
        ("C", row.acc_layout, row.acc, row.acc_type),
        ("D", row.acc_layout, row.acc, row.acc_type),
    ):
        data = fact["operands"][operand]
        rows, columns = (c for c in data["coords"] if c != "block")
        slot = 32 if operand in "CD" else data["elem_bits"]  # 16-bit accumulators use the low half of each register
        assert data["elem_bits"] == dtype.bits
        assert data["vgprs"] * 32 == lanes(type_) * int(re.sub(r".* x ", "", type_[:-1]).replace("half", "i16").replace("float", "i32")[1:])
        held = ours(layout, slot)
        assert set(held) == set(product(range(layout.shape[0]), range(layout.shape[1])))
        for (i, j), where in held.items():
            assert where == places(data, {rows: i, columns: j}), (operand, i, j)


def test_all_of_rdna3s_instructions_but_int4_have_rows() -> None:
    assert {r.mnemonic for r in matrix.ROWS} == set(FACTS) - {"v_wmma_i32_16x16x16_iu4"}


@pytest.mark.parametrize("name", supported_names())
@pytest.mark.parametrize(
    ("a", "b", "acc", "mnemonic"),
    [
        (F16, F16, F32, "v_wmma_f32_16x16x16_f16"),
        (BF16, BF16, F32, "v_wmma_f32_16x16x16_bf16"),
        (I8, I8, I32, "v_wmma_i32_16x16x16_iu8"),
        (U8, I8, I32, "v_wmma_i32_16x16x16_iu8"),
        (I8, U8, I32, "v_wmma_i32_16x16x16_iu8"),
        (U8, U8, I32, "v_wmma_i32_16x16x16_iu8"),
        (F16, F16, F16, "v_wmma_f16_16x16x16_f16"),
        (BF16, BF16, BF16, "v_wmma_bf16_16x16x16_bf16"),
    ],
)
def test_selection(name: str, a: DType, b: DType, acc: DType, mnemonic: str) -> None:
    row = matrix.select_matrix_instruction(arch(name), a, b, acc, (64, 32, 96))
    assert (row.mnemonic, row.a, row.b, row.acc) == (mnemonic, a, b, acc)
    assert matrix.instruction(arch(name), mnemonic, a, b) is row
    assert matrix.select_matrix_instruction(arch(name), a, b, acc, (16, 16, 16), mnemonic.removeprefix("v_")) is row


@pytest.mark.parametrize(
    ("name", "a", "b", "acc", "said"),
    [
        ("gfx1151", F32, F32, F32, ["gfx1151 can't do a dot of float32 @ float32", "take float16, bfloat16, int8",
                                    "Arches that take it: gfx908, gfx90a, gfx942, gfx950, gfx1250, gfx1251; this version compiles for none",
                                    'fallback="vector"', "ts.float16"]),
        ("gfx1100", F64, F64, F64, ["Arches that take it: gfx90a, gfx942, gfx950; this version compiles for none of them."]),
        ("gfx1100", F16, BF16, F32, ["float16 @ bfloat16", "No arch takes it", "Casting both operands"]),
        ("gfx1100", F16, F16, BF16, ["bfloat16 accumulator", "Accumulate in float32 and cast the result: `.astype(bfloat16)`"]),
        ("gfx1151", I8, I8, F32, ["float32 accumulator", "Accumulate in int32"]),
        ("gfx1151", I32, I32, I32, ["int32 @ int32", "No arch takes it", "Where the values fit 8 bits",
                                    "ts.sum(a[:, :, None] * b[None, :, :], axis=1)"]),
        ("gfx1030", F16, F16, F32, ["gfx1030 has no matrix core", "gfx908", "gfx1151", "fallback"]),
        ("gfx942", U8, U8, I32, ["MFMA instructions take", "gfx1100"]),
    ],
)  # fmt: skip
def test_refusals(name: str, a: DType, b: DType, acc: DType, said: list[str]) -> None:
    with pytest.raises(UnsupportedDtypeError) as e:
        matrix.select_matrix_instruction(arch(name), a, b, acc, (16, 16, 16))
    for words in said:
        assert words in str(e.value)
    assert isinstance(e.value, TypeError)


def test_every_other_combination_is_refused_by_name() -> None:
    taken = {(r.a, r.b, r.acc) for r in matrix.ROWS}
    for name, (a, b, acc) in product(("gfx1151", "gfx1201", "gfx942"), product(dtypes.ALL, repeat=3)):
        if name == "gfx1151" and (a, b, acc) in taken:
            continue
        with pytest.raises(UnsupportedDtypeError, match=name):
            matrix.select_matrix_instruction(arch(name), a, b, acc, (16, 16, 16))


def test_bad_shapes_and_wishes() -> None:
    with pytest.raises(KernelValueError, match=r"\(8, 16\) @ \(16, 48\).*pad the tiles to \(16, 16\) @ \(16, 48\)"):
        matrix.select_matrix_instruction(arch("gfx1151"), F16, F16, F32, (8, 48, 16))
    with pytest.raises(KernelValueError, match="legal: v_wmma_f32_16x16x16_f16"):
        matrix.select_matrix_instruction(arch("gfx1151"), F16, F16, F32, (16, 16, 16), "v_wmma_f32_16x16x16_bf16")
    with pytest.raises(KeyError, match="gfx1151 has no"):
        matrix.instruction(arch("gfx1151"), "v_mfma_f32_16x16x16_f16", F16, F16)


def test_no_arch_has_the_other_cores_instructions() -> None:
    for row, info in product(matrix.ROWS, arches()):
        if info.name in row.arches:
            assert row.mnemonic.startswith(f"v_{info.matrix_core}_")


@pytest.mark.parametrize("row", matrix.ROWS, ids=lambda r: f"{r.mnemonic}-{r.a}-{r.b}")
def test_emits_its_mnemonic_with_its_signs(row: matrix.MatrixInstruction) -> None:
    module = Module(llvm.AMDGPU_TRIPLE)
    f = Function(module, "k", "void", [("ptr addrspace(1)", "p")], prefix="amdgpu_kernel")
    f.position("entry")
    pointer = f.arguments[0]
    lane = f.call("llvm.amdgcn.workitem.id.x", "i32", [])

    def loaded(offset: int, layout: Layout, dtype: DType) -> Value:
        at = f.gep(pointer, f.mul(lane, 64))
        return f.load(vector(layout.count, dtype.llvm), f.gep(at, offset), 16)

    result = row.emit(f, loaded(0, row.a_layout, row.a), loaded(4096, row.b_layout, row.b), loaded(8192, row.acc_layout, row.acc))
    f.store(result, f.gep(pointer, f.mul(lane, 64)), 16)
    f.ret()
    text = llvm.device_assembly(str(module), "gfx1151")
    (line,) = re.findall(r"v_wmma.*", text)
    assert line.split()[0] == row.mnemonic
    signs = [int(d.is_signed) for d in (row.a, row.b)]
    assert (f"neg_lo:[{signs[0]},{signs[1]},0]" in line) == (row.signs and any(signs))
    assert "op_sel" not in line
