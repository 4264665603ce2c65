"""The front door: the README's example runs, the examples run, the documents hang together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def prose(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def run(*arguments: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readme_runs(tmp_path: Path) -> None:
    """All of its Python, in order, as one script in a file (kernels are read from their source)."""
    example, ahead_of_time, checked = blocks(README)
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    script = tmp_path / "readme.py"
    check = """
expected = a.astype(np.float64) @ b.astype(np.float64)
bound = 300 * 2.0**-24 / (1 - 300 * 2.0**-24) * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
assert np.all(np.abs(c - expected) <= bound)
"""
    script.write_text(example + check + "c[:] = np.nan\n" + ahead_of_time + check + "c[:] = np.nan\n" + checked + check, encoding="utf-8")
    assert "matmul on " in run(str(script), cwd=tmp_path)


@pytest.mark.parametrize("name", ["matmul", "vector_add", "softmax"])
def test_examples(name: str, tmp_path: Path) -> None:
    out = run(str(ROOT / "examples" / f"{name}.py"), "--show", "--save", "saved", cwd=tmp_path)
    assert "ok" in out
    assert "WRONG" not in out
    for word in (
        "device ",
        "executor ",
        "arch gfx",
        "VGPRs",
        "LDS",
        "spills",
        "waves per SIMD",
        "tile_ir",
        "llvm_ir",
        "assembly",
        "s_endpgm",
    ):
        assert word in out, word
    if name == "matmul":
        for count in map(int, re.findall(r"v_wmma_f32_16x16x16_f16: (\d+) in a loop", out)):
            assert count > 0
        assert out.count("in a loop") == out.count("GFLOP/s") == 2
    assert (tmp_path / "saved.hsaco").read_bytes().startswith(b"\x7fELF")


def test_a_wrong_result_is_an_exit_status(tmp_path: Path) -> None:
    """The example's comparison can fail: with one element changed behind its back, it does."""
    script = tmp_path / "broken.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'examples')!r})\n"
        "sys.argv = ['matmul.py']\n"
        "import numpy as np, matmul, tessera as ts\n"
        "launch = ts.runtime.launch\n"
        "def broken(artifact, grid, args):\n"
        "    result = launch(artifact, grid, args)\n"
        "    args[2][7, 11] += 0.01\n"
        "    return result\n"
        "ts.runtime.launch = broken\n"
        "assert matmul.main() == 1\n",
        encoding="utf-8",
    )
    assert "WRONG" in run(str(script), cwd=tmp_path)


def test_links_lead_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        text = re.sub(r"`[^`\n]*`", "", prose(document.read_text(encoding="utf-8")))  # kernel[grid](…) is no link
        for target in re.findall(r"\]\((?!\w+:)([^)#]+)", text):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_variable_is_documented() -> None:
    config = (ROOT / "tessera" / "config.py").read_text(encoding="utf-8")
    for name in set(re.findall(r"\"(TESSERA_\w+)\"", config)) - {"TESSERA_HOST_FEATURES", "TESSERA_OBJDUMP"}:
        assert f"`{name}`" in README, name


def test_no_registry_is_named() -> None:
    """pip's own configuration decides where packages come from."""
    for path in [*ROOT.glob("*"), *(ROOT / ".ci").glob("*"), *(ROOT / "docs").glob("*")]:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not re.search(r"index-url|registry\s*=|trusted-host", text), path.name
    for path in (ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml"):
        assert "://" not in path.read_text(encoding="utf-8"), path.name
