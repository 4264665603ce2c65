"""Run a kernel on NumPy arrays: the reference for every pass and every target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import cast

import numpy as np

from .core import Block, Kernel, Trait, Value
from .types import ArrayType, NDArray


@dataclass
class _Program:
    """One program of the grid; satisfies core.Program."""

    ids: tuple[int, int, int]
    counts: tuple[int, int, int]
    env: dict[Value, NDArray] = field(default_factory=dict[Value, NDArray])

    def run(self, block: Block, args: Sequence[NDArray]) -> Sequence[NDArray]:
        env = self.env
        env.update(zip(block.params, args, strict=True))
        for op in block.ops:
            inputs = [env[v] for v in op.operands]
            if op.has(Trait.TERMINATOR):
                return inputs
            env.update(zip(op.results, op.evaluate(inputs, self), strict=True))
        return ()


def run_kernel(kernel: Kernel, grid: tuple[int, int, int], args: Sequence[object]) -> None:
    """Run every program of the grid, in order; arrays are written in place. Scalars are converted to their parameter's dtype."""
    values: list[NDArray] = []
    for param, arg in zip(kernel.params, args, strict=True):
        values.append(cast("NDArray", arg) if isinstance(param.type, ArrayType) else np.asarray(arg, param.tile.dtype.numpy))
    for z, y, x in product(range(grid[2]), range(grid[1]), range(grid[0])):
        _Program((x, y, z), grid).run(kernel.body, values)
