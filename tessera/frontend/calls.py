"""Calls made while tracing: which functions are staged, which run as they stand, and how arguments are bound."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ..dtypes import DType
from ..errors import KernelError, KernelSyntaxError, KernelTypeError, place
from . import arithmetic, hints
from .captures import MISSING
from .frames import Frame, Return, evaluate, finish
from .source import Source, source_of
from .values import ArrayValue, TileValue, describe

STAGED_FUNCTION = "__tessera_function__"
"""The attribute by which a decorated kernel offers its function to other kernels."""


class NestedFunction:
    """A `def` or `lambda` inside a kernel. It sees the variables around it as they are when it is called, as in Python."""

    def __init__(self, source: Source, frame: Frame, defaults: Sequence[Any], kwdefaults: Mapping[str, Any]) -> None:
        self.source = source
        self.frame = frame
        self.defaults = defaults
        self.kwdefaults = kwdefaults
        self.__name__ = source.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What Python's own functions (map, sorted, …) call."""
        return run(self.frame, self.source.node, self, args, kwargs)


def invoke(frame: Frame, node: ast.AST, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function from a kernel; `node` is the call."""
    function = getattr(function, STAGED_FUNCTION, function) if not isinstance(function, type) else function
    if isinstance(function, types.MethodType):
        function, args = function.__func__, (function.__self__, *args)
    if isinstance(function, functools.partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        return invoke(frame, node, function.func, args, kwargs)
    if isinstance(function, NestedFunction):
        return run(frame, node, function, args, kwargs)
    traced = holds_traced(args) or holds_traced(tuple(kwargs.values()))
    if isinstance(function, types.FunctionType):
        if not _is_ours(function) and (traced or uses_tessera(function, frame.tracer.uses_tessera)) and source_of(function) is not None:
            return run(frame, node, function, args, kwargs)
        if not _is_ours(function):
            frame.tracer.captures.merge_function(function)
    elif function in _SPECIAL_NAMES if _hashable(function) else False:
        special = _special(frame, node, function, args, traced)
        if special is not MISSING:
            return special
    frame.place(node)
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if isinstance(error, KernelError) or error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        raise KernelTypeError(f"{error}{_takes(function, str(error))}", frame.locate(node)) from error


def _hashable(value: object) -> bool:
    return type(value).__hash__ is not None


def _takes(function: Any, message: str) -> str:
    """A clause about a function's parameters, and about a keyword that it doesn't take."""
    if not isinstance(function, types.FunctionType) or not _is_ours(function):
        return ""
    names = [str(p).split(":")[0].split("=")[0].strip() for p in inspect.signature(function).parameters.values()]
    return f"; {function.__name__} takes {', '.join(names)}{hints.keyword(function.__name__, message)}"


def _is_ours(function: types.FunctionType) -> bool:
    return (function.__module__ or "").startswith(__package__ or "tessera.frontend")


def holds_traced(value: Any, depth: int = 4) -> bool:
    """Whether a value is, or holds, a run-time value."""
    if isinstance(value, (TileValue, ArrayValue, NestedFunction)):
        return True
    if not depth or isinstance(value, (int, float, str, DType)) or value is None:
        return False
    if isinstance(value, (tuple, list)):
        return any(holds_traced(item, depth - 1) for item in cast("tuple[Any, ...]", value))
    if isinstance(value, dict):
        return any(holds_traced(item, depth - 1) for item in cast("dict[Any, Any]", value).values())
    fields = getattr(value, "__dict__", None)
    return (
        isinstance(fields, dict) and not isinstance(value, (type, types.ModuleType, types.FunctionType)) and holds_traced(fields, depth - 1)
    )


def uses_tessera(function: types.FunctionType, known: dict[types.CodeType, bool]) -> bool:
    """Whether a function, or one that it names, uses Tessera: then it is staged even where no argument is a run-time value."""
    code = function.__code__
    if code not in known:
        known[code] = False  # for recursion
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        known[code] = any(_is_tessera(value, known) for value in _named_values(code, function.__globals__, cells))
    return known[code]


def _named_values(code: types.CodeType, globals_: dict[str, Any], cells: dict[str, types.CellType]) -> list[Any]:
    found = [globals_[name] for name in code.co_names if name in globals_]
    found += [cell.cell_contents for cell in cells.values() if cell != types.CellType()]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _named_values(constant, globals_, {})
    return found


def _is_tessera(value: Any, known: dict[types.CodeType, bool]) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0] == "tessera"
    if hasattr(cast(Any, type(value)), STAGED_FUNCTION):
        return True
    if isinstance(value, types.FunctionType):
        return (value.__module__ or "").split(".")[0] == "tessera" or uses_tessera(value, known)
    return False


# ---- staged calls -----------------------------------------------------------------------------------------------------------------------


def run(frame: Frame, node: ast.AST, function: types.FunctionType | NestedFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Stage a call of a Python function."""
    caller = frame.locate(node)
    if isinstance(function, NestedFunction):
        source, parent = function.source, function.frame
        variables = bind(frame, node, source, args, kwargs, function.defaults, function.kwdefaults)
        inner = Frame(source, frame.tracer, variables, parent.globals, parent=parent, caller=caller)
    else:
        found = source_of(function)
        assert found is not None
        source = found
        variables = bind(frame, node, source, args, kwargs, function.__defaults__ or (), function.__kwdefaults__ or {})
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        inner = Frame(source, frame.tracer, variables, function.__globals__, cells=cells, caller=caller)
    active = frame.tracer.active
    if source in active:
        raise KernelSyntaxError(f"{source.name} calls itself; kernels have no recursion: write a loop", caller)
    active.append(source)
    try:
        if isinstance(source.node, ast.Lambda):
            return evaluate(inner, source.node.body)
        return finish(inner, source.node.body, ()).value
    finally:
        active.pop()
        place(caller)


def bind(
    frame: Frame,
    node: ast.AST,
    source: Source,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    defaults: Sequence[Any],
    kwdefaults: Mapping[str, Any],
) -> dict[str, Any]:
    """Arguments by parameter name, as Python binds them. Raises KernelTypeError."""
    spec = source.node.args
    by_position = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    by_keyword = {a.arg for a in (*spec.args, *spec.kwonlyargs)}
    bound: dict[str, Any] = dict(zip(by_position, args, strict=False))
    extra = tuple(args[len(by_position) :])
    others: dict[str, Any] = {}

    def fail(message: str) -> KernelError:
        return frame.error(node, f"{source.name}() {message}", KernelTypeError)

    if spec.vararg is not None:
        bound[spec.vararg.arg] = extra
    elif extra:
        raise fail(f"takes {len(by_position)} arguments, and {len(args)} were given")
    for name, value in kwargs.items():
        if name in by_keyword:
            if name in bound:
                raise fail(f"got two values for {name!r}")
            bound[name] = value
        elif spec.kwarg is not None:
            others[name] = value
        else:
            raise fail(f"has no parameter {name!r}; it has {', '.join([*by_position, *(a.arg for a in spec.kwonlyargs)])}")
    if spec.kwarg is not None:
        bound[spec.kwarg.arg] = others
    for name, value in zip(by_position[len(by_position) - len(defaults) :], defaults, strict=True):
        bound.setdefault(name, value)
    for name, value in kwdefaults.items():
        bound.setdefault(name, value)
    missing = [name for name in (*by_position, *(a.arg for a in spec.kwonlyargs)) if name not in bound]
    if missing:
        raise fail(f"misses {', '.join(map(repr, missing))}")
    return bound


# ---- Python's built-in functions --------------------------------------------------------------------------------------------------------

_NO_BUILTIN: dict[Any, str] = {
    getattr(builtins, name): f"{name}() is not available in kernels"
    for name in [
        "eval",
        "exec",
        "compile",
        "locals",
        "globals",
        "vars",
        "dir",
        "input",
        "open",
        "breakpoint",
        "super",
        "id",
        "hash",
        "iter",
        "next",
        "setattr",
        "delattr",
    ]
}
_HINTS: dict[Any, str] = {
    range: "range with run-time bounds stands in a for statement only: for i in range(…)",
    print: "print would show a value that is not known yet: ts.static_print shows types while the kernel is traced",
    bool: "bool(…) of a run-time value: compare it, as in x != 0",
    str: "a run-time value has no text while the kernel is traced",
    repr: "a run-time value has no text while the kernel is traced",
    enumerate: "enumerate needs a Python sequence: loop over range and load a tile in each trip",
}
_SPECIAL_NAMES: frozenset[Any] = frozenset([*_NO_BUILTIN, *_HINTS, min, max, any, all])


def _special(frame: Frame, node: ast.AST, function: Any, args: Sequence[Any], traced: bool) -> Any:
    """What a built-in function gives in a kernel, or MISSING where it runs as it stands."""
    if function in _NO_BUILTIN:
        raise frame.error(node, _NO_BUILTIN[function])
    if function in (min, max, any, all) and len(args) == 1 and isinstance(args[0], Iterator):  # a comprehension
        args = (list(cast("Iterator[Any]", args[0])),)
        traced = holds_traced(args)
        if not traced:
            return function(*args)
    if not traced or (function is enumerate and not isinstance(args[0], (TileValue, ArrayValue))):
        return MISSING
    if function in (any, all):
        return _any_or_all(frame, node, function, args)
    if function in _HINTS:
        if function is bool and isinstance(args[0], TileValue) and not args[0].shape:
            frame.place(node)
            return arithmetic.truth(args[0], "bool")
        raise frame.error(node, _HINTS[function], KernelTypeError)
    return _extremum(frame, node, function, args)


def _extremum(frame: Frame, node: ast.AST, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Python's min and max of scalars: the first argument unless a later one is smaller (larger)."""
    items = list(cast("Sequence[Any]", args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args)
    name = function.__name__
    if len(items) < 2 or any(arithmetic.shape_of(arithmetic.operand(item, f"an argument of {name}")) for item in items):
        raise frame.error(
            node, f"{name}() compares scalars: ts.{name}(x, axis) reduces a tile, ts.{name}imum(x, y) compares elementwise", KernelTypeError
        )
    frame.place(node)
    result: Any = items[0]
    for item in items[1:]:
        smaller = (
            arithmetic.compare("<" if function is min else ">", item, result)
            if _any_tile(item, result)
            else (item < result if function is min else item > result)
        )
        result = arithmetic.where(smaller, item, result) if isinstance(smaller, TileValue) else item if smaller else result
    return result


def _any_or_all(frame: Frame, node: ast.AST, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Python's any and all of scalars, all of which are known to have been evaluated."""
    name = function.__name__
    if len(args) != 1 or isinstance(args[0], (TileValue, ArrayValue)):
        of_tile = "max" if function is any else "min"
        raise frame.error(node, f"{name}() takes a Python sequence of scalars: for a tile write ts.{of_tile}(x != 0)", KernelTypeError)
    frame.place(node)
    result: Any = function is all
    for item in cast("Sequence[Any]", args[0]):
        truth: Any = arithmetic.truth(item, name) if isinstance(item, TileValue) else bool(item)
        if not isinstance(truth, TileValue):
            if truth == (function is any):
                return truth
        elif isinstance(result, TileValue):
            result = result & truth if function is all else result | truth
        else:
            result = truth
    return result


def _any_tile(*items: Any) -> bool:
    return any(isinstance(item, (TileValue, np.generic)) for item in items)


__all__ = ["NestedFunction", "Return", "bind", "describe", "invoke", "run", "uses_tessera"]
