"""The functions of `ts` that kernels call. Shapes and dtypes follow NumPy; docs/language.md has the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import KernelError, KernelTypeError, KernelValueError
from ..ir.ops import arith
from ..ir.ops import memory as ops
from . import arithmetic, values
from .arithmetic import cdiv, where
from .memory import arange, full, load, static_int, store, zeros
from .shapes import broadcast_to, dot, expand_dims, max, min, reshape, sum, transpose

__all__ = [
    "abs",
    "arange",
    "astype",
    "broadcast_to",
    "cast",
    "cdiv",
    "ceil",
    "dot",
    "exp",
    "exp2",
    "expand_dims",
    "floor",
    "full",
    "load",
    "log",
    "log2",
    "max",
    "maximum",
    "min",
    "minimum",
    "num_programs",
    "permute",
    "program_id",
    "reshape",
    "rsqrt",
    "sqrt",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "sum",
    "transpose",
    "where",
    "zeros",
]


def _grid_axis(axis: Any, name: str) -> int:
    number = static_int(axis, f"the axis of {name}")
    if number not in (0, 1, 2):
        raise KernelValueError(f"{name}: a grid has axes 0, 1 and 2, not {number}")
    return number


def program_id(axis: int) -> Any:
    """The program's index along a grid axis (0, 1 or 2): a weak int."""
    return arithmetic.emit(ops.ProgramId(axis=_grid_axis(axis, "program_id")), weak=True)


def num_programs(axis: int) -> Any:
    """The number of programs along a grid axis (0, 1 or 2): a weak int."""
    return arithmetic.emit(ops.NumPrograms(axis=_grid_axis(axis, "num_programs")), weak=True)


def astype(x: Any, dtype: Any) -> Any:
    """`x` converted to `dtype`. Floats to integers truncate, saturate, and turn NaN to 0; floats narrow to nearest even."""
    return arithmetic.astype(x, dtype)


cast = astype
permute = transpose


def _function(op: type[arith.Unary]) -> Any:
    def apply(x: Any) -> Any:
        return arithmetic.function(op, x)

    apply.__name__ = apply.__qualname__ = op.name
    apply.__doc__ = f"{op.__doc__} Elementwise; integers are converted to floats as NumPy does."
    return apply


exp = _function(arith.Exp)
exp2 = _function(arith.Exp2)
log = _function(arith.Log)
log2 = _function(arith.Log2)
sqrt = _function(arith.Sqrt)
rsqrt = _function(arith.Rsqrt)


def floor(x: Any) -> Any:
    """The largest integral value not above x, in x's dtype; integers stay as they are."""
    return arithmetic.rounding(arith.Floor, x)


def ceil(x: Any) -> Any:
    """The smallest integral value not below x, in x's dtype; integers stay as they are."""
    return arithmetic.rounding(arith.Ceil, x)


def abs(x: Any) -> Any:
    """The absolute value; the lowest integer stays itself."""
    return arithmetic.absolute(x)


def minimum(x: Any, y: Any) -> Any:
    """The smaller, elementwise; NaN if either is. Of two Python numbers, a Python number."""
    return _extremum("minimum", x, y)


def maximum(x: Any, y: Any) -> Any:
    """The larger, elementwise; NaN if either is. Of two Python numbers, a Python number."""
    return _extremum("maximum", x, y)


def _extremum(name: str, x: Any, y: Any) -> Any:
    if values.is_number(x) and values.is_number(y):
        if x != x or y != y:
            return float("nan")
        picked = (x if x < y else y) if name == "minimum" else (x if x > y else y)
        return float(picked) if isinstance(x, float) or isinstance(y, float) else picked
    return arithmetic.binary(name, x, y)


# ---- while tracing ---------------------------------------------------------------------------------------------------------------


class static_range:
    """`range` whose loop is unrolled while the kernel is traced: its variable is a Python int. Bounds must be known then."""

    def __init__(self, *bounds: Any) -> None:
        if not 1 <= len(bounds) <= 3:
            raise KernelTypeError(f"static_range takes (stop), (start, stop) or (start, stop, step), not {len(bounds)} arguments")
        numbers = [static_int(bound, "a bound of static_range") for bound in bounds]
        if len(numbers) == 3 and numbers[2] == 0:
            raise KernelValueError("static_range: the step is 0")
        self._range = range(*numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._range)

    def __len__(self) -> int:
        return len(self._range)


def static_assert(condition: Any, message: str = "") -> None:
    """Raise KernelError where `condition`, which is known while tracing, is false."""
    if isinstance(condition, values.TileValue):
        raise KernelTypeError("static_assert takes what is known while the kernel is traced, not a run-time value")
    if not condition:
        raise KernelError(f"static_assert: {message}" if message else "static_assert failed")


def static_print(*items: Any) -> None:
    """Print while the kernel is traced: Python values, and the types of tiles."""
    print(*(repr(item) if isinstance(item, (values.TileValue, values.ArrayValue)) else item for item in items))
