"""Elementwise operations: what the operators of tiles and the functions of `ts` mean.

An operand is a TileValue, a Python number or a NumPy scalar. Both operands of a binary operation are first brought to their common dtype
(promotion.py) and to their common shape (NumPy's broadcasting); then one IR op is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from .. import dtypes
from ..dtypes import DType, Kind
from ..errors import KernelTypeError, KernelValueError, ResourceError
from ..ir import numerics
from ..ir.core import Op
from ..ir.ops import arith
from ..ir.ops.shape import Broadcast, Reshape, Splat
from ..ir.types import Tile
from . import promotion, values
from .tracer import tracer

Number: TypeAlias = "bool | int | float"
Operand: TypeAlias = "values.TileValue | Number"

MAX_TILE_ELEMENTS = 2**20
"""The largest tile. It is 1024 registers for each of 1024 lanes: beyond what any workgroup has."""

# ---- making values ---------------------------------------------------------------------------------------------------------------


def emit(op: Op, weak: bool = False) -> values.TileValue:
    """Append an op to the trace and wrap its result."""
    return values.TileValue(tracer().emit(op), weak)


def constant(value: Number, dtype: DType, shape: tuple[int, ...] = (), *, weak: bool = False) -> values.TileValue:
    """A constant scalar or tile. Raises KernelValueError where an int doesn't fit, KernelTypeError where the kind doesn't."""
    return emit(arith.Const(type=Tile(shape, dtype), value=converted(value, dtype)), weak)


def converted(value: Number, dtype: DType) -> Number:
    """A Python number as a value of `dtype`. Ints become floats as they would at run time, by way of int64."""
    if dtype.is_float:
        if isinstance(value, float):
            return value
        if not -(2**63) <= value < 2**63:
            raise KernelValueError(f"{value} does not fit int64, the type of Python ints in kernels; write it as a float")
        return float(numerics.cast_array(np.asarray(int(value)), dtypes.int64, dtype))
    if isinstance(value, float):
        raise KernelTypeError(f"the float {value!r} can't become {dtype.name} by itself: write int({value!r}), or cast the other side")
    if dtype.kind is Kind.BOOL:
        if not isinstance(value, bool):
            raise KernelTypeError(f"the int {value} can't become a bool by itself: write True, False or bool({value})")
        return value
    low, high = promotion.int_range(dtype)
    if not low <= value <= high:
        raise KernelValueError(f"{value} does not fit {dtype.name} ({low} … {high}); cast the tile to a wider dtype with .astype(…)")
    return int(value)


def operand(x: Any, what: str = "an operand") -> Operand:
    """A user's value as an operand; NumPy scalars become strong constants. Raises KernelTypeError for anything else."""
    if isinstance(x, values.TileValue) or values.is_number(x):
        return x
    if isinstance(x, np.generic):
        numpy_scalar = cast(Any, x)
        dtype = promotion.as_dtype(numpy_scalar.dtype)
        return constant(float(numpy_scalar) if dtype.is_float else numpy_scalar.item(), dtype)
    if isinstance(x, values.ArrayValue):
        raise KernelTypeError(f"the array {x.name!r} can't be {what}: load a tile of it with ts.load({x.name}, …)")
    if isinstance(x, np.ndarray):
        raise KernelTypeError(f"a NumPy array can't be {what} in a kernel: pass it to the kernel as an argument and ts.load it")
    raise KernelTypeError(f"{values.describe(x)} can't be {what} in a kernel: it takes tiles, scalars and numbers")


def scalar(x: Any, what: str) -> values.TileValue:
    """A tile or number as a run-time value; Python numbers become weak constants."""
    x = operand(x, what)
    return x if isinstance(x, values.TileValue) else constant(x, promotion.weak_dtype(x), weak=True)


