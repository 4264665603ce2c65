"""The simulator as an executor: the code object's machine code runs on the CPU, on the host's arrays in place."""

from __future__ import annotations

import ast
import linecache
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock

from .. import config
from ..errors import LaunchError, Location
from .arguments import Buffer
from .device import Device
from .registry import LaunchRequest, LaunchResult
from .simulator import engine
from .simulator.loader import load_code_object
from .views import HOST

_KEPT = 256  # prepared programs


class SimulatorExecutor:
    """Runs any arch's code objects that the simulator knows.

    Options: `check` (the checking mode; TESSERA_SIM_CHECK is its default), `counters` (LDS bank conflicts too), `threads` (default: one a
    core), `dynamic_lds` (bytes that a foreign kernel takes beyond its own).
    """

    kind = "sim"
    options = frozenset({"check", "counters", "dynamic_lds", "threads"})

    def __init__(self) -> None:
        self._programs: OrderedDict[tuple[str, str, bool], engine.Program] = OrderedDict()
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
        threads = request.options.get("threads")
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise LaunchError(f"threads={threads!r}: the simulator takes 1 thread or more, or None for one a core")
        check = bool(request.options.get("check", config.simulator_check()))
        program = self._program(request, check)
        report = program.run(
            request.grid,
            request.block,
            request.arguments.kernarg,
            _buffers(request.arguments.buffers),
            counters=bool(request.options.get("counters", False)),
            check=check,
            threads=threads,
            dynamic_lds=int(request.options.get("dynamic_lds", 0)),
        )
        return LaunchResult(request, "rocm_sim", seconds=report.seconds, counters=report.counters, fidelity=report.fidelity)

    def _program(self, request: LaunchRequest, check: bool) -> engine.Program:
        key = (request.key, request.kernel, check)
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
                return program
        lines = _lines(request.code_object, request.artifact.line_table) if request.artifact is not None else None
        program = engine.prepare(request.code_object, request.kernel, check=check, lines=lines)
        with self._lock:
            self._programs[key] = program
            while len(self._programs) > _KEPT:
                self._programs.popitem(last=False)
        return program


def _lines(code_object: bytes, table: Sequence[tuple[int, str, int]]) -> Callable[[int], Location | None]:
    """Looks up the source line of a pc: that of the last row at or before it. Rows of line 0 are code of no line."""
    starts = [offset for offset, _, _ in table]

    def find(pc: int) -> Location | None:
        row = bisect_right(starts, pc - load_code_object(code_object).text_address) - 1
        return _statement(table[row][1], table[row][2]) if row >= 0 and table[row][2] else None

    return find


@cache
def _statement(file: str, line: int) -> Location:
    """The place of the statement on a line, with its function's name, as far as the source can be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # the file has changed
        return Location(file, line)
    around = [n for n in ast.walk(tree) if isinstance(n, (ast.stmt, ast.Lambda)) and n.lineno <= line <= (n.end_lineno or n.lineno)]
    function = next((n.name for n in reversed(around) if isinstance(n, ast.FunctionDef)), "")
    inner = around[-1] if around else None  # breadth first: the last is the innermost
    if inner is None or not inner.lineno == line == inner.end_lineno:
        return Location(file, line, function=function)
    return Location(file, line, inner.col_offset, line, inner.end_col_offset or 0, function)


def _buffers(buffers: Sequence[Buffer]) -> list[engine.Buffer]:
    """The simulator's buffers. Where arguments overlap, memory is writable if any argument over it is: a buffer is found by address."""
    written = [(b.address, b.address + b.size) for b in buffers if b.writable and b.size]

    def writable(b: Buffer) -> bool:
        return b.writable or any(b.address < end and start < b.address + b.size for start, end in written)

    return [engine.Buffer(b.name, b.address, b.size, writable(b)) for b in buffers]
