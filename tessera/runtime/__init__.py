"""Running what was compiled: artifacts, executors, launches. Nothing here knows how kernels are made."""

from . import simulator
from .artifact import ArrayParameter, Artifact, ScalarParameter, kernarg_layout, load
from .device import Device
from .device_array import DeviceArray
from .launch import current_device, launch
from .registry import Executor, LaunchRequest, LaunchResult, executors, register_executor

__all__ = [
    "ArrayParameter",
    "Artifact",
    "Device",
    "DeviceArray",
    "Executor",
    "LaunchRequest",
    "LaunchResult",
    "ScalarParameter",
    "current_device",
    "executors",
    "kernarg_layout",
    "launch",
    "load",
    "register_executor",
    "simulator",
]
