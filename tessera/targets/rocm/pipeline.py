"""The passes from Tile IR to the ROCm level, in order. Each is a function `(Kernel, Arch) -> None` that changes the kernel in place.

Each keeps the kernel's meaning: the reference interpreter gives the same arrays before and after, up to the order in which floats are
summed along K.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Kernel
from .allocate import allocate
from .arch import Arch
from .assign import assign
from .barriers import barriers
from .expand import expand
from .fences import fences
from .limits import limits
from .prefetch import prefetch
from .select import select
from .stage import stage

Pass = Callable[[Kernel, Arch], None]

ROCM_PASSES: tuple[Pass, ...] = (select, assign, stage, limits, prefetch, fences, expand, allocate, barriers)
