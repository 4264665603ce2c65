"""The textual IR: one syntax for every op, printed and parsed from its fields.

    kernel @scale num_waves=4 weak=[n]
    ^(%a: array<f32,1,align=16,axis=0,small,disjoint>, %n: i64) {
      %0 = const type=4xf32 value=2.0 : 4xf32  // scale.py:7
      ...
    }

Layouts that a target has given to values follow the types as `#0`, `#1`, … and are listed below the head. Comments are locations: they are
not part of the IR. `parse_kernel(print_kernel(k))` prints as `k` does.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import count
from typing import Any, cast

from .. import dtypes
from ..dtypes import DType
from .core import OPS, Block, IRError, Kernel, Kind, Op, Value
from .types import Tile, tile_from_text, type_from_text


def _show_attr(value: object) -> str:
    if isinstance(value, (Tile, DType)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value).replace(" ", "")


def print_kernel(kernel: Kernel, *, locations: bool = True) -> str:
    """The text of a kernel."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    layouts: dict[str, str] = {}
    numbers = count()

    def define(value: Value) -> str:
        name = value.name
        if not name or name in taken:
            name = str(next(numbers))
        while name in taken:
            name += "_"
        taken.add(name)
        return names.setdefault(value, f"%{name}")

    def use(value: Value) -> str:
        return names.get(value, "%<undefined>")

    def type_of(value: Value) -> str:
        if value.layout is None:
            return str(value.type)
        return f"{value.type} {layouts.setdefault(str(value.layout), f'#{len(layouts)}')}"

    def show(block: Block, depth: int) -> Iterator[str]:
        pad = "  " * depth
        yield pad + "^(" + ", ".join(f"{define(p)}: {type_of(p)}" for p in block.params) + ") {"
        for op in block.ops:
            parts = [op.name]
            nested: list[Block] = []
            for f in fields(cast(Any, op)):
                got = getattr(op, f.name)
                match f.metadata["kind"]:
                    case Kind.OPERAND:
                        parts.append(use(got))
                    case Kind.OPERANDS:
                        parts.append("[" + " ".join(map(use, got)) + "]")
                    case Kind.ATTR:
                        parts.append(f"{f.name}={_show_attr(got)}")
                    case _:
                        nested.append(got)
            # Nested blocks print before the results get their names, but stand below the line that names them: number results first.
            left = ", ".join(define(r) for r in op.results)
            types = ", ".join(type_of(r) for r in op.results)
            line = pad + "  " + (f"{left} = " if left else "") + " ".join(parts) + (f" : {types}" if types else "")
            yield line + (f"  // {op.location}" if locations and op.location is not None else "")
            for inner in nested:
                yield from show(inner, depth + 1)
        yield pad + "}"

    body = list(show(kernel.body, 0))
    head = f"kernel @{kernel.name} num_waves={kernel.num_waves} weak=[{' '.join(sorted(kernel.weak))}]"
    return "\n".join([head, *(f"{alias} = {text}" for text, alias in layouts.items()), *body]) + "\n"


def parse_kernel(text: str, *, layout: Callable[[str], Any] = str) -> Kernel:
    """Read a kernel. `layout` makes a target's layout object from its text. Raises IRError with the line at fault."""
    lines = [s for s in (line.split("  // ")[0].strip() for line in text.splitlines()) if s and not s.startswith("//")]
    values: dict[str, Value] = {}
    layouts: dict[str, Any] = {}
    at = 0

    def fail(message: str) -> IRError:
        return IRError(f"{message} in line {lines[at]!r}" if at < len(lines) else message)

    def typed(value: Value, words: str) -> None:
        _, _, alias = words.partition(" #")
        if alias:
            if f"#{alias}" not in layouts:
                raise fail(f"unknown layout #{alias}")
            value.layout = layouts[f"#{alias}"]

    def find(name: str) -> Value:
        if name not in values:
            raise fail(f"unknown value {name}")
        return values[name]

    def parse_block() -> Block:
        nonlocal at
        head = re.fullmatch(r"\^\((.*)\) \{", lines[at]) if at < len(lines) else None
        if head is None:
            raise fail("expected a block")
        block = Block()
        for item in filter(None, head[1].split(", ")):
            name, _, type_ = item.partition(": ")
            value = Value(type_from_text(type_.partition(" #")[0]), block, "" if name[1:].isdigit() else name[1:])
            typed(value, type_)
            values[name] = value
            block.params.append(value)
        at += 1
        while at < len(lines) and lines[at] != "}":
            block.ops.append(parse_op())
        if at >= len(lines):
            raise IRError("the text ends inside a block")
        at += 1
        return block

    def parse_attr(declared: str, raw: str) -> object:
        if declared == "Tile":
            return tile_from_text(raw)
        if declared == "DType":
            return dtypes.parse(raw)
        if raw in ("nan", "inf", "-inf"):
            return float(raw)
        return ast.literal_eval(raw)

    def parse_op() -> Op:
        nonlocal at
        line = lines[at]
        left, equals, right = line.partition(" = ")
        if not equals or not left.startswith("%"):
            left, right = "", line
        right, _, types = right.partition(" : ")
        tokens = re.findall(r"\[[^\]]*\]|\w+='[^']*'|\S+", right)
        cls = OPS.get(tokens[0])
        if cls is None:
            raise fail(f"unknown op {tokens[0]!r}")
        rest, given = iter(tokens[1:]), cast("dict[str, Any]", {})
        try:
            for f in fields(cast(Any, cls)):
                match f.metadata["kind"]:
                    case Kind.OPERAND:
                        given[f.name] = find(next(rest))
                    case Kind.OPERANDS:
                        given[f.name] = tuple(map(find, next(rest)[1:-1].split()))
                    case Kind.ATTR:
                        given[f.name] = parse_attr(str(f.type), next(rest).partition("=")[2])
                    case _:
                        pass
        except (StopIteration, ValueError, KeyError, SyntaxError) as error:
            raise fail(f"malformed {tokens[0]}") from error
        here = at
        at += 1
        for f in fields(cast(Any, cls)):
            if f.metadata["kind"] is Kind.BLOCK:
                given[f.name] = parse_block()
        op = cls(**given)
        names = [n.strip() for n in left.split(",") if n.strip()]
        written = [t for t in re.split(r", (?![^<]*>)", types) if t]
        if [t.partition(" #")[0] for t in written] != [str(r.type) for r in op.results] or len(names) != len(op.results):
            raise IRError(f"{op.name}: written result types {types!r} differ from the inferred ones, in line {lines[here]!r}", op)
        for name, result, words in zip(names, op.results, written, strict=True):
            typed(result, words)
            result.name = "" if name[1:].isdigit() else name[1:]
            values[name] = result
        return op

    head = re.fullmatch(r"kernel @(\S+) num_waves=(\d+) weak=\[(.*)\]", lines[0]) if lines else None
    if head is None:
        raise IRError("expected 'kernel @name num_waves=N weak=[…]'")
    at = 1
    while at < len(lines) and lines[at].startswith("#"):
        alias, _, spelled = lines[at].partition(" = ")
        layouts[alias] = layout(spelled)
        at += 1
    try:
        body = parse_block()
    except ValueError as error:
        raise fail(str(error)) from error
    return Kernel(head[1], body, frozenset(head[3].split()), int(head[2]))
