"""Expressions, evaluated as Python does; what depends on run-time values goes to the trace."""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from ..dtypes import DType
from ..errors import KernelNameError, KernelTypeError
from . import arithmetic, hints, regions
from .calls import NestedFunction, holds_traced, invoke
from .frames import Carried, Frame, evaluate, expression
from .promotion import as_dtype
from .source import Source, assigned, free_names
from .values import ArrayValue, TileValue, describe


@expression(ast.Constant)
def _constant(frame: Frame, node: ast.Constant) -> Any:
    return node.value


@expression(ast.Name)
def _name(frame: Frame, node: ast.Name) -> Any:
    frame.place(node)
    return frame.read(node)


_op: Any = operator
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _op.add,
    ast.Sub: _op.sub,
    ast.Mult: _op.mul,
    ast.Div: _op.truediv,
    ast.FloorDiv: _op.floordiv,
    ast.Mod: _op.mod,
    ast.Pow: _op.pow,
    ast.MatMult: _op.matmul,
    ast.LShift: _op.lshift,
    ast.RShift: _op.rshift,
    ast.BitAnd: _op.and_,
    ast.BitOr: _op.or_,
    ast.BitXor: _op.xor,
}


@expression(ast.BinOp)
def _binary(frame: Frame, node: ast.BinOp) -> Any:
    left = evaluate(frame, node.left)
    right = evaluate(frame, node.right)
    frame.place(node)
    return BINARY[type(node.op)](left, right)


@expression(ast.UnaryOp)
def _unary(frame: Frame, node: ast.UnaryOp) -> Any:
    value = evaluate(frame, node.operand)
    frame.place(node)
    match node.op:
        case ast.Not():
            return arithmetic.logical_not(value) if isinstance(value, TileValue) else not value
        case ast.USub():
            return -value
        case ast.UAdd():
            return +value
        case _:
            return ~value


# ---- truth ---------------------------------------------------------------------------------------------------------------------


def condition(frame: Frame, node: ast.AST, value: Any, what: str) -> Any:
    """A condition: a bool that Python knows, or a bool scalar of run time."""
    frame.place(node)
    return arithmetic.truth(value, what) if isinstance(value, TileValue) else bool(value)


@expression(ast.BoolOp)
def _bool_op(frame: Frame, node: ast.BoolOp) -> Any:
    word = "and" if isinstance(node.op, ast.And) else "or"

    def rest(i: int) -> Any:
        value = evaluate(frame, node.values[i])
        if i == len(node.values) - 1:
            if isinstance(value, TileValue):
                condition(frame, node.values[i], value, word)  # no tiles here, either
            return value
        return combine(frame, node, node.values[i], word, value, lambda: rest(i + 1), assigned(*node.values[i + 1 :]))

    return rest(0)


def combine(frame: Frame, node: ast.AST, at: ast.AST, word: str, value: Any, rest: Callable[[], Any], names: Sequence[str]) -> Any:
    """`value and rest()` or `value or rest()`: the rest is evaluated only where Python would."""
    test = condition(frame, at, value, word)
    if not isinstance(test, TileValue):
        return rest() if test == (word == "and") else value
    stay = test if value.dtype is test.dtype else value

    def keep() -> Any:
        return stay

    sides = (rest, keep) if word == "and" else (keep, rest)
    return regions.branch(frame, node, test, *sides, names, regions.RESULT)


COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


@expression(ast.Compare)
def _compare(frame: Frame, node: ast.Compare) -> Any:
    def chain(i: int, left: Any) -> Any:
        right = evaluate(frame, node.comparators[i])
        frame.place(node)
        value = _compared(frame, node, node.ops[i], left, right)
        if i == len(node.ops) - 1:
            return value
        if isinstance(value, TileValue) and value.shape:
            raise frame.error(node, "a chain of comparisons needs scalars: for tiles write (a < b) & (b < c)", KernelTypeError)
        return combine(frame, node, node, "and", value, lambda: chain(i + 1, right), assigned(*node.comparators[i + 1 :]))

    return chain(0, evaluate(frame, node.left))