def astype(x: Any, dtype: object) -> values.TileValue:
    """`x` as a strong value of `dtype`: numerics.cast_array says how. Raises KernelTypeError for what is no dtype."""
    to = promotion.as_dtype(dtype)
    x = operand(x)
    if not isinstance(x, values.TileValue):
        x = constant(x, promotion.weak_dtype(x), weak=True)
    if x.dtype is to:
        return values.TileValue(x.value) if x.weak else x
    return emit(arith.Cast(x.value, to=to))


def _as(x: Operand, dtype: DType, shape: tuple[int, ...], weak: bool) -> values.TileValue:
    """An operand in its operation's dtype and shape."""
    if not isinstance(x, values.TileValue):
        return constant(x, dtype, shape, weak=weak)
    if x.dtype is not dtype:
        x = emit(arith.Cast(x.value, to=dtype), weak)
    return stretch(x, shape)


def stretch(x: values.TileValue, shape: tuple[int, ...]) -> values.TileValue:
    """Broadcast to a shape that is known to fit."""
    if x.shape == shape:
        return x
    if not x.shape:
        return emit(Splat(x.value, shape=shape))
    if len(x.shape) < len(shape):
        x = emit(Reshape(x.value, shape=(1,) * (len(shape) - len(x.shape)) + x.shape))
    return x if x.shape == shape else emit(Broadcast(x.value, shape=shape))


def shape_of(x: Operand) -> tuple[int, ...]:
    """The shape of an operand; () for numbers."""
    return x.shape if isinstance(x, values.TileValue) else ()


def common_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcasting. Raises KernelTypeError naming the axis that doesn't fit."""
    first = shapes[0]
    if all(s == first or not s for s in shapes[1:]):
        return first
    rank = max(map(len, shapes))
    result: list[int] = []
    for axis in range(rank):
        extents = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0} - {1}
        if len(extents) > 1:
            listed = " and ".join(str(s) for s in shapes if s)
            raise KernelTypeError(
                f"{name}: shapes {listed} don't broadcast: axis {axis - rank} is {' and '.join(map(str, sorted(extents)))}; "
                "axes are matched from the last, and extents must be equal or 1 (x[:, None] adds one)"
            )
        result.append(extents.pop() if extents else 1)
    check_size(tuple(result))
    return tuple(result)


def check_size(shape: tuple[int, ...]) -> None:
    """Raises ResourceError where a tile is too large, with the largest first extent that fits."""
    size = math.prod(shape)
    if size > MAX_TILE_ELEMENTS:
        largest = max(shape)
        fits = largest * MAX_TILE_ELEMENTS // size
        smaller = list(shape)
        smaller[smaller.index(largest)] = fits
        advice = f"{tuple(smaller)} fits" if fits >= 1 else "make several axes smaller"
        raise ResourceError(f"a tile of shape {shape} has {size} elements; the limit is {MAX_TILE_ELEMENTS}: {advice}")


# ---- dtypes ----------------------------------------------------------------------------------------------------------------------


def is_weak(x: Operand) -> bool:
    """Whether an operand is a weak number."""
    return not isinstance(x, values.TileValue) or x.weak


def dtype_of(x: Operand) -> DType:
    """The dtype of an operand; for Python numbers the one that they have among themselves."""
    return x.dtype if isinstance(x, values.TileValue) else promotion.weak_dtype(x)


def common_dtype(*operands: Operand) -> tuple[DType, bool]:
    """The dtype that operands meet in, and whether the result is weak."""
    strong = [x.dtype for x in operands if isinstance(x, values.TileValue) and not x.weak]
    weak = [dtype_of(x) for x in operands if is_weak(x)]
    if not strong:
        result = weak[0]
        for dtype in weak[1:]:
            result = promotion.weakest(result, dtype)
        return result, True
    result = strong[0]
    for dtype in strong[1:]:
        result = promotion.promote(result, dtype)
    for dtype in weak:
        result = promotion.meet(result, dtype)
    return result, False


def _wider_than_bool(dtype: DType, weak: bool) -> DType:
    """What bools become where an operation has no meaning for them: int8, as in NumPy; Python's bools become ints."""
    if dtype.kind is not Kind.BOOL:
        return dtype
    return dtypes.int64 if weak else dtypes.int8


