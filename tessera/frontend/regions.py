"""Staged control flow: branches and loops whose course is decided at run time.

The variables that a body assigns are what its region yields. Each side of a branch starts from the variables before it; afterwards a
variable is the branch's result, or has no value (Unbound) where one side left it unset. A loop's body starts from parameters of guessed
types. Where the body gives a weak number another type, the guess was wrong and the body is traced again; where it gives any other variable
another type, that is an error, unless the body never reads what the trip before left: then the variable has no value after the loop.
"""

from __future__ import annotations

import ast
import dataclasses
import types
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes, errors
from ..dtypes import Kind
from ..errors import KernelError, KernelTypeError, KernelValueError, Location, ResourceError
from ..ir.core import Block, Trait, Value
from ..ir.ops.arith import And, Or, Select
from ..ir.ops.control import For, If, While, Yield
from ..ir.types import Tile
from . import arithmetic
from .frames import Carried, Frame, Region, Unbound, evaluate, execute
from .source import assigned
from .structure import LeafType, Mismatch, carried_type, convert, flatten, join, name_of_type, rebuild, same
from .values import TileValue, describe

MAX_TRIALS = 16
"""How often a loop's body is traced to find the types of its variables: each trial settles at least one."""


def _named(name: str) -> str:
    return repr(name) if name.isidentifier() else f"the {name}"


@contextmanager
def _region(frame: Frame, node: ast.AST, loop: bool) -> Generator[None]:
    """Within a staged region. Python containers must come out as they went in: they can't hold two sides, or many trips, at once."""
    before = _containers(frame)
    frame.regions.append(Region(node, loop, True))
    try:
        yield
    finally:
        frame.regions.pop()
    for name, container, content in before:
        if not _unchanged(container, content):
            kind = "loop" if loop else "branch"
            raise frame.error(
                node,
                f"{describe(container)}, {name!r}, is changed in place inside a {kind} that is staged for run time; "
                "assign variables or new tuples instead, or unroll with ts.static_range",
                KernelTypeError,
            )


def _containers(frame: Frame) -> list[tuple[str, Any, list[Any]]]:
    found: list[tuple[str, Any, list[Any]]] = []
    at: Frame | None = frame
    while at is not None:
        for name, value in at.vars.items():
            value = value.value if isinstance(value, Carried) else value
            if not isinstance(value, (TileValue, int, float, str)):
                _collect(name, value, found, 3)
        at = at.parent
    return found


def _collect(name: str, value: Any, found: list[tuple[str, Any, list[Any]]], depth: int) -> None:
    content = _content(value)
    if content is None or not depth:
        return
    if not isinstance(value, tuple):
        found.append((name, value, content))
    for item in content:
        if not isinstance(item, TileValue):
            _collect(name, item, found, depth - 1)


def _content(value: Any) -> list[Any] | None:
    if isinstance(value, (list, tuple, set)):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, f.name) for f in dataclasses.fields(value)]
    if isinstance(value, types.SimpleNamespace):
        return list(vars(value).values())
    return None


def _unchanged(container: Any, content: list[Any]) -> bool:
    now = _content(container) or []
    return len(now) == len(content) and all(a is b for a, b in zip(now, content, strict=True))


# ---- branches ----------------------------------------------------------------------------------------------------------------------


@dataclass
class _Side:
    block: Block
    vars: dict[str, Any]
    where: dict[str, Location]
    result: Any


RESULT = "value of the expression"
RETURNED = "return value"


def branch(
    frame: Frame,
    node: ast.AST,
    cond: TileValue,
    then: Callable[[], Any],
    orelse: Callable[[], Any],
    names: Sequence[str],
    result: str = "",
) -> Any:
    """Stage both sides of a branch on a bool scalar and merge the variables `names`, and what the sides return if `result` names it."""
    before, where = frame.vars, frame.where

    def run(side: Callable[[], Any]) -> _Side:
        frame.vars, frame.where = dict(before), dict(where)
        with _region(frame, node, False), frame.tracer.inside(Block()) as block:
            value = side()
        return _Side(block, frame.vars, frame.where, value)

    sides = (run(then), run(orelse))
    frame.vars, frame.where = before, where
    merged = _Merge(frame, node, cond, sides)
    for name in names:
        values = [side.vars.get(name) for side in sides]
        if name in before and values[0] is values[1] is before[name]:
            continue
        unset = [value is None and name not in side.vars for side, value in zip(sides, values, strict=True)]
        if all(unset):
            continue
        missing = next((v for v in values if isinstance(v, Unbound)), None)
        if any(unset):
            line = next(side.where[name].line for side, gone in zip(sides, unset, strict=True) if not gone)
            missing = Unbound(
                f"{name!r} has a value only where the branch on line {line} is taken; assign it before the if, or on both sides of it"
            )
        if missing is not None:
            frame.vars[name] = missing
            continue
        merged.add(name, values[0], values[1])
    if result:
        merged.add(result, sides[0].result, sides[1].result)
    return merged.finish().get(result)


