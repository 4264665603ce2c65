"""Statements. `for` over a range is always staged; `while` and `if` are staged where their condition is a run-time value."""

from __future__ import annotations

import ast
import operator
from typing import Any

from ..errors import KernelError, KernelSyntaxError, KernelTypeError, warn
from ..ir.core import Block
from . import regions
from .expressions import BINARY, bind_target, condition, iterate, nested, spread
from .frames import After, Frame, Jump, Region, Return, Signal, evaluate, execute, finish, statement
from .source import assigned, returns
from .values import ArrayValue, TileValue, describe

MAX_UNROLLED = 100_000
"""Trips of a loop over a Python sequence; beyond that it has surely run away."""

MAX_WHILE, MANY = 1_000, 100
"""Trips of a `while` that Python decides: the most there may be, and how many of them that make code are worth a warning."""

# ---- simple statements -----------------------------------------------------------------------------------------------------------------


@statement(ast.Expr)
def _expr(frame: Frame, node: ast.Expr, after: After) -> Signal:
    evaluate(frame, node.value)
    return None


@statement(ast.Pass)
def _pass(frame: Frame, node: ast.Pass, after: After) -> Signal:
    return None


@statement(ast.Assign)
def _assign(frame: Frame, node: ast.Assign, after: After) -> Signal:
    value = evaluate(frame, node.value)
    for target in node.targets:
        bind_target(frame, target, value)
    return None


@statement(ast.AnnAssign)
def _annotated(frame: Frame, node: ast.AnnAssign, after: After) -> Signal:
    if node.value is not None:
        bind_target(frame, node.target, evaluate(frame, node.value))
    return None


_op: Any = operator
_IN_PLACE: dict[type[ast.operator], Any] = {
    ast.Add: _op.iadd,
    ast.Sub: _op.isub,
    ast.Mult: _op.imul,
    ast.BitAnd: _op.iand,
    ast.BitOr: _op.ior,
    ast.BitXor: _op.ixor,
}


@statement(ast.AugAssign)
def _augmented(frame: Frame, node: ast.AugAssign, after: After) -> Signal:
    operate = _IN_PLACE.get(type(node.op)) or BINARY[type(node.op)]
    target = node.target
    match target:
        case ast.Name():
            old = evaluate(frame, ast.copy_location(ast.Name(target.id, ast.Load()), target))
            right = evaluate(frame, node.value)
            frame.place(node)
            frame.write(target.id, operate(old, right), node)
        case ast.Subscript():
            owner, key = evaluate(frame, target.value), evaluate(frame, target.slice)
            frame.place(target)
            old = owner[key]
            right = evaluate(frame, node.value)
            frame.place(node)
            owner[key] = operate(old, right)
        case ast.Attribute():
            owner = evaluate(frame, target.value)
            frame.place(target)
            if isinstance(owner, (TileValue, ArrayValue)):
                raise frame.error(target, f"an attribute of {describe(owner)} can't be set in a kernel", KernelTypeError)
            old = getattr(owner, target.attr)
            right = evaluate(frame, node.value)
            frame.place(node)
            setattr(owner, target.attr, operate(old, right))
    return None


@statement(ast.Assert)
def _assert(frame: Frame, node: ast.Assert, after: After) -> Signal:
    test = evaluate(frame, node.test)
    if isinstance(test, TileValue):
        raise frame.error(
            node.test, "assert can't check a run-time value: a kernel can't raise; store a flag and check it after the launch"
        )
    if not test:
        message = "" if node.msg is None else f": {evaluate(frame, node.msg)}"
        raise frame.error(node, f"assertion failed{message}", KernelError)
    return None


@statement(ast.Raise)
def _raise(frame: Frame, node: ast.Raise, after: After) -> Signal:
    _refuse_in_region(frame, node, "raise")
    error = None if node.exc is None else evaluate(frame, node.exc)
    frame.place(node)
    if isinstance(error, type) and issubclass(error, BaseException):
        error = error()
    if not isinstance(error, BaseException):
        raise frame.error(node, "raise needs an exception", KernelSyntaxError)
    raise error


@statement(ast.FunctionDef)
def _function(frame: Frame, node: ast.FunctionDef, after: After) -> Signal:
    if node.decorator_list:
        raise frame.error(node.decorator_list[0], "functions defined in kernels take no decorators")
    frame.write(node.name, nested(frame, node, node.name), node)
    return None


# ---- leaving early -----------------------------------------------------------------------------------------------------------------------


def _refuse_in_region(frame: Frame, node: ast.AST, word: str) -> None:
    """Raises KernelSyntaxError where a run-time value decides whether a statement is reached."""
    for region in reversed(frame.regions):
        if region.staged:
            line = frame.locate(region.node).line
            what = "loop" if region.loop else "branch"
            raise frame.error(node, f"{word} in the {what} of line {line}, which is staged for run time: {_CURES[word]}")


_CURES = {
    "raise": "a kernel can't raise; store a flag and check it after the launch",
    "break": "let a while condition end the loop, or guard the rest of the body with if",
    "continue": "guard the rest of the body with if",
    "return": "set a variable and return after the loop",
}