# ---- binary operations -----------------------------------------------------------------------------------------------------------

_OPS: dict[str, type[arith.Binary]] = {
    "+": arith.Add,
    "-": arith.Sub,
    "*": arith.Mul,
    "/": arith.Div,
    "//": arith.FloorDiv,
    "%": arith.Mod,
    "&": arith.And,
    "|": arith.Or,
    "^": arith.Xor,
    "<<": arith.Shl,
    ">>": arith.Shr,
    "minimum": arith.Minimum,
    "maximum": arith.Maximum,
}
_ON_BOOLS: dict[str, type[arith.Binary]] = {"+": arith.Or, "*": arith.And}
_BITWISE = frozenset("&|^")
_SHIFTS = frozenset(("<<", ">>"))


def binary(name: str, x: Any, y: Any) -> values.TileValue:
    """`x name y`, for Python's operators, "minimum" and "maximum"."""
    a, b = _operands(name, x, y)
    dtype, weak = common_dtype(a, b)
    cls = _OPS[name]
    if name == "/":
        dtype = dtype if dtype.is_float else dtypes.float64
    elif name in _BITWISE or name in _SHIFTS:
        if dtype.is_float:
            raise KernelTypeError(f"{name} works on bools and integers, not on {values.describe(a)} and {values.describe(b)}")
        if name in _SHIFTS:
            dtype = _wider_than_bool(dtype, weak)
            if isinstance(b, int) and b < 0:
                raise KernelValueError(f"negative shift count {b}")
    elif dtype.kind is Kind.BOOL and name not in ("minimum", "maximum"):
        if not weak and name == "-":
            raise KernelTypeError("- on bools is not defined, as in NumPy: write a ^ b, or cast with .astype(ts.int8)")
        if not weak and name in _ON_BOOLS:
            cls = _ON_BOOLS[name]
        else:
            dtype = _wider_than_bool(dtype, weak)
    shape = common_shape(name, shape_of(a), shape_of(b))
    return emit(cls(_as(a, dtype, shape, weak).value, _as(b, dtype, shape, weak).value), weak)


def _operands(name: str, x: Any, y: Any) -> tuple[Operand, Operand]:
    what = f"an operand of {name}"
    return operand(x, what), operand(y, what)


_COMPARE: dict[str, type[arith.Compare]] = {
    "<": arith.Less,
    "<=": arith.LessEqual,
    ">": arith.Greater,
    ">=": arith.GreaterEqual,
    "==": arith.Equal,
    "!=": arith.NotEqual,
}
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def compare(name: str, x: Any, y: Any) -> values.TileValue:
    """A comparison: a bool tile. An int beyond the tile's dtype compares by its value, as in NumPy."""
    if x is None or y is None:
        raise KernelTypeError(f"{name} with None: write `is None`, which is decided before the kernel runs")
    a, b = _operands(name, x, y)
    dtype, weak = common_dtype(a, b)
    if dtype.is_integer and not (values.is_number(a) and values.is_number(b)):
        for number, tile, relation in ((b, a, name), (a, b, _SWAPPED[name])):
            if values.is_number(number) and isinstance(tile, values.TileValue):
                low, high = promotion.int_range(dtype)
                if not low <= cast(int, number) <= high:
                    above = cast(int, number) > high
                    truth = relation == "!=" or (relation in ("<", "<=") if above else relation in (">", ">="))
                    return constant(truth, dtypes.bool_, tile.shape, weak=weak)
    shape = common_shape(name, shape_of(a), shape_of(b))
    return emit(_COMPARE[name](_as(a, dtype, shape, weak).value, _as(b, dtype, shape, weak).value), weak)


