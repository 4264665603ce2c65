"""A function in the course of being staged: its variables, its place in the source, and the tables of what evaluates its syntax."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from .. import errors
from ..errors import KernelError, KernelNameError, KernelSyntaxError, Location
from . import hints
from .captures import MISSING
from .source import Source
from .tracer import Tracer
from .values import TileValue


@dataclass(slots=True)
class Unbound:
    """Stands in a variable that has no one value here. Reading it raises KernelNameError with the reason."""

    reason: str


@dataclass(slots=True)
class Carried:
    """A variable at the head of a loop. `read` tells whether the loop looks at what the trip before left."""

    value: Any
    read: bool = False


@dataclass(frozen=True, slots=True)
class Return:
    """A function ends with this value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue` of an unrolled loop."""

    word: str


Signal: TypeAlias = "Return | Jump | None"
After: TypeAlias = "tuple[Sequence[ast.stmt], ...]"
"""What follows a statement: the rest of its block, then the rest of the block around it, and so on to the function's end."""


@dataclass(frozen=True, slots=True)
class Region:
    """A loop or a branch that is being staged (`staged`), or a loop that is being unrolled."""

    node: ast.AST
    loop: bool
    staged: bool


class Frame:
    """One activation of a function. `where` has the place of each variable's last assignment."""

    __slots__ = ("caller", "cells", "globals", "locations", "parent", "regions", "source", "tracer", "vars", "where")

    def __init__(
        self,
        source: Source,
        tracer: Tracer,
        variables: dict[str, Any],
        globals_: dict[str, Any],
        *,
        cells: dict[str, types.CellType] | None = None,
        parent: Frame | None = None,
        caller: Location | None = None,
    ) -> None:
        self.source = source
        self.tracer = tracer
        self.vars = variables
        self.globals = globals_
        self.cells = cells or {}
        self.parent = parent
        self.caller = caller
        self.where: dict[str, Location] = {}
        self.regions: list[Region] = []
        self.locations: dict[ast.AST, Location] = {}

    # ---- places

    def locate(self, node: ast.AST) -> Location:
        """The place of a node."""
        found = self.locations.get(node)
        if found is None:
            found = self.locations[node] = self.source.location(node, self.caller)
        return found

    def place(self, node: ast.AST) -> None:
        """What is evaluated now, and the errors it raises, belong to `node`."""
        errors.place(self.locate(node))

    def error(self, node: ast.AST, message: str, cls: type[KernelError] = KernelSyntaxError) -> KernelError:
        """An error at a node."""
        return cls(message, self.locate(node))

    # ---- names

    def read(self, node: ast.Name) -> Any:
        """The value of a name, by Python's scopes. Raises KernelNameError."""
        value = self.lookup(node.id)
        if isinstance(value, Unbound):
            raise self.error(node, value.reason, KernelNameError)
        if value is MISSING:
            raise self.error(node, self._unknown(node.id), KernelNameError)
        return value

    def lookup(self, name: str) -> Any:
        """The value of a name, an Unbound, or MISSING."""
        value = self.vars.get(name, MISSING)
        if value is not MISSING:
            if type(value) is Carried:
                value.read = True
                return value.value
            return value
        if name in self.source.locals:
            return MISSING
        if self.parent is not None:
            return self.parent.lookup(name)
        cell = self.cells.get(name)
        if cell is not None:
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                return MISSING
            self.tracer.captures.note_cell(cell, name, value)
            return value
        value = self.globals.get(name, MISSING)
        if value is not MISSING:
            self.tracer.captures.note_item(self.globals, name, value)
            return value
        return getattr(builtins, name, MISSING)

    def _unknown(self, name: str) -> str:
        if name in self.source.locals:
            return f"{name!r} is used before it is assigned"
        known = {*self.vars, *self.cells, *self.globals, *dir(builtins)}
        return f"the name {name!r} is not defined{hints.close(name, known)}"

    def write(self, name: str, value: Any, node: ast.AST) -> None:
        """Assign a variable."""
        self.vars[name] = value
        self.where[name] = self.locate(node)
        if isinstance(value, TileValue) and self.tracer.is_open(value.block) and not value.value.name:
            value.value.name = name

    def in_staged_loop(self) -> bool:
        """Whether a staged loop of this function is open."""
        return any(region.loop and region.staged for region in self.regions)


# ---- what evaluates syntax ----------------------------------------------------------------------------------------------------------

Node = TypeVar("Node", bound=ast.AST)
EXPRESSIONS: dict[type[ast.AST], Callable[[Frame, Any], Any]] = {}
STATEMENTS: dict[type[ast.AST], Callable[[Frame, Any, After], Signal]] = {}


def expression(kind: type[Node]) -> Callable[[Callable[[Frame, Node], Any]], Callable[[Frame, Node], Any]]:
    """Register what evaluates an expression."""

    def register(handler: Callable[[Frame, Node], Any]) -> Callable[[Frame, Node], Any]:
        EXPRESSIONS[kind] = handler
        return handler

    return register


def statement(kind: type[Node]) -> Callable[[Callable[[Frame, Node, After], Signal]], Callable[[Frame, Node, After], Signal]]:
    """Register what executes a statement; it gets what follows the statement, which a staged `return` needs."""

    def register(handler: Callable[[Frame, Node, After], Signal]) -> Callable[[Frame, Node, After], Signal]:
        STATEMENTS[kind] = handler
        return handler

    return register


def evaluate(frame: Frame, node: ast.AST) -> Any:
    """The value of an expression."""
    handler = EXPRESSIONS.get(type(node))
    if handler is None:
        raise frame.error(node, f"{type(node).__name__} expressions are not available in kernels")
    return handler(frame, node)


def execute(frame: Frame, body: Sequence[ast.stmt], after: After = ()) -> Signal:
    """Run statements in order. A signal says that a return, break or continue was met."""
    for i, node in enumerate(body):
        handler = STATEMENTS.get(type(node))
        if handler is None:
            raise frame.error(node, f"{type(node).__name__} statements are not available in kernels")
        signal = handler(frame, node, (body[i + 1 :], *after))
        if signal is not None:
            return signal
    return None


def finish(frame: Frame, body: Sequence[ast.stmt], after: After) -> Return:
    """Run statements and what follows them, to the function's end."""
    rest = (body, *after)
    for i, statements in enumerate(rest):
        signal = execute(frame, statements, rest[i + 1 :])
        if isinstance(signal, Return):
            return signal
    return Return(None)
