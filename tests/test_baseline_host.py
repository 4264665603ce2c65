"""A core of the suite on a host without vector extensions: TESSERA_HOST_FEATURES=baseline holds the simulator's host code to plain x86-64
(no AVX, no FMA, no F16C), or to the baseline of another architecture. In processes of their own, with an empty disk cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tessera import llvm

ROOT = Path(__file__).resolve().parent.parent

CORE = {
    "simulator": ["tests/test_sim_core.py", "tests/test_cases_simulator.py"],
    "semantics": ["tests/test_semantics_float.py", "tests/test_semantics_shapes.py"],
    "corpus": ["tests/test_corpus.py", "-k", "test_corpus and small and not sweep"],
    "matmul": ["tests/test_matmul.py", "-k", "test_launch_compiles or (test_dot_outside and 4) or test_int32 or loaded"],
}


@pytest.mark.medium
@pytest.mark.parametrize("part", CORE)
def test_on_a_baseline_host(part: str, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TESSERA_", "PYTEST_"))}
    if value := os.environ.get("TESSERA_REQUIRE_TOOLS"):
        clean["TESSERA_REQUIRE_TOOLS"] = value
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-o", "addopts=", *CORE[part]],
        cwd=ROOT,
        env={**clean, "TESSERA_HOST_FEATURES": "baseline", "TESSERA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "failed" not in done.stdout


def test_the_baseline_has_no_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_HOST_FEATURES", "baseline")
    host = llvm.host()
    assert (host.cpu in ("x86-64", "generic"), host.features, host.vector_bits, host.has_f16c, host.has_fma) == (
        True,
        "",
        128,
        False,
        False,
    )
    monkeypatch.delenv("TESSERA_HOST_FEATURES")
    assert llvm.host().triple == host.triple


@pytest.mark.skipif("x86_64" not in llvm.host().triple, reason="the instructions looked for are those of x86-64")
def test_host_code_of_the_baseline_uses_no_vector_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of floats and a conversion of halves: xmm registers, and neither ymm nor zmm, fused or converting instructions."""
    text = """
    define void @f(ptr %p) {
      %h = load <32 x half>, ptr %p
      %x = fpext <32 x half> %h to <32 x float>
      %y = call <32 x float> @llvm.fma.v32f32(<32 x float> %x, <32 x float> %x, <32 x float> %x)
      store <32 x float> %y, ptr %p
      ret void
    }
    declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)
    """

    def assembly() -> str:
        machine = llvm._host_machine(1)
        return str(machine.emit_assembly(llvm.parse(text)))

    monkeypatch.setenv("TESSERA_HOST_FEATURES", "baseline")
    plain = assembly()
    assert "xmm" in plain
    assert not any(word in plain for word in ("ymm", "zmm", "vfmadd", "vcvtph2ps"))