@statement(ast.Return)
def _return(frame: Frame, node: ast.Return, after: After) -> Signal:
    # A branch that returns is handled by `if`, which stages what follows it; a loop can't be left.
    inner_branch = False
    for region in reversed(frame.regions):
        if region.loop and (region.staged or inner_branch):
            _refuse_in_region(frame, node, "return")
        inner_branch = inner_branch or region.staged
    value = None if node.value is None else evaluate(frame, node.value)
    frame.where[regions.RETURNED] = frame.locate(node)
    return Return(value)


def _jump(frame: Frame, node: ast.Break | ast.Continue, word: str) -> Signal:
    for region in reversed(frame.regions):
        if region.staged:
            _refuse_in_region(frame, node, word)
        if region.loop:
            break
    return Jump(word)


@statement(ast.Break)
def _break(frame: Frame, node: ast.Break, after: After) -> Signal:
    return _jump(frame, node, "break")


@statement(ast.Continue)
def _continue(frame: Frame, node: ast.Continue, after: After) -> Signal:
    return _jump(frame, node, "continue")


# ---- if ----------------------------------------------------------------------------------------------------------------------------------


@statement(ast.If)
def _if(frame: Frame, node: ast.If, after: After) -> Signal:
    test = condition(frame, node.test, evaluate(frame, node.test), "if")
    if not isinstance(test, TileValue):
        return execute(frame, node.body if test else node.orelse, after)
    frame.place(node)
    if returns(*node.body, *node.orelse) and not any(region.loop for region in frame.regions):
        # What follows the `if` belongs to the side that doesn't return.
        value = regions.branch(
            frame,
            node,
            test,
            lambda: finish(frame, node.body, after).value,
            lambda: finish(frame, node.orelse, after).value,
            (),
            regions.RETURNED,
        )
        return Return(value)
    regions.branch(
        frame,
        node,
        test,
        lambda: execute(frame, node.body, after),
        lambda: execute(frame, node.orelse, after),
        assigned(*node.body, *node.orelse),
    )
    return None


# ---- loops -------------------------------------------------------------------------------------------------------------------------------


@statement(ast.For)
def _for(frame: Frame, node: ast.For, after: After) -> Signal:
    bounds = _range_bounds(frame, node.iter)
    if bounds is not None:
        regions.staged_for(frame, node, bounds)
        return execute(frame, node.orelse, after)
    iterable = evaluate(frame, node.iter)
    if isinstance(iterable, range):
        regions.staged_for(frame, node, (iterable.start, iterable.stop, iterable.step))
        return execute(frame, node.orelse, after)
    for trip, item in enumerate(iterate(frame, node.iter, iterable)):
        if trip >= MAX_UNROLLED:
            raise frame.error(node, f"this loop is unrolled, and has run {MAX_UNROLLED} times; loop over range to stage it", KernelError)
        bind_target(frame, node.target, item)
        signal = _trip(frame, node)
        if isinstance(signal, Return):
            return signal
        if signal is not None and signal.word == "break":
            return None
    return execute(frame, node.orelse, after)


def _range_bounds(frame: Frame, node: ast.expr) -> list[Any] | None:
    """The arguments of a call of Python's range, or None for any other expression."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or evaluate(frame, node.func) is not range:
        return None
    if node.keywords:
        word = node.keywords[0].arg
        raise frame.error(node, f"range takes no keyword {word!r} yet; loops of dots are pipelined without being asked", KernelTypeError)
    bounds = spread(frame, node.args)
    if not 1 <= len(bounds) <= 3:
        raise frame.error(node, f"range takes 1 to 3 arguments, not {len(bounds)}", KernelTypeError)
    return bounds


def _trip(frame: Frame, node: ast.For | ast.While) -> Signal:
    """One trip of a loop that is unrolled."""
    frame.regions.append(Region(node, True, False))
    try:
        return execute(frame, node.body)
    finally:
        frame.regions.pop()


@statement(ast.While)
def _while(frame: Frame, node: ast.While, after: After) -> Signal:
    block, before = frame.tracer.block, len(frame.tracer.block.ops)
    for trip in range(MAX_WHILE + 1):
        with frame.tracer.inside(Block()) as scratch:
            saved = dict(frame.vars), dict(frame.where)
            test = condition(frame, node.test, evaluate(frame, node.test), "while")
        if isinstance(test, TileValue):  # staged from here on: what the test made is made again inside the loop
            frame.vars, frame.where = saved
            regions.staged_while(frame, node)
            return execute(frame, node.orelse, after)
        frame.tracer.adopt(scratch)
        if not test:
            return execute(frame, node.orelse, after)
        if trip == MANY and len(block.ops) > before:
            warn(f"this while loop {_UNROLLS}, and has run {MANY} times: compiling takes long. {_STAGES}", frame.locate(node))
        signal = _trip(frame, node)
        if isinstance(signal, Return):
            return signal
        if signal is not None and signal.word == "break":
            return None
    raise frame.error(node.test, f"this while loop {_UNROLLS}, and has run {MAX_WHILE:,} times. {_STAGES}", KernelError)


_UNROLLS = "is unrolled while the kernel is traced, since its condition depends on no run-time value"
_STAGES = "To stage it write for … in range(…), or compare with a run-time value, such as an argument that is not a constexpr"
