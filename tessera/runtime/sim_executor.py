"""The simulator as an executor: the code object's machine code runs on the CPU, on the host's arrays in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from .. import config
from ..errors import LaunchError
from .arguments import Buffer
from .device import Device
from .registry import LaunchRequest, LaunchResult
from .views import HOST

_KEPT = 256  # prepared programs


class SimulatorExecutor:
    """Runs any arch's code objects that the simulator knows.

    Options: `check` (the checking mode; TESSERA_SIM_CHECK is its default), `counters`, `threads` (0: one a core).
    """

    kind = "sim"
    options = frozenset({"check", "counters", "threads"})

    def __init__(self) -> None:
        self._programs: OrderedDict[tuple[str, str, bool], Any] = OrderedDict()
        self._lock = Lock()

    def unavailable(self) -> str | None:
        return None

    def devices(self) -> Sequence[Device]:
        return (Device("sim"),)

    def run(self, request: LaunchRequest) -> LaunchResult:
        """Run a launch. Raises SimulatorError and its kin for what the machine code does wrong, LaunchError for device arrays."""
        for parameter, array in request.arguments.arrays():
            if array.device != HOST:
                raise LaunchError(f"argument {parameter.name!r} lies on {array.device}; the simulator takes host arrays")
        check = bool(request.options.get("check", config.simulator_check()))
        program = self._program(request, check)
        report = program.run(
            request.grid,
            request.block,
            request.arguments.kernarg,
            _writable_as_a_whole(request.arguments.buffers),
            counters=bool(request.options.get("counters", False)),
            check=check,
            threads=request.options.get("threads"),
        )
        return LaunchResult(request, "rocm_sim", seconds=report.seconds, counters=report.counters, fidelity=report.fidelity)

    def _program(self, request: LaunchRequest, check: bool) -> Any:
        from .simulator import engine

        key = (request.key, request.kernel, check)
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
                return program
        lines = request.artifact.line_table if request.artifact is not None else None
        program = engine.prepare(request.code_object, request.kernel, check=check, lines=lines)
        with self._lock:
            self._programs[key] = program
            while len(self._programs) > _KEPT:
                self._programs.popitem(last=False)
        return program


def _writable_as_a_whole(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Where arguments may overlap, memory is writable if any argument over it is: the simulator finds a buffer by address."""
    written = [b for b in buffers if b.writable and b.size]
    return [
        b
        if b.writable or not any(b.address < w.address + w.size and w.address < b.address + b.size for w in written)
        else b._replace(writable=True)
        for b in buffers
    ]
