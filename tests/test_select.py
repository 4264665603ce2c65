"""Selection of matrix instructions: what is chosen, what is refused and where the error points."""

from __future__ import annotations

import pytest
from rocm_kernels import load_kernel, matmul

from tessera.errors import KernelValueError, Location, UnsupportedDtypeError
from tessera.ir.ops.matrix import Dot
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.select import select


def chosen(text: str, name: str = "gfx1151") -> str:
    kernel = load_kernel(text)
    select(kernel, arch(name))
    (dot,) = [op for op in kernel.body.walk() if isinstance(op, Dot)]
    return dot.instruction


@pytest.mark.parametrize("name", ["gfx1100", "gfx1103", "gfx1150", "gfx1153"])
@pytest.mark.parametrize(
    ("a", "b", "acc", "mnemonic"),
    [
        ("f16", "f16", "f32", "v_wmma_f32_16x16x16_f16"),
        ("bf16", "bf16", "f32", "v_wmma_f32_16x16x16_bf16"),
        ("f16", "f16", "f16", "v_wmma_f16_16x16x16_f16"),
        ("i8", "i8", "i32", "v_wmma_i32_16x16x16_iu8"),
        ("u8", "i8", "i32", "v_wmma_i32_16x16x16_iu8"),
    ],
)
def test_instruction(name: str, a: str, b: str, acc: str, mnemonic: str) -> None:
    assert chosen(matmul(64, 32, 16, dtype=a, b_dtype=b, acc=acc), name) == mnemonic


@pytest.mark.parametrize("extents", [(8, 16, 16), (16, 1, 16), (16, 16, 2), (1, 2, 4)])
def test_tiles_below_a_fragment_are_taken(extents: tuple[int, int, int]) -> None:
    assert chosen(matmul(*extents)) == "v_wmma_f32_16x16x16_f16"


@pytest.mark.parametrize("extents", [(24, 16, 16), (16, 40, 16), (16, 16, 20), (3, 16, 16)])
def test_other_extents_are_refused(extents: tuple[int, int, int]) -> None:
    with pytest.raises(KernelValueError, match="multiples of 16 rows, 16 columns and 16 along"):
        chosen(matmul(*extents))


@pytest.mark.parametrize(("dtype", "acc"), [("f32", "f32"), ("f64", "f64"), ("i8", "f32"), ("i16", "i32")])
def test_dtypes_that_the_matrix_core_lacks(dtype: str, acc: str) -> None:
    kernel = load_kernel(matmul(32, 32, 16, dtype=dtype, acc=acc))
    (dot,) = [op for op in kernel.body.walk() if isinstance(op, Dot)]
    dot.location = Location("kernels.py", 7, 4)
    with pytest.raises(UnsupportedDtypeError, match="gfx1100 can't do a dot") as caught:
        select(kernel, arch("gfx1100"))
    assert caught.value.location == Location("kernels.py", 7, 4)


def test_the_wish_for_an_instruction() -> None:
    text = matmul(32, 32, 16)
    assert chosen(text.replace("instruction=''", "instruction='wmma_f32_16x16x16_f16'")) == "v_wmma_f32_16x16x16_f16"
    with pytest.raises(KernelValueError, match=r"'wmma_f32_4x4x4_f16' is no instruction of gfx1151.*legal: v_wmma_f32_16x16x16_f16"):
        chosen(text.replace("instruction=''", "instruction='wmma_f32_4x4x4_f16'"))
