"""The examples of docs/language.md run as they stand, from a file, and one of them from wherever Python code can come from."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tessera as ts

DOCUMENT = Path(__file__).parents[1] / "docs" / "language.md"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("device", ["reference", "sim:gfx1151"])
def test_the_examples_run(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_DEVICE", device)
    assert len(examples()) >= 5
    script = tmp_path / "language.py"
    script.write_text("\n".join(examples()), encoding="utf-8")
    runpy.run_path(str(script))


def test_every_function_of_the_language_is_in_the_document() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    from tessera.frontend import api

    assert [name for name in api.__all__ if not re.search(rf"`[^`\n]*\b{name}\b", text)] == []
    assert all(getattr(ts, name) is getattr(api, name) for name in api.__all__)


@pytest.mark.parametrize("way", ["-c", "stdin", "exec"])
def test_code_without_a_file_works_or_says_why_not(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_DEVICE", "reference")
    code = examples()[0] + "\nprint('done')"
    if way == "exec":
        code = f"exec({code!r}, {{}})"
    command = [sys.executable, "-c", code] if way == "-c" else [sys.executable, "-"]
    ran = subprocess.run(command, input=code if way != "-c" else None, capture_output=True, text=True, encoding="utf-8")
    if ran.returncode == 0:  # newer Pythons keep the source
        assert ran.stdout == "done\n"
    else:
        assert "KernelSyntaxError: the source of 'scale' can't be found" in ran.stderr
        assert "Define it with `def` in a file or a notebook cell" in ran.stderr
