"""Values that cross the edge of a loop or a branch: taken apart into leaves, brought to one type, and put together again.

A leaf is a tile, a scalar or a number, which the edge can carry, or any other Python object, which must be the same on both sides. Tuples,
lists, dicts and dataclasses are taken apart.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from ..dtypes import DType
from . import arithmetic, promotion
from .captures import freeze
from .values import TileValue, describe, is_number

LEAF = "leaf"


class LeafType(NamedTuple):
    """The type of a leaf that can be carried."""

    shape: tuple[int, ...]
    dtype: DType
    weak: bool

    def __str__(self) -> str:
        if self.weak:
            return {"bool": "a bool", "int64": "an int", "float64": "a float"}[self.dtype.name]
        article = "an" if self.dtype.name.startswith("i") else "a"
        return f"{article} {self.dtype.name} " + (f"tile of shape {self.shape}" if self.shape else "scalar")


class Mismatch(Exception):
    """Two leaves have no common type; the message says how they differ, `cast` what to write."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


def flatten(value: Any, leaves: list[Any]) -> Any:
    """Append the leaves of a value to `leaves`; returns the structure, which compares with ==."""
    if isinstance(value, (tuple, list)):
        items = cast("tuple[Any, ...]", value)
        return (type(items), tuple(flatten(item, leaves) for item in items))
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return (dict, tuple(table), tuple(flatten(item, leaves) for item in table.values()))
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, DType)):
        names = tuple(f.name for f in dataclasses.fields(value))
        return (_Record(type(value), names), tuple(flatten(getattr(value, name), leaves) for name in names))
    leaves.append(value)
    return LEAF


class _Record(NamedTuple):
    cls: type
    names: tuple[str, ...]


def rebuild(structure: Any, leaves: Iterator[Any], like: Any) -> Any:
    """A value of a structure from its leaves; `like` is the value that the structure was taken from."""
    if structure == LEAF:
        return next(leaves)
    kind = structure[0]
    if kind is dict:
        return {key: rebuild(inner, leaves, like[key]) for key, inner in zip(structure[1], structure[2], strict=True)}
    if isinstance(kind, _Record):
        made = copy.copy(like)
        for name, inner in zip(kind.names, structure[1], strict=True):
            object.__setattr__(made, name, rebuild(inner, leaves, getattr(like, name)))
        return made
    items = [rebuild(inner, leaves, old) for inner, old in zip(structure[1], like, strict=True)]
    if hasattr(kind, "_make"):  # a named tuple
        return kind._make(items)
    return kind(items)


def carried_type(leaf: Any) -> LeafType | None:
    """The type of a leaf, or None where it is a Python object that can't be carried."""
    if isinstance(leaf, TileValue):
        return LeafType(leaf.shape, leaf.dtype, leaf.weak)
    if is_number(leaf):
        return LeafType((), promotion.weak_dtype(leaf), True)
    if isinstance(leaf, np.generic):
        return LeafType((), promotion.as_dtype(cast(Any, leaf).dtype), False)
    return None


def same(a: Any, b: Any) -> bool:
    """Whether two leaves that can't be carried are one object, or equal Python values of one type."""
    if a is b:
        return True
    if isinstance(a, TileValue) or isinstance(b, TileValue):
        return False
    return freeze(a) == freeze(b)


def join(a: LeafType, b: LeafType) -> LeafType:
    """The type of a leaf that is `a` on one side and `b` on the other: weak numbers take the other's dtype. Raises Mismatch."""
    if a == b:
        return a
    if a.shape != b.shape:
        raise Mismatch("the shapes differ")
    if a.weak and b.weak:
        return LeafType((), promotion.weakest(a.dtype, b.dtype), True)
    if a.weak != b.weak:
        strong, weak = (b, a) if a.weak else (a, b)
        if promotion.weak_fits(weak.dtype, strong.dtype):
            return strong
    raise Mismatch("the dtypes differ", f".astype(ts.{(b if a.weak else a).dtype.name})")


def convert(leaf: Any, to: LeafType) -> TileValue:
    """A leaf as a value of the type that `join` gave."""
    if isinstance(leaf, TileValue):
        if leaf.dtype is to.dtype and leaf.weak == to.weak:
            return leaf
        made = arithmetic.astype(leaf, to.dtype)
    elif isinstance(leaf, np.generic):
        made = arithmetic.astype(leaf, to.dtype)
    else:
        return arithmetic.constant(leaf, to.dtype, to.shape, weak=to.weak)
    return TileValue(made.value, to.weak)


def name_of_type(leaf: Any) -> str:
    """A leaf's type for errors; other objects by their value."""
    found = carried_type(leaf)
    return str(found) if found is not None else describe(leaf) if not isinstance(leaf, (str, DType)) else repr(leaf)
