"""Pass 1: each `dot` gets the matrix instruction that will compute it.

After it, `Dot.instruction` names a row of matrix.py for every dot of the kernel. Raises at the dot's line: UnsupportedDtypeError where the
arch's matrix core doesn't take the dtypes, KernelValueError for shapes that no number of fragments covers.

Tiles smaller than a fragment along an axis (1, 2, 4 or 8) are taken: along M and N the fragment then holds copies of the rows and columns
that there are, along K it is filled up with zeros (lowering/matrix.py).
"""

from __future__ import annotations

from ...errors import at
from ...ir.core import Kernel
from ...ir.ops.matrix import Dot
from .arch import Arch
from .matrix import MatrixInstruction, select_matrix_instruction

_FRAGMENT = 16  # what selection is asked for in place of an extent that is smaller


def select(kernel: Kernel, arch: Arch) -> None:
    """Choose the instruction of each dot."""
    for op in kernel.body.walk():
        if isinstance(op, Dot):
            with at(op.location):
                op.instruction = choose(op, arch).mnemonic


def choose(dot: Dot, arch: Arch) -> MatrixInstruction:
    """The row for one dot, the user's wish in `dot.instruction` included. Raises as the pass does."""
    a, b, acc = dot.a.tile, dot.b.tile, dot.acc.tile
    m, n, k = (_FRAGMENT if extent in (1, 2, 4, 8) else extent for extent in (*acc.shape, a.shape[1]))
    return select_matrix_instruction(arch, a.dtype, b.dtype, acc.dtype, (m, n, k), dot.instruction)
