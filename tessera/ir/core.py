"""SSA values, operations, blocks and kernels.

An op is one class. Its annotated fields say what it holds; `infer` is its type rule, and serves both who builds (it makes the result
types) and the verifier (which compares them with the ones stored); `evaluate` is its meaning on NumPy arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, Flag, auto
from functools import cache
from typing import Any, ClassVar, Protocol, cast

from ..errors import Location, current_location
from .types import NDArray, Tile, Type

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform


class IRError(Exception):
    """The IR breaks a rule. `op` is the operation at fault, if one is."""

    def __init__(self, message: str, op: Op | None = None) -> None:
        super().__init__(message)
        self.op = op


class Trait(Flag):
    """What passes may assume of an op."""

    NONE = 0
    PURE = auto()  # depends on its operands only, and may be dropped, shared or moved
    COMMUTATIVE = auto()  # the first two operands may be swapped
    TERMINATOR = auto()  # ends a block
    READS = auto()  # reads memory
    WRITES = auto()  # writes memory; never dropped
    ELEMENTWISE = auto()  # every result element depends on the same element of each operand
    BARRIER = auto()  # orders LDS between waves


class Kind(Enum):
    """What a declared field of an op holds."""

    OPERAND = auto()
    OPERANDS = auto()
    ATTR = auto()
    BLOCK = auto()


@dataclass(eq=False, slots=True)
class Value:
    """A result of an op, or a parameter of a block. `layout` belongs to the target: an object with a `str()`, or None."""

    type: Type
    owner: Op | Block | None = None
    name: str = ""
    layout: Any = None

    @property
    def tile(self) -> Tile:
        """The type, where it is a tile or scalar. Raises IRError for arrays and LDS."""
        if not isinstance(self.type, Tile):
            raise IRError(f"expected a tile, got {self.type}")
        return self.type


@dataclass(eq=False, slots=True)
class Block:
    """Operations in order, ending in a terminator, with parameters that enter from outside."""

    params: list[Value] = field(default_factory=list[Value])
    ops: list[Op] = field(default_factory=list["Op"])

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    def walk(self) -> Iterator[Op]:
        """All ops, outer before inner, in order."""
        for op in self.ops:
            yield op
            for nested in op.blocks:
                yield from nested.walk()


@dataclass(eq=False, slots=True)
class Kernel:
    """A kernel: its parameters are those of `body`, in launch order. `weak` names the scalars that are weak numbers (DESIGN: promotion)."""

    name: str
    body: Block
    weak: frozenset[str] = frozenset()
    num_waves: int = 4

    @property
    def params(self) -> list[Value]:
        return self.body.params


class Program(Protocol):
    """What the interpreter offers to `evaluate`: the running program's place in the grid, and a way to run a nested block."""

    ids: tuple[int, int, int]
    counts: tuple[int, int, int]

    def run(self, block: Block, args: Sequence[NDArray]) -> Sequence[NDArray]: ...


def operand() -> Any:
    """A field that holds one Value."""
    return field(metadata={"kind": Kind.OPERAND})


def operands() -> Any:
    """A field that holds a tuple of Values."""
    return field(metadata={"kind": Kind.OPERANDS})


def attr(default: object = ...) -> Any:
    """A field that holds a compile-time constant (int, float, bool, str, tuple, Tile or DType)."""
    meta = {"kind": Kind.ATTR}
    return field(metadata=meta, kw_only=True) if default is ... else field(metadata=meta, default=default, kw_only=True)


def block() -> Any:
    """A field that holds a Block."""
    return field(metadata={"kind": Kind.BLOCK}, kw_only=True)


OPS: dict[str, type[Op]] = {}
"""Every op class by the name that IR texts use."""


@cache
def _names(cls: type[Op], *kinds: Kind) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cast(Any, cls)) if f.metadata.get("kind") in kinds)


@dataclass_transform(eq_default=False, field_specifiers=(operand, operands, attr, block))
class Op:
    """The base of all ops: `class Add(Op, name="add", traits=Trait.PURE)`."""

    name: ClassVar[str]
    traits: ClassVar[Trait]
    results: tuple[Value, ...]
    location: Location | None

    def __init_subclass__(cls, *, name: str = "", traits: Trait = Trait.NONE) -> None:
        dataclass(eq=False, repr=False, match_args=False)(cls)
        if not name:  # an intermediate base: it only lends its fields
            return
        if name in OPS:
            raise TypeError(f"op {name!r} is defined twice: {OPS[name]} and {cls}")
        cls.name, cls.traits = name, traits
        OPS[name] = cls

    def __post_init__(self) -> None:
        self.location = current_location()
        self.results = tuple(Value(t, self) for t in self.infer())

    # What each op defines.

    def infer(self) -> Sequence[Type]:
        """The types of the results; raises IRError where the operands do not fit."""
        raise NotImplementedError

    def evaluate(self, args: Sequence[NDArray], program: Program) -> Sequence[NDArray]:
        """The reference meaning. `args` are the operands' values in order: scalars have rank 0, arrays in memory are NumPy views."""
        raise NotImplementedError

    # What every op gets from its fields.

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def operands(self) -> tuple[Value, ...]:
        """All operands, in the order of the fields."""
        found: list[Value] = []
        for name in _names(type(self), Kind.OPERAND, Kind.OPERANDS):
            value = getattr(self, name)
            if isinstance(value, tuple):
                found += cast("tuple[Value, ...]", value)
            else:
                found.append(value)
        return tuple(found)

    def replace_operands(self, mapping: dict[Value, Value]) -> None:
        """Use `mapping[v]` for each operand v that is in it (nested blocks are not touched)."""
        for name in _names(type(self), Kind.OPERAND):
            old = getattr(self, name)
            setattr(self, name, mapping.get(old, old))
        for name in _names(type(self), Kind.OPERANDS):
            setattr(self, name, tuple(mapping.get(v, v) for v in getattr(self, name)))

    @property
    def attrs(self) -> dict[str, object]:
        return {n: getattr(self, n) for n in _names(type(self), Kind.ATTR)}

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(getattr(self, n) for n in _names(type(self), Kind.BLOCK))

    def has(self, trait: Trait) -> bool:
        return trait in self.traits


def replace_uses(block: Block, mapping: dict[Value, Value]) -> None:
    """Replace values by others in every op of `block`, nested ones included. Chains (a → b, b → c) are followed."""
    if not mapping:
        return
    final: dict[Value, Value] = {}
    for old, new in mapping.items():
        while new in mapping:
            new = mapping[new]
        final[old] = new
    for op in block.walk():
        op.replace_operands(final)
