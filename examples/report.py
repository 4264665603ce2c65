"""What the examples print: where a kernel ran, what it is made of, and its stages."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import tessera as ts

UNIT_ROUNDOFF = 2.0**-24  # of float32


def options(description: str) -> argparse.Namespace:
    """The command line that the examples share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--arch", help="compile for this arch and run as it (default: the present device's, gfx1151 without a GPU)")
    parser.add_argument("--show", action="store_true", help="print the stages: Tile IR, ROCm-level IR, LLVM IR, assembly")
    parser.add_argument("--save", metavar="NAME", help="write NAME.tsa (the artifact) and NAME.hsaco (the code object alone)")
    chosen = parser.parse_args()
    chosen.arch = chosen.arch or ts.runtime.current_device().arch
    return chosen


def gamma(n: int) -> float:
    """The bound on the relative error of a float32 sum of n products, in any order (Higham, Accuracy and Stability, section 3.1)."""
    return n * UNIT_ROUNDOFF / (1 - n * UNIT_ROUNDOFF)


def hot_loop(assembly: str) -> list[str]:
    """The instructions of the innermost loop with the most matrix instructions, or of the longest; none where there is no loop.

    Rarely run code stands behind a loop and branches back into its middle; that is no loop of its own.
    """
    lines = [line.split(";")[0].strip() for line in assembly.splitlines()]
    labels = {match[1]: at for at, line in enumerate(lines) if (match := re.fullmatch(r"([.$\w]+):", line))}
    spans: list[tuple[int, int]] = []
    for at, line in enumerate(lines):
        match = re.match(r"s_c?branch\w*\s+([.$\w]+)", line)
        start = labels.get(match[1], at) if match else at
        if start < at and not any(first < start <= last for first, last in spans):
            spans.append((start, at))
    bodies = [[entry for entry in lines[a : b + 1] if entry and entry[0] not in ".;" and not entry.endswith(":")] for a, b in spans]
    return max(bodies, key=lambda body: (n := matrix_count(body), -len(body) if n else len(body)), default=[])


def matrix_count(instructions: list[str]) -> int:
    """How many of the instructions are matrix instructions."""
    return sum(line.startswith(("v_wmma", "v_mfma", "v_swmmac")) for line in instructions)


def describe(kernel: Any, result: Any) -> None:
    """Print where a kernel ran and what it uses."""
    r = kernel.resources
    print(f"  device {result.device}, executor {result.executor}, arch {result.arch}")
    loop = hot_loop(kernel.assembly)
    if r["matrix_instruction"]:
        print(f"  {r['matrix_instruction']}: {matrix_count(loop)} in a loop of {len(loop)} instructions")
    print(
        f"  {r['vgprs']} VGPRs, {r['sgprs']} SGPRs, {r['lds_bytes']} bytes of LDS, {r['vgpr_spills'] + r['sgpr_spills']} spills, "
        f"{r['waves_per_simd']} waves per SIMD"
    )


def show(kernel: Any) -> None:
    """Print every stage of a kernel."""
    for title in ("tile_ir", "rocm_ir", "llvm_ir", "assembly"):
        print(f"---- {title} " + "-" * (100 - len(title)))
        print(getattr(kernel, title).rstrip())


def save(kernel: Any, name: str) -> None:
    """Write the artifact and its code object, for `runtime.load` and for examples/launch_hip.cpp."""
    artifact = kernel.artifact
    artifact.save(f"{name}.tsa")
    Path(f"{name}.hsaco").write_bytes(artifact.code_object)
    print(f"wrote {name}.tsa and {name}.hsaco: kernel {artifact.kernel_name}, {artifact.threads} threads a workgroup")
