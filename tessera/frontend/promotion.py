"""Which dtype two operands meet in: NumPy 2's rules, with two decisions of our own.

Numbers are weak: a Python number, or a run-time value that stands for one, takes the dtype of the strong operand that it meets if its kind
allows. And uint64 never meets a signed integer, where NumPy would go to float64 and lose digits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType, Kind
from ..errors import KernelTypeError

_RANK = {dtypes.bool_: 0, dtypes.int64: 1, dtypes.float64: 2}
"""The dtypes that weak numbers have among themselves, by kind: bool, int, float."""


def weak_dtype(value: bool | int | float) -> DType:
    """The dtype of a Python number among weak numbers."""
    return dtypes.bool_ if isinstance(value, bool) else dtypes.int64 if isinstance(value, int) else dtypes.float64


@cache
def promote(a: DType, b: DType) -> DType:
    """The common dtype of two strong operands, as `numpy.result_type`. Raises KernelTypeError for uint64 with a signed integer."""
    if a is b:
        return a
    if {a.kind, b.kind} == {Kind.INT, Kind.UINT} and dtypes.uint64 in (a, b):
        signed = a if a.kind is Kind.INT else b
        raise KernelTypeError(
            f"uint64 and {signed.name} have no common integer dtype (float64 would lose digits): "
            f"cast the uint64 operand with .astype(ts.int64) or the {signed.name} operand with .astype(ts.uint64)"
        )
    return dtypes.from_numpy(np.result_type(a.numpy, b.numpy))


@cache
def meet(strong: DType, weak: DType) -> DType:
    """The common dtype of a strong operand and a weak number, whose dtype is bool, int64 or float64."""
    if weak is dtypes.bool_ or strong.is_float:
        return strong
    if weak is dtypes.int64:
        return dtypes.int64 if strong.kind is Kind.BOOL else strong
    return dtypes.float64


def weakest(a: DType, b: DType) -> DType:
    """The common dtype of two weak numbers."""
    return a if _RANK[a] >= _RANK[b] else b


@cache
def float_for(dtype: DType) -> DType:
    """The dtype in which NumPy computes exp, log or sqrt of `dtype`: floats stay, int8 gives float16, int16 float32, wider float64."""
    if dtype.is_float:
        return dtype
    return {8: dtypes.float16, 16: dtypes.float32}.get(dtype.bits, dtypes.float64)


@cache
def sum_dtype(dtype: DType) -> DType:
    """The dtype of NumPy's sum: bools and narrow integers widen to 64 bits."""
    if dtype.is_float:
        return dtype
    return dtypes.uint64 if dtype.kind is Kind.UINT else dtypes.int64


@cache
def can_store(source: DType, to: DType) -> bool:
    """NumPy's `can_cast(source, to, "safe")`."""
    return bool(np.can_cast(source.numpy, to.numpy, "safe"))


def weak_fits(weak: DType, to: DType) -> bool:
    """Whether a weak number's kind allows it to become `to`: ints become ints and floats, floats only floats, bools anything."""
    return _RANK[weak] == 0 or to.is_float or (weak is dtypes.int64 and to.is_integer)


def int_range(dtype: DType) -> tuple[int, int]:
    """The lowest and highest value of an integer dtype."""
    info: Any = np.iinfo(dtype.numpy)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType]
    return int(info.min), int(info.max)


def as_dtype(value: object, what: str = "dtype") -> DType:
    """The dtype that a user named: `ts.float16`, `np.float16`, `np.dtype("float16")`, "float16". Raises KernelTypeError."""
    if isinstance(value, DType):
        return value
    try:
        return dtypes.from_numpy(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        known = ", ".join(f"ts.{d.name}" for d in dtypes.ALL)
        raise KernelTypeError(f"{what} must be a dtype, not {value!r:.60}; there are {known}") from None