def power(x: Any, y: Any) -> values.TileValue:
    """`x ** y` for exponents that are Python numbers: non-negative ints for integers; -1, 0, 0.5, 1 and 2 for floats.

    These are the exponents for which NumPy's result is exact or correctly rounded. Raises KernelTypeError for others.
    """
    a = operand(x, "an operand of **")
    if isinstance(y, (values.TileValue, np.generic)) or not values.is_number(y) or not isinstance(a, values.TileValue):
        raise KernelTypeError("** takes an exponent that is a Python number: for others write ts.exp2(y * ts.log2(x))")
    dtype, weak = common_dtype(a, y)
    dtype = _wider_than_bool(dtype, weak)
    base = _as(a, dtype, a.shape, weak)
    if not dtype.is_float:
        if y < 0:
            raise KernelValueError("integers to a negative integer power are not integers: cast the base to a float")
        result = constant(1, dtype, a.shape, weak=weak) if y == 0 else None
        square, left = base, int(y)
        while left:
            if left & 1:
                result = square if result is None else result * square
            left >>= 1
            square = square * square if left else square
        assert result is not None
        return result
    if y == 0:
        return constant(1.0, dtype, a.shape, weak=weak)
    if y == 1:
        return base
    if y == 2:
        return base * base
    if y == -1:
        return 1 / base
    if y == 0.5:
        return emit(arith.Sqrt(base.value), weak)
    raise KernelTypeError(f"** {y} of a float is not available: write x * x * x for small powers, ts.exp2({y} * ts.log2(x)) for others")


def where(cond: Any, x: Any, y: Any) -> values.TileValue:
    """`x` where `cond`, else `y`, elementwise, after broadcasting. A condition that is no bool counts as true where it isn't 0."""
    c, a, b = operand(cond, "the condition of where"), operand(x, "an operand of where"), operand(y, "an operand of where")
    dtype, weak = common_dtype(a, b)
    shape = common_shape("where", shape_of(c), shape_of(a), shape_of(b))
    if isinstance(c, values.TileValue):
        test = stretch(c if c.dtype.kind is Kind.BOOL else emit(arith.Cast(c.value, to=dtypes.bool_)), shape)
    else:
        test = constant(bool(c), dtypes.bool_, shape)
    return emit(arith.Select(test.value, _as(a, dtype, shape, weak).value, _as(b, dtype, shape, weak).value), weak)


# ---- unary operations ------------------------------------------------------------------------------------------------------------


def negative(x: values.TileValue) -> values.TileValue:
    """`-x`. Raises KernelTypeError for bools."""
    if x.dtype.kind is Kind.BOOL:
        if not x.weak:
            raise KernelTypeError("- on bools is not defined, as in NumPy: write ~x, or cast with .astype(ts.int8)")
        x = emit(arith.Cast(x.value, to=dtypes.int64), True)
    return emit(arith.Neg(x.value), x.weak)


def positive(x: values.TileValue) -> values.TileValue:
    """`+x`. Raises KernelTypeError for bools."""
    if x.dtype.kind is Kind.BOOL:
        if not x.weak:
            raise KernelTypeError("+ on bools is not defined, as in NumPy: cast with .astype(ts.int8)")
        return emit(arith.Cast(x.value, to=dtypes.int64), True)
    return x


def invert(x: values.TileValue) -> values.TileValue:
    """`~x`: all bits, or the opposite truth. Raises KernelTypeError for floats and for Python's bools, whose ~ is an int."""
    if x.dtype.is_float:
        raise KernelTypeError(f"~ works on bools and integers, not on {values.describe(x)}")
    if x.dtype.kind is Kind.BOOL and x.weak:
        raise KernelTypeError("~ of a Python bool is -1 or -2, which is never meant: write `not x`")
    return emit(arith.Not(x.value), x.weak)


def absolute(x: Any) -> Any:
    """`|x|`; the lowest integer stays itself. A Python number gives a Python number."""
    x = operand(x, "the operand of abs")
    if not isinstance(x, values.TileValue):
        return abs(x)
    if x.dtype.kind is Kind.BOOL:
        return positive(x) if x.weak else x
    return x if x.dtype.kind is Kind.UINT else emit(arith.Abs(x.value), x.weak)


