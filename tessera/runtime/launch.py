"""Launching: choose the executor and the device, check everything, run.

The choice, where the caller leaves it open: TESSERA_DEVICE; else hardware of the artifact's arch; else the simulator as that arch. An
explicit `executor` or `device` is never replaced by another.
"""

from __future__ import annotations

import hashlib
import operator
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .. import config
from ..errors import LaunchError
from .arguments import BoundArguments, bind
from .artifact import Artifact
from .device import Device, override_note
from .registry import Executor, Grid, LaunchRequest, LaunchResult, available_executor, find_executor, register_executor

SIMULATOR = "rocm_sim"
REFERENCE = "reference"

MAX_BLOCK_THREADS = 1024
MAX_GRID_YZ = 65_535
MAX_AXIS_THREADS = 2**32  # HIP: blocks x threads must stay below this on each axis


def launch(
    artifact: Artifact | Any,
    grid: int | Iterable[int],
    args: Sequence[object] | Mapping[str, object] = (),
    *,
    executor: str | None = None,
    device: Device | str | None = None,
    block: int | Iterable[int] | None = None,
    kernel: str | None = None,
    **options: Any,
) -> LaunchResult:
    """Run a compiled kernel over a grid of programs.

    `artifact` is an `Artifact`, a compiled kernel, or a foreign code object from `simulator.load`, which may need `kernel=` (a name) and
    `block=` (threads per workgroup) where it doesn't fix them. `grid` has up to three axes; one of 0 runs nothing, after the same checks.
    `args` are the run-time arguments, in order or by name. `options` go to the executor: `check`, `counters` and `threads` to the
    simulator, `stream` to HIP, `dynamic_lds` (bytes, for foreign kernels) to either.

    Raises LaunchError (arguments, grid, arch or device don't fit, or the launch failed), ExecutorUnavailableError, and what the simulator
    reports.
    """
    code = _code(artifact, kernel)
    threads = code.block(block)
    blocks = check_grid(grid, threads, code.kernel)
    arguments = code.bind(args, blocks, threads)
    name, chosen, target = _choose(code, executor, device)
    if unknown := sorted(set(options) - chosen.options):
        takes = ", ".join(sorted(chosen.options)) or "none"
        others = [n for n in (SIMULATOR, "rocm_wmma") if n != name and set(unknown) <= find_executor(n).options]
        hint = f"; executor={others[0]!r} does" if others else ""
        raise LaunchError(f"executor {name!r} takes no option {', '.join(unknown)}; it takes {takes}{hint}")
    request = LaunchRequest(code.kernel, code.arch, code.image, code.key, code.artifact, blocks, threads, arguments, target, options)
    if 0 in blocks:
        return LaunchResult(request, name, notes=("an axis of the grid is 0: nothing to run",))
    return chosen.run(request)


def current_device() -> Device:
    """The device that kernels are compiled for and run on where nothing else is said, with its arch.

    TESSERA_DEVICE; else the first GPU that works; else the simulator as TESSERA_ARCH. Raises ExecutorUnavailableError or LaunchError where
    TESSERA_DEVICE asks for a device that isn't there.
    """
    text = config.device()
    if text is None:
        hardware = find_executor("rocm_wmma")
        if hardware.unavailable() is None:
            return hardware.devices()[0]
        return Device("sim", arch=config.default_arch())
    device = Device.parse(text)
    if device.kind == "hip":
        executor = available_executor("rocm_wmma", f"TESSERA_DEVICE={text}")
        return _device_of(executor, device, f"TESSERA_DEVICE={text}")
    return Device(device.kind, arch=device.arch or config.default_arch())


# ---- grids -----------------------------------------------------------------------------------------------------------------------