class _Merge:
    """What the two sides of a branch yield."""

    def __init__(self, frame: Frame, node: ast.AST, cond: TileValue, sides: tuple[_Side, _Side]) -> None:
        self.frame = frame
        self.node = node
        self.cond = cond
        self.sides = sides
        self.kept: list[tuple[str, Any, Any, list[Any]]] = []  # name, structure, model, leaves (None where yielded)
        self.pairs: list[tuple[Any, Any, LeafType]] = []

    def add(self, name: str, a: Any, b: Any) -> None:
        if a is not b:
            for side in (a, b):
                if isinstance(side, Carried):  # one side keeps what the trip before left
                    side.read = True
        a, b = (v.value if isinstance(v, Carried) else v for v in (a, b))
        left: list[Any] = []
        right: list[Any] = []
        structure = flatten(a, left)
        if structure != flatten(b, right):
            raise self._error(name, a, b, Mismatch(""))
        leaves: list[Any] = []
        for x, y in zip(left, right, strict=True):
            if x is y or (not isinstance(x, TileValue) and not isinstance(y, TileValue) and same(x, y)):
                leaves.append((x,))
                continue
            types_ = carried_type(x), carried_type(y)
            if types_[0] is None or types_[1] is None:
                raise self._error(name, x, y, Mismatch(""))
            try:
                self.pairs.append((x, y, join(types_[0], types_[1])))
            except Mismatch as mismatch:
                raise self._error(name, x, y, mismatch) from None
            leaves.append(None)
        self.kept.append((name, structure, a, leaves))

    def _error(self, name: str, a: Any, b: Any, mismatch: Mismatch) -> KernelError:
        places = [side.where.get(name) for side in self.sides]
        lines = [f" (line {place.line})" if place is not None else "" for place in places]
        kind = "branch" if isinstance(self.node, ast.If) else "side"
        advice = mismatch.advice
        if carried_type(a) is None or carried_type(b) is None:
            cure = "a Python value must be the same on both sides of what is decided at run time"
        elif advice:
            cure = f"cast one of them, as with {advice}"
        else:
            cure = "both sides must give the same shape"
        where = places[1] or places[0] or self.frame.locate(self.node)
        return KernelTypeError(
            f"{_named(name)} is {name_of_type(a)} in one {kind}{lines[0]} and {name_of_type(b)} in the other{lines[1]}: {cure}", where
        )

    def finish(self) -> dict[str, Any]:
        """Make the op and bind the variables; returns all merged values by name."""
        frame, trace = self.frame, self.frame.tracer
        errors.place(frame.locate(self.node))
        inline = self._is_light()
        yields: list[list[TileValue]] = []
        for i, side in enumerate(self.sides):
            with trace.inside(side.block):
                yields.append([convert(pair[i], pair[2]) for pair in self.pairs])
                if not inline:
                    side.block.ops.append(Yield(tuple(v.value for v in yields[-1])))
        results = self._select(yields) if inline else self._if()
        merged: dict[str, Any] = {}
        made = iter(results)
        for name, structure, model, leaves in self.kept:
            value = rebuild(structure, iter([next(made) if leaf is None else leaf[0] for leaf in leaves]), model)
            merged[name] = value
            if name not in (RESULT, RETURNED):
                frame.write(name, value, self.node)
                frame.where[name] = self.sides[1].where.get(name) or self.sides[0].where.get(name) or frame.where[name]
        return merged

    def _is_light(self) -> bool:
        """Whether both sides are so light that computing both and selecting is better than branching."""
        return all(not type_.shape for _, _, type_ in self.pairs) and all(
            len(side.block.ops) <= 8 and all(op.has(Trait.PURE) and not op.blocks and not op.results[0].tile.shape for op in side.block.ops)
            for side in self.sides
        )

    def _select(self, yields: list[list[TileValue]]) -> list[TileValue]:
        for side in self.sides:
            self.frame.tracer.adopt(side.block)
        found: list[TileValue] = []
        for a, b, (_, _, type_) in zip(*yields, self.pairs, strict=True):
            cond = self.cond.value
            if b.value is cond:
                op = And(cond, a.value)
            elif a.value is cond:
                op = Or(cond, b.value)
            else:
                op = Select(cond, a.value, b.value)
            found.append(arithmetic.emit(op, type_.weak))
        return found

    def _if(self) -> list[TileValue]:
        op = If(self.cond.value, then=self.sides[0].block, orelse=self.sides[1].block)
        self.frame.tracer.block.ops.append(op)
        return [TileValue(value, type_.weak) for value, (_, _, type_) in zip(op.results, self.pairs, strict=True)]


