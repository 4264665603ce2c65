"""The element types: one row each, and nothing about them anywhere else.

A dtype is stored in memory as `bits` bits (bool as one byte) and held in registers as the LLVM type `llvm`. NumPy's counterpart of
bfloat16 comes from ml_dtypes, whose import takes longer than all of ours: it is made when it is first asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from .errors import UnsupportedDtypeError

NumpyDType: TypeAlias = "np.dtype[np.generic]"


class Kind(Enum):
    """What arithmetic a dtype follows."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. Compares and hashes by identity of its row; `str()` is the short name that IR texts use."""

    name: str  # NumPy's name, and the attribute of the `tessera` module
    short: str  # in IR texts: f16, i32
    kind: Kind
    bits: int  # in memory
    llvm: str  # in registers

    @property
    def numpy(self) -> NumpyDType:
        """NumPy's dtype of the same name."""
        return _numpy(self.name)

    @property
    def bytes(self) -> int:
        """Size of one element in memory."""
        return self.bits // 8

    @property
    def llvm_memory(self) -> str:
        """The LLVM type of one element in memory."""
        return "i8" if self.kind is Kind.BOOL else self.llvm

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned; not bool."""
        return self.kind in (Kind.INT, Kind.UINT)

    @property
    def is_signed(self) -> bool:
        return self.kind in (Kind.INT, Kind.FLOAT)

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return f"tessera.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return parse, (self.short,)  # copies are the row itself


@cache
def _numpy(name: str) -> NumpyDType:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


bool_ = DType("bool", "bool", Kind.BOOL, 8, "i1")
int8 = DType("int8", "i8", Kind.INT, 8, "i8")
int16 = DType("int16", "i16", Kind.INT, 16, "i16")
int32 = DType("int32", "i32", Kind.INT, 32, "i32")
int64 = DType("int64", "i64", Kind.INT, 64, "i64")
uint8 = DType("uint8", "u8", Kind.UINT, 8, "i8")
uint16 = DType("uint16", "u16", Kind.UINT, 16, "i16")
uint32 = DType("uint32", "u32", Kind.UINT, 32, "i32")
uint64 = DType("uint64", "u64", Kind.UINT, 64, "i64")
float16 = DType("float16", "f16", Kind.FLOAT, 16, "half")
bfloat16 = DType("bfloat16", "bf16", Kind.FLOAT, 16, "bfloat")
float32 = DType("float32", "f32", Kind.FLOAT, 32, "float")
float64 = DType("float64", "f64", Kind.FLOAT, 64, "double")

ALL: tuple[DType, ...] = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)

_BY_SHORT = {d.short: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL if d is not bfloat16}


def parse(short: str) -> DType:
    """The dtype of an IR text's short name. Raises KeyError for any other word."""
    return _BY_SHORT[short]


def from_numpy(dtype: DTypeLike) -> DType:
    """The dtype of the same name as NumPy's (byte order must be native). Raises UnsupportedDtypeError, listing what exists."""
    wanted = np.dtype(dtype)
    found = _BY_NUMPY.get(wanted)
    if found is None and str(wanted) == "bfloat16" and wanted == bfloat16.numpy:
        return bfloat16
    if found is None:
        message = f"Tessera has no dtype for NumPy's {wanted}; it has {', '.join(d.name for d in ALL)}"
        if str(wanted).startswith(("float8", "float6", "float4", "int4", "uint4", "int2", "uint2")):
            wide = "int8" if "int" in str(wanted) else "float32" if "e8m0" in str(wanted) else "float16"
            message += (
                ". Narrow floats and integers, and dots of them, come with a later version; gfx1100 to gfx1153 have no matrix "
                f"instruction for 8-bit floats. Every value of {wanted} is exact in {wide}: pass a.astype(np.{wide})"
            )
        raise UnsupportedDtypeError(message)
    return found
