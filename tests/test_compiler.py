"""The ROCm target's front: what it returns, what it refuses, what it warns of, and how it reports faults of its own."""

from __future__ import annotations

import re
import warnings

import pytest
from rocm_kernels import load_kernel, matmul

from tessera import errors
from tessera.errors import CompilerBug, Location, ResourceError, TesseraWarning, UnsupportedArchError
from tessera.ir.core import Kernel
from tessera.targets.rocm import compiler, pipeline, resources
from tessera.targets.rocm.compiler import Options, compile_kernel

BIG = """
kernel @big num_waves=1 weak=[]
^(%a: array<f32,2,align=16,axis=1,small,disjoint>, %b: array<f32,2,align=16,axis=1,small,disjoint>) {
  %zero = const type=i64 value=0 : i64
  %rows = extent %a axis=0 : i64
  %n = const type=i64 value=64 : i64
  %z = const type=f32 value=0 : f32
  %init = const type=64x128xf32 value=0 : 64x128xf32
  %s = for %zero %rows %n [%init] stages=0 : 64x128xf32
  ^(%i: i64, %t: 64x128xf32) {
    %x = load %a [%i %zero] %z shape=(64,128) : 64x128xf32
    %u = add %t %x : 64x128xf32
    yield [%u]
  }
  store %b [%zero %zero] %s
  yield []
}
"""


def located(text: str) -> Kernel:
    """A kernel whose ops carry the line of the text that they stand on, of a file that doesn't exist."""
    kernel = load_kernel(text)
    for line, op in enumerate(kernel.body.walk(), 10):
        op.location = Location("/nowhere/kernel.py", line, 4)
    return kernel


def test_everything_that_compiling_gives() -> None:
    kernel = located(matmul(32, 32, 32))
    got = compile_kernel(kernel, "gfx1151", Options())
    assert (got.arch, got.wave_size, got.matrix_core, got.executor) == ("gfx1151", 32, "wmma", "rocm_wmma")
    assert got.code_object[:4] == b"\x7fELF"
    assert "rocm.wmma" in got.rocm_ir
    assert "define amdgpu_kernel void @matmul(" in got.llvm_ir
    assert "v_wmma_f32_16x16x16_f16" in got.assembly()
    assert got.resources["matrix_instruction"] == "v_wmma_f32_16x16x16_f16"
    assert got.resources["vgpr_spills"] == 0
    assert got.lds_bytes == got.resources["lds_bytes"] > 0
    assert {line for _, file, line in got.lines if file == "/nowhere/kernel.py"} & set(range(20, 40))
    offsets = [offset for offset, _, _ in got.lines]
    assert offsets == sorted(offsets)


def test_compiling_is_reproducible() -> None:
    first, second = (compile_kernel(located(matmul(32, 32, 32)), "gfx1100", Options()) for _ in range(2))
    assert first.code_object == second.code_object
    assert first.llvm_ir == second.llvm_ir


@pytest.mark.parametrize("name", ["lds", "größe", "main", "p0"])
def test_names_that_could_clash(name: str) -> None:
    got = compile_kernel(load_kernel(matmul(32, 32, 32).replace("@matmul", f"@{name}")), "gfx1151", Options())
    assert resources.kernel_descriptor(got.code_object, name).lds_bytes == got.lds_bytes


def test_options_reach_llvm() -> None:
    text = (
        BIG.replace("64x128", "16x16")
        .replace("(64,128)", "(16,16)")
        .replace("add %t %x", "mul %x %x")
        .replace("yield [%u]", "%w = add %t %u : 16x16xf32\n    yield [%w]")
    )
    plain = compile_kernel(load_kernel(text), "gfx1151", Options()).assembly()
    fused = compile_kernel(load_kernel(text), "gfx1151", Options(fp_contract=True)).assembly()
    assert not re.search(r"v_\w*fma", plain)
    assert re.search(r"v_(dual_)?fmac?_f32", fused)
    for options in (Options(optimize=1), Options(optimize=3, codegen=3)):
        assert compile_kernel(load_kernel(text), "gfx1151", options).code_object[:4] == b"\x7fELF"


@pytest.mark.parametrize("waves", [33, 64])
def test_too_many_threads(waves: int) -> None:
    with pytest.raises(
        ResourceError,
        match=f"num_waves={waves} makes workgroups of {waves * 32} threads; gfx1151 takes 1 to 1024, so num_waves may be 1 to 32",
    ):
        compile_kernel(load_kernel(BIG.replace("num_waves=1", f"num_waves={waves}")), "gfx1151", Options())


def test_arches() -> None:
    with pytest.raises(UnsupportedArchError, match="no arch 'gfx1159'"):
        compile_kernel(load_kernel(BIG), "gfx1159", Options())
    with pytest.raises(UnsupportedArchError, match="gfx942"):
        compile_kernel(load_kernel(BIG), "gfx942", Options())


def test_spills_warn_at_the_lines_that_cause_them() -> None:
    with pytest.warns(TesseraWarning, match=r"kernel 'big' spills \d+ VGPRs .* at .*/nowhere/kernel.py:\d+.*num_waves") as caught:
        got = compile_kernel(located(BIG), "gfx1151", Options())
    assert int(str(got.resources["vgpr_spills"])) > 0
    assert "no line" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_kernel(located(BIG.replace("num_waves=1", "num_waves=8")), "gfx1151", Options())


def _break(kernel: Kernel, arch: object) -> None:
    kernel.body.ops.insert(0, kernel.body.ops.pop(5))


def _fail(kernel: Kernel, arch: object) -> None:
    raise KeyError("lost")


def test_a_pass_that_fails_is_named_with_the_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "ROCM_PASSES", (*pipeline.ROCM_PASSES[:2], _fail))
    with pytest.raises(CompilerBug, match=r"(?s)pass _fail failed: KeyError: 'lost'.*kernel @big"):
        compile_kernel(load_kernel(BIG), "gfx1151", Options())
    monkeypatch.setattr(compiler, "ROCM_PASSES", (_break,))
    monkeypatch.setenv("TESSERA_DEBUG", "1")
    with pytest.raises(CompilerBug, match=r"(?s)pass _break failed: IRError: rule 2.*the IR before it:\nkernel @big"):
        compile_kernel(load_kernel(BIG), "gfx1151", Options())


def test_a_lowering_that_fails_shows_the_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "ROCM_PASSES", ())  # no layouts: nothing can be lowered
    with pytest.raises(CompilerBug, match=r"(?s)lowering for gfx1151 failed: .*kernel @big"):
        compile_kernel(load_kernel(BIG), "gfx1151", Options())


def test_warnings_are_a_category_of_their_own() -> None:
    assert issubclass(errors.TesseraWarning, UserWarning)
