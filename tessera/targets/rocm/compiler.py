"""From a Tile IR kernel to a code object: the ROCm target's front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.core import Kernel


@dataclass(frozen=True)
class Options:
    """What a user may choose: IR optimisation level (0 runs no LLVM pass), code generation level, FMA contraction."""

    optimize: int = 0
    codegen: int = 1
    fp_contract: bool = False


@dataclass(frozen=True)
class Compilation:
    """Everything that compiling a kernel for one arch gave."""

    arch: str
    wave_size: int
    matrix_core: str | None
    executor: str
    code_object: bytes
    rocm_ir: str
    llvm_ir: str
    assembly: Callable[[], str]
    resources: dict[str, int | str | list[str]]
    lds_bytes: int
    lines: tuple[tuple[int, str, int], ...]


def compile_kernel(kernel: Kernel, arch: str, options: Options) -> Compilation:
    """Compile for `arch`. Raises UnsupportedArchError, UnsupportedDtypeError, ResourceError at the user's line; CompilerBug for ours."""
    raise NotImplementedError
