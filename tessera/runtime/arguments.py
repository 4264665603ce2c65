"""Arguments: checked against an artifact's signature, and packed into the kernarg segment.

Everything is checked before anything runs. An array must have the parameter's dtype and rank and be of its class or a better one; what a
kernel writes must be writable and must not overlap another argument unless the artifact was compiled for that.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np

from .. import dtypes
from ..dtypes import DType, Kind, NumpyDType
from ..errors import LaunchError, UnsupportedDtypeError
from .artifact import ArrayParameter, Artifact, Parameter, ScalarParameter
from .views import ArrayView, overlap, view

SMALL = 2**31

Scalar: TypeAlias = "int | float | bool | np.generic"


class Buffer(NamedTuple):
    """The bytes that an array argument spans, from the lowest address on. `writable`: the kernel may write there."""

    name: str
    address: int
    size: int
    writable: bool


@dataclass(frozen=True, slots=True)
class ArrayClass:
    """The best class that an array is of; the fields are those of `ArrayParameter`."""

    dtype: DType
    ndim: int
    align: int
    contiguous: int | None
    small: bool


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Checked arguments, in parameter order.

    `kernarg` holds the addresses as given; `values` are ArrayViews for arrays, Python numbers for weak scalars, NumPy scalars for others.
    """

    parameters: tuple[Parameter, ...]
    values: tuple[ArrayView | Scalar, ...]
    kernarg: bytes
    buffers: tuple[Buffer, ...]

    def arrays(self) -> list[tuple[ArrayParameter, ArrayView]]:
        """The array parameters with their views."""
        pairs = zip(self.parameters, self.values, strict=True)
        return [(p, v) for p, v in pairs if isinstance(p, ArrayParameter) and isinstance(v, ArrayView)]

    def relocated(self, addresses: Mapping[str, int]) -> bytes:
        """The kernarg segment with other addresses of element [0, …, 0] for the arrays named."""
        kernarg = bytearray(self.kernarg)
        for parameter, _ in self.arrays():
            if parameter.name in addresses:
                struct.pack_into("<Q", kernarg, parameter.offset, addresses[parameter.name])
        return bytes(kernarg)


def classify(array: ArrayView) -> ArrayClass:
    """The best class of an array, as specialisation uses it. An axis of extent 0 or 1 and an array without elements bind nothing.

    Raises LaunchError where an address or a stride is no multiple of the element's size.
    """
    size = array.dtype.bytes
    last = array.ndim - 1
    if 0 in array.shape:
        return ArrayClass(array.dtype, array.ndim, 16, last if array.ndim else None, True)
    contiguous: int | None = None
    long = [(axis, stride) for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)) if extent > 1]
    for axis, stride in reversed(long):
        if stride == size:
            contiguous = axis
            break
    else:
        if array.ndim and array.shape[last] == 1:
            contiguous = last
    bits = array.address
    for axis, stride in long:
        if axis != contiguous:
            bits |= stride
    align = next((align for align in (16, 8, 4) if bits % align == 0 and align >= size), size)
    if bits % size:
        raise LaunchError(_unaligned(array))
    return ArrayClass(array.dtype, array.ndim, align, contiguous, max(array.shape, default=0) < SMALL and array.span()[1] < SMALL)


def disjoint(arrays: Sequence[ArrayView]) -> tuple[bool, ...]:
    """For each array, whether it shares no byte with any other: what specialisation uses, when it isn't yet known which are written."""
    result = [True] * len(arrays)
    for (i, a), (j, b) in combinations(enumerate(arrays), 2):
        if overlap(a, b):
            result[i] = result[j] = False
    return tuple(result)


def bind(artifact: Artifact, args: Sequence[object] | Mapping[str, object]) -> BoundArguments:
    """Check and pack the run-time arguments of a launch, given in parameter order or by name.

    Raises LaunchError that names the argument, what it is and what the artifact takes.
    """
    binder = _binders.get(artifact)
    if binder is None:
        binder = _binders[artifact] = _Binder(artifact)
    return binder.bind(args)


