"""What every test shares: a clean environment, tools of LLVM, and the rule for tests that need a GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LLVM_FOLDERS = ("/usr/lib/llvm-22/bin", "/opt/homebrew/opt/llvm@22/bin", "/opt/homebrew/opt/llvm/bin")

# A user's settings must not decide what tests see. The disk cache is the repository's own.
for name in ("TESSERA_DEVICE", "TESSERA_ARCH", "TESSERA_DUMP", "TESSERA_DEBUG", "TESSERA_SIM_CHECK", "TESSERA_SIM_MAX_INSTRUCTIONS"):
    os.environ.pop(name, None)
os.environ.pop("HSA_OVERRIDE_GFX_VERSION", None)
os.environ.setdefault("TESSERA_CACHE_DIR", str(ROOT / ".cache" / "tessera"))


def missing(reason: str) -> None:
    """Skip for want of a tool; fail instead where TESSERA_REQUIRE_TOOLS says that all must be there."""
    if os.environ.get("TESSERA_REQUIRE_TOOLS", "") not in ("", "0"):
        pytest.fail(f"{reason} (TESSERA_REQUIRE_TOOLS is set)")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def llvm_tool() -> Callable[[str], str]:
    """Finds a tool of LLVM 22 by its plain name ("llvm-objdump", "ld.lld"); skips with the reason where it isn't installed."""

    def find(tool: str) -> str:
        candidates = [shutil.which(f"{tool}-22"), *(shutil.which(tool, path=folder) for folder in LLVM_FOLDERS)]
        for path in candidates:
            if path:
                return path
        missing(f"{tool} of LLVM 22 isn't installed (Debian: llvm-22, lld-22, clang-22)")
        raise AssertionError("unreachable")

    return find


@pytest.fixture(scope="session")
def c_compiler() -> str:
    """The system's C compiler; skips with the reason where there is none."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang", "clang-22"):
        if name and (path := shutil.which(name)):
            return path
    missing("there is no C compiler (cc, gcc or clang)")
    raise AssertionError("unreachable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-hip", action="store_true", help="tests that need an AMD GPU fail without one, where they would skip")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanting = [item for item in items if item.get_closest_marker("hip")]
    if not wanting or config.getoption("--require-hip"):
        return
    from tessera.runtime.hip_api import find_devices

    devices, reason = find_devices()
    if not devices:
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=f"no AMD GPU: {reason}"))
