"""LLVM IR as text: a typed builder for modules, functions and instructions.

The compiler and the simulator both write LLVM IR with it. Text is by far the quickest way into LLVM from Python (llvmlite's object
builder takes several times as long), and what is written here is what `kernel.llvm_ir` shows. Integer constants fold and neutral
operands vanish as instructions are built, so that the IR needs no optimiser to be clean.

Types are strings as LLVM spells them: "i32", "<8 x float>", "ptr addrspace(3)".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple


class Value(NamedTuple):
    """A typed operand: a register, a constant or a global."""

    type: str
    text: str

    def __str__(self) -> str:
        """As an operand with its type: `i32 %v4`."""
        return f"{self.type} {self.text}"

    @property
    def is_constant(self) -> bool:
        return self.text[0] not in "%@"

    @property
    def integer(self) -> int | None:
        """The value of a scalar integer constant, or None."""
        if self.type[0] != "i":
            return None
        if self.text in ("true", "false"):
            return int(self.text == "true")
        return int(self.text) if self.text[0] in "-0123456789" else None

    @property
    def splat_integer(self) -> int | None:
        """The value of an integer constant, or of each element of a vector constant; None for anything else."""
        text = self.text
        if text[0] == "%":
            return None
        if self.type[0] == "i":
            return self.integer
        if text == "zeroinitializer":
            return 0 if element(self.type)[0] == "i" else None
        return Value(element(self.type), text[:-1].rsplit(" ", 1)[1]).integer if text.startswith("splat (i") else None


@cache
def vector(count: int, element: str) -> str:
    """The type of a vector of `count` elements."""
    return f"<{count} x {element}>"


@cache
def element(type_: str) -> str:
    """The element type of a vector, or the type itself."""
    return type_.split(" x ", 1)[1][:-1] if type_.startswith("<") else type_


@cache
def lanes(type_: str) -> int:
    """The number of elements of a vector type; 1 for anything else."""
    return int(type_[1:].split(" x ", 1)[0]) if type_.startswith("<") else 1


@cache
def like(type_: str, new_element: str) -> str:
    """`type_` with another element type."""
    return vector(lanes(type_), new_element) if type_.startswith("<") else new_element


_SCALAR_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


@cache
def bits(type_: str) -> int:
    """The size of a type in bits (pointers to LDS and scratch have 32, buffer descriptors 128)."""
    if type_.startswith("<"):
        return lanes(type_) * bits(element(type_))
    if type_.startswith("ptr addrspace("):
        return {"3": 32, "5": 32, "8": 128}.get(type_[14:-1], 64)
    return _SCALAR_BITS[type_] if type_ in _SCALAR_BITS else int(type_[1:])


_MANGLED = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


@cache
def mangle(type_: str) -> str:
    """A type as it appears in the name of an overloaded intrinsic: `v8f32`."""
    if type_.startswith("<"):
        return f"v{lanes(type_)}{mangle(element(type_))}"
    if type_.startswith("ptr addrspace("):
        return "p" + type_[14:-1]
    return _MANGLED.get(type_, type_)


def const(type_: str, value: int | float | bool) -> Value:
    """A scalar constant, or the splat of one over a vector type. Floats are written exactly, NaN and infinities included."""
    scalar = element(type_)
    if scalar[0] == "i":
        width = int(scalar[1:])
        if width == 1:
            text = "true" if value else "false"
        else:
            wrapped = int(value) & ((1 << width) - 1)
            text = str(wrapped - (1 << width) if wrapped >> (width - 1) else wrapped)
    else:
        text = _float_text(scalar, float(value))
    if not type_.startswith("<"):
        return Value(type_, text)
    if text in ("0", "0.0", "false"):
        return Value(type_, "zeroinitializer")
    return Value(type_, f"splat ({scalar} {text})")


def _float_text(scalar: str, value: float) -> str:
    if value == 0 and str(value) == "0.0":
        return "0.0"
    if scalar == "half":
        return f"0xH{int.from_bytes(_half(value), 'little'):04X}"
    if scalar == "bfloat":
        return f"0xR{_bfloat(value):04X}"
    if scalar == "float":
        value = _single(value)  # LLVM writes a float constant as the double of the same value
    return f"0x{int.from_bytes(struct.pack('<d', value), 'little'):016X}"


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", float("inf") if value > 0 else float("-inf"))


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _bfloat(value: float) -> int:
    word = int.from_bytes(struct.pack("<f", _single(value)), "little")
    if value != value:
        return (word >> 16) | 0x40
    return ((word + 0x7FFF + ((word >> 16) & 1)) >> 16) & 0xFFFF


def vector_const(element_type: str, values: Sequence[int | float]) -> Value:
    """A vector of different constants."""
    items = ", ".join(str(const(element_type, v)) for v in values)
    return Value(vector(len(values), element_type), f"<{items}>")


def undefined(type_: str) -> Value:
    """`poison`: the start of a chain of insertions, or an unused shuffle operand."""
    return Value(type_, "poison")


def null(type_: str) -> Value:
    """All bits zero, for any type."""
    return Value(type_, "zeroinitializer" if type_.startswith("<") else ("null" if type_.startswith("ptr") else const(type_, 0).text))


class Phi:
    """A phi whose incoming values are added as they become known."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.incoming: list[tuple[Value, str]] = []

    def add(self, value: Value, block: str) -> None:
        if value.type != self.value.type:
            raise TypeError(f"phi of {self.value.type} gets {value}")
        self.incoming.append((value, block))

    def __str__(self) -> str:
        pairs = ", ".join(f"[ {v.text}, %{block} ]" for v, block in self.incoming)
        return f"  {self.value.text} = phi {self.value.type} {pairs}"


