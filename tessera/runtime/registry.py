"""Executors: what can run a code object, and whether it can here.

An executor is registered under a name with a factory that is called at first use. It says whether it is available and, if not, why; a
launch on one that isn't there is an error that repeats the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import ExecutorUnavailableError
from .arguments import BoundArguments
from .artifact import Artifact
from .device import Device

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchRequest:
    """A launch after every check. `grid` counts workgroups, `block` threads; no axis is 0. `key` identifies the code by its content.

    `artifact` is None for a foreign code object. `options` hold what the executor declares in `Executor.options`.
    """

    kernel: str
    arch: str
    code_object: bytes = field(repr=False)
    key: str
    artifact: Artifact | None
    grid: Grid
    block: Grid
    arguments: BoundArguments
    device: Device
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return f"kernel {self.kernel!r} ({self.arch}, grid {self.grid}, block {self.block})"


class LaunchResult:
    """What a launch did: which executor on which device, and what it measured.

    Host arrays are complete when a launch returns. A launch on device arrays is in stream order: `wait()` or `seconds` waits for it.
    `counters` and `fidelity` are the simulator's; None elsewhere.
    """

    def __init__(
        self,
        request: LaunchRequest,
        executor: str,
        *,
        seconds: float = 0.0,
        timer: Callable[[], float] | None = None,
        counters: Any = None,
        fidelity: Any = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.executor = executor
        self.device = request.device
        self.kernel = request.kernel
        self.arch = request.arch
        self.grid = request.grid
        self.counters = counters
        self.fidelity = fidelity
        self.notes = tuple(notes)
        self._seconds = seconds
        self._timer = timer

    @property
    def seconds(self) -> float:
        """Time of the kernel itself: device time on hardware, wall-clock time elsewhere. Waits for it."""
        self.wait()
        return self._seconds

    def wait(self) -> LaunchResult:
        """Return once the kernel has finished. Raises LaunchError where it failed on the way."""
        timer, self._timer = self._timer, None
        if timer is not None:
            self._seconds = timer()
        return self

    def __repr__(self) -> str:
        state = "in flight" if self._timer is not None else f"{self._seconds * 1e3:.3f} ms"
        return f"LaunchResult({self.kernel} on {self.executor}, {self.device}, {self.arch}, grid {self.grid}, {state})"


class Executor(Protocol):
    """What an executor provides. `kind` is the kind of device that it runs on; `options` are the keywords that it takes."""

    kind: str
    options: frozenset[str]

    def unavailable(self) -> str | None:
        """Why it can't run anything here, or None where it can."""
        ...

    def devices(self) -> Sequence[Device]:
        """The devices that it can run on. Those of the simulator have no arch: it is any arch."""
        ...

    def run(self, request: LaunchRequest) -> LaunchResult:
        """Run a launch. Raises a TesseraError where it fails."""
        ...


_factories: dict[str, Callable[[], Executor]] = {}
_instances: dict[str, Executor] = {}


def register_executor(name: str, factory: Callable[[], Executor], *, replace: bool = False) -> None:
    """Make an executor known by name. `factory` is called at its first use. Raises ValueError for a name taken, unless `replace`."""
    if name in _factories and not replace:
        raise ValueError(f"an executor {name!r} is registered already; pass replace=True to put another in its place")
    _factories[name] = factory
    _instances.pop(name, None)


def executors() -> dict[str, str | None]:
    """Every registered executor, with the reason why it is unavailable here, or None."""
    return {name: find_executor(name).unavailable() for name in _factories}


def find_executor(name: str) -> Executor:
    """The executor of a name, available or not. Raises ExecutorUnavailableError, listing the names, where there is none."""
    if name not in _factories:
        raise ExecutorUnavailableError(f"no executor {name!r} is registered; there are {', '.join(sorted(_factories)) or 'none'}")
    if name not in _instances:
        _instances[name] = _factories[name]()
    return _instances[name]


def available_executor(name: str, asked_by: str = "") -> Executor:
    """The executor of a name. Raises ExecutorUnavailableError with the reason where it can't run here."""
    executor = find_executor(name)
    reason = executor.unavailable()
    if reason is not None:
        by = f" (asked for by {asked_by})" if asked_by else ""
        raise ExecutorUnavailableError(f"executor {name!r}{by} is not available here: {reason}")
    return executor
