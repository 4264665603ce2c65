"""LLVM's command-line tools (Debian's llvm-22, lld-22, clang-22), which some tests use as independent readers, linkers and assemblers.

A missing tool skips the test with the reason; with TESSERA_REQUIRE_TOOLS=1 (as in CI) it is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_FOLDERS = ("/usr/lib/llvm-22/bin", "/opt/homebrew/opt/llvm@22/bin", "/opt/homebrew/opt/lld@22/bin")
RELEASE = "22"  # llvmlite's LLVM release: other releases spell and lay out things differently


def find(name: str) -> str | None:
    """The path of a tool of our LLVM release (`ld.lld`, `llvm-objdump`, `llvm-mc`, `clang`, …), or None."""
    return shutil.which(f"{name}-{RELEASE}") or shutil.which(name, path=os.pathsep.join(_FOLDERS))


def need(name: str) -> str:
    """The path of a tool; skips the test, or fails it under TESSERA_REQUIRE_TOOLS=1, where it isn't installed."""
    if path := find(name):
        return path
    reason = f"needs {name} of LLVM {RELEASE} (Debian: llvm-{RELEASE}, lld-{RELEASE}, clang-{RELEASE})"
    if os.environ.get("TESSERA_REQUIRE_TOOLS", "") not in ("", "0"):
        pytest.fail(reason)
    pytest.skip(reason)


def run(name: str, *arguments: str | Path, input: bytes | None = None) -> bytes:
    """Run a tool and return its standard output; fails with its message if it fails."""
    done = subprocess.run([need(name), *map(str, arguments)], input=input, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, f"{name} failed: {done.stderr.decode(errors='replace')}"
    return done.stdout


def lld(obj: bytes, folder: Path) -> bytes:
    """Link a relocatable AMDGPU object with ld.lld."""
    source, result = folder / "input.o", folder / "output.hsaco"
    source.write_bytes(obj)
    run("ld.lld", "-shared", "--no-undefined", "-o", result, source)
    return result.read_bytes()


def assemble(source: str, arch: str) -> bytes:
    """Assemble text for an AMDGPU arch to a relocatable object."""
    arguments = ("-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=obj", "-o", "-", "-")
    return run("llvm-mc", *arguments, input=source.encode())