def _compared(frame: Frame, node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, (ast.In, ast.NotIn)):
        if isinstance(right, (TileValue, ArrayValue)):
            raise frame.error(node, "`in` looks into Python sequences: for tiles write ts.max(x == value)", KernelTypeError)
        if isinstance(left, TileValue):
            raise frame.error(node, "`in` can't look for a run-time value: compare with each, as in (x == 1) | (x == 2)", KernelTypeError)
        items: Any = right
        if isinstance(items, (tuple, list)) and holds_traced(items):
            raise frame.error(node, "`in` can't look among run-time values: compare with each, as in (a == 1) | (b == 1)", KernelTypeError)
        found = operator.contains(right, left)
        return found if isinstance(op, ast.In) else not found
    if isinstance(op, (ast.Eq, ast.NotEq)) and (isinstance(left, ArrayValue) or isinstance(right, ArrayValue)):
        raise frame.error(node, "arrays aren't compared: ts.load tiles of them, or write `is None`", KernelTypeError)
    if (
        isinstance(left, DType) != isinstance(right, DType)
        and isinstance(op, (ast.Eq, ast.NotEq))
        and left is not None
        and right is not None
    ):
        left, right = as_dtype(left), as_dtype(right)  # x.dtype == np.float16
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)) and (holds_traced(left) or holds_traced(right)):
        return _compared_items(frame, node, op, cast("Sequence[Any]", left), cast("Sequence[Any]", right))
    return COMPARE[type(op)](left, right)


def _compared_items(frame: Frame, node: ast.Compare, op: ast.cmpop, left: Sequence[Any], right: Sequence[Any]) -> Any:
    """Tuples or lists that hold run-time values, compared item by item as Python does."""
    if isinstance(op, (ast.Is, ast.IsNot)):
        return COMPARE[type(op)](left, right)
    if not isinstance(op, (ast.Eq, ast.NotEq)):
        raise frame.error(node, "tuples of run-time values have == and != only: compare their items", KernelTypeError)
    equal: Any = isinstance(left, tuple) == isinstance(right, tuple) and len(left) == len(right)
    for a, b in zip(left, right, strict=False) if equal else ():
        same = _compared(frame, node, ast.Eq(), a, b)
        if isinstance(same, TileValue):
            same = arithmetic.truth(same, "== of tuples")
            equal = same & equal if isinstance(equal, TileValue) else same
        elif not same:
            equal = False
            break
    if isinstance(op, ast.Eq):
        return equal
    return arithmetic.logical_not(equal) if isinstance(equal, TileValue) else not equal


@expression(ast.IfExp)
def _if_expression(frame: Frame, node: ast.IfExp) -> Any:
    test = condition(frame, node.test, evaluate(frame, node.test), "if")
    if not isinstance(test, TileValue):
        return evaluate(frame, node.body if test else node.orelse)
    names = assigned(node.body, node.orelse)
    return regions.branch(
        frame, node, test, lambda: evaluate(frame, node.body), lambda: evaluate(frame, node.orelse), names, regions.RESULT
    )


# ---- attributes, subscripts, displays ------------------------------------------------------------------------------------------

_TILE_ATTRIBUTES = ["shape", "dtype", "ndim", "size", "T", "astype", "reshape", "transpose", "sum", "max", "min"]


@expression(ast.Attribute)
def _attribute(frame: Frame, node: ast.Attribute) -> Any:
    owner = evaluate(frame, node.value)
    frame.place(node)
    try:
        value = getattr(owner, node.attr)
    except AttributeError as error:
        raise _no_attribute(frame, node, owner, error) from None
    if not isinstance(owner, (TileValue, ArrayValue)) and not (
        isinstance(owner, types.ModuleType) and owner.__name__.startswith("tessera")
    ):
        frame.tracer.captures.note_attribute(owner, node.attr, value)
    return value


def _no_attribute(frame: Frame, node: ast.Attribute, owner: Any, error: AttributeError) -> Exception:
    if isinstance(owner, TileValue):
        return frame.error(
            node,
            f"{describe(owner)} has no attribute {node.attr!r}{hints.attribute(node.attr)}; it has {', '.join(_TILE_ATTRIBUTES)}",
            KernelTypeError,
        )
    if isinstance(owner, types.ModuleType) and owner.__name__ == "tessera" and (missing := hints.function(node.attr)):
        return frame.error(node, missing, KernelNameError)
    return frame.error(node, f"{error}{hints.close(node.attr, dir(owner))}", KernelNameError)


