"""Pass 2: each tile value gets a layout; `dot` becomes `rocm.wmma` over fragments; `rocm.convert_layout` stands where layouts differ.

It works in two steps.

*Planning* spreads layouts from anchors through the ops that must or can share a layout, the most valuable anchors first; who comes first
keeps. Anchors are the accumulators of dots (fragments, waves split to suit the tile), loads (what memory likes, or what staging through LDS
likes where the load becomes a dot operand), stores, and then whatever is left. Layouts spread

- through elementwise ops, both ways; through transposes and reshapes, exactly, both ways;
- from a dot's result to its accumulator and back, and around loops and branches: one layout for all that a carried value is;
- from a tile to its reductions (slices), and from a broadcast's result to its operand;
- into a load only where moving the tile in that layout costs memory little (anchors.acceptable);
- never through a dot's operands, which are converted.

*Rewriting* goes through the kernel in order and lets each op ask for its operands in the layouts that it works in. What is cheap to make
again (constants, splats, aranges and arithmetic on them: masks and index tiles) and broadcasts, whose operand is smaller, are made in the
layout asked for. Everything else is converted, in front of the outermost loop around the use at which it is
available, once per layout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, cast

from ...errors import CompilerBug, KernelValueError, at
from ...ir.core import Block, Kernel, Kind, Op, Trait, Value
from ...ir.ops.arith import Arange, Const
from ...ir.ops.control import For, If, While, Yield
from ...ir.ops.matrix import Dot
from ...ir.ops.memory import Load, Store, array_type
from ...ir.ops.shape import Broadcast, Reduce, Reshape, Splat, Transpose
from ...ir.types import Tile
from . import layout as layouts
from .anchors import (
    DotLayouts,
    Threads,
    acceptable,
    dot_layouts,
    memory_layout,
    split_waves,
    spread,
    staging_layout,
    waves_of,
)
from .arch import Arch
from .layout import Layout
from .matrix import instruction
from .ops import ConvertLayout, Wmma

_VIEWS = (Broadcast, Reshape, Transpose)
_SOURCES = (Const, Arange, Splat)


def assign(kernel: Kernel, arch: Arch) -> None:
    """Give every tile value of a kernel a layout. Needs `select` before it."""
    plan = _Plan(kernel, Threads(arch.wave_size, kernel.num_waves), arch)
    plan.make()
    _Rewriter(kernel, plan).run()


def is_tile(value: Value) -> bool:
    """Whether a value has a layout: tiles have, scalars and arrays have none."""
    return isinstance(value.type, Tile) and bool(value.type.shape)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda i: order[i]))


def operand_layout(op: Op, result: Layout, source: Value) -> Layout | None:
    """The layout of `source`, a tile operand of an elementwise op or of a view, from the result's; None where a reshape can't keep it."""
    shape = source.tile.shape
    match op:
        case Broadcast():
            return layouts.restrict(result, shape)
        case Reshape():
            return layouts.reshape(result, shape)
        case Transpose():
            return layouts.transpose(result, _inverse(op.order))
        case _:
            return result


def result_layout(op: Op, source: Layout) -> Layout | None:
    """The layout of the result of an elementwise op, a view or a reduction, from an operand's; None for a broadcast (a choice)."""
    match op:
        case Broadcast():
            return None
        case Reshape():
            return layouts.reshape(source, op.shape)
        case Transpose():
            return layouts.transpose(source, op.order)
        case Reduce():
            return layouts.slice_axis(source, op.axis)
        case _:
            return source


