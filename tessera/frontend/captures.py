"""What a trace read from outside the kernel: globals, closure cells, attributes of modules and objects.

Each is part of what the compiled code depends on. `valid` compares the present values with those the trace saw; it runs at every launch,
so that plain values are compared by identity first.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import Any, cast

import numpy as np

from ..dtypes import DType
from ..errors import KernelTypeError

MISSING: Any = object()
"""Stands for a name that is not there."""

_ATOMS = (int, str, bytes, bool, complex, type(None), type(Ellipsis), range, Enum, DType, np.dtype, np.generic)
_BY_IDENTITY = (types.ModuleType, types.BuiltinFunctionType, types.FunctionType, types.MethodType, type)

Read = Callable[[], Any]


class Captures:
    """The reads of one trace, each with the value it gave."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str]] = set()
        self._reads: list[tuple[Read, Any, Hashable | None]] = []
        self._objects: dict[int, Any] = {}  # captured modules, classes and objects: reading their attributes is a capture, too

    def note_item(self, namespace: Mapping[str, Any], name: str, value: Any) -> None:
        """A global was read."""
        if (id(namespace), name) not in self._seen:
            self._note(namespace, name, value, lambda: namespace.get(name, MISSING))

    def note_cell(self, cell: types.CellType, name: str, value: Any) -> None:
        """A variable of an enclosing function was read."""
        if (id(cell), name) not in self._seen:
            self._note(cell, name, value, lambda: cell.cell_contents)

    def note_object(self, value: Any) -> None:
        """An object came in from outside (as a constexpr): the attributes that are read of it count."""
        self._objects[id(value)] = value

    def note_attribute(self, owner: Any, name: str, value: Any) -> None:
        """An attribute was read; it counts where its owner came from outside."""
        if id(owner) in self._objects and (id(owner), name) not in self._seen:
            self._note(owner, name, value, lambda: getattr(owner, name, MISSING))

    def _note(self, owner: Any, name: str, value: Any, read: Read) -> None:
        if isinstance(value, np.ndarray):
            raise KernelTypeError(f"{name!r} is a NumPy array from outside the kernel; pass it to the kernel as an argument")
        self._seen.add((id(owner), name))
        self._objects[id(owner)] = owner  # keeps it alive, so that its id stays its own
        self._objects[id(value)] = value
        plain = _is_atom(value) or _by_identity(value)
        self._reads.append((read, value, None if plain else freeze(value)))

    def valid(self) -> bool:
        """Whether every read would give the same today."""
        for read, value, frozen in self._reads:
            now = read()
            if frozen is None:
                if now is not value and (_by_identity(value) or freeze(now) != freeze(value)):
                    return False
            elif freeze(now) != frozen:
                return False
        return True

    def merge_function(self, function: types.FunctionType) -> None:
        """Note everything that a function that is called as it stands can read: its globals and cells, and those of functions it calls."""
        if (id(function.__code__), "") in self._seen:
            return
        self._seen.add((id(function.__code__), ""))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._follow(cell, name, getattr(cell, "cell_contents", MISSING))
        for name in _global_names(function.__code__):
            self._follow(function.__globals__, name, function.__globals__.get(name, MISSING))

    def _follow(self, owner: Any, name: str, value: Any) -> None:
        if value is MISSING or isinstance(value, np.ndarray):
            return
        if isinstance(owner, types.CellType):
            self.note_cell(owner, name, value)
        else:
            self.note_item(owner, name, value)
        if isinstance(value, types.FunctionType):
            self.merge_function(value)


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _is_atom(value: object) -> bool:
    return isinstance(value, _ATOMS)


def _by_identity(value: object) -> bool:
    return isinstance(value, _BY_IDENTITY)


def freeze(value: Any) -> Hashable:
    """A hashable copy of a value that tells types apart: 1, 1.0 and True differ, and so do 0.0 and -0.0.

    Objects of other classes count by identity; dataclasses by their fields.
    """
    kind = cast(Any, type(value))
    if kind is float:
        return (kind, cast(float, value).hex())
    if isinstance(value, np.generic):
        scalar = cast(Any, value)
        return (kind, scalar.dtype.str, scalar.tobytes())
    if _is_atom(value):
        return (kind, value)
    if isinstance(value, (tuple, list)):
        return (kind, tuple(freeze(v) for v in cast("tuple[Any, ...]", value)))
    if isinstance(value, (set, frozenset)):
        return (kind, frozenset(freeze(v) for v in cast("set[Any]", value)))
    if isinstance(value, dict):
        return (kind, tuple((freeze(k), freeze(v)) for k, v in cast("dict[Any, Any]", value).items()))
    if isinstance(value, types.FunctionType):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (kind, tuple(freeze(getattr(value, f.name)) for f in dataclasses.fields(value)))
    return _Identity(value)


class _Identity:
    """Equal to itself only; holds the object, so that its id isn't used again."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