@expression(ast.Subscript)
def _subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner = evaluate(frame, node.value)
    key = evaluate(frame, node.slice)
    frame.place(node)
    if isinstance(key, TileValue) and isinstance(owner, (tuple, list, dict, range, str)):
        kind = cast(Any, type(cast(Any, owner))).__name__
        raise frame.error(node, f"a Python {kind} can't be indexed by a run-time value; unroll with ts.static_range", KernelTypeError)
    return owner[key]


@expression(ast.Slice)
def _slice(frame: Frame, node: ast.Slice) -> slice:
    low, high, step = (None if part is None else evaluate(frame, part) for part in (node.lower, node.upper, node.step))
    return slice(low, high, step)


def spread(frame: Frame, nodes: Sequence[ast.expr]) -> list[Any]:
    """The values of expressions, `*rest` taken apart."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            items = evaluate(frame, node.value)
            frame.place(node)
            found += list(items)
        else:
            found.append(evaluate(frame, node))
    return found


@expression(ast.Tuple)
def _tuple(frame: Frame, node: ast.Tuple) -> Any:
    return tuple(spread(frame, node.elts))


@expression(ast.List)
def _list(frame: Frame, node: ast.List) -> Any:
    return spread(frame, node.elts)


@expression(ast.Set)
def _set(frame: Frame, node: ast.Set) -> Any:
    items = spread(frame, node.elts)
    frame.place(node)
    return set(items)


@expression(ast.Dict)
def _dict(frame: Frame, node: ast.Dict) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            made.update(evaluate(frame, value))
        else:
            name = evaluate(frame, key)
            made[name] = evaluate(frame, value)
    return made


@expression(ast.JoinedStr)
def _f_string(frame: Frame, node: ast.JoinedStr) -> str:
    return "".join(str(evaluate(frame, part)) for part in node.values)


@expression(ast.FormattedValue)
def _formatted(frame: Frame, node: ast.FormattedValue) -> str:
    value = evaluate(frame, node.value)
    if isinstance(value, TileValue):
        message = f"an f-string can't hold {describe(value)}, which has no value while the kernel is traced; ts.static_print shows its type"
        raise frame.error(node.value, message, KernelTypeError)
    spec = "" if node.format_spec is None else evaluate(frame, node.format_spec)
    frame.place(node)
    conversion: Any = {115: str, 114: repr, 97: ascii}.get(node.conversion)
    shown: Any = value if conversion is None else conversion(value)
    return format(shown, spec)


@expression(ast.NamedExpr)
def _walrus(frame: Frame, node: ast.NamedExpr) -> Any:
    value = evaluate(frame, node.value)
    frame.write(node.target.id, value, node)
    return value


# ---- calls and functions -------------------------------------------------------------------------------------------------------


@expression(ast.Call)
def _call(frame: Frame, node: ast.Call) -> Any:
    function = evaluate(frame, node.func)
    args = spread(frame, node.args)
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = evaluate(frame, keyword.value)
        if keyword.arg is None:
            kwargs.update(value)
        else:
            kwargs[keyword.arg] = value
    return invoke(frame, node, function, args, kwargs)


def nested(frame: Frame, node: ast.FunctionDef | ast.Lambda, name: str) -> NestedFunction:
    """A function defined in a kernel. In a staged loop it may not capture run-time values: Python would look them up trips later."""
    if frame.in_staged_loop():
        for captured in sorted(free_names(node)):
            value = frame.vars.get(captured)
            value = value.value if isinstance(value, Carried) else value
            if isinstance(value, TileValue):
                what = "a lambda" if isinstance(node, ast.Lambda) else f"the function {name!r}"
                raise frame.error(
                    node,
                    f"{what} in a loop that is staged for run time can't capture {captured!r}, a run-time value: "
                    f"define it before the loop and pass {captured!r} as an argument",
                )
    source = Source(frame.source.file, node, name, "")
    defaults = [evaluate(frame, default) for default in node.args.defaults]
    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    kwdefaults = {arg.arg: evaluate(frame, default) for arg, default in pairs if default is not None}
    return NestedFunction(source, frame, defaults, kwdefaults)


@expression(ast.Lambda)
def _lambda(frame: Frame, node: ast.Lambda) -> NestedFunction:
    return nested(frame, node, "<lambda>")


# ---- comprehensions ------------------------------------------------------------------------------------------------------------


def _comprehended(frame: Frame, generators: Sequence[ast.comprehension], item: Callable[[], Any]) -> list[Any]:
    """What `item()` gives for each combination of the variables, over Python sequences. The variables are local."""
    names = assigned(*(g.target for g in generators))
    saved = {name: frame.vars[name] for name in names if name in frame.vars}
    found: list[Any] = []

    def go(depth: int) -> None:
        if depth == len(generators):
            found.append(item())
            return
        generator = generators[depth]
        for value in iterate(frame, generator.iter, evaluate(frame, generator.iter)):
            bind_target(frame, generator.target, value)
            for test in generator.ifs:
                holds = condition(frame, test, evaluate(frame, test), "the if of a comprehension")
                if isinstance(holds, TileValue):
                    raise frame.error(test, "a comprehension's if can't depend on a run-time value: how many items there are must be known")
                if not holds:
                    break
            else:
                go(depth + 1)

    go(0)
    for name in names:
        frame.vars.pop(name, None)
    frame.vars.update(saved)
    return found


def iterate(frame: Frame, node: ast.expr, iterable: Any) -> Iterator[Any]:
    """Python's iterator of a value; errors are at `node`."""
    frame.place(node)
    return iter(iterable)


