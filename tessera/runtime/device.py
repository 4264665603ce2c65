"""Devices by name, and what the environment says about them.

A device is `hip:N` (the N-th AMD GPU), `sim:ARCH` (the simulator as that arch; `sim` alone: as the artifact's arch), or `reference`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .. import config
from ..errors import LaunchError, UnsupportedArchError

_DEVICE = re.compile(r"(?P<kind>hip|sim|reference)(?::(?P<detail>[^:].*))?")
_ARCH = re.compile(r"gfx[0-9]+[0-9a-f]*(?:-[0-9]+)*(?:-generic)?")
_FEATURE = re.compile(r"[a-z][a-z0-9]*[+-]")
_DEV = Path("/dev")


def parse_arch(text: str) -> tuple[str, tuple[str, ...]]:
    """Take an arch with its target features apart: "gfx942:sramecc+:xnack-" is ("gfx942", ("sramecc+", "xnack-")).

    The name is a name and never a number. Raises UnsupportedArchError for what isn't spelled like an AMD arch.
    """
    name, *features = text.strip().split(":")
    if not _ARCH.fullmatch(name) or not all(_FEATURE.fullmatch(feature) for feature in features):
        raise UnsupportedArchError(f"{text!r} is not an AMD GPU arch; arches are spelled like gfx1151, gfx90a or gfx942:sramecc+:xnack-")
    return name, tuple(features)


@dataclass(frozen=True, slots=True)
class Device:
    """Something that kernels run on. `arch` is "" where the name leaves it open; `name` is what the device calls itself."""

    kind: str  # "hip", "sim" or "reference"
    index: int = 0
    arch: str = ""
    name: str = ""

    @staticmethod
    def parse(text: str) -> Device:
        """The device of a name. Raises LaunchError that lists the spellings, UnsupportedArchError for an arch that can't be one."""
        match = _DEVICE.fullmatch(text.strip())
        kind, detail = (match["kind"], match["detail"] or "") if match else ("", "")
        if kind == "hip" and (not detail or detail.isdecimal()):
            return Device("hip", int(detail or 0))
        if kind == "sim":
            return Device("sim", arch=parse_arch(detail)[0] if detail else "")
        if kind == "reference" and not detail:
            return Device("reference")
        raise LaunchError(f"{text!r} is not a device; devices are hip:0 (an index), sim:gfx1151 (an arch), sim and reference")

    def __str__(self) -> str:
        if self.kind == "hip":
            return f"hip:{self.index}"
        return f"sim:{self.arch}" if self.kind == "sim" and self.arch else self.kind


def overridden_arch(version: str) -> str:
    """The arch that a value of HSA_OVERRIDE_GFX_VERSION stands for: "11.0.0" is gfx1100, "9.0.10" is gfx90a.

    Raises UnsupportedArchError for a value that isn't three numbers.
    """
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise UnsupportedArchError(f"HSA_OVERRIDE_GFX_VERSION={version} is not three numbers; 11.5.1 stands for gfx1151")
    major, minor, step = (int(part) for part in parts)
    return f"gfx{major}{minor:x}{step:x}"


def override_note() -> str:
    """A sentence about the HSA override in force, or ""."""
    version = config.hsa_override()
    if version is None:
        return ""
    try:
        return f"HSA_OVERRIDE_GFX_VERSION={version} makes ROCm take every GPU for {overridden_arch(version)}"
    except UnsupportedArchError as error:
        return error.message


def missing_gpu_hint() -> str:
    """What may keep a GPU from being seen on this machine, or "". A hint for errors: nothing is decided by it."""
    if (_DEV / "dxg").exists() and not (_DEV / "kfd").exists():
        if config.hsa_dxg_detection():
            advice = "HSA_ENABLE_DXG_DETECTION is set: check the Windows driver and ROCm for WSL"
        else:
            advice = "set HSA_ENABLE_DXG_DETECTION=1 for ROCm to look for the GPU there"
        return f"this is WSL (there is /dev/dxg and no /dev/kfd): {advice}"
    return ""
