"""Constants, elementwise arithmetic, comparisons, casts and maths.

Binary ops take two operands of one type: promotion and broadcasting are the frontend's work. Arithmetic on float16 and bfloat16 rounds
once per op; functions are computed in float32 or better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ... import dtypes
from ...dtypes import DType, Kind
from .. import numerics
from ..core import IRError, Op, Program, Trait, Value, attr, operand
from ..types import NDArray, Tile, Type

ELEMENTWISE = Trait.PURE | Trait.ELEMENTWISE


def same_type(op: Op, *values: Value) -> Tile:
    """The one tile type of all `values`. Raises IRError where they differ."""
    first, *rest = (v.tile for v in values)
    for other in rest:
        if other != first:
            raise IRError(f"{op.name}: operand types differ: {first} and {other}", op)
    return first


def require(op: Op, tile: Tile, *kinds: Kind) -> Tile:
    """`tile`, if its dtype is of one of `kinds`. Raises IRError otherwise."""
    if tile.dtype.kind not in kinds:
        raise IRError(f"{op.name}: takes {' or '.join(k.value for k in kinds)}, not {tile.dtype}", op)
    return tile


class Const(Op, name="const", traits=Trait.PURE):
    """A scalar, or a tile of one value. `value` is converted to the dtype when it is used."""

    type: Tile = attr()
    value: float = attr()

    def infer(self) -> Sequence[Type]:
        return (self.type,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        with numerics.quiet():
            return (np.full(self.type.shape, self.value, self.type.dtype.numpy),)


class Arange(Op, name="arange", traits=Trait.PURE):
    """The integers from 0 to the extent of a tile of rank 1."""

    type: Tile = attr()

    def infer(self) -> Sequence[Type]:
        if len(self.type.shape) != 1 or not self.type.dtype.is_integer:
            raise IRError(f"arange: makes integer tiles of rank 1, not {self.type}", self)
        return (self.type,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.arange(self.type.shape[0]).astype(self.type.dtype.numpy),)


class Cast(Op, name="cast", traits=ELEMENTWISE):
    """Convert to another dtype (rules: numerics.cast_array)."""

    source: Value = operand()
    to: DType = attr()

    def infer(self) -> Sequence[Type]:
        return (Tile(self.source.tile.shape, self.to),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (numerics.cast_array(args[0], self.source.tile.dtype, self.to),)


class Select(Op, name="select", traits=ELEMENTWISE):
    """`then` where `cond`, else `orelse`; `cond` is a bool tile of the same shape."""

    cond: Value = operand()
    then: Value = operand()
    orelse: Value = operand()

    def infer(self) -> Sequence[Type]:
        tile = same_type(self, self.then, self.orelse)
        if self.cond.type != Tile(tile.shape, dtypes.bool_):
            raise IRError(f"select: the condition is {self.cond.type}, not a bool tile of shape {tile.shape}", self)
        return (tile,)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        return (np.where(args[0], args[1], args[2]).astype(args[1].dtype),)


# ---- one operand -------------------------------------------------------------------------------------------------------------


class Unary(Op):
    """An elementwise op of one operand. `kinds` are the dtypes it takes; the result has the operand's type."""

    source: Value = operand()
    kinds: ClassVar[tuple[Kind, ...]]

    def infer(self) -> Sequence[Type]:
        return (require(self, self.source.tile, *self.kinds),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        dtype = self.source.tile.dtype
        with numerics.quiet():
            return (np.asarray(self.apply(numerics.wide(args[0], dtype))).astype(dtype.numpy),)

    def apply(self, x: NDArray) -> Any:
        """The meaning on an array, float16 and bfloat16 widened to float32."""
        raise NotImplementedError


NUMERIC = (Kind.INT, Kind.UINT, Kind.FLOAT)
FLOAT = (Kind.FLOAT,)
BITS = (Kind.BOOL, Kind.INT, Kind.UINT)
ANY = (Kind.BOOL, Kind.INT, Kind.UINT, Kind.FLOAT)


class Neg(Unary, name="neg", traits=ELEMENTWISE):
    """`-x`; integers wrap."""

    kinds = NUMERIC

    def apply(self, x: NDArray) -> Any:
        return np.negative(x)


class Abs(Unary, name="abs", traits=ELEMENTWISE):
    """`|x|`; the lowest integer stays itself."""

    kinds = NUMERIC

    def apply(self, x: NDArray) -> Any:
        return np.abs(x)


class Not(Unary, name="not", traits=ELEMENTWISE):
    """`~x`: all bits, or the truth of a bool."""

    kinds = BITS

    def apply(self, x: NDArray) -> Any:
        return np.invert(x)


class Floor(Unary, name="floor", traits=ELEMENTWISE):
    """The largest integral value not above x."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return np.floor(x)


class Ceil(Unary, name="ceil", traits=ELEMENTWISE):
    """The smallest integral value not below x."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return np.ceil(x)


class Sqrt(Unary, name="sqrt", traits=ELEMENTWISE):
    """The square root, correctly rounded."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return np.sqrt(x)


class Rsqrt(Unary, name="rsqrt", traits=ELEMENTWISE):
    """1 / sqrt(x), within the ULP table."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return 1 / np.sqrt(x.astype(np.float64))


class Exp(Unary, name="exp", traits=ELEMENTWISE):
    """e to the power x, within the ULP table."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return np.exp(x.astype(np.float64))


class Exp2(Unary, name="exp2", traits=ELEMENTWISE):
    """2 to the power x, within the ULP table."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return np.exp2(x.astype(np.float64))


class Log(Unary, name="log", traits=ELEMENTWISE):
    """The natural logarithm, within the ULP table."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return np.log(x.astype(np.float64))


class Log2(Unary, name="log2", traits=ELEMENTWISE):
    """The binary logarithm, within the ULP table."""

    kinds = FLOAT

    def apply(self, x: NDArray) -> Any:
        return np.log2(x.astype(np.float64))


# ---- two operands ------------------------------------------------------------------------------------------------------------


class Binary(Op):
    """An elementwise op of two operands of one type, which is also the result's."""

    lhs: Value = operand()
    rhs: Value = operand()
    kinds: ClassVar[tuple[Kind, ...]]

    def infer(self) -> Sequence[Type]:
        return (require(self, same_type(self, self.lhs, self.rhs), *self.kinds),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        dtype = self.lhs.tile.dtype
        with numerics.quiet():
            got = self.apply(numerics.wide(args[0], dtype), numerics.wide(args[1], dtype))
            return (np.asarray(got).astype(dtype.numpy),)

    def apply(self, x: NDArray, y: NDArray) -> Any:
        """The meaning on arrays, float16 and bfloat16 widened to float32."""
        raise NotImplementedError


COMMUTES = ELEMENTWISE | Trait.COMMUTATIVE


class Add(Binary, name="add", traits=COMMUTES):
    """`x + y`; integers wrap."""

    kinds = NUMERIC

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.add(x, y)


class Sub(Binary, name="sub", traits=ELEMENTWISE):
    """`x - y`; integers wrap."""

    kinds = NUMERIC

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.subtract(x, y)


class Mul(Binary, name="mul", traits=COMMUTES):
    """`x * y`; integers wrap."""

    kinds = NUMERIC

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.multiply(x, y)


class Div(Binary, name="div", traits=ELEMENTWISE):
    """`x / y` of floats, correctly rounded."""

    kinds = FLOAT

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.divide(x, y)


class FloorDiv(Binary, name="floordiv", traits=ELEMENTWISE):
    """`x // y` (numerics.floor_divide)."""

    kinds = NUMERIC

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return numerics.floor_divide(x, y)


class Mod(Binary, name="mod", traits=ELEMENTWISE):
    """`x % y` (numerics.remainder)."""

    kinds = NUMERIC

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return numerics.remainder(x, y)


class Maximum(Binary, name="maximum", traits=COMMUTES):
    """The larger; NaN if either is (numerics.maximum)."""

    kinds = ANY

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return numerics.maximum(x, y)


class Minimum(Binary, name="minimum", traits=COMMUTES):
    """The smaller; NaN if either is (numerics.minimum)."""

    kinds = ANY

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return numerics.minimum(x, y)


class And(Binary, name="and", traits=COMMUTES):
    """Bitwise, or of truth values."""

    kinds = BITS

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.bitwise_and(x, y)


class Or(Binary, name="or", traits=COMMUTES):
    """Bitwise, or of truth values."""

    kinds = BITS

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.bitwise_or(x, y)


class Xor(Binary, name="xor", traits=COMMUTES):
    """Bitwise, or of truth values."""

    kinds = BITS

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.bitwise_xor(x, y)


class Shl(Binary, name="shl", traits=ELEMENTWISE):
    """`x << y` (numerics.shift_left)."""

    kinds = (Kind.INT, Kind.UINT)

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return numerics.shift_left(x, y)


class Shr(Binary, name="shr", traits=ELEMENTWISE):
    """`x >> y`, arithmetic for signed dtypes (numerics.shift_right)."""

    kinds = (Kind.INT, Kind.UINT)

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return numerics.shift_right(x, y)


# ---- comparisons -------------------------------------------------------------------------------------------------------------


class Compare(Binary):
    """An elementwise comparison: the result is a bool tile. Unsigned dtypes compare unsigned; NaN is unequal to everything."""

    kinds = ANY

    def infer(self) -> Sequence[Type]:
        return (Tile(same_type(self, self.lhs, self.rhs).shape, dtypes.bool_),)

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        with numerics.quiet():
            return (np.asarray(self.apply(args[0], args[1])),)


class Equal(Compare, name="eq", traits=COMMUTES):
    """`x == y`."""

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.equal(x, y)


class NotEqual(Compare, name="ne", traits=COMMUTES):
    """`x != y`."""

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.not_equal(x, y)


class Less(Compare, name="lt", traits=ELEMENTWISE):
    """`x < y`."""

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.less(x, y)


class LessEqual(Compare, name="le", traits=ELEMENTWISE):
    """`x <= y`."""

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.less_equal(x, y)


class Greater(Compare, name="gt", traits=ELEMENTWISE):
    """`x > y`."""

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.greater(x, y)


class GreaterEqual(Compare, name="ge", traits=ELEMENTWISE):
    """`x >= y`."""

    def apply(self, x: NDArray, y: NDArray) -> Any:
        return np.greater_equal(x, y)