class _Binder:
    """What can be prepared once per artifact: the struct format of the whole segment and a check per parameter."""

    def __init__(self, artifact: Artifact) -> None:
        self.kernel = artifact.kernel_name
        self.parameters = artifact.parameters
        self.scalars = [None if isinstance(p, ArrayParameter) else _scalar_check(p) for p in artifact.parameters]
        codes = ["<"]
        end = 0
        for p in artifact.parameters:
            codes.append(f"{p.offset - end}x")
            codes.append(f"Q{2 * p.ndim}q" if isinstance(p, ArrayParameter) else _CODES[p.dtype])
            end = p.offset + p.size
        codes.append(f"{artifact.kernarg_size - end}x")
        self.format = struct.Struct("".join(codes))

    def bind(self, args: Sequence[object] | Mapping[str, object]) -> BoundArguments:
        words: list[int | float] = []
        values: list[ArrayView | Scalar] = []
        buffers: list[Buffer] = []
        arrays: list[tuple[ArrayParameter, ArrayView]] = []
        for parameter, check, value in zip(self.parameters, self.scalars, self._in_order(args), strict=True):
            if isinstance(parameter, ScalarParameter):
                assert check is not None
                try:
                    word, scalar = check(value)
                except _Refused as refused:
                    raise LaunchError(f"argument {parameter.name!r} of kernel {self.kernel!r}: {refused}") from None
                words.append(word)
                values.append(scalar)
                continue
            array = self._array(parameter, value)
            words += (array.address, *array.shape, *array.strides)
            values.append(array)
            arrays.append((parameter, array))
            start, size = array.span()
            buffers.append(Buffer(parameter.name, start, size, parameter.writes))
        if len(arrays) > 1:
            self._check_overlaps(arrays, buffers)
        return BoundArguments(self.parameters, tuple(values), self.format.pack(*words), tuple(buffers))

    def _in_order(self, args: Sequence[object] | Mapping[str, object]) -> Sequence[object]:
        names = [p.name for p in self.parameters]
        if isinstance(args, Mapping):
            missing = [name for name in names if name not in args]
            extra = [str(name) for name in args if name not in names]
            ordered = [] if missing else [args[name] for name in names]
        else:
            ordered = args
            missing = names[len(args) :]
            extra = [f"a {type(value).__name__} at position {len(names) + i}" for i, value in enumerate(args[len(names) :])]
        if missing or extra:
            problems = [f"{word} {', '.join(which)}" for word, which in (("missing", missing), ("unexpected", extra)) if which]
            takes = ", ".join(names) or "no arguments"
            raise LaunchError(f"kernel {self.kernel!r} takes {takes} ({len(names)} at run time): {'; '.join(problems)}")
        return ordered

    def _array(self, parameter: ArrayParameter, value: object) -> ArrayView:
        where = f"argument {parameter.name!r} of kernel {self.kernel!r}"
        try:
            array = view(value)
        except (LaunchError, UnsupportedDtypeError) as error:
            raise LaunchError(f"{where}: {error.message}") from error
        if array is None:
            raise LaunchError(
                f"{where} must be a {parameter.ndim}-dimensional array of {parameter.dtype.name}, not {type(value).__name__} "
                f"({value!r:.80})"
            )
        if problem := _array_problem(parameter, array):
            raise LaunchError(f"{where}: {problem}")
        return array

    def _check_overlaps(self, arrays: list[tuple[ArrayParameter, ArrayView]], buffers: list[Buffer]) -> None:
        # Ranges first: they are at hand, and rarely meet.
        for i, (_, start, size, _) in enumerate(buffers):
            for j in range(i):
                _, other, other_size, _ = buffers[j]
                if start >= other + other_size or other >= start + size:
                    continue
                (p, a), (q, b) = arrays[j], arrays[i]
                if not ((p.writes or q.writes) and (p.disjoint or q.disjoint) and overlap(a, b)):
                    continue
                written = " and ".join(repr(x.name) for x in (p, q) if x.writes)
                raise LaunchError(
                    f"arguments {p.name!r} and {q.name!r} of kernel {self.kernel!r} overlap in memory and {written} is written, but the "
                    "artifact was compiled for disjoint arguments; compile for these arguments (or disjoint=False), or pass a copy of one"
                )


