"""Every environment variable that Tessera reads, and its default. Read at each use, so that tests and notebooks can change them."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ConfigError


def _flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


def _integer(name: str, default: int, lowest: int) -> int:
    """An integer of at least `lowest`; unset and empty mean the default. Raises ConfigError for anything else."""
    text = os.environ.get(name)
    if not text or not text.strip():
        return default
    try:
        value = int(text)
    except ValueError:
        value = lowest - 1
    if value < lowest:
        raise ConfigError(f"{name}={text!r}: it takes an integer of {lowest} or more; unset, it is {default:,}")
    return value


def default_arch() -> str:
    """TESSERA_ARCH: what is compiled for where neither a device nor an argument says (gfx1151)."""
    return os.environ.get("TESSERA_ARCH") or "gfx1151"


def arch_origin() -> str:
    """The variable that says which arch is compiled for where no argument does, with its value; "" where it is the default."""
    for name in ("TESSERA_DEVICE", "TESSERA_ARCH"):
        text = os.environ.get(name)
        if text and (name == "TESSERA_ARCH" or ":gfx" in text):
            return f"{name}={text}"
    return ""


def device() -> str | None:
    """TESSERA_DEVICE: "hip:0", "sim:gfx1151", …: the device of the whole process."""
    return os.environ.get("TESSERA_DEVICE") or None


def dump_folder() -> Path | None:
    """TESSERA_DUMP: where each kernel's stages are written."""
    value = os.environ.get("TESSERA_DUMP")
    return Path(value) if value else None


def debug() -> bool:
    """TESSERA_DEBUG: verify the IR after every pass."""
    return _flag("TESSERA_DEBUG")


def cache_folder() -> Path | None:
    """TESSERA_CACHE_DIR: where compiled host code is kept; "" turns the disk cache off."""
    value = os.environ.get("TESSERA_CACHE_DIR")
    if value is not None:
        return Path(value) if value else None
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or str(Path.home() / ".cache")
    return Path(base) / "tessera"


def simulator_check() -> bool:
    """TESSERA_SIM_CHECK: run the simulator in checking mode."""
    return _flag("TESSERA_SIM_CHECK")


def simulator_threads() -> int:
    """TESSERA_SIM_THREADS: threads of the simulator; 0 is one a core. Raises ConfigError for what is no count."""
    return _integer("TESSERA_SIM_THREADS", 0, 0)


def simulator_max_instructions() -> int:
    """TESSERA_SIM_MAX_INSTRUCTIONS: wave instructions per workgroup after which a launch counts as run away.

    The default, 10**9, takes the simulator about a second of one simple loop. One workgroup that did all of a product of 4096 x 4096
    matrices would take a tenth of it. Raises ConfigError for what is no count.
    """
    return _integer("TESSERA_SIM_MAX_INSTRUCTIONS", 10**9, 1)


def host_features() -> str | None:
    """TESSERA_HOST_FEATURES: "baseline" holds the simulator's host code to plain x86-64 (or the arch's baseline)."""
    return os.environ.get("TESSERA_HOST_FEATURES") or None


def objdump() -> str | None:
    """TESSERA_OBJDUMP: the llvm-objdump that disassembles code objects of other compilers."""
    return os.environ.get("TESSERA_OBJDUMP") or None


def rocm_folder() -> str:
    """ROCM_PATH: where ROCm is installed (/opt/rocm)."""
    return os.environ.get("ROCM_PATH") or "/opt/rocm"


def hsa_override() -> str | None:
    """HSA_OVERRIDE_GFX_VERSION ("11.0.0"): ROCm takes the device for another arch."""
    return os.environ.get("HSA_OVERRIDE_GFX_VERSION") or None


def hsa_dxg_detection() -> bool:
    """HSA_ENABLE_DXG_DETECTION: ROCm looks for the GPU of the Windows host under WSL."""
    return _flag("HSA_ENABLE_DXG_DETECTION")