# ---- loops -------------------------------------------------------------------------------------------------------------------------


class _Again(Exception):
    """A guess was wrong; it has been corrected."""


@dataclass
class _Slot:
    """A variable that was set before the loop and is assigned in it. `guesses` are the leaves' types; None: the same Python object."""

    name: str
    structure: Any
    model: Any
    leaves: list[Any]
    guesses: list[LeafType | None]
    head: list[Carried] = field(default_factory=list[Carried])  # the variable at the head of each block


class _Loop:
    """One trial after another until the types of the variables hold."""

    def __init__(self, frame: Frame, node: ast.For | ast.While, names: Sequence[str]) -> None:
        self.frame = frame
        self.node = node
        self.names = names
        self.before, self.where = frame.vars, frame.where
        self.dropped: dict[str, Unbound] = {}
        self.fixed: set[str] = set()  # variables to which the body gives the value they had before
        self.moving: set[str] = set()  # those to which it turned out not to
        self.slots: list[_Slot] = []
        for name in names:
            value = self.before.get(name, self)
            value = frame.lookup(name) if isinstance(value, Carried) else value
            if value is self or isinstance(value, Unbound):
                continue
            leaves: list[Any] = []
            structure = flatten(value, leaves)
            self.slots.append(_Slot(name, structure, value, leaves, [carried_type(leaf) for leaf in leaves]))

    def live(self) -> list[_Slot]:
        return [slot for slot in self.slots if slot.name not in self.dropped]

    def start(self) -> None:
        """Begin a trial: the variables are those before the loop."""
        self.frame.vars, self.frame.where = dict(self.before), dict(self.where)
        self.frame.vars.update(self.dropped)
        for slot in self.slots:
            slot.head = []

    def initial(self) -> tuple[Value, ...]:
        """The values that enter the loop."""
        return tuple(
            convert(leaf, guess).value for slot in self.live() for leaf, guess in zip(slot.leaves, slot.guesses, strict=True) if guess
        )

    def head(self, block: Block) -> None:
        """Give a block its parameters, and the variables the parameters' values."""
        for slot in self.live():
            leaves: list[Any] = []
            for leaf, guess in zip(slot.leaves, slot.guesses, strict=True):
                if guess is None:
                    leaves.append(leaf)
                    continue
                param = Value(Tile(guess.shape, guess.dtype), block, slot.name)
                block.params.append(param)
                leaves.append(TileValue(param, guess.weak))
            carried = Carried(rebuild(slot.structure, iter(leaves), slot.model))
            slot.head.append(carried)
            self.frame.vars[slot.name] = carried

    def state(self, last: bool = True) -> tuple[Value, ...]:
        """The variables at a block's end, in the guessed types; `last`: the block ends a trip.

        Raises _Again where a guess must change, KernelTypeError where it can't.
        """
        found: list[Value] = []
        for slot in self.live():
            value = self.frame.vars[slot.name]
            if isinstance(value, Carried):  # not assigned on the way: it stays what it was before the loop
                if last and any(slot.guesses) and slot.name not in self.moving:
                    self._fix(slot)
                    raise _Again
                value = value.value
            if isinstance(value, Unbound):
                raise self._drop(slot, value.reason, value)
            leaves: list[Any] = []
            if flatten(value, leaves) != slot.structure:
                raise self._change(slot, slot.model, value, Mismatch(""))
            if last and slot.name not in self.moving and self._unmoved(slot, leaves):
                self._fix(slot)
                raise _Again
            for i, leaf in enumerate(leaves):
                made = self._leaf(slot, i, leaf)
                if made is not None:
                    found.append(made.value)
        return tuple(found)

    def _fix(self, slot: _Slot) -> None:
        self.fixed.add(slot.name)
        slot.guesses = [None] * len(slot.leaves)

    def _unmoved(self, slot: _Slot, leaves: list[Any]) -> bool:
        """Whether the body gives Python numbers their old values: they can then stay what Python knows."""
        return any(guess is not None for guess in slot.guesses) and all(
            not isinstance(old, TileValue) and not isinstance(new, TileValue) and same(old, new)
            for old, new in zip(slot.leaves, leaves, strict=True)
        )

    def _leaf(self, slot: _Slot, i: int, leaf: Any) -> TileValue | None:
        guess, old = slot.guesses[i], slot.leaves[i]
        if guess is None:
            if same(old, leaf):
                return None
            type_ = carried_type(old)
            if slot.name in self.fixed and type_ is not None:
                self.fixed.discard(slot.name)
                self.moving.add(slot.name)
                slot.guesses = [carried_type(x) for x in slot.leaves]
                raise _Again
            raise self._change(slot, old, leaf, Mismatch(""))
        now = carried_type(leaf)
        if now is None:
            raise self._change(slot, old, leaf, Mismatch(""))
        try:
            joined = join(guess, now)
        except Mismatch as mismatch:
            raise self._change(slot, old, leaf, mismatch) from None
        if joined == guess:
            return convert(leaf, guess)
        slot.guesses[i] = joined
        raise _Again

    def _change(self, slot: _Slot, old: Any, new: Any, mismatch: Mismatch) -> Exception:
        """The error for a variable whose type changes from trip to trip; or, where no trip looks at the last one's, its removal."""
        now = self.frame.where.get(slot.name) or self.frame.locate(self.node)
        start = self.where.get(slot.name)
        origin = f" (line {start.line})" if start is not None else ""
        was = name_of_type(old)
        what = f"{slot.name!r} is {was} before the loop{origin} and {name_of_type(new)} after its body (line {now.line})"
        if carried_type(old) is None or carried_type(new) is None:
            cure = "a Python value must stay the same in every trip of a loop that is staged for run time (ts.static_range unrolls)"
        elif mismatch.advice:
            cure = f"a loop can't change a variable's dtype: write (…){mismatch.advice} on line {now.line}, or start with the other dtype"
        else:
            cure = "a loop can't change a variable's shape: start with ts.zeros or ts.full of the final shape"
        if not any(head.read for head in slot.head):
            return self._drop(slot, f"{what}, so that it has no one type after the loop: {cure}", None)
        return KernelTypeError(f"{what}: {cure}", now)

    def _drop(self, slot: _Slot, reason: str, unbound: Unbound | None) -> Exception:
        if any(head.read for head in slot.head):
            return KernelTypeError(f"{reason} (the loop carries {slot.name!r} from trip to trip)", self.frame.locate(self.node))
        self.dropped[slot.name] = unbound or Unbound(reason)
        return _Again()

    def forget(self, names: Sequence[str]) -> None:
        """The loop's condition assigns names that no variable before the loop holds: its body can't see them."""
        for name in set(names) - {slot.name for slot in self.live()}:
            self.frame.vars[name] = Unbound(f"{name!r} is assigned in the loop's condition; give it a value before the loop")

    def finish(self, results: Sequence[Value]) -> None:
        """Bind the variables after the loop."""
        frame, made = self.frame, iter(results)
        after = frame.where
        frame.vars, frame.where = self.before, self.where
        for slot in self.live():
            leaves = [
                leaf if guess is None else TileValue(next(made), guess.weak) for leaf, guess in zip(slot.leaves, slot.guesses, strict=True)
            ]
            frame.write(slot.name, rebuild(slot.structure, iter(leaves), slot.model), self.node)
            frame.where[slot.name] = after.get(slot.name, frame.where[slot.name])
        carried = {slot.name for slot in self.live()}
        line = frame.locate(self.node).line
        for name in self.names:
            if name in self.dropped:
                frame.vars[name] = self.dropped[name]
            elif name not in carried and (name in after or name in self.before):
                target = isinstance(self.node, ast.For) and isinstance(self.node.target, ast.Name) and self.node.target.id == name
                what = "the loop's variable" if target else "first assigned in the loop"
                frame.vars[name] = Unbound(
                    f"{name!r} is {what} on line {line if target else after[name].line if name in after else line}, and the loop may run "
                    f"no times; assign {name!r} before the loop"
                )

    def trials(self, trial: Callable[[], None]) -> None:
        """Repeat a trial until its guesses hold.

        Python numbers that the body assigns count as run-time values. Where that is an error (a tile shape needs them), they may be ones
        that the body gives their old values: one more trial sees.
        """
        failed: KernelError | ResourceError | None = None
        for _ in range(MAX_TRIALS):
            self.start()
            try:
                return trial()
            except _Again:
                if failed is not None:
                    raise failed from None
            except (KernelError, ResourceError) as error:
                numbers = [slot for slot in self.live() if any(slot.guesses) and not any(isinstance(x, TileValue) for x in slot.leaves)]
                if failed is not None or not numbers:
                    raise (failed or error) from None
                failed = error
                for slot in numbers:
                    self._fix(slot)
        raise self.frame.error(self.node, "the types of the loop's variables don't settle; cast them in the body", KernelTypeError)


