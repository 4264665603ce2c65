"""Narrowing: weak integers are int64 in the language and 32 bits wide in registers wherever their range is proven.

Extents of small arrays, program ids and constants have known ranges; interval arithmetic carries them through sums, products, quotients and
loop counters. An op whose operands and result all fit 32 bits is done in int32 between casts, which folding then removes.

Contract: no value changes. An interval that could leave int64 counts as unknown, since int64 arithmetic wraps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product

from ... import dtypes
from ...errors import at
from ..core import Block, Kernel, Op, Value
from ..ops.arith import Abs, Add, And, Cast, Compare, Const, FloorDiv, Maximum, Minimum, Mod, Mul, Neg, Select, Shl, Shr, Sub
from ..ops.control import For, If
from ..ops.memory import Extent, NumPrograms, ProgramId
from ..types import INDEX, ArrayType, Tile

Range = tuple[int, int]

FULL: Range = (-(2**63), 2**63 - 1)
INT32: Range = (-(2**31), 2**31 - 1)
NARROW = Tile((), dtypes.int32)

PROGRAMS = 2**27
"""Programs along a grid axis: blocks times threads stay below 2**32 (the launch checks it), and a wave has at least 32 lanes."""


def narrow(kernel: Kernel) -> None:
    """Narrow scalar int64 arithmetic in place."""
    _Narrowing().block(kernel.body)


def _clip(low: int, high: int) -> Range:
    return (low, high) if FULL[0] <= low and high <= FULL[1] else FULL


def _corners(f: Callable[[int, int], int], x: Range, y: Range) -> Range:
    found = [f(a, b) for a, b in product(x, y)]
    return _clip(min(found), max(found))


def _range_of_type(type_: object) -> Range:
    if not isinstance(type_, Tile) or not type_.dtype.is_integer:
        return FULL
    bits = type_.dtype.bits
    if bits == 64:
        return FULL
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type_.dtype.is_signed else (0, 2**bits - 1)


class _Narrowing:
    def __init__(self) -> None:
        self.ranges: dict[Value, Range] = {}
        self.narrowed: dict[Value, Value] = {}  # the int32 twin of an int64 value

    def range(self, value: Value) -> Range:
        return self.ranges.get(value) or _range_of_type(value.type)

    def fits(self, *values: Value) -> bool:
        return all(INT32[0] <= self.range(v)[0] and self.range(v)[1] <= INT32[1] for v in values)

    def block(self, block: Block) -> None:
        ops, block.ops = block.ops, []
        for op in ops:
            if isinstance(op, For):
                with at(op.location):
                    self.loop(op, block.ops)
            else:
                for nested in op.blocks:
                    self.block(nested)
            for result in op.results:
                if result.type == INDEX:
                    self.ranges[result] = self.infer(op, result)
            with at(op.location):
                self.rewrite(op, block.ops)

    def infer(self, op: Op, result: Value) -> Range:
        """The interval of an int64 scalar result."""
        x = self.range(op.operands[0]) if op.operands else FULL
        y = self.range(op.operands[1]) if len(op.operands) > 1 else FULL
        match op:
            case Const():
                return (int(op.value), int(op.value))
            case ProgramId():
                return (0, PROGRAMS - 1)
            case NumPrograms():
                return (1, PROGRAMS)
            case Extent():
                small = isinstance(op.array.type, ArrayType) and op.array.type.small
                return (0, 2**31 - 1) if small else (0, FULL[1])
            case Cast():
                known = _range_of_type(op.source.type)
                return (0, 1) if op.source.tile.dtype.short == "bool" else x if op.source.tile.dtype.is_integer and known != FULL else FULL
            case Neg():
                return _clip(-x[1], -x[0])
            case Abs():
                return _clip(0 if x[0] <= 0 <= x[1] else min(abs(x[0]), abs(x[1])), max(abs(x[0]), abs(x[1])))
            case Add():
                return _clip(x[0] + y[0], x[1] + y[1])
            case Sub():
                return _clip(x[0] - y[1], x[1] - y[0])
            case Mul():
                return _corners(lambda a, b: a * b, x, y)
            case FloorDiv():
                return _corners(lambda a, b: a // b, x, y) if y[0] > 0 else FULL
            case Mod():
                return (0, y[1] - 1) if y[0] > 0 else FULL
            case Minimum():
                return (min(x[0], y[0]), min(x[1], y[1]))
            case Maximum():
                return (max(x[0], y[0]), max(x[1], y[1]))
            case And():
                bound = min(high for low, high in (x, y) if low >= 0) if x[0] >= 0 or y[0] >= 0 else None
                return FULL if bound is None else (0, bound)
            case Shl():
                return _corners(lambda a, b: a << b, x, y) if y[0] >= 0 and y[1] < 63 else FULL
            case Shr():
                return _corners(lambda a, b: a >> b, x, y) if y[0] >= 0 and y[1] < 64 else FULL
            case Select():
                low, high = zip(self.range(op.then), self.range(op.orelse), strict=True)
                return (min(low), max(high))
            case If():
                index = op.results.index(result)
                low, high = zip(*(self.range(b.terminator.operands[index]) for b in op.blocks), strict=True)
                return (min(low), max(high))
            case _:
                return FULL

    def loop(self, op: For, before: list[Op]) -> None:
        """Give the counter its range, and make it 32 bits wide where every value it takes, the one past the end included, fits."""
        counter = op.body.params[0]
        start, stop, step = self.range(op.start), self.range(op.stop), self.range(op.step)
        if counter.type == INDEX:
            last = (min(start[0], stop[0] + 1 if step[0] < 0 else start[0]), max(start[1], stop[1] - 1 if step[1] > 0 else start[1]))
            past = (last[0] + min(step[0], 0), last[1] + max(step[1], 0))
            if self.fits(op.start, op.stop, op.step) and INT32[0] <= past[0] and past[1] <= INT32[1]:
                op.start, op.stop, op.step = (self.twin(v, before) for v in (op.start, op.stop, op.step))
                new = Value(NARROW, op.body, counter.name)
                op.body.params[0] = new
                widened = Cast(new, to=dtypes.int64)
                # What used the counter goes on using the same value, now made by a cast.
                counter.owner = widened
                widened.results = (counter,)
                op.body.ops.insert(0, widened)
                self.ranges[new] = self.ranges[counter] = last
                self.narrowed[counter] = new
            else:
                self.ranges[counter] = _clip(*last)
        self.block(op.body)

    def twin(self, value: Value, before: list[Op]) -> Value:
        """The int32 value equal to an int64 value whose range fits."""
        found = self.narrowed.get(value)
        if found is None:
            owner = value.owner
            made = Const(type=NARROW, value=owner.value) if isinstance(owner, Const) else Cast(value, to=dtypes.int32)
            before.append(made)
            found = made.result
            if isinstance(owner, Const):
                return found  # constants are remade where they are used: their twin need not dominate later uses
        return found

    def rewrite(self, op: Op, out: list[Op]) -> None:
        """Append `op`, or its 32-bit form followed by a cast of the result."""
        narrowable = isinstance(op, (Neg, Abs, Add, Sub, Mul, FloorDiv, Mod, Minimum, Maximum, And, Shl, Shr, Select, Compare))
        wide = [v for v in op.operands if v.type == INDEX]
        if not narrowable or not wide or not self.fits(*wide) or not (isinstance(op, Compare) or self.fits(*op.results)):
            out.append(op)
            return
        # A shift's count is compared with the width: it must be below 32 for both widths to agree.
        if isinstance(op, (Shl, Shr)) and not (self.range(op.rhs)[0] >= 0 and self.range(op.rhs)[1] < 32):
            out.append(op)
            return
        twins = {v: self.twin(v, out) for v in wide}
        small = copy.copy(op)
        small.replace_operands(twins)
        if isinstance(op, Compare):
            op.result.owner = small
            out.append(small)
            return
        small.__post_init__()
        result = op.result
        widened = Cast(small.result, to=dtypes.int64)
        widened.results = (result,)
        result.owner = widened
        out += [small, widened]
        self.ranges[small.result] = self.ranges[result]
        self.narrowed[result] = small.result
