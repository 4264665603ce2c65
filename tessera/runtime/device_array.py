"""Arrays that live on a GPU."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import ExecutorUnavailableError, LaunchError
from . import hip_api
from .device import Device
from .views import ArrayView, packed_strides


class DeviceArray:
    """An array in the memory of a HIP device. Kernels use it in place; nothing is copied but by `from_numpy`, `copy_from` and `numpy`.

    Slices and transposes are views. Other libraries see the memory through `__cuda_array_interface__`, which ROCm's builds of them read.
    """

    def __init__(self, view: ArrayView) -> None:
        self._view = view

    @staticmethod
    def empty(shape: int | Sequence[int], dtype: DType | npt.DTypeLike, device: Device | str = "hip:0") -> DeviceArray:
        """Uninitialised memory. Raises ExecutorUnavailableError where there is no such device, LaunchError where it has no room."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        element = dtype if isinstance(dtype, DType) else dtypes.from_numpy(dtype)
        wanted = Device.parse(device) if isinstance(device, str) else device
        devices, reason = hip_api.find_devices()
        if wanted.kind != "hip" or all(found.index != wanted.index for found in devices):
            present = f"there is {', '.join(map(str, devices))}" if devices else reason
            raise ExecutorUnavailableError(f"no device memory on {wanted}: {present}")
        size = math.prod(shape) * element.bytes
        with hip_api.on_device(wanted.index):
            memory = hip_api.call("hipMalloc", max(size, 1), about=f"{size} bytes on {wanted}")
        view = ArrayView(element, shape, packed_strides(shape, element.bytes), int(memory), True, str(wanted), None)
        array = DeviceArray(view)
        view.owner = owner = _Memory()
        weakref.finalize(owner, hip_api.free, wanted.index, int(memory)).atexit = False  # the process's end frees it anyway
        return array

    @staticmethod
    def from_numpy(array: npt.ArrayLike, device: Device | str = "hip:0") -> DeviceArray:
        """A copy of a host array, in C order."""
        host = np.asarray(array)
        result = DeviceArray.empty(host.shape, host.dtype, device)
        result.copy_from(host)
        return result

    @property
    def shape(self) -> tuple[int, ...]:
        return self._view.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes, as NumPy's."""
        return self._view.strides

    @property
    def dtype(self) -> dtypes.NumpyDType:
        return self._view.dtype.numpy

    @property
    def ndim(self) -> int:
        return self._view.ndim

    @property
    def device(self) -> str:
        return self._view.device

    @property
    def T(self) -> DeviceArray:
        """The axes in reverse order; a view."""
        view = self._view
        return DeviceArray(ArrayView(view.dtype, view.shape[::-1], view.strides[::-1], view.address, True, view.device, view.owner))

    def __getitem__(self, key: Any) -> DeviceArray:
        """A view by slices and integers. Raises TypeError for index arrays, which would need a copy."""
        entries = cast("tuple[Any, ...]", key if isinstance(key, tuple) else (key,))
        if not all(isinstance(entry, (int, slice, np.integer)) or entry is None or entry is Ellipsis for entry in entries):
            raise TypeError("a DeviceArray is indexed by integers and slices")
        # NumPy slices an array that stands at the device's address and reads nothing there: with "..." the result is never a scalar.
        shadow = self._view.to_numpy()[entries if Ellipsis in entries else (*entries, ...)]
        view = self._view
        address = shadow.__array_interface__["data"][0]
        return DeviceArray(ArrayView(view.dtype, shadow.shape, shadow.strides, address, True, view.device, view.owner))

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host, in C order; waits for what is in flight on the default stream."""
        start, size = self._view.span()
        raw = np.empty(size, np.uint8)
        with hip_api.on_device(Device.parse(self.device).index):
            hip_api.copy(raw.ctypes.data, start, size, "hipMemcpyDeviceToHost", self.device)
        view = self._view
        strided: Any = np.ndarray(view.shape, view.dtype.numpy, raw.data, view.address - start, view.strides)
        return strided.copy(order="C")

    def copy_from(self, array: npt.ArrayLike) -> None:
        """Copy a host array of the same shape and dtype here. Raises LaunchError where they differ, or where this is a strided view."""
        host = np.asarray(array)
        view = self._view
        if host.shape != view.shape or host.dtype != view.dtype.numpy:
            raise LaunchError(f"a host array {host.shape} of {host.dtype} doesn't fit a device array {view.shape} of {view.dtype.name}")
        if view.strides != packed_strides(view.shape, view.dtype.bytes):
            raise LaunchError(f"copy_from fills whole arrays in C order; this view has strides {view.strides}")
        host = np.ascontiguousarray(host)
        with hip_api.on_device(Device.parse(self.device).index):
            hip_api.copy(view.address, host.ctypes.data, host.nbytes, "hipMemcpyHostToDevice", self.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        view = self._view
        if view.dtype is dtypes.bfloat16:
            raise AttributeError("the array interface has no bfloat16")
        typestr: str = cast(Any, view.dtype.numpy).str
        return {"shape": view.shape, "strides": view.strides, "typestr": typestr, "data": (view.address, False), "version": 3}

    def __tessera_view__(self) -> ArrayView:
        return self._view

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self._view.dtype.name}, device={self.device})"


class _Memory:
    """Stands for an allocation, which ends with it."""
