"""From rocm-level IR to LLVM IR: a function per op class, and the kernel function around them.

The function has the launch ABI of docs/architecture.md: per array a pointer, its extents and its strides, per scalar a value, no hidden
arguments. Arguments that nothing reads are not loaded.
"""

from __future__ import annotations

from ....errors import CompilerBug
from ....ir.core import Kernel
from ....ir.ops.memory import NumPrograms, ProgramId
from ....ir.types import ArrayType
from ....llvm import AMDGPU_TRIPLE
from ....llvmtext import Function, Module, Value, const
from ..arch import Arch
from . import control as control
from . import convert as convert
from . import convert_dtype as convert_dtype
from . import elementwise as elementwise
from . import lds_access as lds_access
from . import maths as maths
from . import matrix as matrix
from . import memory as memory
from . import reduce as reduce
from . import shape as shape
from .context import Array, Context, lower_block
from .debug import DebugInfo

_UNUSED = (
    "queue-ptr", "dispatch-id", "implicitarg-ptr", "workitem-id-y", "workitem-id-z", "lds-kernel-id", "default-queue", "completion-action",
    "hostcall-ptr", "heap-ptr", "multigrid-sync-arg", "flat-scratch-init", "cluster-id-x", "cluster-id-y", "cluster-id-z",
)  # fmt: skip
"""Inputs that the hardware or the runtime would set up for the kernel, unless told that it doesn't want them."""


def lower_kernel(kernel: Kernel, arch: Arch, *, lds_bytes: int = 0, fp_contract: bool = False) -> str:
    """The LLVM IR module of a kernel whose tile values all have layouts. Raises CompilerBug where an op has no lowering."""
    module = Module(AMDGPU_TRIPLE)
    flags = ('i32 1, !"amdhsa_code_object_version", i32 500', 'i32 7, !"Dwarf Version", i32 5')
    module.named_metadata["llvm.module.flags"] = [module.metadata(f"!{{{flag}}}") for flag in flags]
    if lds_bytes:
        module.globals.append(f"@tessera.lds = internal addrspace(3) global [{lds_bytes} x i8] poison, align 16")
    threads = kernel.num_waves * arch.wave_size
    grid_axes = {op.axis for op in kernel.body.walk() if isinstance(op, ProgramId)}
    unused = [*_UNUSED, *(f"workgroup-id-{'xyz'[axis]}" for axis in range(3) if axis not in grid_axes)]
    if not any(isinstance(op, NumPrograms) for op in kernel.body.walk()):
        unused.append("dispatch-ptr")
    attributes = [
        f'"amdgpu-flat-work-group-size"="{threads},{threads}"',
        '"uniform-work-group-size"="true"',
        *(f'"amdgpu-no-{u}"' for u in unused),
    ]
    if arch.agprs:
        attributes.append('"amdgpu-agpr-alloc"="0"')
    module.globals.append(f"attributes #0 = {{ nounwind {' '.join(attributes)} }}")
    debug = DebugInfo(module, kernel)
    suffix = "#0" if debug.subprogram is None else f"#0 !dbg !{debug.subprogram}"
    function = Function(module, _symbol(kernel.name), "void", _parameters(kernel), prefix="amdgpu_kernel", suffix=suffix)
    cx = Context(kernel, arch, kernel.num_waves, module, function, fp_contract=fp_contract, locate=debug.locate)
    function.position("entry")
    function.debug = debug.locate(None)
    _bind_parameters(cx)
    with cx.scope("entry"):
        function.position("body")
        if lower_block(cx, kernel.body).operands:
            raise CompilerBug("a kernel's body yields values")
        function.ret()
    function.position("entry")
    function.branch("body")
    return str(module)


def _symbol(name: str) -> str:
    """A Python name as LLVM spells it."""
    if name.isascii() and name.replace("_", "a").isalnum():
        return name
    return (
        '"'
        + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in name)
        + '"'
    )


def _parameters(kernel: Kernel) -> list[tuple[str, str]]:
    """(type with attributes, name) of each of the function's parameters."""
    found: list[tuple[str, str]] = []
    for index, param in enumerate(kernel.params):
        if isinstance(param.type, ArrayType):
            found.append((f"ptr addrspace(1){' noalias' if param.type.disjoint else ''}", f"p{index}"))
            found += [("i64", f"p{index}.{word}{axis}") for word in ("extent", "stride") for axis in range(param.type.ndim)]
        else:
            found.append((param.tile.dtype.llvm_memory, f"p{index}"))
    return found


def _bind_parameters(cx: Context) -> None:
    arguments = iter(cx.f.arguments)
    for param in cx.kernel.params:
        if isinstance(param.type, ArrayType):
            base = next(arguments)
            extents, strides = ([next(arguments) for _ in range(param.type.ndim)] for _ in range(2))
            one = const("i64", param.type.dtype.bytes)
            steps = (one if axis == param.type.axis else stride for axis, stride in enumerate(strides))
            cx.arrays[param] = Array(param.type, base, tuple(extents), tuple(strides), tuple(steps))
            continue
        value: Value = next(arguments)
        if param.tile.dtype.llvm != value.type:  # a bool is a byte in memory
            value = cx.f.icmp("ne", value, 0)
        cx.values[param] = value