class Module:
    """A module under construction: declarations and metadata gather as functions are built."""

    def __init__(self, triple: str, layout: str = "") -> None:
        self.triple = triple
        self.layout = layout
        self.globals: list[str] = []
        self.functions: list[Function] = []
        self.declarations: dict[str, str] = {}
        self._metadata: dict[str, int] = {}
        self.named_metadata: dict[str, list[int]] = {}

    def declare(self, name: str, returns: str, parameters: Sequence[str]) -> None:
        """Declare an external function or intrinsic, once."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {returns} @{name}({', '.join(parameters)})"

    def metadata(self, text: str) -> int:
        """The number of the metadata node `text` ("!{...}", "distinct !DIFoo(...)"); equal texts share one."""
        return self._metadata.setdefault(text, len(self._metadata))

    def __str__(self) -> str:
        parts = [f'target triple = "{self.triple}"']
        if self.layout:
            parts.insert(0, f'target datalayout = "{self.layout}"')
        parts += self.globals
        parts += [str(f) for f in self.functions]
        defined = {f.name for f in self.functions}
        parts += [text for name, text in self.declarations.items() if name not in defined]
        parts += [f"!{name} = !{{{', '.join(f'!{n}' for n in nodes)}}}" for name, nodes in self.named_metadata.items()]
        parts += [f"!{number} = {text}" for text, number in self._metadata.items()]
        return "\n".join(parts) + "\n"


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "and": int.__and__,
    "or": int.__or__,
    "xor": int.__xor__,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__,
    "ne": int.__ne__,
    "lt": int.__lt__,
    "le": int.__le__,
    "gt": int.__gt__,
    "ge": int.__ge__,
}
_NEUTRAL_RIGHT = {"add": 0, "sub": 0, "mul": 1, "or": 0, "xor": 0, "shl": 0, "lshr": 0, "ashr": 0, "sdiv": 1, "udiv": 1}
_NEUTRAL_LEFT = {"add": 0, "mul": 1, "or": 0, "xor": 0}


class Function:
    """A function under construction. `b` is positioned in one block at a time; blocks print in the order in which they were begun."""

    def __init__(
        self, module: Module, name: str, returns: str, parameters: Sequence[tuple[str, str]], *, prefix: str = "", suffix: str = ""
    ) -> None:
        """`parameters` are (type with attributes, name); `prefix` goes between `define` and the type, `suffix` before the brace."""
        self.module = module
        self.name = name
        self.arguments = [
            Value(re.split(r" (?:noalias|nocapture|readonly|writeonly|align|inreg|nonnull|noundef|signext|zeroext)\b", t)[0], f"%{n}")
            for t, n in parameters
        ]
        declared = ", ".join(f"{t} %{n}" for t, n in parameters)
        self.head = f"define {prefix + ' ' if prefix else ''}{returns} @{name}({declared}){' ' + suffix if suffix else ''}"
        self.blocks: dict[str, list[str | Phi]] = {}
        self.current = ""
        self.debug: int | None = None  # metadata number of the DILocation of what is built next
        self._lines: list[str | Phi] = []
        self._names = 0
        self._labels = 0
        module.functions.append(self)

    def __str__(self) -> str:
        parts = [self.head + " {"]
        for label, lines in self.blocks.items():
            parts.append(f"{label}:")
            parts += [line if isinstance(line, str) else str(line) for line in lines]
        return "\n".join([*parts, "}"])

    # Blocks.

    def label(self, hint: str = "block") -> str:
        """A new label; its block begins with `position`."""
        self._labels += 1
        return f"{hint}{self._labels}"

    def position(self, label: str) -> None:
        """Build at the end of the block `label` from now on, beginning it if need be."""
        self.current = label
        self._lines = self.blocks.setdefault(label, [])

    @property
    def terminated(self) -> bool:
        """Whether the current block has its terminator."""
        last = self._lines[-1] if self._lines else ""
        return isinstance(last, str) and last.lstrip().startswith(("br ", "ret ", "ret", "switch ", "unreachable"))

    # The raw forms.

    def _fresh(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def _tail(self) -> str:
        return f", !dbg !{self.debug}" if self.debug is not None else ""

    def emit(self, type_: str, text: str) -> Value:
        """`%new = text`."""
        self._names += 1
        name = f"%v{self._names}"
        self._lines.append(f"  {name} = {text}{self._tail()}")
        return Value(type_, name)

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}{self._tail()}")

    def phi(self, type_: str) -> Phi:
        """A phi at the present place; it must come before other instructions of the block."""
        phi = Phi(Value(type_, self._fresh()))
        self._lines.append(phi)
        return phi

    # Arithmetic.

    def binary(self, op: str, x: Value, y: Value, flags: str = "") -> Value:
        """Any binary instruction; both operands have one type."""
        if x.type != y.type:
            raise TypeError(f"{op} of {x} and {y}")
        if (op in _FOLD or op in _NEUTRAL_RIGHT) and (x.text[0] != "%" or y.text[0] != "%"):
            a, c = x.splat_integer, y.splat_integer
            if a is not None and c is not None and op in _FOLD:
                return const(x.type, _FOLD[op](a, c))
            if c is not None and _NEUTRAL_RIGHT.get(op) == c:
                return x
            if a is not None and _NEUTRAL_LEFT.get(op) == a:
                return y
            if op in ("mul", "and") and (a == 0 or c == 0):
                return const(x.type, 0)
        return self.emit(x.type, f"{op}{' ' + flags if flags else ''} {x.type} {x.text}, {y.text}")

    def add(self, x: Value, y: Value | int) -> Value:
        return self.binary("add", x, self._same(x, y))

    def sub(self, x: Value, y: Value | int) -> Value:
        return self.binary("sub", x, self._same(x, y))

    def mul(self, x: Value, y: Value | int) -> Value:
        return self.binary("mul", x, self._same(x, y))

    def and_(self, x: Value, y: Value | int) -> Value:
        return self.binary("and", x, self._same(x, y))

    def or_(self, x: Value, y: Value | int) -> Value:
        return self.binary("or", x, self._same(x, y))

    def xor(self, x: Value, y: Value | int) -> Value:
        return self.binary("xor", x, self._same(x, y))

    def shl(self, x: Value, y: Value | int) -> Value:
        return self.binary("shl", x, self._same(x, y))

    def lshr(self, x: Value, y: Value | int) -> Value:
        return self.binary("lshr", x, self._same(x, y))

    def ashr(self, x: Value, y: Value | int) -> Value:
        return self.binary("ashr", x, self._same(x, y))

    def not_(self, x: Value) -> Value:
        return self.xor(x, const(x.type, -1))

    def fneg(self, x: Value) -> Value:
        return self.emit(x.type, f"fneg {x}")

    @staticmethod
    def _same(x: Value, y: Value | int) -> Value:
        return const(x.type, y) if isinstance(y, int) else y

    # Comparisons and choice.

    def icmp(self, predicate: str, x: Value, y: Value | int) -> Value:
        y = self._same(x, y)
        a, c = x.splat_integer, y.splat_integer
        if a is not None and c is not None:
            if predicate[0] == "u":
                ones = (1 << bits(element(x.type))) - 1
                a, c = a & ones, c & ones
            return const(like(x.type, "i1"), _COMPARE[predicate.lstrip("us")](a, c))
        return self.emit(like(x.type, "i1"), f"icmp {predicate} {x.type} {x.text}, {y.text}")

    def fcmp(self, predicate: str, x: Value, y: Value) -> Value:
        return self.emit(like(x.type, "i1"), f"fcmp {predicate} {x.type} {x.text}, {y.text}")

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        if (known := condition.splat_integer) is not None or x == y:
            return y if known == 0 else x
        if x.type != y.type:
            raise TypeError(f"select of {x} and {y}")
        return self.emit(x.type, f"select {condition}, {x}, {y}")

    # Conversions.

    def cast(self, op: str, x: Value, to: str) -> Value:
        """zext, sext, trunc, bitcast, fptrunc, sitofp, …; nothing where the types are equal. Integer constants fold."""
        if x.type == to:
            return x
        if op in ("trunc", "sext", "zext") and (known := x.integer) is not None:
            if op == "zext" and x.type != "i1":
                known &= (1 << bits(x.type)) - 1
            elif op == "sext" and x.type == "i1":
                known = -known
            return const(to, known)
        return self.emit(to, f"{op} {x} to {to}")

    def bitcast(self, x: Value, to: str) -> Value:
        return self.cast("bitcast", x, to)

    # Vectors.

    def extract(self, x: Value, index: int | Value) -> Value:
        at = index if isinstance(index, Value) else const("i32", index)
        return self.emit(element(x.type), f"extractelement {x}, {at}")

    def insert(self, x: Value, item: Value, index: int | Value) -> Value:
        at = index if isinstance(index, Value) else const("i32", index)
        return self.emit(x.type, f"insertelement {x}, {item}, {at}")

    def shuffle(self, x: Value, y: Value | None, indices: Sequence[int]) -> Value:
        """Elements of the concatenation of `x` and `y`; -1 is poison. The identity gives `x` itself."""
        count = lanes(x.type)
        if list(indices) == list(range(count)):
            return x
        other = y if y is not None else undefined(x.type)
        mask = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in indices)
        return self.emit(vector(len(indices), element(x.type)), f"shufflevector {x}, {other}, <{len(indices)} x i32> <{mask}>")

    def splat(self, x: Value, count: int) -> Value:
        """A vector of `count` copies of a scalar."""
        to = vector(count, x.type)
        if x.is_constant:
            return Value(to, "zeroinitializer" if x.text in ("0", "0.0", "false") else "poison" if x.text == "poison" else f"splat ({x})")
        first = self.emit(to, f"insertelement {to} poison, {x}, i32 0")
        if count == 1:
            return first
        return self.emit(to, f"shufflevector {first}, {to} poison, <{count} x i32> zeroinitializer")

    def build(self, items: Sequence[Value]) -> Value:
        """A vector of the given scalars."""
        to = vector(len(items), items[0].type)
        if all(i == items[0] for i in items):
            return self.splat(items[0], len(items))
        whole = undefined(to)
        for index, item in enumerate(items):
            if item.text != "poison":
                whole = self.insert(whole, item, index)
        return whole

    # Memory.

    def gep(self, base: Value, offset: Value | int, unit: str = "i8", flags: str = "") -> Value:
        """`base + offset` counted in `unit`s."""
        at = const("i32", offset) if isinstance(offset, int) else offset
        if at.integer == 0:
            return base
        return self.emit(base.type, f"getelementptr {flags + ' ' if flags else ''}{unit}, {base}, {at}")

    def load(self, type_: str, pointer: Value, align: int, tail: str = "") -> Value:
        return self.emit(type_, f"load {type_}, {pointer}, align {align}{tail}")

    def store(self, value: Value, pointer: Value, align: int, tail: str = "") -> None:
        self.do(f"store {value}, {pointer}, align {align}{tail}")

    # Calls.

    def call(self, name: str, returns: str, operands: Sequence[Value], attributes: str = "", *, flags: str = "") -> Value:
        """Call and declare `name`; a void call gives a Value that must not be used. Immediate arguments are constants as any other.

        `flags` are fast-math flags."""
        self.module.declare(name, returns, [o.type for o in operands])
        text = (
            f"call {flags + ' ' if flags else ''}{returns} @{name}({', '.join(map(str, operands))}){' ' + attributes if attributes else ''}"
        )
        if returns == "void":
            self.do(text)
            return Value("void", "void")
        return self.emit(returns, text)

    def intrinsic(
        self, name: str, operands: Sequence[Value], returns: str | None = None, overloads: Sequence[str] | None = None, *, flags: str = ""
    ) -> Value:
        """Call `llvm.name`, mangled by `overloads` (by default the type of the first operand), which is also the default result type."""
        types = [operands[0].type] if overloads is None else overloads
        full = ".".join(["llvm." + name, *map(mangle, types)])
        return self.call(full, operands[0].type if returns is None else returns, operands, flags=flags)

    # Terminators.

    def branch(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, orelse: str, tail: str = "") -> None:
        self.do(f"br i1 {condition.text}, label %{then}, label %{orelse}{tail}")

    def ret(self, value: Value | None = None) -> None:
        self.do("ret void" if value is None else f"ret {value}")
