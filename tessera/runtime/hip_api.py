"""HIP through hip-python: every call checked, errors as Tessera's, devices probed by using them.

hip-python imports without ROCm and looks for the runtime library at the first call. Nothing here is loaded before it is needed.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

from ..errors import LaunchError, UnsupportedArchError
from .device import Device, missing_gpu_hint, override_note, parse_arch

_PROBE = bytes(range(256))


@cache
def _bindings() -> Any:
    from hip import hip

    return hip


def call(function: str, *args: Any, about: str = "") -> Any:
    """Call a HIP function and return what it returns beside its status: nothing, a value, or a tuple.

    Raises LaunchError naming the call, the status, and what it was `about` (the kernel and arch, the device). The runtime's record of the
    last error is cleared first, so that the next call doesn't report it again.
    """
    hip = _bindings()
    status, *values = getattr(hip, function)(*args)
    if status != hip.hipError_t.hipSuccess:
        try:
            hip.hipGetLastError()
        finally:
            raise LaunchError(f"{function} failed with {status.name} ({int(status)})" + (f" for {about}" if about else ""))
    return values[0] if len(values) == 1 else tuple(values) if values else None


def constant(enum: str, name: str) -> Any:
    """A member of one of HIP's enumerations."""
    return getattr(getattr(_bindings(), enum), name)


@dataclass(frozen=True)
class _Found:
    """What the search for devices gave: the devices that work, and why others or all don't."""

    devices: tuple[Device, ...] = ()
    reason: str = ""


_found: _Found | None = None
_search_lock = Lock()


def find_devices() -> tuple[tuple[Device, ...], str]:
    """The HIP devices that work, and, where there is none, the reason. Searched for once in a process (`forget_devices` to repeat)."""
    global _found
    with _search_lock:
        if _found is None:
            _found = _search()
        return _found.devices, _found.reason


def forget_devices() -> None:
    """Search again at the next question."""
    global _found
    with _search_lock:
        _found = None


def _search() -> _Found:
    try:
        _bindings()
    except ImportError as error:
        return _Found(reason=f"the Python package hip-python can't be imported ({error})")
    try:
        count = int(call("hipGetDeviceCount"))
    except RuntimeError as error:  # hip-python, where the library or a function of it is missing
        return _Found(reason=_explained(f"the HIP runtime can't be loaded ({_plain(str(error))})"))
    except LaunchError as error:
        count, failures = 0, [error.message]
    else:
        failures = []
    devices: list[Device] = []
    # Under WSL the count may be 0 while kernels run: device 0 is tried in any case.
    for index in range(max(count, 1)):
        try:
            devices.append(_probe(index))
        except (LaunchError, UnsupportedArchError, RuntimeError) as error:
            failures.append(f"hip:{index} doesn't work: {error}")
    return _Found(tuple(devices), "" if devices else _explained("; ".join(failures)))


def _plain(text: str) -> str:
    """An error's text without the marks of Python's bytes, in which hip-python puts what the system's loader said."""
    return re.sub(r"""'b(['"])(.*?)\1'|\bb(['"])(.*?)\3""", lambda m: f"'{m[2]}'" if m[1] else m[4], text)


def _explained(reason: str) -> str:
    return "; ".join(part for part in (reason, missing_gpu_hint(), override_note()) if part)


def _probe(index: int) -> Device:
    """Use a device: allocate, copy there and back, free. Raises LaunchError where that doesn't give back what was sent."""
    about = f"hip:{index}"
    with on_device(index):
        properties = call("hipGetDeviceProperties", index, about=about)
        arch, _ = parse_arch(_text(properties.gcnArchName))
        memory = call("hipMalloc", len(_PROBE), about=about)
        try:
            back = ctypes.create_string_buffer(len(_PROBE))
            sent = ctypes.create_string_buffer(_PROBE, len(_PROBE))
            copy(int(memory), ctypes.addressof(sent), len(_PROBE), "hipMemcpyHostToDevice", about)
            copy(ctypes.addressof(back), int(memory), len(_PROBE), "hipMemcpyDeviceToHost", about)
            if back.raw != _PROBE:
                raise LaunchError(f"{about} gave back other bytes than were copied to it")
        finally:
            call("hipFree", memory, about=about)
    return Device("hip", index, arch, _text(properties.name))


def _text(value: object) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return raw.split(b"\0")[0].decode(errors="replace")


def copy(target: int, source: int, size: int, kind: str, about: str = "") -> None:
    """hipMemcpy between addresses; `kind` is HIP's name for the direction. Waits until the bytes are there."""
    if size:
        call("hipMemcpy", target, source, size, constant("hipMemcpyKind", kind), about=about)


def free(index: int, address: int) -> None:
    """Give device memory back."""
    with on_device(index):
        call("hipFree", address, about=f"hip:{index}")


class on_device:
    """Make a device current in this thread for a block, and the former one afterwards."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.former = index

    def __enter__(self) -> None:
        self.former = int(call("hipGetDevice"))
        if self.former != self.index:
            call("hipSetDevice", self.index, about=f"hip:{self.index}")

    def __exit__(self, *_: object) -> None:
        if self.former != self.index:
            call("hipSetDevice", self.former, about=f"hip:{self.former}")
