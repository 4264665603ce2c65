"""Executors for AMD GPUs: the code object goes to the device through HIP.

`rocm_wmma` and `rocm_mfma` are the same machinery under the names that artifacts carry. Host arrays are copied to the device and, where
the kernel writes them, back; device arrays are used in place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from ..errors import LaunchError
from . import hip_api
from .device import Device, override_note
from .registry import LaunchRequest, LaunchResult
from .views import HOST

# hip_runtime_api.h: what the `extra` argument of hipModuleLaunchKernel is made of.
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3

_PAGE = 256  # hipMalloc aligns to this: a host array's address is kept modulo it, so that its class holds on the device


@dataclass
class _Module:
    """A loaded code object. The image stays alive with it: HIP may read it later."""

    image: bytes
    handle: Any
    functions: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class _Mirror:
    """A range of host memory that is copied to the device: one or several arguments that overlap."""

    start: int
    end: int
    written: bool
    memory: Any = None

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def device_start(self) -> int:
        return int(self.memory) + self.start % _PAGE


_modules: dict[tuple[int, str], _Module] = {}
_modules_lock = Lock()


class HipExecutor:
    """Runs code objects on HIP devices.

    Options: `stream` (a hip-python stream, its address, or None for the default stream), `dynamic_lds` (bytes that a foreign kernel takes
    beyond its own).
    """

    kind = "hip"
    options = frozenset({"dynamic_lds", "stream"})

    def __init__(self, name: str) -> None:
        self.name = name

    def unavailable(self) -> str | None:
        devices, reason = hip_api.find_devices()
        return None if devices else reason

    def devices(self) -> Sequence[Device]:
        return hip_api.find_devices()[0]

    def run(self, request: LaunchRequest) -> LaunchResult:
        """Launch in stream order; with host arrays, wait and copy back what was written.

        Raises LaunchError naming the HIP call that failed, the kernel and the arch.
        """
        about, stream = str(request), request.options.get("stream")
        for parameter, array in request.arguments.arrays():
            if array.device not in (HOST, str(request.device)):
                raise LaunchError(f"argument {parameter.name!r} lies on {array.device}, but {about} runs on {request.device}")
        mirrors = _mirrors(request)
        with hip_api.on_device(request.device.index):
            function = _function(request, about)
            timer = _Timer(request.device.index, stream, about)
            try:
                addresses = _copy_in(request, mirrors, about)
                timer.record()
                _launch(function, request, request.arguments.relocated(addresses), stream, about)
                timer.record()
                notes = (override_note(),) if override_note() else ()
                if not mirrors:
                    return LaunchResult(request, self.name, timer=timer.seconds, notes=notes)
                seconds = timer.seconds()
                for mirror in mirrors:
                    if mirror.written:
                        hip_api.copy(mirror.start, mirror.device_start, mirror.size, "hipMemcpyDeviceToHost", about)
                return LaunchResult(request, self.name, seconds=seconds, notes=notes)
            except BaseException:
                timer.discard()
                raise
            finally:
                for mirror in mirrors:
                    if mirror.memory is not None:
                        hip_api.call("hipFree", mirror.memory, about=about)


class _Timer:
    """Two events around a kernel on its stream. They are destroyed by `seconds`, or by `discard` where it won't be called."""

    def __init__(self, device: int, stream: Any, about: str) -> None:
        self._device, self._stream, self._about = device, stream, about
        self._events: list[Any] = []

    def record(self) -> None:
        """Take the time at this point of the stream."""
        event = hip_api.call("hipEventCreate", about=self._about)
        self._events.append(event)
        hip_api.call("hipEventRecord", event, self._stream, about=self._about)

    def seconds(self) -> float:
        """Wait for the kernel and return how long it ran. To be called once."""
        with hip_api.on_device(self._device):
            try:
                start, stop = self._events
                hip_api.call("hipEventSynchronize", stop, about=self._about)
                return float(hip_api.call("hipEventElapsedTime", start, stop, about=self._about)) / 1e3
            finally:
                self.discard()

    def discard(self) -> None:
        """Destroy the events."""
        while self._events:
            hip_api.call("hipEventDestroy", self._events.pop(), about=self._about)


def _function(request: LaunchRequest, about: str) -> Any:
    """The kernel's handle; modules are loaded once per device and content, and stay."""
    with _modules_lock:
        key = (request.device.index, request.key)
        module = _modules.get(key)
        if module is None:
            image = request.code_object
            module = _modules[key] = _Module(image, hip_api.call("hipModuleLoadData", image, about=about))
        function = module.functions.get(request.kernel)
        if function is None:
            name = request.kernel.encode()
            function = module.functions[request.kernel] = hip_api.call("hipModuleGetFunction", module.handle, name, about=about)
        return function


def _mirrors(request: LaunchRequest) -> list[_Mirror]:
    """The ranges of host memory to copy; overlapping arguments share one, so that they overlap on the device too."""
    ranges = [(*array.span(), parameter.writes) for parameter, array in request.arguments.arrays() if array.device == HOST]
    mirrors: list[_Mirror] = []
    for start, size, written in sorted(ranges):
        if not size:
            continue
        if mirrors and start < mirrors[-1].end:
            last = mirrors[-1]
            last.end, last.written = max(last.end, start + size), last.written or written
        else:
            mirrors.append(_Mirror(start, start + size, written))
    return mirrors


def _copy_in(request: LaunchRequest, mirrors: list[_Mirror], about: str) -> dict[str, int]:
    """Copy the host's arrays to the device; outputs too, since a kernel may leave some of their elements alone. Returns new addresses."""
    for mirror in mirrors:
        mirror.memory = hip_api.call("hipMalloc", mirror.size + _PAGE, about=about)
        hip_api.copy(mirror.device_start, mirror.start, mirror.size, "hipMemcpyHostToDevice", about)
    addresses: dict[str, int] = {}
    for parameter, array in request.arguments.arrays():
        if array.device != HOST:
            continue
        start, size = array.span()
        mirror = next((m for m in mirrors if size and m.start <= start < m.end), None)
        addresses[parameter.name] = array.address - mirror.start + mirror.device_start if mirror is not None else 0
    return addresses


def _launch(function: Any, request: LaunchRequest, kernarg: bytes, stream: Any, about: str) -> None:
    segment = ctypes.create_string_buffer(kernarg, max(len(kernarg), 1))
    size = ctypes.c_size_t(len(kernarg))
    extra = (ctypes.c_void_p * 5)(_BUFFER_POINTER, ctypes.addressof(segment), _BUFFER_SIZE, ctypes.addressof(size), _END)
    lds = int(request.options.get("dynamic_lds", 0))
    hip_api.call("hipModuleLaunchKernel", function, *request.grid, *request.block, lds, stream, None, ctypes.addressof(extra), about=about)
