"""Runs single instructions of the simulator on chosen register contents, and says what floats mean: shared by the tests of semantics.

Registers: results go to v0 (v0 and v1 if wide) and s0; the i-th source is in v[4+2i] or s[8+2i], masks in s[40], s[42], …
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from tessera import llvm
from tessera.llvmtext import Function, Module
from tessera.runtime.simulator import shapes
from tessera.runtime.simulator.asmtext import parse_instruction
from tessera.runtime.simulator.semantics import FloatMode, Generation
from tessera.runtime.simulator.state import EXEC, VCC, VGPR_OFFSET, Field, WaveState, state_size

VGPRS = 24

# ---- formats ---------------------------------------------------------------------------------------------------------------------

PRECISION = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def _exponents(kind: str) -> tuple[int, int]:
    """The exponent of the smallest normal number, and the width of the exponent field."""
    field = BITS[kind] - PRECISION[kind]
    return 2 - (1 << (field - 1)), field


def encode(kind: str, value: float | Fraction, negative: bool = False) -> int:
    """The pattern nearest to a number, ties to even; `negative` is the sign of a zero Fraction."""
    p = PRECISION[kind]
    low, field = _exponents(kind)
    sign, infinity = 1 << (BITS[kind] - 1), ((1 << field) - 1) << (p - 1)
    if isinstance(value, float):
        if math.isnan(value):
            return infinity | 1 << (p - 2)
        negative = math.copysign(1, value) < 0
        if math.isinf(value):
            return infinity | (sign if negative else 0)
        value = Fraction(value)
    if value == 0:
        return sign if negative else 0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, low)
    units = round(size / Fraction(2) ** (exponent - p + 1))
    pattern = units if units < 1 << (p - 1) else ((exponent - low + 1) << (p - 1)) + units - (1 << (p - 1))
    return min(pattern, infinity) | (sign if value < 0 else 0)


def decode(kind: str, pattern: int) -> float:
    """The number of a pattern, exactly."""
    p = PRECISION[kind]
    low, field = _exponents(kind)
    exponent = pattern >> (p - 1) & ((1 << field) - 1)
    fraction = pattern & ((1 << (p - 1)) - 1)
    sign = -1.0 if pattern >> (BITS[kind] - 1) & 1 else 1.0
    if exponent == (1 << field) - 1:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(fraction, low - p + 1)
    return sign * math.ldexp(fraction | 1 << (p - 1), low - p + exponent)


def is_nan(kind: str, pattern: int) -> bool:
    return math.isnan(decode(kind, pattern))


def is_signalling(kind: str, pattern: int) -> bool:
    return is_nan(kind, pattern) and not pattern >> (PRECISION[kind] - 2) & 1


def fma(kind: str, x: float, y: float, z: float) -> int:
    """x*y + z, rounded once."""
    if math.isnan(x) or math.isnan(y) or math.isnan(z):
        return encode(kind, math.nan)
    sign = math.copysign(1, x) * math.copysign(1, y)
    if math.isinf(x) or math.isinf(y):
        if x == 0 or y == 0 or (math.isinf(z) and math.copysign(1, z) != sign):
            return encode(kind, math.nan)
        return encode(kind, sign * math.inf)
    if math.isinf(z):
        return encode(kind, z)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    both_negative = exact == 0 and sign < 0 and math.copysign(1, z) < 0 and (x == 0 or y == 0)
    return encode(kind, exact, both_negative)


def divide(kind: str, x: float, y: float) -> int:
    """x / y, rounded once."""
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return encode(kind, math.nan)
    sign = math.copysign(1, x) * math.copysign(1, y)
    if math.isinf(x) or y == 0:
        return encode(kind, sign * math.inf)
    return encode(kind, sign * 0.0) if math.isinf(y) or x == 0 else encode(kind, Fraction(x) / Fraction(y))


# ---- inputs ----------------------------------------------------------------------------------------------------------------------

_RANDOM = random.Random(20240)


def _float_pool(kind: str) -> list[int]:
    p = PRECISION[kind]
    _, field = _exponents(kind)
    one = ((1 << (field - 1)) - 1) << (p - 1)
    infinity = ((1 << field) - 1) << (p - 1)
    positive = [
        0, 1, 2, (1 << (p - 1)) - 1, 1 << (p - 1), (1 << (p - 1)) + 1, one, one - 1, one + 1, one + (1 << (p - 2)), infinity - 1, infinity,
        infinity | 1 << (p - 2), infinity | 1, *(encode(kind, v) for v in (0.5, 2.5, 3.5, 31.75, 127.5, 32767.5, 65535.0, 65504.0, 3.0)),
        *(encode(kind, v) for v in (2.0**31, 2.0**31 - 128, 2.0**32, 2.0**32 - 1, 2.0**-14, 2.0**-24, 0.49999997, 1e-30, 1e30, 0.1)),
    ]  # fmt: skip
    return positive + [x | 1 << (BITS[kind] - 1) for x in positive]


def _integer_pool(width: int) -> list[int]:
    ones = (1 << width) - 1
    return [
        0,
        1,
        2,
        5,
        ones,
        ones - 1,
        1 << (width - 1),
        (1 << (width - 1)) - 1,
        0x55 * (ones // 255),
        *(1 << i for i in range(0, width, 3)),
    ]


def sample(kind: str, count: int) -> list[int]:
    """`count` patterns of a kind: special values, one-hot words, numbers of ordinary size, and any bits."""
    if kind in BITS:
        pool, width = _float_pool(kind), BITS[kind]
        ordinary: Callable[[], int] = lambda: encode(kind, _RANDOM.gauss(0, 8))  # noqa: E731
    else:
        width = int(kind.lstrip("iub"))
        pool = _integer_pool(width)
        ordinary = lambda: _RANDOM.randint(-70, 70) & ((1 << width) - 1)  # noqa: E731
    makers = (lambda: _RANDOM.choice(pool), ordinary, lambda: _RANDOM.getrandbits(width), lambda: _RANDOM.choice(pool))
    return [makers[_RANDOM.randrange(4)]() for _ in range(count)]


# ---- running ---------------------------------------------------------------------------------------------------------------------


class State:
    """A wave's registers as NumPy arrays over one state block."""

    def __init__(self, wave: int) -> None:
        raw = np.zeros(state_size(wave, VGPRS) // 4 + 16, np.uint32)
        start = (-raw.ctypes.data // 4) % 16
        self.wave = wave
        self.block = raw[start : start + state_size(wave, VGPRS) // 4]
        self.s = self.block[:128]
        self.v = self.block[VGPR_OFFSET // 4 :].reshape(VGPRS, wave)
        self.set_mask(EXEC, (1 << wave) - 1)

    def copy(self) -> State:
        other = State(self.wave)
        other.block[:] = self.block
        return other

    def mask(self, slot: int) -> int:
        return int(self.s[slot]) | (int(self.s[slot + 1]) << 32 if self.wave == 64 else 0)

    def set_mask(self, slot: int, value: int) -> None:
        self.s[slot] = value & 0xFFFFFFFF
        if self.wave == 64:
            self.s[slot + 1] = value >> 32

    @property
    def exec(self) -> int:
        return self.mask(EXEC)

    @property
    def vcc(self) -> int:
        return self.mask(VCC)

    @property
    def scc(self) -> int:
        return int(self.block[Field.SCC // 4])

    @scc.setter
    def scc(self, value: int) -> None:
        self.block[Field.SCC // 4] = value

    def lanes(self, register: int, width: int, high: bool = False) -> list[int]:
        """A vector register (or pair) as integers."""
        row = self.v[register].tolist()
        if width == 64:
            return [a | b << 32 for a, b in zip(row, self.v[register + 1].tolist(), strict=True)]
        return row if width == 32 else [a >> 16 if high else a & 0xFFFF for a in row]

    def set_lanes(self, register: int, width: int, values: Sequence[int]) -> None:
        self.v[register] = [x & 0xFFFFFFFF if width != 16 else (x | 0xABCD0000) for x in values]
        if width == 64:
            self.v[register + 1] = [x >> 32 for x in values]

    def scalar(self, register: int, width: int = 32) -> int:
        low = int(self.s[register])
        return low | int(self.s[register + 1]) << 32 if width == 64 else low

    def set_scalar(self, register: int, value: int, width: int = 32) -> None:
        self.s[register] = value & 0xFFFFFFFF
        if width == 64:
            self.s[register + 1] = value >> 32


@dataclass
class Program:
    """Compiled pieces of code: `program[i](state)` runs the i-th in place."""

    code: llvm.HostCode
    count: int

    def __getitem__(self, index: int) -> Callable[[State], None]:
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.code.address(f"piece{index}"))

        def run(state: State, _keep: Program = self) -> None:
            function(state.block.ctypes.data)

        return run


def build(
    pieces: Sequence[str], wave: int, generation: Generation = Generation.GFX11, mode: FloatMode | None = None, full_exec: bool = False
) -> Program:
    """Compile pieces of assembly, one function each. A piece is one or more lines."""
    module = Module(llvm.host().triple)
    for index, piece in enumerate(pieces):
        f = Function(module, f"piece{index}", "void", [("ptr noalias", "state")])
        f.position("entry")
        state = WaveState(f, wave, f.arguments[0], vgprs=VGPRS, full_exec=full_exec)
        for line in piece.strip().splitlines():
            text = line.strip()
            has_literal = "0x" in text
            head = 0x80000000 if text.startswith("s_") else 0xD5000000
            words = (
                head,
                *(() if head == 0x80000000 else (0,)),
                *((int(text.split("0x")[1].split()[0].rstrip(","), 16),) if has_literal else ()),
            )
            instruction = parse_instruction(text, 0, words)
            assert shapes.known(instruction, generation), text
            assert shapes.emit(state, instruction, generation, mode), text
        state.store_dirty(state.end_block())
        f.ret()
    return Program(llvm.load_host(llvm.compile_host(str(module))), len(pieces))


# ---- instructions with oracles ---------------------------------------------------------------------------------------------------

# Patterns of the inputs to patterns of the outputs; None where the document leaves the result open.
Oracle = Callable[..., "int | tuple[int, ...] | None"]


@dataclass
class Oracles:
    """Instructions by signature, as in the table of semantics; `vcc` is a mask in VCC, `exec` a result in EXEC."""

    rows: dict[str, tuple[str, Oracle]] = field(default_factory=dict)

    def row(self, signature: str, **oracles: Oracle) -> None:
        for mnemonic, oracle in oracles.items():
            assert mnemonic not in self.rows, mnemonic
            self.rows[mnemonic] = signature, oracle


def signed(x: int, width: int = 32) -> int:
    """The low `width` bits as a signed number."""
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def _source_text(index: int, kind: str, wave: int) -> str:
    register = 4 + 2 * index
    if kind == "mask":
        return f"s{40 + 2 * index}" if wave == 32 else f"s[{40 + 2 * index}:{41 + 2 * index}]"
    width = width_of(kind)
    return f"v[{register}:{register + 1}]" if width == 64 else f"v{register}.l" if width == 16 else f"v{register}"


def width_of(kind: str) -> int:
    kind = kind.lstrip("@")
    return 32 if kind[0] == "2" else int(kind.lstrip("bfiu"))


def assembly(mnemonic: str, signature: str, wave: int) -> str:
    """The instruction on the harness's registers."""
    left, _, right = signature.partition("->")
    outputs = [
        (f"s{30}" if wave == 32 else "s[30:31]") if kind == "mask" else {16: "v0.l", 32: "v0", 64: "v[0:1]"}[width_of(kind)]
        for kind in right.split()
        if kind != "exec"
    ]
    inputs = [_source_text(i, kind, wave) for i, kind in enumerate(left.split()) if kind[0] != "@" and kind != "vcc"]
    return f"{mnemonic} {', '.join(outputs + inputs)}"


def _patterns(kind: str, count: int) -> list[int]:
    kind = kind.lstrip("@")
    if kind[0] == "2":
        low, high = sample(kind[1:], count), sample(kind[1:], count)
        return [a | b << 16 for a, b in zip(low, high, strict=True)]
    return sample(kind, count)


def _cancel(kinds: list[str], values: list[list[int]]) -> None:
    """Make every fourth addend of a fused multiply-add the product's negative, or next to it."""
    if len(kinds) != 3 or len({k.lstrip("@") for k in kinds}) != 1 or kinds[0] not in BITS:
        return
    kind = kinds[0]
    for lane in range(0, len(values[0]), 4):
        x, y = decode(kind, values[0][lane]), decode(kind, values[1][lane])
        if math.isfinite(x) and math.isfinite(y):
            near = encode(kind, -Fraction(x) * Fraction(y))
            values[2][lane] = near ^ (lane >> 2 & 1)


def same(kind: str, got: int, want: int) -> bool:
    if kind in BITS:
        return got == want or (is_nan(kind, got) and is_nan(kind, want))
    if kind[0] == "2":
        return all(same(kind[1:], got >> at & 0xFFFF, want >> at & 0xFFFF) for at in (0, 16))
    return got == want


def prepare(signature: str, wave: int, partial: bool, seed: int) -> tuple[State, list[list[int]], list[int]]:
    """A state with the inputs of a signature, the inputs, and the lanes that are active."""
    state = State(wave)
    rng = np.random.default_rng(seed)
    state.v[:] = rng.integers(0, 1 << 32, state.v.shape, dtype=np.uint32)
    kinds = signature.partition("->")[0].split()
    values = [_patterns(kind, wave) if kind not in ("mask", "vcc") else [int(x) for x in rng.integers(0, 2, wave)] for kind in kinds]
    _cancel(kinds, values)
    for index, (kind, column) in enumerate(zip(kinds, values, strict=True)):
        if kind in ("mask", "vcc"):
            state.set_mask(VCC if kind == "vcc" else 40 + 2 * index, sum(bit << lane for lane, bit in enumerate(column)))
        else:
            state.set_lanes(0 if kind[0] == "@" else 4 + 2 * index, width_of(kind), column)
    active = int(rng.integers(0, 1 << wave, dtype=np.uint64)) if partial else (1 << wave) - 1
    state.set_mask(126, active)
    return state, values, [lane for lane in range(wave) if active >> lane & 1]


def _check(mnemonic: str, signature: str, oracle: Oracle, before: State, after: State, values: list[list[int]], active: list[int]) -> None:
    outputs = signature.partition("->")[2].split()
    answers = {lane: oracle(*(column[lane] for column in values)) for lane in active}
    wanted = {lane: answer for lane, answer in answers.items() if answer is not None}
    for position, kind in enumerate(outputs):
        results = {lane: w if isinstance(w, int) else w[position] for lane, w in wanted.items()}
        if kind in ("mask", "exec"):
            got = after.exec if kind == "exec" else after.mask(30)
            for lane in range(before.wave):
                assert got >> lane & 1 == results.get(lane, 0), f"{mnemonic} lane {lane}: {[hex(c[lane]) for c in values]}"
            continue
        width = width_of(kind)
        lanes = after.lanes(0, width)
        for lane, want in results.items():
            inputs = [hex(column[lane]) for column in values]
            assert same(kind, lanes[lane], want), f"{mnemonic}({', '.join(inputs)}) = {lanes[lane]:#x}, not {want:#x}"
        untouched = [lane for lane in range(before.wave) if lane not in answers]
        assert (after.v[0][untouched] == before.v[0][untouched]).all(), f"{mnemonic} wrote inactive lanes"
        if width == 16:
            assert (after.v[0] >> 16 == before.v[0] >> 16).all(), f"{mnemonic} wrote the upper half"
    assert (after.v[4:] == before.v[4:]).all()


def compare_all(oracles: Oracles, wave: int, turns: int, seed: int) -> None:
    """Run every instruction `turns` times, every second time under a partial EXEC, and compare."""
    program = build([assembly(m, signature, wave) for m, (signature, _) in oracles.rows.items()], wave)
    for number, (mnemonic, (signature, oracle)) in enumerate(oracles.rows.items()):
        run = program[number]
        for turn in range(turns):
            before, values, active = prepare(signature, wave, turn % 2 == 1, seed + 1000 * number + turn)
            after = before.copy()
            run(after)
            _check(mnemonic, signature, oracle, before, after, values, active)


# ---- oracles that several files need -----------------------------------------------------------------------------------------------


def arithmetic(kind: str, operation: Callable[..., float]) -> Oracle:
    """In double, rounded once more: right for f16 and f32 sums and products, whose double rounding is innocuous."""
    return lambda *v: encode(kind, operation(*(decode(kind, x) for x in v)))


def whole(function: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding to integers as a function of floats: zeros keep the sign."""

    def apply(x: float) -> float:
        return x if math.isnan(x) or math.isinf(x) else math.copysign(float(function(x)), x)

    return apply


def bound(kind: str, upper: bool) -> Callable[[int, int], int]:
    """V_MAX_F32 and V_MIN_F32 of the ISA document, in IEEE mode."""

    def choose(x: int, y: int) -> int:
        if is_signalling(kind, x) or is_signalling(kind, y):
            return encode(kind, math.nan)
        if is_nan(kind, x) or is_nan(kind, y):
            return y if is_nan(kind, x) else x
        a, b = decode(kind, x), decode(kind, y)
        if a == b == 0:
            return x if (math.copysign(1, a) > 0) == upper else y
        return x if (a > b) == upper else y

    return choose


def to_integer(kind: str, low: int, high: int, prepare: Callable[[float], float] = lambda x: x) -> Callable[[int], int]:
    """Toward zero, saturating; NaN gives 0."""

    def apply(x: int) -> int:
        value = prepare(decode(kind, x))
        if math.isnan(value):
            return 0
        return (low if value < 0 else high) if math.isinf(value) else max(low, min(high, math.trunc(value)))

    return apply


def toward_zero(x: int) -> int:
    """f32 to f16, never up in size."""
    value = decode("f32", x)
    near = encode("f16", value)
    return near - 1 if math.isfinite(value) and abs(decode("f16", near)) > abs(value) else near


RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda x, y: x < y,
    "eq": lambda x, y: x == y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "lg": lambda x, y: x < y or x > y,
    "ge": lambda x, y: x >= y,
    "o": lambda x, y: x == x and y == y,
    "u": lambda x, y: x != x or y != y,
    "nge": lambda x, y: not x >= y,
    "nlg": lambda x, y: not (x < y or x > y),
    "ngt": lambda x, y: not x > y,
    "nle": lambda x, y: not x <= y,
    "neq": lambda x, y: x != y,
    "nlt": lambda x, y: not x < y,
}
