"""What a kernel's variables hold while it is traced: tiles and scalars, and arrays in global memory.

The operators are NumPy's; their rules are in arithmetic.py.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import numpy as np

from ..dtypes import DType
from ..errors import KernelError, KernelTypeError
from ..ir.core import Block, Value
from ..ir.ops.memory import Extent, Stride
from ..ir.types import ArrayType, Tile
from . import arithmetic, memory, shapes
from .tracer import tracer


class TileValue:
    """An immutable tile, or a scalar (the empty shape). Weak scalars stand for Python numbers: bool, int64 or float64."""

    __slots__ = ("_value", "block", "weak")

    def __init__(self, value: Value, weak: bool = False) -> None:
        self._value = value
        self.weak = weak
        self.block: Block = tracer().block

    @property
    def value(self) -> Value:
        """The IR value. Raises KernelError where the block that made it has ended."""
        tracer().check_open(self.block)
        return self._value

    @property
    def type(self) -> Tile:
        return self._value.tile

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents; () for a scalar."""
        return self._value.tile.shape

    @property
    def dtype(self) -> DType:
        return self._value.tile.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._value.tile.size

    @property
    def T(self) -> TileValue:
        """The axes in reverse order."""
        return shapes.transpose(self)

    def astype(self, dtype: object) -> TileValue:
        """Convert to `dtype` (a strong scalar, if this is a scalar). Floats to integers truncate, saturate, and turn NaN to 0."""
        return arithmetic.astype(self, dtype)

    def reshape(self, *shape: Any) -> TileValue:
        """The same elements in row-major order under another shape; one extent may be -1."""
        return shapes.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> TileValue:
        """Permute the axes; without arguments, reverse them."""
        return shapes.transpose(self, (axes[0] if len(axes) == 1 else axes) if axes else None)

    def sum(self, axis: Any = None, *, keepdims: bool = False, dtype: object = None) -> TileValue:
        """`ts.sum`."""
        return shapes.sum(self, axis, keepdims=keepdims, dtype=dtype)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> TileValue:
        """`ts.max`."""
        return shapes.max(self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> TileValue:
        """`ts.min`."""
        return shapes.min(self, axis, keepdims=keepdims)

    def __getitem__(self, key: Any) -> TileValue:
        return shapes.index(self, key)

    def __setitem__(self, key: Any, item: Any) -> NoReturn:
        raise KernelTypeError("tiles are immutable; make a new one with ts.where(mask, new, old)")

    def __len__(self) -> int:
        if not self.shape:
            raise KernelTypeError("a scalar has no len()")
        return self.shape[0]

    def __iter__(self) -> NoReturn:
        what = "a scalar" if not self.shape else "a tile"
        raise KernelTypeError(f"{what} can't be unpacked or looped over; loop with range(…) and load a tile in each trip")

    # Python asks these for values that are not known yet.

    def __bool__(self) -> NoReturn:
        raise KernelError(
            f"{describe(self)} has no value while the kernel is traced, so Python can't branch on it here; "
            "use it in an if, while, and, or, not or a conditional expression of the kernel or a helper, or in ts.where"
        )

    def _not_known(self, name: str) -> NoReturn:
        raise KernelTypeError(
            f"{describe(self)} has no value while the kernel is traced, where Python needs {name}; "
            "pass a ts.constexpr for what must be known then (tile shapes, axes, static_range bounds)"
        )

    def __int__(self) -> int:
        raise KernelTypeError("int(…) of a run-time value: write x.astype(ts.int64), or ts.floor for a float")

    def __float__(self) -> float:
        raise KernelTypeError(
            "float(…) of a run-time value: write x.astype(ts.float32); functions of math and NumPy have counterparts in ts (ts.exp, …)"
        )

    def __complex__(self) -> complex:
        raise KernelTypeError("there are no complex numbers in kernels")

    def __index__(self) -> int:
        self._not_known("an integer")

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise KernelTypeError("round(…) of a run-time value: write ts.floor(x + 0.5)")

    def __format__(self, spec: str) -> str:
        self._not_known("text")

    __hash__ = None  # type: ignore[assignment]  (how Python spells "not hashable")

    def __repr__(self) -> str:
        return f"<{describe(self)}>"

    # NumPy, when it meets a tile.

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise KernelTypeError("a tile can't become a NumPy array while the kernel is traced; the functions of ts work on tiles")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> TileValue:
        return arithmetic.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, *rest: Any) -> NoReturn:
        raise KernelTypeError(f"np.{function.__name__} doesn't work on tiles{arithmetic.hint(function.__name__)}")

    # Operators.

    def __add__(self, other: Any) -> TileValue:
        return arithmetic.binary("+", self, other)

    def __radd__(self, other: Any) -> TileValue:
        return arithmetic.binary("+", other, self)

    def __sub__(self, other: Any) -> TileValue:
        return arithmetic.binary("-", self, other)

    def __rsub__(self, other: Any) -> TileValue:
        return arithmetic.binary("-", other, self)

    def __mul__(self, other: Any) -> TileValue:
        return arithmetic.binary("*", self, other)

    def __rmul__(self, other: Any) -> TileValue:
        return arithmetic.binary("*", other, self)

    def __truediv__(self, other: Any) -> TileValue:
        return arithmetic.binary("/", self, other)

    def __rtruediv__(self, other: Any) -> TileValue:
        return arithmetic.binary("/", other, self)

    def __floordiv__(self, other: Any) -> TileValue:
        return arithmetic.binary("//", self, other)

    def __rfloordiv__(self, other: Any) -> TileValue:
        return arithmetic.binary("//", other, self)

    def __mod__(self, other: Any) -> TileValue:
        return arithmetic.binary("%", self, other)

    def __rmod__(self, other: Any) -> TileValue:
        return arithmetic.binary("%", other, self)

    def __divmod__(self, other: Any) -> tuple[TileValue, TileValue]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[TileValue, TileValue]:
        return other // self, other % self

    def __and__(self, other: Any) -> TileValue:
        return arithmetic.binary("&", self, other)

    def __rand__(self, other: Any) -> TileValue:
        return arithmetic.binary("&", other, self)

    def __or__(self, other: Any) -> TileValue:
        return arithmetic.binary("|", self, other)

    def __ror__(self, other: Any) -> TileValue:
        return arithmetic.binary("|", other, self)

    def __xor__(self, other: Any) -> TileValue:
        return arithmetic.binary("^", self, other)

    def __rxor__(self, other: Any) -> TileValue:
        return arithmetic.binary("^", other, self)

    def __lshift__(self, other: Any) -> TileValue:
        return arithmetic.binary("<<", self, other)

    def __rlshift__(self, other: Any) -> TileValue:
        return arithmetic.binary("<<", other, self)

    def __rshift__(self, other: Any) -> TileValue:
        return arithmetic.binary(">>", self, other)

    def __rrshift__(self, other: Any) -> TileValue:
        return arithmetic.binary(">>", other, self)

    def __pow__(self, other: Any) -> TileValue:
        return arithmetic.power(self, other)

    def __rpow__(self, other: Any) -> TileValue:
        return arithmetic.power(other, self)

    def __matmul__(self, other: Any) -> NoReturn:
        raise KernelTypeError("tiles have no @: write ts.dot(a, b, acc), which says what the sum is held in")

    __rmatmul__ = __matmul__

    def __neg__(self) -> TileValue:
        return arithmetic.negative(self)

    def __pos__(self) -> TileValue:
        return arithmetic.positive(self)

    def __invert__(self) -> TileValue:
        return arithmetic.invert(self)

    def __abs__(self) -> TileValue:
        return arithmetic.absolute(self)

    def __lt__(self, other: Any) -> TileValue:
        return arithmetic.compare("<", self, other)

    def __le__(self, other: Any) -> TileValue:
        return arithmetic.compare("<=", self, other)

    def __gt__(self, other: Any) -> TileValue:
        return arithmetic.compare(">", self, other)

    def __ge__(self, other: Any) -> TileValue:
        return arithmetic.compare(">=", self, other)

    def __eq__(self, other: Any) -> TileValue:  # type: ignore[override]  (a tile of truths, as in NumPy)
        return arithmetic.compare("==", self, other)

    def __ne__(self, other: Any) -> TileValue:  # type: ignore[override]  (likewise)
        return arithmetic.compare("!=", self, other)