def _bounds(frame: Frame, node: ast.For, bounds: Sequence[Any]) -> tuple[list[TileValue], bool]:
    """Start, stop and step as scalars of one integer dtype, and whether they are weak."""
    words = ("stop",) if len(bounds) == 1 else ("start", "stop", "step")
    given = [arithmetic.operand(b, "a bound of range") for b in bounds]
    for word, bound in zip(words, given, strict=False):
        if arithmetic.shape_of(bound) or arithmetic.dtype_of(bound).is_float:
            raise frame.error(node.iter, f"the {word} of range is {describe(bound)}; it takes integer scalars", KernelTypeError)
        if isinstance(bound, TileValue) and bound.dtype.kind is Kind.BOOL and not bound.weak:
            raise frame.error(node.iter, f"the {word} of range is {describe(bound)}; it takes integer scalars", KernelTypeError)
    if len(given) == 3 and not isinstance(given[2], TileValue) and given[2] == 0:
        raise frame.error(node.iter, "the step of range is 0", KernelValueError)
    start, stop, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
    dtype, weak = arithmetic.common_dtype(start, stop, step)
    dtype = dtypes.int64 if dtype is dtypes.bool_ else dtype
    made = [convert(b, LeafType((), dtype, weak)) for b in (start, stop, step)]
    return made, weak