def bind_target(frame: Frame, target: ast.expr, value: Any) -> None:
    """Assign to a name, a tuple of targets, an attribute or an element."""
    match target:
        case ast.Name():
            frame.write(target.id, value, target)
        case ast.Tuple() | ast.List():
            _unpack(frame, target, value)
        case ast.Subscript():
            owner = evaluate(frame, target.value)
            key = evaluate(frame, target.slice)
            frame.place(target)
            owner[key] = value
        case ast.Attribute():
            owner = evaluate(frame, target.value)
            frame.place(target)
            if isinstance(owner, (TileValue, ArrayValue, types.ModuleType, type)):
                raise frame.error(target, f"an attribute of {describe(owner)} can't be set in a kernel", KernelTypeError)
            setattr(owner, target.attr, value)
        case _:
            raise frame.error(target, f"can't assign to {type(target).__name__}")


def _unpack(frame: Frame, target: ast.Tuple | ast.List, value: Any) -> None:
    frame.place(target)
    items = list(value)
    wanted = len(target.elts)
    star = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
    if (star is None and len(items) != wanted) or (star is not None and len(items) < wanted - 1):
        least = "at least " if star is not None else ""
        expected = wanted - (star is not None)
        raise frame.error(target, f"{len(items)} values can't be unpacked into {least}{expected} variables", KernelTypeError)
    if star is not None:
        tail = wanted - star - 1
        middle = items[star : len(items) - tail]
        items[star : len(items) - tail] = [middle]
    for inner, item in zip(target.elts, items, strict=True):
        bind_target(frame, inner.value if isinstance(inner, ast.Starred) else inner, item)


@expression(ast.ListComp)
def _list_comprehension(frame: Frame, node: ast.ListComp) -> list[Any]:
    return _comprehended(frame, node.generators, lambda: evaluate(frame, node.elt))


@expression(ast.GeneratorExp)
def _generator(frame: Frame, node: ast.GeneratorExp) -> Iterator[Any]:
    return iter(_comprehended(frame, node.generators, lambda: evaluate(frame, node.elt)))


@expression(ast.SetComp)
def _set_comprehension(frame: Frame, node: ast.SetComp) -> set[Any]:
    return set(_comprehended(frame, node.generators, lambda: evaluate(frame, node.elt)))


@expression(ast.DictComp)
def _dict_comprehension(frame: Frame, node: ast.DictComp) -> dict[Any, Any]:
    return dict(_comprehended(frame, node.generators, lambda: (evaluate(frame, node.key), evaluate(frame, node.value))))