_binders: WeakKeyDictionary[Artifact, _Binder] = WeakKeyDictionary()


# ---- arrays ----------------------------------------------------------------------------------------------------------------------


def _unaligned(array: ArrayView) -> str:
    return (
        f"address {array.address:#x} or strides {array.strides} are no multiples of the element's {array.dtype.bytes} bytes; "
        "pass a copy (`a.copy()`)"
    )


def _array_problem(p: ArrayParameter, array: ArrayView) -> str:
    """Why an array can't be an argument for a parameter, or ""."""
    if array.dtype is not p.dtype:
        have, need = array.dtype.name, p.dtype.name
        return f"its dtype is {have}, the artifact takes {need}; convert it (`a.astype(…)`) or compile for {have}"
    shape, strides = array.shape, array.strides
    if len(shape) != p.ndim:
        return f"it has {len(shape)} dimensions {shape}, the artifact takes {p.ndim}"
    if p.writes and not array.writable:
        return "it is read-only, and the kernel writes it"
    if 0 in shape:
        return ""
    bits = array.address
    for axis in range(p.ndim):
        if shape[axis] == 1:
            continue
        if strides[axis] == 0 and p.writes:
            return (
                f"its stride along axis {axis} is 0 over {shape[axis]} elements, and the kernel writes it: pass an array of its own memory"
            )
        if axis != p.contiguous:
            bits |= strides[axis]
        elif strides[axis] != p.dtype.bytes:
            return (
                f"the artifact's class needs axis {axis} contiguous (stride {p.dtype.bytes}), this array's stride there is {strides[axis]} "
                f"(strides {strides}); pass a contiguous copy, or compile for this array"
            )
    if bits % p.align:
        if bits % p.dtype.bytes:
            return _unaligned(array)
        return (
            f"the artifact's class needs address and strides aligned to {p.align} bytes; this array lies at {array.address:#x} with "
            f"strides {strides}; pass an aligned copy, or compile for this array"
        )
    if p.small and (max(shape, default=0) >= SMALL or array.span()[1] >= SMALL):
        return (
            f"the artifact's class needs extents and bytes below 2**31; this array has shape {shape} and spans {array.span()[1]} bytes; "
            "compile for this array"
        )
    if p.writes and _overlaps_itself(shape, strides, p.dtype.bytes):
        return f"elements of it share memory (shape {shape}, strides {strides}), and the kernel writes it: pass an array of its own memory"
    return ""


def _overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Whether elements of an aligned array of `size` bytes each, none of its extents 0, lie on one another.

    Exact for one and two axes. With more, whatever slicing and transposing make is told apart; what doesn't nest counts as overlapping.
    """
    axes = sorted((abs(stride), extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    span = size
    for stride, extent in axes:
        if stride < span:
            break
        span += stride * (extent - 1)
    else:
        return False
    if len(axes) != 2:
        return True
    (short, many), (long, few) = axes  # elements meet where i * short == j * long; the least such i and j are these
    common = math.gcd(short, long)
    return long // common < many and short // common < few


# ---- scalars ---------------------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """Why a scalar doesn't fit its parameter."""


ScalarCheck: TypeAlias = Callable[[object], "tuple[int | float, Scalar]"]

_CODES: dict[DType, str] = {
    dtypes.bool_: "B",
    dtypes.int8: "b",
    dtypes.int16: "h",
    dtypes.int32: "i",
    dtypes.int64: "q",
    dtypes.uint8: "B",
    dtypes.uint16: "H",
    dtypes.uint32: "I",
    dtypes.uint64: "Q",
    dtypes.float16: "e",
    dtypes.bfloat16: "H",  # as bits
    dtypes.float32: "f",
    dtypes.float64: "d",
}