def staged_for(frame: Frame, node: ast.For, bounds: Sequence[Any]) -> None:
    """`for name in range(…)`: a loop of run time, whatever is known of its bounds."""
    if not isinstance(node.target, ast.Name):
        raise frame.error(node.target, "a loop over range has one variable, a plain name")
    target = node.target.id
    frame.place(node.iter)
    (start, stop, step), weak = _bounds(frame, node, bounds)
    loop = _Loop(frame, node, _names_of(node))
    trace = frame.tracer

    def trial() -> None:
        errors.place(frame.locate(node))
        init = loop.initial()
        with _region(frame, node, True), trace.inside(Block()) as body:
            counter = Value(start.value.type, body, target)
            body.params.append(counter)
            loop.head(body)
            frame.write(target, TileValue(counter, weak), node.target)
            execute(frame, node.body)
            errors.place(frame.locate(node))
            body.ops.append(Yield(loop.state()))
        op = For(start.value, stop.value, step.value, init, stages=0, body=body)
        trace.block.ops.append(op)
        loop.finish(op.results)

    loop.trials(trial)


def _names_of(node: ast.For | ast.While) -> list[str]:
    return assigned(node.target, *node.body) if isinstance(node, ast.For) else assigned(node.test, *node.body)


def staged_while(frame: Frame, node: ast.While) -> None:
    """`while` on a condition of run time."""
    loop = _Loop(frame, node, _names_of(node))
    trace = frame.tracer

    def trial() -> None:
        errors.place(frame.locate(node))
        init = loop.initial()
        with _region(frame, node, True), trace.inside(Block()) as cond:
            loop.head(cond)
            test: Any = evaluate(frame, node.test)
            frame.place(node.test)
            known = not isinstance(test, TileValue)
            go = arithmetic.constant(bool(test), dtypes.bool_) if known else arithmetic.truth(test, "while")
            errors.place(frame.locate(node))
            cond.ops.append(Yield((go.value, *loop.state(last=False))))
            loop.forget(assigned(node.test))
        with _region(frame, node, True), trace.inside(Block()) as body:
            loop.head(body)
            execute(frame, node.body)
            errors.place(frame.locate(node))
            body.ops.append(Yield(loop.state()))
        op = While(init, cond=cond, body=body)
        trace.block.ops.append(op)
        loop.finish(op.results)

    loop.trials(trial)
