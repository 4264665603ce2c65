"""What every test shares: a clean environment, and the rule for tests that need a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A user's settings must not decide what tests see. The disk cache is the repository's own.
for name in ("TESSERA_DEVICE", "TESSERA_ARCH", "TESSERA_DUMP", "TESSERA_DEBUG", "TESSERA_SIM_CHECK", "TESSERA_SIM_MAX_INSTRUCTIONS"):
    os.environ.pop(name, None)
os.environ.pop("HSA_OVERRIDE_GFX_VERSION", None)
os.environ.setdefault("TESSERA_CACHE_DIR", str(ROOT / ".cache" / "tessera"))


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