class ArrayValue:
    """An array in global memory, known to the kernel by its dtype and rank; `shape` and `strides` (in bytes) are run-time numbers."""

    __slots__ = ("_extents", "_strides", "name", "type", "value")

    def __init__(self, value: Value, type_: ArrayType, name: str) -> None:
        self.value = value
        self.type = type_
        self.name = name
        self._extents: dict[int, TileValue] = {}
        self._strides: dict[int, TileValue] = {}

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.type.dtype.bytes

    @property
    def shape(self) -> tuple[TileValue, ...]:
        """The extents, in elements."""
        return tuple(self._number(self._extents, Extent, axis) for axis in range(self.ndim))

    @property
    def strides(self) -> tuple[TileValue, ...]:
        """The distances between neighbours along each axis, in bytes."""
        return tuple(self._number(self._strides, Stride, axis) for axis in range(self.ndim))

    @property
    def size(self) -> Any:
        """The number of elements."""
        count: Any = 1
        for extent in self.shape:
            count = extent * count
        return count

    def _number(self, made: dict[int, TileValue], op: type[Extent] | type[Stride], axis: int) -> TileValue:
        if axis not in made:
            trace = tracer()
            with trace.inside(trace.prologue):
                made[axis] = TileValue(trace.emit(op(self.value, axis=axis)), weak=True)
        return made[axis]

    def __getitem__(self, key: Any) -> TileValue:
        return memory.read_element(self, key)

    def __setitem__(self, key: Any, item: Any) -> None:
        memory.write_element(self, key, item)

    def __len__(self) -> NoReturn:
        raise KernelTypeError(f"len({self.name}) is a run-time value: write {self.name}.shape[0]")

    def __iter__(self) -> NoReturn:
        raise KernelTypeError(f"the array {self.name!r} can't be looped over; loop with range(…) and ts.load a tile in each trip")

    def __bool__(self) -> NoReturn:
        raise KernelTypeError(f"the array {self.name!r} has no truth value; load an element or a tile first")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("NumPy functions")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        self._refuse(f"np.{ufunc.__name__}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and NumPy look for their protocols
            raise AttributeError(name)
        raise KernelTypeError(
            f"the array {self.name!r} has no attribute {name!r} in a kernel; it has shape, strides, dtype, ndim, size and itemsize. "
            f"Tiles have more: ts.load({self.name}, …).{name}"
        )

    def _refuse(self, what: str) -> NoReturn:
        raise KernelTypeError(f"{what} can't be applied to the array {self.name!r} itself: load a tile of it with ts.load({self.name}, …)")

    def _operator(self, other: Any) -> NoReturn:
        self._refuse("operators")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operator
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __matmul__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = _operator

    def __repr__(self) -> str:
        return f"<array {self.name}: {self.type}>"


def is_number(value: object) -> bool:
    """Whether a value is a Python number (NumPy's float64, which is a float, is not: it is strong)."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def named(value: TileValue) -> str:
    """A value's type in words, with the variable's name where it has one: "'n', a run-time int,"."""
    name = value.value.name
    return f"{name!r}, {describe(value)}," if name else describe(value)


def describe(value: object) -> str:
    """A value's type in words, for errors: "a float32 tile of shape (16, 16)", "an int", "a NumPy int32"."""
    if isinstance(value, TileValue):
        if value.weak:
            return {"bool": "a run-time bool", "int64": "a run-time int", "float64": "a run-time float"}[value.dtype.name]
        article = "an" if value.dtype.name[0] in "iu" else "a"
        article = "a" if value.dtype.name.startswith("u") else article
        return f"{article} {value.dtype.name} " + (f"tile of shape {value.shape}" if value.shape else "scalar")
    if isinstance(value, ArrayValue):
        return f"the array {value.name!r}"
    if value is None:
        return "None"
    if isinstance(value, np.generic):
        return f"NumPy's {cast(Any, value).dtype}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