def _axes(value: int | Iterable[int], what: str, kernel: str) -> Grid:
    try:
        axes = tuple(operator.index(cast(Any, v)) for v in (value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        hint = "; functions of the constexprs aren't: write kernel[ts.cdiv(n, N)]" if callable(value) else ""
        raise LaunchError(f"the {what} of kernel {kernel!r} must be an integer or up to three of them, not {value!r}{hint}") from None
    if not 1 <= len(axes) <= 3:
        raise LaunchError(f"the {what} of kernel {kernel!r} must have one to three axes; it is {axes}")
    x, y, z = axes + (1,) * (3 - len(axes))
    return x, y, z


def check_grid(grid: int | Iterable[int], block: Grid, kernel: str) -> Grid:
    """The grid as three axes. Raises LaunchError naming the axis and the limit; products are never formed, so none can wrap."""
    if block[0] * block[1] * block[2] > MAX_BLOCK_THREADS:
        raise LaunchError(
            f"kernel {kernel!r} has {block[0] * block[1] * block[2]} threads per workgroup {block}; {MAX_BLOCK_THREADS} is the limit"
        )
    axes = _axes(grid, "grid", kernel)
    for axis, blocks, threads in zip("xyz", axes, block, strict=True):
        if blocks < 0:
            raise LaunchError(f"grid axis {axis} of kernel {kernel!r} is {blocks}; it can't be negative")
        limit = (MAX_AXIS_THREADS - 1) // threads
        if axis != "x":
            limit = min(limit, MAX_GRID_YZ)
        if blocks > limit:
            why = f"blocks x {threads} threads must stay below 2**32" if axis == "x" else "the hardware's limit on y and z"
            raise LaunchError(f"grid axis {axis} of kernel {kernel!r} is {blocks}; at most {limit} fit ({why})")
    return axes


# ---- what is launched ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Code:
    """An artifact or a foreign kernel, seen one way. `foreign` is the simulator's record of a foreign kernel."""

    kernel: str
    arch: str
    image: bytes
    key: str
    artifact: Artifact | None
    foreign: Any = None

    def block(self, asked: int | Iterable[int] | None) -> Grid:
        if self.artifact is not None:
            fixed = (self.artifact.threads, 1, 1)
            if asked is not None and _axes(asked, "block", self.kernel) != fixed:
                raise LaunchError(f"artifact {self.kernel!r} was compiled for workgroups of {fixed} threads, not {asked}")
            return fixed
        from .foreign import workgroup

        return workgroup(self.foreign, None if asked is None else _axes(asked, "block", self.kernel))

    def bind(self, args: Sequence[object] | Mapping[str, object], grid: Grid, block: Grid) -> BoundArguments:
        if self.artifact is not None:
            return bind(self.artifact, args)
        from .foreign import bind_foreign

        return bind_foreign(self.foreign, args, grid, block)


def _code(artifact: object, kernel: str | None) -> _Code:
    if isinstance(artifact, Artifact):
        if kernel not in (None, artifact.kernel_name):
            raise LaunchError(f"the artifact holds kernel {artifact.kernel_name!r}, not {kernel!r}")
        return _Code(artifact.kernel_name, artifact.arch, artifact.code_object, artifact.content_hash, artifact)
    if isinstance(artifact, (str, bytes, os.PathLike)):
        raise LaunchError("launch takes an artifact: read a file with tessera.runtime.load, or simulator.load for a foreign code object")
    inner = getattr(artifact, "artifact", None)
    if isinstance(inner, Artifact):  # a compiled kernel
        return _code(inner, kernel)
    if isinstance(getattr(artifact, "__wrapped__", None), types.FunctionType):
        raise LaunchError("launch takes what was compiled, not a kernel: write kernel[grid](…), or launch(kernel.compile(…), grid, args)")
    from .foreign import find_kernel

    code_object, found = find_kernel(artifact, kernel)
    return _Code(found.name, code_object.arch, code_object.data, hashlib.sha256(code_object.data).hexdigest(), None, found)


# ---- where it runs ---------------------------------------------------------------------------------------------------------------


def _choose(code: _Code, executor: str | None, device: Device | str | None) -> tuple[str, Executor, Device]:
    """The executor and device of a launch, matching the code's arch."""
    if device is not None:
        if not isinstance(cast(object, device), (str, Device)):
            raise LaunchError(f"device is {device!r}; it is a name such as 'hip:0' or 'sim:gfx1151', or a Device")
        wanted, origin = (Device.parse(device) if isinstance(device, str) else device), f"device={str(device)!r}"
    elif (text := config.device()) is not None:
        wanted, origin = Device.parse(text), f"TESSERA_DEVICE={text}"
        if executor is not None and find_executor(executor).kind != wanted.kind:
            wanted = None  # the caller's explicit executor outranks the process's device
    else:
        wanted, origin = None, ""

    hardware = code.artifact.executor if code.artifact is not None else "rocm_wmma"
    if executor is None and wanted is not None:
        executor = {"hip": hardware, "sim": SIMULATOR, "reference": REFERENCE}[wanted.kind]
        chosen = available_executor(executor, origin)
    elif executor is None:
        matching = _hardware_device(hardware, code.arch)
        if matching is not None:
            return hardware, find_executor(hardware), matching
        executor, chosen = SIMULATOR, available_executor(SIMULATOR)
    else:
        chosen = available_executor(executor, f"executor={executor!r}")
        if chosen.kind == "hip" and code.artifact is not None and executor != hardware:
            raise LaunchError(f"artifact {code.kernel!r} ({code.arch}) is for executor {hardware!r}, not {executor!r}")
        if wanted is not None and wanted.kind != chosen.kind:
            raise LaunchError(f"executor {executor!r} runs on {chosen.kind} devices, not on {wanted} ({origin})")

    target = _device_of(chosen, wanted, origin) if wanted is not None else _default_device(executor, chosen, code)
    if not target.arch:
        target = Device(target.kind, target.index, code.arch, target.name)
    if target.arch != code.arch:
        asked = f" ({origin})" if origin else ""
        note = f"; {override_note()}" if target.kind == "hip" and override_note() else ""
        raise LaunchError(f"artifact {code.kernel!r} is compiled for {code.arch}, but device {target}{asked} is {target.arch}{note}")
    return executor, chosen, target


def _hardware_device(name: str, arch: str) -> Device | None:
    executor = find_executor(name)
    if executor.unavailable() is not None:
        return None
    return next((device for device in executor.devices() if device.arch == arch), None)


def _default_device(name: str, executor: Executor, code: _Code) -> Device:
    devices = executor.devices()
    for device in devices:
        if device.arch in ("", code.arch):
            return device
    present = ", ".join(f"{d} is {d.arch}" for d in devices)
    note = f"; {override_note()}" if override_note() else ""
    raise LaunchError(f"artifact {code.kernel!r} is compiled for {code.arch}; executor {name!r} has no such device ({present}){note}")


def _device_of(executor: Executor, wanted: Device, origin: str) -> Device:
    """The executor's own record of a device asked for. The simulator takes any arch."""
    if wanted.kind != "hip":
        return wanted
    devices = executor.devices()
    for device in devices:
        if device.index == wanted.index:
            return device
    raise LaunchError(f"there is no {wanted} ({origin}); there is {', '.join(f'{d} ({d.arch})' for d in devices)}")


# ---- the built-in executors ------------------------------------------------------------------------------------------------------


def _simulator() -> Executor:
    from .sim_executor import SimulatorExecutor

    return SimulatorExecutor()


def _reference() -> Executor:
    from .reference import ReferenceExecutor

    return ReferenceExecutor()


def _wmma() -> Executor:
    from .hip import HipExecutor

    return HipExecutor("rocm_wmma")


def _mfma() -> Executor:
    from .hip import HipExecutor

    return HipExecutor("rocm_mfma")


register_executor("rocm_wmma", _wmma)
register_executor("rocm_mfma", _mfma)
register_executor(SIMULATOR, _simulator)
register_executor(REFERENCE, _reference)
