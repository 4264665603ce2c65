"""From a Tile IR kernel to a code object: the ROCm target's front."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from ... import config, llvm
from ...errors import CompilerBug, ResourceError, TesseraError, warn
from ...ir.core import Kernel
from ...ir.text import print_kernel
from ...ir.types import Tile
from ...ir.verify import verify
from . import codeobject, resources
from .allocate import lds_bytes
from .arch import Arch, compilable
from .debuglines import line_table
from .lowering import lower_kernel
from .pipeline import ROCM_PASSES
from .spills import spill_lines


@dataclass(frozen=True)
class Options:
    """What a user may choose: IR optimisation level (0 runs no LLVM pass), code generation level, FMA contraction."""

    optimize: int = 0
    codegen: int = 1
    fp_contract: bool = False


@dataclass(frozen=True)
class Compilation:
    """Everything that compiling a kernel for one arch gave.

    `lines` is the line table: (offset in the kernel's code in bytes, file, line), ordered.
    """

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
    """Compile for `arch`; the kernel becomes its rocm-level form.

    Raises UnsupportedArchError, UnsupportedDtypeError and ResourceError, at the user's line where there is one; CompilerBug for faults of
    ours. Warns (TesseraWarning) where registers spill.
    """
    row = compilable(arch)
    threads = kernel.num_waves * row.wave_size
    if not 1 <= threads <= row.max_workgroup_threads:
        raise ResourceError(
            f"num_waves={kernel.num_waves} makes workgroups of {threads} threads; {row} takes 1 to {row.max_workgroup_threads}, "
            f"so num_waves may be 1 to {row.max_waves}"
        )
    run_passes(kernel, row)
    rocm_ir = print_kernel(kernel)
    try:
        text = lower_kernel(kernel, row, lds_bytes=lds_bytes(kernel), fp_contract=options.fp_contract)
        obj = llvm.compile_device(text, row.name, optimize=options.optimize, codegen=options.codegen)
    except TesseraError:
        raise
    except Exception as error:
        raise CompilerBug(f"lowering for {row} failed: {type(error).__name__}: {error}\nthe IR:\n{rocm_ir}") from error
    code = codeobject.link(obj)
    found = resources.resources(code, kernel.name, row)
    lines = tuple((entry.offset, entry.file, entry.line) for entry in line_table(obj))

    def assembly(verbose: bool = False) -> str:
        return llvm.device_assembly(text, row.name, optimize=options.optimize, codegen=options.codegen, verbose=verbose)

    if found.vgpr_spills or found.sgpr_spills:
        _warn_of_spills(kernel, found, assembly(verbose=True))
    matrix = Counter(getattr(op, "instruction", "") for op in kernel.body.walk() if op.name in ("rocm.wmma", "rocm.mfma"))
    verdict: dict[str, int | str | list[str]] = {**asdict(found), "matrix_instruction": ", ".join(sorted(matrix)), "upcasts": []}
    return Compilation(
        row.name, row.wave_size, row.matrix_core, row.executor, code, rocm_ir, text, assembly, verdict, found.lds_bytes, lines
    )  # fmt: skip


def run_passes(kernel: Kernel, arch: Arch) -> None:
    """Bring a kernel to its rocm-level form, LDS laid out. Raises as `compile_kernel` does."""
    checked = config.debug()
    for step in ROCM_PASSES:
        before = print_kernel(kernel) if checked else ""
        try:
            step(kernel, arch)
            if checked:
                verify(kernel)
        except TesseraError:
            raise
        except Exception as error:
            shown = (
                f"before it:\n{before}" if before else f"as it left it (TESSERA_DEBUG=1 shows it as it was before):\n{print_kernel(kernel)}"
            )
            raise CompilerBug(f"pass {step.__name__} failed: {type(error).__name__}: {error}\nthe IR {shown}") from error


def _warn_of_spills(kernel: Kernel, found: resources.Resources, assembly: str) -> None:
    lines = spill_lines(assembly)
    where = ", ".join(f"{file}:{line}" for file, line in lines[:5]) or _largest_tile(kernel)
    warn(
        f"kernel {kernel.name!r} spills {found.vgpr_spills} VGPRs and {found.sgpr_spills} SGPRs (of {found.vgprs} and {found.sgprs}), "
        f"{found.scratch_bytes} bytes of scratch per work-item, at {where}; smaller tiles or more waves "
        f"(@ts.jit(num_waves={2 * kernel.num_waves}) has twice as many) take fewer registers"
    )


def _largest_tile(kernel: Kernel) -> str:
    """Where LLVM names no line of the spill code: the line that makes the tile of most bytes."""
    made = [
        (value.tile.size * value.tile.dtype.bytes, op) for op in kernel.body.walk() for value in op.results if isinstance(value.type, Tile)
    ]
    _, op = max((pair for pair in made if pair[1].location is not None), key=lambda pair: pair[0], default=(0, None))
    return f"no line that LLVM names; the largest tile is made at {op.location}" if op is not None else "no line that LLVM names"