def rounding(op: type[arith.Floor] | type[arith.Ceil], x: Any) -> Any:
    """floor and ceil: integers and bools stay as they are (NumPy since 2.1)."""
    x = operand(x, f"the operand of {op.name}")
    if not isinstance(x, values.TileValue):
        if isinstance(x, float):
            return float(np.floor(x) if op is arith.Floor else np.ceil(x))
        return x
    return emit(op(x.value), x.weak) if x.dtype.is_float else x


def function(op: type[arith.Unary], x: Any) -> values.TileValue:
    """A function of floats. Integers and bools are converted as NumPy does (promotion.float_for); Python numbers become weak floats."""
    x = scalar(x, f"the operand of {op.name}")
    dtype = dtypes.float64 if x.weak else promotion.float_for(x.dtype)
    if x.dtype is not dtype:
        x = emit(arith.Cast(x.value, to=dtype), x.weak)
    return emit(op(x.value), x.weak)


def truth(x: values.TileValue, what: str) -> values.TileValue:
    """A scalar's truth, as `if` and `and` see it. Raises KernelTypeError for tiles."""
    if x.shape:
        raise KernelTypeError(
            f"{what} needs one truth value, not {values.describe(x)}: reduce it, as in ts.max(x), or choose per element with ts.where; "
            "for tiles write & | ~ in place of and, or, not"
        )
    return x if x.dtype.kind is Kind.BOOL else emit(arith.Cast(x.value, to=dtypes.bool_), x.weak)


def logical_not(x: values.TileValue) -> values.TileValue:
    """`not x` of a scalar: a weak bool, as Python's."""
    return emit(arith.Not(truth(x, "not").value), True)


# ---- NumPy's functions on tiles --------------------------------------------------------------------------------------------------

_UFUNCS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "left_shift": "<<",
    "right_shift": ">>",
}
_UFUNC_COMPARE = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!="}
_SAME_NAME = frozenset(
    [
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "abs",
        "floor",
        "ceil",
        "minimum",
        "maximum",
        "where",
        "sum",
        "max",
        "min",
        "reshape",
        "expand_dims",
        "broadcast_to",
        "transpose",
        "dot",
        "zeros",
        "full",
    ]
)


def hint(name: str) -> str:
    """A clause about the counterpart of a NumPy function, or ""."""
    name = {"absolute": "abs", "matmul": "dot", "amax": "max", "amin": "min"}.get(name, name)
    return f"; ts.{name} does" if name in _SAME_NAME else "; the functions of ts do"


def ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> values.TileValue:
    """What NumPy calls where one of its scalars stands left of a tile's operator. Raises KernelTypeError for np.exp and its like."""
    name = str(ufunc.__name__)
    if method == "__call__" and not kwargs and len(inputs) == 2 and isinstance(inputs[0], np.generic):
        if name in _UFUNCS:
            return binary(_UFUNCS[name], *inputs)
        if name in _UFUNC_COMPARE:
            return compare(_UFUNC_COMPARE[name], *inputs)
    raise KernelTypeError(f"np.{name} doesn't work on tiles{hint(name)}")


def cdiv(x: Any, y: Any) -> Any:
    """The quotient rounded up, for all signs: `-(-x // y)` without its overflows. Works on Python's ints outside of kernels, too."""
    if not isinstance(x, values.TileValue) and not isinstance(y, values.TileValue):
        for side in (x, y):
            if not isinstance(side, (int, np.integer)):
                raise KernelTypeError(f"cdiv divides integers, not {values.describe(side)}")
        return -(-x // y)
    a, b = _operands("cdiv", x, y)
    if not common_dtype(a, b)[0].is_integer:
        raise KernelTypeError(f"cdiv divides integers, not {values.describe(a)} by {values.describe(b)}; for floats write ts.ceil(x / y)")
    if is_weak(a) and is_weak(b):
        return -(-a // b)
    quotient = cast(values.TileValue, a // b)
    return quotient + astype(quotient * b != a, quotient.dtype)
