"""A kernel's signature: which parameters are constexprs, which come at run time, and how arguments are bound to them."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import KernelSyntaxError, KernelTypeError, LaunchError, Location
from ..ir.types import ArrayType
from .promotion import as_dtype


class constexpr:
    """Annotates a parameter whose value is known when the kernel is compiled: `BM: ts.constexpr = 64`. Each value compiles anew."""


@dataclass(frozen=True)
class Array:
    """Stands for an array argument in `kernel.compile`.

    `dtype` is a dtype, `ndim` the rank. `align` (bytes: 16, 8, 4 or the element's size) divides the address and every stride but the
    contiguous one; `contiguous` is the axis whose elements lie side by side (negative from the end), or None; `small`: extents and bytes
    are below 2**31; `disjoint`: it overlaps no other argument where one of the two is written. Raises KernelTypeError.
    """

    dtype: Any
    ndim: int
    align: int = 16
    contiguous: int | None = -1
    small: bool = True
    disjoint: bool = True

    def __post_init__(self) -> None:
        dtype = as_dtype(self.dtype)
        if self.ndim < 0:
            raise KernelTypeError(f"ts.Array: ndim is {self.ndim}")
        if self.align not in (16, 8, 4, dtype.bytes) or self.align < dtype.bytes:
            raise KernelTypeError(f"ts.Array: align is {self.align}; it is 16, 8, 4 or the element's {dtype.bytes} bytes, and not less")
        if self.contiguous is not None and self.ndim and not -self.ndim <= self.contiguous < self.ndim:
            raise KernelTypeError(f"ts.Array: there is no axis {self.contiguous} in {self.ndim} dimensions")

    def type(self) -> ArrayType:
        """The IR type."""
        axis = None if self.contiguous is None or not self.ndim else self.contiguous % self.ndim
        return ArrayType(as_dtype(self.dtype), self.ndim, self.align, axis, self.small, self.disjoint)


class Signature:
    """The parameters of a kernel. Raises KernelSyntaxError for *args and **kwargs."""

    def __init__(self, function: types.FunctionType) -> None:
        code = function.__code__
        self.name = function.__name__
        self.names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.positional = code.co_argcount
        here = Location(code.co_filename, code.co_firstlineno, function=function.__qualname__)
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            raise KernelSyntaxError(f"the kernel {self.name!r} has *args or **kwargs; name its parameters one by one", here)
        self.constexprs = frozenset(name for name in self.names if is_constexpr(function, name))
        self.runtime = tuple(name for name in self.names if name not in self.constexprs)
        defaults = function.__defaults__ or ()
        self.defaults: dict[str, Any] = dict(zip(self.names[self.positional - len(defaults) : self.positional], defaults, strict=True))
        self.defaults.update(function.__kwdefaults__ or {})
        self._index = {name: i for i, name in enumerate(self.names)}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments in the order of the parameters, defaults filled in. Raises LaunchError as Python would raise TypeError."""
        if len(args) > self.positional:
            raise LaunchError(f"kernel {self.name!r} takes {self.positional} positional arguments, and {len(args)} were given")
        values = [*args, *[_MISSING] * (len(self.names) - len(args))]
        for name, value in kwargs.items():
            i = self._index.get(name)
            if i is None:
                raise LaunchError(f"kernel {self.name!r} has no parameter {name!r}; it has {', '.join(self.names)}{elsewhere(name)}")
            if values[i] is not _MISSING:
                raise LaunchError(f"kernel {self.name!r} got two values for {name!r}")
            values[i] = value
        if any(value is _MISSING for value in values):
            for i, name in enumerate(self.names):
                if values[i] is _MISSING:
                    values[i] = self.defaults.get(name, _MISSING)
            missing = [name for name, value in zip(self.names, values, strict=True) if value is _MISSING]
            if missing:
                raise LaunchError(f"kernel {self.name!r} misses {', '.join(map(repr, missing))}; it takes {', '.join(self.names)}")
        return values


_MISSING: Any = object()


def elsewhere(name: str) -> str:
    """A sentence about a keyword that is no parameter of a kernel but belongs somewhere else, or ""."""
    if name in ("num_waves", "fp_contract", "optimize", "codegen", "target"):
        return f". It is an option of the decorator: write @ts.jit({name}=…)"
    if name == "num_warps":
        return ". For the waves of a workgroup write @ts.jit(num_waves=…)"
    if name == "num_stages":
        return ". Loops of dots are pipelined without being asked"
    if name == "arch":
        return ". An arch is chosen by kernel.compile(…, arch=…), or by TESSERA_ARCH"
    if name in ("check", "counters", "threads", "executor", "device", "stream"):
        return f". It is an option of a launch: ts.runtime.launch(kernel.compile(…), grid, args, {name}=…)"
    return ""


def _annotations(function: types.FunctionType) -> dict[str, Any]:
    try:
        return function.__annotations__
    except NameError:  # Python 3.14 evaluates annotations when they are read; some may be of names for type checkers only
        annotationlib: Any = importlib.import_module("annotationlib")
        return annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)


def is_constexpr(function: types.FunctionType, name: str) -> bool:
    """Whether a parameter is annotated as constexpr, also where annotations are kept as text."""
    annotation = _annotations(function).get(name)
    if not isinstance(annotation, str):
        return annotation is constexpr
    owner, _, last = annotation.rpartition(".")
    if owner:
        return last == "constexpr" and getattr(function.__globals__.get(owner.split(".")[0]), "__name__", "").split(".")[0] == "tessera"
    return function.__globals__.get(last) is constexpr


def python_type(value: object) -> DType | None:
    """The dtype that a Python type names as a weak scalar in `kernel.compile`: int, float or bool."""
    return {int: dtypes.int64, float: dtypes.float64, bool: dtypes.bool_}.get(value) if isinstance(value, type) else None
