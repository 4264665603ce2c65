"""Arrays of any origin seen one way: NumPy, the array interfaces, DLPack, and `DeviceArray`.

An `ArrayView` is where an array's elements lie. It copies nothing and keeps its owner alive.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import LaunchError

HOST = "host"


@dataclass(slots=True)
class ArrayView:
    """Where an array lies. `address` is that of element [0, …, 0]; `strides` are in bytes, of any sign; `device` is "host" or "hip:N".

    `owner` is whatever keeps the memory alive.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    writable: bool
    device: str
    owner: object

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def span(self) -> tuple[int, int]:
        """The lowest address of any element, and the bytes from there to the end of the highest element; 0 bytes where there is none."""
        low = high = 0
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 0:
                return self.address, 0
            if stride < 0:
                low += (extent - 1) * stride
            else:
                high += (extent - 1) * stride
        return self.address + low, high - low + self.dtype.bytes

    def to_numpy(self) -> npt.NDArray[Any]:
        """The same elements as a NumPy array, without a copy. Its elements may be touched for host arrays only."""
        owner: Any = self.owner
        if isinstance(owner, np.ndarray):
            return cast("npt.NDArray[Any]", owner)
        start, size = self.span()
        memory: Any = (ctypes.c_char * size).from_address(start) if size else b""
        array: npt.NDArray[Any] = np.ndarray(self.shape, self.dtype.numpy, memory, self.address - start, self.strides)
        array.flags.writeable = array.flags.writeable and self.writable
        return array


def view(value: object) -> ArrayView | None:
    """The view of an array, or None where `value` is none. Raises LaunchError for an array that no kernel can take."""
    if isinstance(value, np.ndarray):
        return _of_numpy(cast("npt.NDArray[Any]", value))
    if isinstance(value, ArrayView):
        return value
    if isinstance(value, (int, float, np.generic)):
        return None
    if hasattr(value, "__tessera_view__"):
        return cast(Any, value).__tessera_view__()
    if hasattr(value, "__array_interface__"):
        found = _of_numpy(np.asarray(cast(Any, value)))
        found.owner = (value, found.owner)
        return found
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(cast(Any, value))
    if hasattr(value, "__cuda_array_interface__"):
        return _of_device_interface(value)
    return None


def overlap(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays share a byte.

    Exact for host arrays unless that would take long; then, and on devices, whether their ranges meet.
    """
    (a_start, a_size), (b_start, b_size) = a.span(), b.span()
    if a_start >= b_start + b_size or b_start >= a_start + a_size or not a_size or not b_size or a.device != b.device:
        return False
    if a.device != HOST:
        return True
    exact: Any = np.shares_memory  # the stubs know only two values of max_work
    try:
        return exact(a.to_numpy(), b.to_numpy(), max_work=1_000_000)
    except np.exceptions.TooHardError:
        return True


def _of_numpy(array: npt.NDArray[Any]) -> ArrayView:
    if isinstance(array, np.ma.MaskedArray):
        raise LaunchError("a kernel can't see a masked array's mask; pass `.filled(…)` or `.data`")
    return ArrayView(
        _dtype(array.dtype), array.shape, array.strides, array.__array_interface__["data"][0], array.flags.writeable, HOST, array
    )


def _dtype(dtype: dtypes.NumpyDType) -> DType:
    try:
        return dtypes.from_numpy(dtype)
    except TypeError as error:
        native: dtypes.NumpyDType = cast(Any, dtype).newbyteorder("=")
        if not dtype.isnative and any(native == d.numpy for d in dtypes.ALL):
            raise LaunchError(f"the array has the other byte order than this machine; pass `a.astype(np.{native})`") from error
        raise


# ---- DLPack ------------------------------------------------------------------------------------------------------------------------
# The structures are those of dlpack.h, versions 0 and 1: https://dmlc.github.io/dlpack/latest/c_api.html


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_READ_ONLY = 1
_HOST_DEVICES = {1, 3, 11}  # CPU, and host memory pinned by CUDA or ROCm
_ROCM = 10
_CODES = {0: dtypes.Kind.INT, 1: dtypes.Kind.UINT, 2: dtypes.Kind.FLOAT, 4: dtypes.Kind.FLOAT, 6: dtypes.Kind.BOOL}
_BFLOAT = 4


def _capsule(value: Any) -> object:
    device_type, _ = value.__dlpack_device__()
    # Device tensors are handed over in the order of the default stream (0 in the array API's numbering for ROCm).
    stream = {"stream": 0} if int(device_type) == _ROCM else {}
    try:
        try:
            return value.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:
            return value.__dlpack__(**stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise LaunchError(f"{type(value).__name__} doesn't hand its memory over through DLPack: {error}") from error


def _of_dlpack(value: Any) -> ArrayView:
    capsule = _capsule(value)
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    if api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        managed = _DLManagedTensorVersioned.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))
        tensor, writable = managed.tensor, not managed.flags & _READ_ONLY
    else:
        tensor, writable = _DLTensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor")), True
    if tensor.device_type in _HOST_DEVICES:
        device = HOST
    elif tensor.device_type == _ROCM:
        device = f"hip:{tensor.device_id}"
    else:
        raise LaunchError(
            f"{type(value).__name__} lies on a device of DLPack's type {tensor.device_type}; kernels take host and ROCm memory"
        )
    kind = _CODES.get(tensor.code)
    found = [
        d for d in dtypes.ALL if d.kind is kind and d.bits == tensor.bits and (d is dtypes.bfloat16) == (tensor.code == _BFLOAT)
    ]  # fmt: skip
    if not found or tensor.lanes != 1:
        raise LaunchError(f"Tessera has no dtype for DLPack's code {tensor.code} with {tensor.bits} bits and {tensor.lanes} lanes")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    size = found[0].bytes
    strides = tuple(tensor.strides[axis] * size for axis in range(tensor.ndim)) if tensor.strides else packed_strides(shape, size)
    return ArrayView(found[0], shape, strides, (tensor.data or 0) + tensor.byte_offset, writable, device, (value, capsule))


def _of_device_interface(value: object) -> ArrayView:
    interface: dict[str, Any] = cast(Any, value).__cuda_array_interface__
    dtype = _dtype(np.dtype(interface["typestr"]))
    shape = tuple(interface["shape"])
    address, read_only = interface["data"]
    strides = interface.get("strides") or packed_strides(shape, dtype.bytes)
    return ArrayView(dtype, shape, tuple(strides), address or 0, not read_only, "hip:0", value)


def packed_strides(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Strides in bytes of an array in C order without gaps; `size` is the element's, in bytes."""
    strides: list[int] = []
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))
