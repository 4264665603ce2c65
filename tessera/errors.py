"""Every exception that Tessera raises, and the source locations they show.

A location is a place in the user's Python file. An error that carries one prints the line and carets under the
expression, and the chain of calls by which a helper was reached.
"""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Location:
    """A range in a source file: lines count from 1, columns from 0 (UTF-8 bytes, as in Python's `ast`); `end_column` is exclusive."""

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    function: str = ""
    caller: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def excerpt(self) -> str:
        """The source line with carets under the range, or "" where the file can't be read."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text.strip():
            return ""
        raw = text.encode()
        start = len(raw[: self.column].decode(errors="replace"))
        same_line = self.end_line in (0, self.line)
        stop = len(raw[: self.end_column].decode(errors="replace")) if same_line and self.end_column > self.column else len(text)
        if not self.column and not self.end_column:  # only the line is known
            start = len(text) - len(text.lstrip())
        number = str(self.line)
        pad = " " * len(number)
        return f" {number} | {text}\n {pad} | {' ' * start}{'^' * max(1, stop - start)}"


class TesseraError(Exception):
    """The base of all of Tessera's errors. `location` is the user's line, where there is one."""

    def __init__(self, message: str, location: Location | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.location = location if location is not None else current_location()

    def __str__(self) -> str:
        if self.location is None:
            return self.message
        where = f"  File {self.location.file!r}, line {self.location.line}"
        if self.location.function:
            where += f", in {self.location.function}"
        parts = [self.message, where]
        if excerpt := self.location.excerpt():
            parts.append(excerpt)
        caller = self.location.caller
        while caller is not None:
            parts.append(f"  called from {caller.file!r}, line {caller.line}" + (f", in {caller.function}" if caller.function else ""))
            caller = caller.caller
        return "\n".join(parts)


class KernelError(TesseraError):
    """The kernel is wrong. Raised as one of the subclasses below where Python users expect a built-in error."""


class KernelTypeError(KernelError, TypeError):
    """Wrong types, shapes or dtypes in a kernel."""


class KernelValueError(KernelError, ValueError):
    """A value that an operation can't take."""


class KernelSyntaxError(KernelError, SyntaxError):
    """Python that a kernel can't use."""

    # SyntaxError's own __str__ looks at fields that we don't fill.
    __str__ = TesseraError.__str__


class KernelNameError(KernelError, NameError):
    """A name that is not defined where a kernel uses it."""


class UnsupportedDtypeError(TesseraError, TypeError):
    """An arch can't do what was asked with this dtype."""


class UnsupportedArchError(TesseraError, ValueError):
    """No such arch, or none that this version compiles for."""


class ResourceError(TesseraError):
    """More LDS, registers, threads or tile elements than there are."""


class LaunchError(TesseraError):
    """The arguments, the grid or the device don't fit the kernel, or the launch failed."""


class ConfigError(TesseraError, ValueError):
    """An environment variable that Tessera reads has a value that can't be used."""


class ExecutorUnavailableError(TesseraError):
    """The executor asked for isn't registered, or can't run here."""


class ArtifactError(TesseraError):
    """A file is not an artifact, is damaged, or has another schema version."""


class SimulatorError(TesseraError):
    """The simulator stopped. `mnemonic` and `pc` name the instruction, where one is to blame."""

    def __init__(self, message: str, location: Location | None = None, *, mnemonic: str = "", pc: int | None = None) -> None:
        super().__init__(message, location)
        self.mnemonic = mnemonic
        self.pc = pc


class MemoryFaultError(SimulatorError):
    """A kernel touched memory outside every buffer of the launch."""


class DataRaceError(SimulatorError):
    """Two waves or workgroups touched the same byte without being ordered; one of them wrote."""


class MissingWaitError(SimulatorError):
    """A register was used before the wait that covers the load into it."""


class UninitializedDataError(SimulatorError):
    """Data that nothing has written decided an address, a branch or a store."""


class DeadlockError(SimulatorError):
    """Some waves wait at a barrier that the others never reach."""


class UnsupportedInstructionError(SimulatorError):
    """The simulator doesn't know an instruction."""


class TesseraWarning(UserWarning):
    """Something that works but not as well as it could, such as registers that spill."""


def warn(message: str, location: Location | None = None) -> None:
    """Issue a TesseraWarning at a location, or else at the line outside of Tessera that led here."""
    if location is not None:
        warnings.warn_explicit(message, TesseraWarning, location.file, location.line)
        return
    level, frame = 2, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, TesseraWarning, stacklevel=level)


class CompilerBug(TesseraError):
    """Tessera broke its own rules: the pass and the IR before it are in the message."""


_current: ContextVar[Location | None] = ContextVar("location", default=None)


def current_location() -> Location | None:
    """The location of the `at` block that is being executed, if any."""
    return _current.get()


@contextmanager
def at(location: Location | None) -> Generator[None]:
    """Errors raised inside carry `location`; None keeps the one that holds."""
    token = _current.set(location if location is not None else _current.get())
    try:
        yield
    finally:
        _current.reset(token)


def place(location: Location) -> None:
    """Move the running `at` block on to `location`: what a tracer, which visits many expressions within one block, does at each."""
    _current.set(location)
