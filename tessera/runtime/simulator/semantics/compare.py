"""Vector comparisons: every predicate on every type, as a mask (v_cmp) or into EXEC (v_cmpx)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tessera.llvmtext import Function, Value, const, element

from .numeric import bits_of, constant
from .table import ALL, BEFORE_GFX11, BEFORE_GFX12, CDNA, RDNA, Generation, semantics

Predicate: TypeAlias = Callable[[Function, Value, Value], Value]

_ORDERED = {"lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord"}
_UNORDERED = {"u": "uno", "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge"}
_INTEGER = {"lt": "lt", "eq": "eq", "le": "le", "gt": "gt", "ne": "ne", "ge": "ge"}


def _define(name: str, signature: str, emit: Predicate, on: frozenset[Generation] = ALL) -> None:
    semantics(f"v_cmp_{name}", f"{signature} -> mask", on=on)(emit)
    if on & RDNA:
        semantics(f"v_cmpx_{name}", f"{signature} -> execmask", on=on & RDNA)(emit)
    if on & CDNA:
        semantics(f"v_cmpx_{name}", f"{signature} -> mask execmask", on=on & CDNA)(lambda b, x, y: (r := emit(b, x, y), r))


def _float_predicate(predicate: str) -> Predicate:
    return lambda b, x, y: b.fcmp(predicate, x, y)


def _integer_predicate(predicate: str) -> Predicate:
    return lambda b, x, y: b.icmp(predicate, x, y)


def _always(value: bool) -> Predicate:
    def fill(b: Function, x: Value, y: Value) -> Value:
        return const(x.type.replace(element(x.type), "i1"), value)

    return fill


for _kind in ("f16", "f32", "f64"):
    for _name, _predicate in (_ORDERED | _UNORDERED).items():
        _define(f"{_name}_{_kind}", f"{_kind} {_kind}", _float_predicate(_predicate))
    _define(f"f_{_kind}", f"{_kind} {_kind}", _always(False), BEFORE_GFX12)
    _define(f"t_{_kind}", f"{_kind} {_kind}", _always(True), BEFORE_GFX12 - BEFORE_GFX11)
    _define(f"tru_{_kind}", f"{_kind} {_kind}", _always(True), BEFORE_GFX11)
for _kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _predicate in _INTEGER.items():
        _sign = "" if _predicate in ("eq", "ne") else ("s" if _kind[0] == "i" else "u")
        _define(f"{_name}_{_kind}", f"{_kind} {_kind}", _integer_predicate(_sign + _predicate))
    _constant_on = CDNA if _kind.endswith("16") else BEFORE_GFX12
    _define(f"f_{_kind}", f"{_kind} {_kind}", _always(False), _constant_on)
    _define(f"t_{_kind}", f"{_kind} {_kind}", _always(True), _constant_on)


def class_of(b: Function, x: Value, wanted: Value) -> Value:
    """Whether x is in a class of `wanted`; bits 0-9: signalling NaN, quiet NaN, -inf, -normal, -subnormal, -0, and +0 up to +inf."""
    layout = {"float": (23, 8), "double": (52, 11), "i16": (10, 5)}[element(x.type)]
    shift, exponent_bits = layout
    raw = x if element(x.type) == "i16" else bits_of(b, x)
    width = 1 + exponent_bits + shift
    infinity = ((1 << exponent_bits) - 1) << shift
    size = b.and_(raw, (1 << (width - 1)) - 1)
    negative = b.icmp("slt", raw, 0)

    def number(value: int) -> Value:
        return constant(wanted, value)

    # By size, upwards; the bit of the class among the positives, and among the negatives.
    positive = number(1 << 6)
    minus = number(1 << 5)
    for first, above, below in ((1, 7, 4), (1 << shift, 8, 3), (infinity, 9, 2)):
        reached = b.icmp("uge", size, first)
        positive = b.select(reached, number(1 << above), positive)
        minus = b.select(reached, number(1 << below), minus)
    chosen = b.select(negative, minus, positive)
    chosen = b.select(b.icmp("ugt", size, infinity), number(1), chosen)
    chosen = b.select(b.icmp("uge", size, infinity | 1 << (shift - 1)), number(2), chosen)
    return b.icmp("ne", b.and_(chosen, wanted), 0)


for _kind, _mask in (("h16", "u16"), ("f32", "u32"), ("f64", "u32")):
    _define(f"class_{_kind.replace('h', 'f')}", f"{_kind} {_mask}", class_of)
