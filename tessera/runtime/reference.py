"""The reference executor: an artifact's Tile IR evaluated in NumPy. The oracle of the tests, whatever arch the artifact is for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..errors import LaunchError
from ..ir.interp import run_kernel
from ..ir.text import parse_kernel
from .device import Device
from .registry import LaunchRequest, LaunchResult
from .views import HOST, ArrayView


class ReferenceExecutor:
    """Runs the programs of a grid one after the other, on the arrays in place."""

    kind = "reference"
    options: frozenset[str] = frozenset()

    def unavailable(self) -> str | None:
        return None

    def devices(self) -> Sequence[Device]:
        return (Device("reference"),)

    def run(self, request: LaunchRequest) -> LaunchResult:
        """Evaluate the kernel. Raises LaunchError for a code object without Tile IR and for device arrays."""
        if request.artifact is None or not request.artifact.tile_ir:
            raise LaunchError(f"{request} holds no Tile IR, which is what the reference executor evaluates; run it on the simulator")
        args: list[object] = []
        for parameter, value in zip(request.arguments.parameters, request.arguments.values, strict=True):
            if isinstance(value, ArrayView) and value.device != HOST:
                raise LaunchError(f"argument {parameter.name!r} lies on {value.device}; the reference executor takes host arrays")
            args.append(value.to_numpy() if isinstance(value, ArrayView) else value)
        start = time.perf_counter()
        run_kernel(parse_kernel(request.artifact.tile_ir), request.grid, args)
        return LaunchResult(request, "reference", seconds=time.perf_counter() - start)
