"""From a Python function to a Tile IR kernel.

The function's syntax tree is walked as Python would run it. What Python knows stays Python: constexprs, shapes, tuples, loops over them.
What depends on the run goes to the trace: operations on tiles become ops, and control flow over run-time values becomes regions
(regions.py). Helpers are walked in the same way where they meet run-time values (calls.py). Every op, and every error, has the place of the
expression that made it.

Walking the tree, rather than compiling a rewritten one, gives positions on every Python version, lets a loop's body be traced again when
a type was guessed wrong, and keeps the rules of each statement in one place.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .. import dtypes, errors
from ..dtypes import DType
from ..errors import KernelError, KernelNameError, KernelSyntaxError, KernelTypeError, KernelValueError, Location, TesseraError
from ..ir.core import Kernel, Value
from ..ir.ops.control import Yield
from ..ir.ops.memory import Load, Store
from ..ir.types import ArrayType, Tile
from . import expressions as expressions  # registers what evaluates expressions
from . import statements as statements  # registers what executes statements
from .captures import Captures
from .frames import Frame, finish
from .source import source_of
from .tracer import Tracer, activate
from .values import ArrayValue, TileValue, describe


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar parameter. Weak ones are Python numbers: bool, int64 or float64."""

    dtype: DType
    weak: bool = False


Spec: TypeAlias = "ArrayType | Scalar"


@dataclass(frozen=True)
class Trace:
    """A traced kernel, and what it read from outside."""

    kernel: Kernel
    captures: Captures


def trace(
    function: types.FunctionType,
    specs: Mapping[str, Spec],
    constants: Mapping[str, Any],
    *,
    num_waves: int = 4,
    lines: list[str] | None = None,
) -> Trace:
    """Trace a kernel. `specs` types its run-time parameters, `constants` holds the others; the kernel's parameters keep their order.

    `lines` are those of the function's file from when it was defined. Raises KernelError, and others, at the user's line.
    """
    source = source_of(function, lines)
    if source is None:
        raise KernelSyntaxError(
            f"the source of {function.__qualname__!r} can't be found: kernels are read from their source. Define it with `def` in a file "
            "or a notebook cell (not through exec or python -c), and restart if the file has changed since"
        )
    tracer = Tracer()
    names = list(function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount])
    with errors.at(source.location(source.node)), activate(tracer):
        variables: dict[str, Any] = {}
        weak: set[str] = set()
        for name in names:
            if name in specs:
                variables[name] = _parameter(tracer, name, specs[name], weak)
            else:
                variables[name] = constants[name]
                tracer.captures.note_object(constants[name])
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        frame = Frame(source, tracer, variables, function.__globals__, cells=cells)
        tracer.active.append(source)
        try:
            value = finish(frame, getattr(source.node, "body", []), ()).value
        except TesseraError:
            raise
        except Exception as error:
            raise _wrapped(error) from error
        if value is not None:
            raise KernelTypeError(
                f"a kernel returns nothing, and this one returns {describe(value)}: ts.store it in an array",
                frame.where.get("return value"),
            )
        _warn_of_rebinding(frame, specs)
        errors.place(source.location(source.node))
        tracer.body.ops = [*tracer.prologue.ops, *tracer.body.ops, Yield(())]
    kernel = Kernel(re.sub(r"\W", "_", function.__name__, flags=re.ASCII), tracer.body, frozenset(weak), num_waves)
    return Trace(kernel, tracer.captures)


def _warn_of_rebinding(frame: Frame, specs: Mapping[str, Spec]) -> None:
    """Warn where an array's name was given to a tile, which writes nothing, and the array is not used, or nothing is stored at all."""
    rebound = [name for name, spec in specs.items() if isinstance(spec, ArrayType) and isinstance(frame.vars.get(name), TileValue)]
    if not rebound:
        return
    accesses = [op for op in frame.tracer.body.walk() if isinstance(op, (Load, Store))]
    used = {op.array.name for op in accesses}
    for name in rebound:
        if name not in used or not any(isinstance(op, Store) for op in accesses):
            errors.warn(
                f"{name} = … gives the name to a tile, and leaves the array {name!r} as it is: to write to it, ts.store({name}, …)",
                frame.where.get(name),
            )


def _parameter(tracer: Tracer, name: str, spec: Spec, weak: set[str]) -> TileValue | ArrayValue:
    type_ = spec if isinstance(spec, ArrayType) else Tile((), spec.dtype)
    value = Value(type_, tracer.body, name)
    tracer.body.params.append(value)
    if isinstance(spec, ArrayType):
        return ArrayValue(value, spec, name)
    if spec.weak and spec.dtype is not dtypes.bool_:  # a bool has one type in the launch ABI
        weak.add(name)
    return TileValue(value, spec.weak)


_WRAPPED: tuple[tuple[type[Exception], type[KernelError]], ...] = (
    (NameError, KernelNameError),
    (TypeError, KernelTypeError),
    (ValueError, KernelValueError),
)


def _wrapped(error: Exception) -> KernelError:
    """A Python exception that came up while tracing, at the user's line."""
    location: Location | None = errors.current_location()
    for kind, ours in _WRAPPED:
        if isinstance(error, kind):
            return ours(str(error) or kind.__name__, location)
    return KernelError(f"{type(error).__name__}: {error}", location)
