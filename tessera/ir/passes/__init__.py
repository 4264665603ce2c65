"""The passes over Tile IR, in the order in which they run.

Each takes a kernel and changes it in place; each keeps its meaning: the reference interpreter gives the same arrays before and after.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import config
from ...errors import CompilerBug
from ..core import IRError, Kernel
from ..text import print_kernel
from ..verify import verify
from .cse import cse
from .dce import dce
from .fold import fold
from .licm import licm
from .narrow import narrow

Pass = Callable[[Kernel], None]

TILE_PASSES: tuple[Pass, ...] = (fold, cse, licm, narrow, fold, cse, dce)


def run(kernel: Kernel) -> None:
    """Run all tile passes. Under TESSERA_DEBUG the IR is verified after each; a broken rule is a CompilerBug that names the pass."""
    checked = config.debug()
    for step in TILE_PASSES:
        before = print_kernel(kernel) if checked else ""
        step(kernel)
        if checked:
            try:
                verify(kernel)
            except IRError as error:
                raise CompilerBug(f"pass {step.__name__} broke the IR: {error}\nbefore it:\n{before}") from error
