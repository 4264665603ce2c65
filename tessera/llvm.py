"""The only module that imports llvmlite: parsing, optimising, object code for AMDGPU, and the host JIT.

llvmlite has no type stubs; what it returns is typed here once. LLVM reports some errors by ending the process ("Cannot select"), so
nothing may reach it that its AMDGPU backend can't take.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import config

AMDGPU_TRIPLE = "amdgcn-amd-amdhsa"

_lock = threading.RLock()  # LLVM's targets are initialised once; llvmlite's contexts are not shared between threads here


class LLVMError(Exception):
    """LLVM refused an IR text. `text` is the IR."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


@cache
def _binding() -> Any:
    import llvmlite.binding as binding

    with _lock:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    return binding


def parse(text: str) -> Any:
    """A verified llvmlite module in a context of its own. Raises LLVMError with LLVM's message."""
    llvm = _binding()
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise LLVMError(str(error), text) from error
    return module


def _optimize(module: Any, machine: Any, level: int) -> None:
    llvm = _binding()
    if level <= 0:
        return
    module.data_layout = str(machine.target_data)  # else passes take a buffer descriptor for a pointer of 64 bits
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level))
    builder.getModulePassManager().run(module, builder)


@dataclass(frozen=True)
class DeviceCode:
    """What LLVM made of a kernel module: a relocatable object, and the assembly text where it was asked for."""

    object: bytes
    assembly: str


def _device_machine(arch: str, features: str, codegen: int) -> Any:
    target = _binding().Target.from_triple(AMDGPU_TRIPLE)
    return target.create_target_machine(cpu=arch, features=features, opt=codegen, reloc="pic", codemodel="default")


def compile_device(text: str, arch: str, *, optimize: int = 0, codegen: int = 1, features: str = "+dumpcode") -> bytes:
    """Compile LLVM IR to an AMDGPU relocatable object. `optimize` is the IR level (0 runs no pass), `codegen` the backend's."""
    machine = _device_machine(arch, features, codegen)
    module = parse(text)
    _optimize(module, machine, optimize)
    return bytes(machine.emit_object(module))


def device_assembly(text: str, arch: str, *, optimize: int = 0, codegen: int = 1, verbose: bool = False) -> str:
    """The assembly of the same module, for reading; `verbose` with LLVM's comments, which say where registers spill."""
    machine = _device_machine(arch, "", codegen)
    machine.set_asm_verbosity(verbose)
    module = parse(text)
    _optimize(module, machine, optimize)
    return str(machine.emit_assembly(module))


# ---- the host ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Host:
    """The CPU that the simulator's code is made for. `features` is LLVM's list; `vector_bits` the widest useful register."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    has_f16c: bool
    has_fma: bool


@cache
def _host(held: str | None) -> Host:
    llvm = _binding()
    triple = str(llvm.get_process_triple())
    if held == "baseline":
        return Host(triple, "x86-64" if triple.startswith("x86_64") else "generic", "", 128, False, False)
    features: Any = llvm.get_host_cpu_features()
    on = {name for name, present in features.items() if present}
    is_arm = triple.startswith(("aarch64", "arm64"))
    wide = 512 if "avx512f" in on and "avx512vl" in on else 256 if "avx2" in on else 128
    return Host(triple, str(llvm.get_host_cpu_name()), str(features.flatten()), wide, is_arm or "f16c" in on, is_arm or "fma" in on)


def host() -> Host:
    """This machine's CPU, or its architecture's baseline where TESSERA_HOST_FEATURES=baseline."""
    return _host(config.host_features())


@dataclass
class HostCode:
    """Native code in this process. Keep it alive as long as an address from it is used."""

    engine: Any

    def address(self, name: str) -> int:
        return int(self.engine.get_function_address(name))


def _host_machine(codegen: int) -> Any:
    cpu = host()
    target = _binding().Target.from_triple(cpu.triple)
    return target.create_target_machine(cpu=cpu.cpu, features=cpu.features, opt=codegen, jit=True)


def compile_host(text: str, *, optimize: int = 0, codegen: int = 1) -> bytes:
    """Compile LLVM IR to an object for this host, to be kept and loaded with `load_host`."""
    machine = _host_machine(codegen)
    module = parse(text)
    _optimize(module, machine, optimize)
    return bytes(machine.emit_object(module))


@cache
def _host_context() -> Any:
    """The context of all execution engines' modules: it has to outlive them, in whatever order garbage is collected."""
    return _binding().create_context()


def load_host(code: bytes | list[bytes], symbols: dict[str, int] | None = None) -> HostCode:
    """Load an object of `compile_host`, or several that may call each other, into the process; `symbols` are the addresses of what
    they call besides."""
    llvm = _binding()
    for name, address in (symbols or {}).items():
        llvm.add_symbol(name, address)
    with _lock:
        module = llvm.parse_assembly(f'target triple = "{host().triple}"\n', _host_context())
        engine = llvm.create_mcjit_compiler(module, _host_machine(1))
        for each in [code] if isinstance(code, bytes) else code:
            engine.add_object_file(llvm.ObjectFileRef.from_data(each))
        engine.finalize_object()
    return HostCode(engine)


def version() -> str:
    """llvmlite's version and LLVM's: part of every cache key."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__} LLVM {'.'.join(map(str, _binding().llvm_version_info))}"