class _Plan:
    """Which layout each value should have."""

    def __init__(self, kernel: Kernel, threads: Threads, arch: Arch) -> None:
        self.kernel, self.threads, self.arch = kernel, threads, arch
        self.layout: dict[Value, Layout] = {}
        self.producer: dict[Value, Op] = {}
        self.block_of: dict[Op, Block] = {}
        self.owner: dict[Block, Op] = {}
        self.home: dict[Value, Block] = {}  # the block in which a value is defined
        self.users: dict[Value, list[Op]] = {}
        self.links: dict[Value, list[Value]] = {}  # what a carried value is, before, in and after its loop or branch
        self.order: dict[Op, int] = {}
        self.depth: dict[Op, int] = {}
        self.cheap: set[Value] = set()
        self.dots: dict[Dot, DotLayouts] = {}
        self._index(kernel.body, 0)

    # What is where.

    def _index(self, block: Block, depth: int) -> None:
        for param in block.params:
            self.home[param] = block
        for op in block.ops:
            self.block_of[op], self.order[op], self.depth[op] = block, len(self.order), depth
            for value in op.operands:
                self.users.setdefault(value, []).append(op)
            for result in op.results:
                self.producer[result], self.home[result] = op, block
            if self._is_cheap(op):
                self.cheap.add(op.results[0])
            for nested in op.blocks:
                self.owner[nested] = op
                self._index(nested, depth + isinstance(op, (For, While)))
            self._link(op)

    def _is_cheap(self, op: Op) -> bool:
        if len(op.results) != 1 or not is_tile(op.results[0]) or not op.has(Trait.PURE):
            return False
        if isinstance(op, _SOURCES):
            return True
        return (op.has(Trait.ELEMENTWISE) or isinstance(op, _VIEWS)) and all(v in self.cheap for v in op.operands if is_tile(v))

    def _link(self, op: Op) -> None:
        groups: Iterator[tuple[Value, ...]]
        match op:
            case For():
                groups = zip(op.init, op.body.params[1:], op.body.terminator.operands, op.results, strict=True)
            case While():
                groups = zip(
                    op.init, op.cond.params, op.cond.terminator.operands[1:], op.body.params, op.body.terminator.operands, op.results,
                    strict=True,
                )  # fmt: skip
            case If():
                groups = zip(op.then.terminator.operands, op.orelse.terminator.operands, op.results, strict=True)
            case _:
                return
        for group in groups:
            if is_tile(group[-1]):
                for value in group:
                    self.links.setdefault(value, []).extend(group)

    # Planning.

    def make(self) -> None:
        ops = list(self.order)
        inner = sorted(ops, key=lambda op: -self.depth[op])
        for dot in (op for op in inner if isinstance(op, Dot)):
            self._seed_dot(dot)
        loads = [op for op in inner if isinstance(op, Load) and is_tile(op.result)]
        for load in sorted(loads, key=lambda op: (-self.depth[op], -op.result.tile.size * op.result.tile.dtype.bytes)):
            if load.result not in self.layout:
                self._spread(load.result, self._load_layout(load))
        for store in (op for op in inner if isinstance(op, Store)):
            if is_tile(store.source) and store.source not in self.layout and store.source not in self.cheap:
                self._spread(store.source, memory_layout(store.source.tile.shape, array_type(store, store.array), self.threads))
        for value in self.home:
            if is_tile(value) and value not in self.layout and value not in self.cheap:
                self._spread(value, self._default(value))

    def _default(self, value: Value) -> Layout:
        op, shape = self.producer.get(value), value.tile.shape
        if isinstance(op, Broadcast) and op.source in self.layout:
            return layouts.broadcast(self.layout[op.source], shape)
        return spread(shape, len(shape) - 1, max(1, 16 // value.tile.dtype.bytes), self.threads, self._reduced(value))

    def default(self, value: Value) -> Layout:
        """The planned layout; for what has none (what is cheap), one that suits its reductions."""
        return self.layout.get(value) or self._default(value)

    def _spread(self, value: Value, layout: Layout) -> None:
        """Give `value` its layout, and all that has none yet and can share it."""
        self.layout[value] = layout
        queue = deque([value])
        while queue:
            source = queue.popleft()
            for other, derived in self._neighbours(source, self.layout[source]):
                if derived is not None and other not in self.layout and other not in self.cheap and self._takes(other, derived):
                    self.layout[other] = derived
                    queue.append(other)

    def _takes(self, value: Value, layout: Layout) -> bool:
        op = self.producer.get(value)
        return not isinstance(op, Load) or acceptable(layout, array_type(op, op.array), self.threads)

    def _neighbours(self, value: Value, layout: Layout) -> Iterator[tuple[Value, Layout | None]]:
        for linked in self.links.get(value, ()):
            yield linked, layout
        op = self.producer.get(value)
        if op is not None and (op.has(Trait.ELEMENTWISE) or isinstance(op, _VIEWS)):
            for source in op.operands:
                if is_tile(source):
                    yield source, operand_layout(op, layout, source)
        elif isinstance(op, Dot):
            yield op.acc, layout
        for user in self.users.get(value, ()):
            if isinstance(user, Dot):
                if user.acc is value:
                    yield user.result, layout
            elif user.has(Trait.ELEMENTWISE) or isinstance(user, (Reduce, *_VIEWS)):
                if is_tile(user.results[0]):
                    yield user.results[0], result_layout(user, layout)
                if user.has(Trait.ELEMENTWISE):
                    for other in user.operands:
                        if is_tile(other):
                            yield other, layout

    # Dots.

    def _seed_dot(self, dot: Dot) -> None:
        row = instruction(self.arch, dot.instruction, dot.a.tile.dtype, dot.b.tile.dtype)
        (m, k), n = dot.a.tile.shape, dot.b.tile.shape[1]
        held = self.layout.get(dot.result)
        waves = waves_of(held, row) if held is not None else None
        if waves is None:
            waves = split_waves(row, m, n, self.threads, self._kept_whole(dot))
        self.dots[dot] = found = dot_layouts(row, m, n, k, waves)
        if held is None:
            self._spread(dot.result, found.acc)

    def _kept_whole(self, dot: Dot) -> int | None:
        """The axis of the accumulator along which waves should be laid, so that what follows the dot stays within each wave."""
        after = self._reached(dot.result)
        for axis in (0, 1):
            for op, axes, here in after:
                if (op.a, op.b)[axis] is here if isinstance(op, Dot) else axes[op.axis] == 1 - axis:
                    return axis
        return 0 if self._comes_from_dot(dot.a) else None

    def _comes_from_dot(self, value: Value) -> bool:
        op = self.producer.get(value)
        if isinstance(op, Dot):
            return True
        return op is not None and op.has(Trait.ELEMENTWISE) and any(self._comes_from_dot(v) for v in op.operands if is_tile(v))

    def _reached(self, value: Value) -> list[tuple[Reduce | Dot, tuple[int, ...], Value]]:
        """The reductions and dots that take a tile, through ops of its shape, transposes, loops and branches.

        With each, the axis of `value` that each axis of the tile there is, and what the op takes.
        """
        axes = {value: tuple(range(len(value.tile.shape)))}
        queue = deque([value])
        found: list[tuple[Reduce | Dot, tuple[int, ...], Value]] = []
        while queue:
            here = queue.popleft()
            near = [(other, axes[here]) for other in self.links.get(here, ())]
            for user in self.users.get(here, ()):
                if isinstance(user, Reduce) or (isinstance(user, Dot) and user.acc is not here):
                    found.append((user, axes[here], here))
                elif isinstance(user, Transpose):
                    near.append((user.result, tuple(axes[here][a] for a in user.order)))
                elif user.has(Trait.ELEMENTWISE) or isinstance(user, Dot):
                    near.append((user.results[0], axes[here]))
            for other, place in near:
                if other not in axes:
                    axes[other] = place
                    queue.append(other)
        return found

    # Loads.

    def _reduced(self, value: Value) -> frozenset[int]:
        return frozenset(axes[op.axis] for op, axes, _ in self._reached(value) if isinstance(op, Reduce))

    def _load_layout(self, load: Load) -> Layout:
        array, tile = array_type(load, load.array), load.result.tile
        if len(tile.shape) == 2:
            for op, axes, here in self._reached(load.result):
                if isinstance(op, Dot):
                    summed, operand = (1, op.a) if op.a is here else (0, op.b)
                    return staging_layout(
                        (tile.shape[0], tile.shape[1]), array, axes[summed], operand.tile.dtype.bytes, self.threads
                    )  # fmt: skip
        return memory_layout(tile.shape, array, self.threads, self._reduced(load.result))


class _Rewriter:
    """Makes the plan true."""

    def __init__(self, kernel: Kernel, plan: _Plan) -> None:
        self.kernel, self.plan = kernel, plan
        self.before: dict[Op, list[Op]] = {}
        self.remade: dict[tuple[Value, Layout], Value] = {}
        self.converted: dict[tuple[Value, Layout], tuple[ConvertLayout, Op]] = {}
        self.replaced: dict[Value, Value] = {}  # results of dots
        self.dropped: set[Op] = set()

    def run(self) -> None:
        self._block(self.kernel.body)
        self._rebuild(self.kernel.body)

    def _rebuild(self, block: Block) -> None:
        ops: list[Op] = []
        for op in block.ops:
            ops += self.before.get(op, ())
            if op not in self.dropped:
                ops.append(op)
                for nested in op.blocks:
                    self._rebuild(nested)
        block.ops = ops

    def _block(self, block: Block) -> None:
        for op in block.ops:
            with at(op.location):
                self._op(op)

    def _op(self, op: Op) -> None:
        plan = self.plan
        match op:
            case _ if self._is_lazy(op):
                self.dropped.add(op)  # made where and as it is wanted
            case Dot():
                self._dot(op)
            case Load():
                if is_tile(op.result):
                    op.result.layout = plan.layout[op.result]
            case Store():
                if is_tile(op.source):
                    self._use(op, {op.source: self._store_layout(op)})
            case Reduce():
                held = self._held(op.source)
                self._use(op, {op.source: held})
                if is_tile(op.result):
                    op.result.layout = layouts.slice_axis(held, op.axis)
            case Reshape() | Transpose() if is_tile(op.source):
                held = self._held(op.source)
                self._use(op, {op.source: held})
                if is_tile(op.result):
                    op.result.layout = self._moved(op, held)
            case For():
                wanted = self._carry(op.results, op.body.params[1:])
                op.init = self._all(op.init, wanted, op)
                self._end(op.body, wanted)
            case While():
                wanted = self._carry(op.results, op.cond.params, op.body.params)
                op.init = self._all(op.init, wanted, op)
                self._end(op.cond, [None, *wanted])
                self._end(op.body, wanted)
            case If():
                wanted = self._carry(op.results)
                self._end(op.then, wanted)
                self._end(op.orelse, wanted)
            case _ if op.has(Trait.ELEMENTWISE) and is_tile(op.results[0]):
                wanted = plan.layout[op.results[0]]
                self._use(op, {v: wanted for v in op.operands if is_tile(v)})
                op.results[0].layout = wanted
            case _:
                if any(is_tile(v) for v in (*op.results, *op.operands)) and not op.has(Trait.TERMINATOR):
                    raise CompilerBug(f"layout assignment doesn't know {op.name}")

    def _is_lazy(self, op: Op) -> bool:
        return isinstance(op, Broadcast) or (len(op.results) == 1 and op.results[0] in self.plan.cheap)

    def _moved(self, op: Reshape | Transpose, held: Layout) -> Layout:
        found = result_layout(op, held)
        if found is None:
            raise self._unsplittable(op, op.source)
        return found

    @staticmethod
    def _unsplittable(op: Op, source: Value) -> KernelValueError:
        shapes = f"{source.tile.shape} to {op.results[0].tile.shape}"
        return KernelValueError(f"reshape of {shapes}: extents that aren't powers of two can't be split or merged", op.location)

    def _held(self, value: Value) -> Layout:
        """The layout that a value really has; for what is made as wanted, the one planned."""
        value = self.replaced.get(value, value)
        return cast("Layout | None", value.layout) or self.plan.default(value)

    def _store_layout(self, store: Store) -> Layout:
        array, held = array_type(store, store.array), self._held(store.source)
        best = memory_layout(store.source.tile.shape, array, self.plan.threads)
        if store.source in self.plan.cheap:
            return best
        return held if acceptable(held, array, self.plan.threads) else best

    def _dot(self, dot: Dot) -> None:
        found = self.plan.dots[dot]
        operands = [
            self._want(value, wanted, dot) for value, wanted in ((dot.a, found.a), (dot.b, found.b), (dot.acc, found.acc))
        ]  # fmt: skip
        matrix = Wmma(*operands, instruction=dot.instruction)
        matrix.result.layout, matrix.result.name = found.acc, dot.result.name
        self.replaced[dot.result] = matrix.result
        self.plan.home[matrix.result] = self.plan.home[dot.result]
        self.before.setdefault(dot, []).append(matrix)
        self.dropped.add(dot)

    def _carry(self, results: Sequence[Value], *params: Sequence[Value]) -> list[Layout | None]:
        """The layouts of carried values, set for all that they are inside."""
        wanted = [self.plan.layout[r] if is_tile(r) else None for r in results]
        for group in (results, *params):
            for value, layout in zip(group, wanted, strict=True):
                value.layout = layout
        return wanted

    def _end(self, block: Block, wanted: Sequence[Layout | None]) -> None:
        """Rewrite a block that yields values in the layouts `wanted`."""
        self._block(block)
        last = cast(Yield, block.terminator)
        last.values = self._all(last.values, wanted, last)

    def _all(self, values: Sequence[Value], wanted: Sequence[Layout | None], user: Op) -> tuple[Value, ...]:
        return tuple(v if w is None else self._want(v, w, user) for v, w in zip(values, wanted, strict=True))

    def _use(self, op: Op, wanted: dict[Value, Layout]) -> None:
        op.replace_operands({value: self._want(value, layout, op) for value, layout in wanted.items()})

    # Values in the layout asked for.

    def _want(self, value: Value, wanted: Layout, user: Op) -> Value:
        op = self.plan.producer.get(value)
        if op is not None and self._is_lazy(op):
            return self._make(op, wanted)
        value = self.replaced.get(value, value)
        if value.layout == wanted:
            return value
        return self._convert(value, wanted, user)

    def _make(self, op: Op, wanted: Layout) -> Value:
        """The result of a cheap op or a view, made again in the layout `wanted` at the op's place."""
        key = (op.results[0], wanted)
        if key not in self.remade:
            given: dict[str, Any] = {}
            for f in fields(cast(Any, op)):
                field = getattr(op, f.name)
                given[f.name] = self._operand(op, field, wanted) if f.metadata["kind"] is Kind.OPERAND else field
            with at(op.location):
                made = type(op)(**given)
            made.results[0].layout = wanted
            made.results[0].name = op.results[0].name
            self.before.setdefault(op, []).append(made)
            self.remade[key] = made.results[0]
        return self.remade[key]

    def _operand(self, op: Op, source: Value, wanted: Layout) -> Value:
        if not is_tile(source):
            return source
        layout = operand_layout(op, wanted, source)
        if layout is None:
            raise self._unsplittable(op, source)
        return self._want(source, layout, op)

    def _convert(self, value: Value, wanted: Layout, user: Op) -> Value:
        """`value` in the layout `wanted`, converted in the block that defines it, in front of its first use there."""
        place = self._place(value, user)
        known = self.converted.get((value, wanted))
        if known is not None:
            convert, old = known
            if self.plan.order[place] < self.plan.order[old]:  # a view that stands earlier needs it too
                self.before[old].remove(convert)
                self.before.setdefault(place, []).append(convert)
                self.converted[value, wanted] = (convert, place)
            return convert.result
        convert = ConvertLayout(value)
        convert.result.layout = wanted
        self.before.setdefault(place, []).append(convert)
        self.converted[value, wanted] = (convert, place)
        return convert.result

    def _place(self, value: Value, user: Op) -> Op:
        """The op around `user`, or itself, that stands in the block where `value` is defined."""
        home = self.plan.home[value]
        while self.plan.block_of[user] is not home:
            user = self.plan.owner[self.plan.block_of[user]]
        return user
