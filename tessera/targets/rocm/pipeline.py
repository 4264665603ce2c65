"""The passes from Tile IR to the ROCm level, in order. Each is a function `(Kernel, Arch) -> None`."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Kernel
from .arch import Arch
from .assign import assign
from .prefetch import prefetch
from .select import select
from .stage import stage

Pass = Callable[[Kernel, Arch], None]

ROCM_PASSES: tuple[Pass, ...] = (select, assign, stage, prefetch)
