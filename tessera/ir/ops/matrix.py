"""The matrix product."""

from __future__ import annotations

from collections.abc import Sequence

from .. import numerics
from ..core import IRError, Op, Program, Trait, Value, attr, operand
from ..types import NDArray, Type


class Dot(Op, name="dot", traits=Trait.PURE):
    """`a @ b + acc` for tiles (M, K), (K, N) and (M, N). The accumulator's dtype is the one asked for; float sums may be made in any order.

    `fallback` and `instruction` are the user's wishes ("" for none), which the target resolves.
    """

    a: Value = operand()
    b: Value = operand()
    acc: Value = operand()
    fallback: str = attr("")
    instruction: str = attr("")

    def infer(self) -> Sequence[Type]:
        a, b, acc = self.a.tile, self.b.tile, self.acc.tile
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or acc.shape != (a.shape[0], b.shape[1]):
            raise IRError(f"dot: shapes {a.shape} @ {b.shape} + {acc.shape} do not fit", self)
        return (acc,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        a, b, acc = args
        return (numerics.matmul(a, b, acc, self.acc.tile),)