def _scalar_check(p: ScalarParameter) -> ScalarCheck:
    """A function from an argument to (the value for `struct`, the value as its dtype); it raises _Refused."""
    if p.dtype.kind is Kind.BOOL:
        return _check_bool
    if p.dtype.is_integer:
        return _int_check(p)
    return _float_check(p)


def _numpy_dtype(value: object) -> NumpyDType | None:
    """The dtype of a NumPy scalar, or None for anything else."""
    return cast(Any, value).dtype if isinstance(value, np.generic) else None


def _is_numpy(value: object, dtype: NumpyDType) -> bool:
    """Whether a value is a NumPy scalar of this dtype. (NumPy takes None for float64 in a comparison of dtypes.)"""
    return isinstance(value, np.generic) and cast(Any, value).dtype == dtype


def _check_bool(value: object) -> tuple[int, Scalar]:
    if isinstance(value, bool) or _is_numpy(value, dtypes.bool_.numpy):
        return int(cast(Any, value)), np.bool_(cast(Any, value))
    raise _Refused(f"a bool is needed, not {_named(value)}")


def _named(value: object) -> str:
    if (dtype := _numpy_dtype(value)) is not None:
        return f"NumPy's {dtype}"
    if isinstance(value, np.ndarray):
        return "an array"
    return f"{value!r:.60} ({type(value).__name__})"


def _strong_mismatch(p: ScalarParameter, value: object) -> _Refused:
    python = "int" if p.dtype.is_integer else "float"
    if p.weak:
        dtype = _numpy_dtype(value)
        hint = f"; pass `{python}(x)`, or compile for {dtype}" if dtype is not None else ""
        return _Refused(f"a Python {python} is needed, not {_named(value)}{hint}")
    return _Refused(f"{p.dtype.name} is needed (or a Python {python}), not {_named(value)}")


def _int_check(p: ScalarParameter) -> ScalarCheck:
    low = -(2 ** (p.dtype.bits - 1)) if p.dtype.is_signed else 0
    high = low + 2**p.dtype.bits - 1
    numpy_dtype, weak = p.dtype.numpy, p.weak
    scalar_type: Callable[[int], Scalar] = numpy_dtype.type

    def check(value: object) -> tuple[int, Scalar]:
        if type(value) is int:
            if not low <= value <= high:
                raise _Refused(f"{value} does not fit {p.dtype.name} ({low} … {high})")
            return value, value if weak else scalar_type(value)
        if not weak and _is_numpy(value, numpy_dtype):
            return int(cast(Any, value)), cast(Any, value)
        raise _strong_mismatch(p, value)

    return check


def _float_check(p: ScalarParameter) -> ScalarCheck:
    numpy_dtype, weak = p.dtype.numpy, p.weak
    top = float.fromhex("0x1.fep127") if p.dtype is dtypes.bfloat16 else float(np.finfo(cast(Any, numpy_dtype)).max)

    def word(value: Any) -> tuple[int | float, Any]:
        scalar: Any = np.array(value, numpy_dtype)[()]
        return int(scalar.view(np.uint16)) if p.dtype is dtypes.bfloat16 else float(scalar), scalar

    def check(value: object) -> tuple[int | float, Scalar]:
        if type(value) is float or type(value) is int:
            try:
                number = float(value)
            except OverflowError:
                raise _Refused(f"{value!r:.40}… does not fit {p.dtype.name}") from None
            if weak:
                return number, number
            with np.errstate(over="ignore"):
                packed, scalar = word(number)
            if np.isinf(scalar) and not np.isinf(number):
                raise _Refused(f"{value} does not fit {p.dtype.name} (at most {top:g} in magnitude)")
            return packed, scalar
        if not weak and _is_numpy(value, numpy_dtype):
            return word(value)
        raise _strong_mismatch(p, value)

    return check
