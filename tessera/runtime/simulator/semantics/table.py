"""The table of instruction semantics: one row per mnemonic and generation.

A semantic is a pure function from LLVM values to LLVM values. It knows neither the encoding, nor EXEC, nor where operands live:
`shapes.py` fetches what the signature names, applies the modifiers, and writes the result back. A signature reads
"f32 f32 -> f32"; its words are kinds:

    f16 f32 f64 bf16    a float per lane; f16 and bf16 arrive widened to float and are rounded when written (a function that needs one
                        rounding only of a sum returns more precision, see `numeric.fma16`)
    i16 u16 b16 … b64   an integer per lane; `b` kinds take the sign-bit modifiers of an untyped operand (v_cndmask), others don't
    h16 2h16    f16 as its bit pattern (i16), with the modifiers of a float: for what must tell NaNs apart
    2f16 2bf16 2i16 2u16 2f32   two values in one register (or pair): a tuple (low, high). Where the result is packed too, the function
                        is written for one half and applied to each
    4x8 8x4             the bytes or nibbles of a register as a list of i32, signed where the instruction's neg_lo says so; 4u8, 4i8,
                        8u4, 8i4 are fixed
    mix                 f16 or f32 as op_sel_hi says (v_fma_mix), as float
    mask                a bit per lane from a scalar register (VCC where the operand is implied); as a result, 0 outside EXEC
    s32 s64             a scalar operand or result of a vector instruction
    simm uimm           the 16-bit immediate of a SOPK instruction, extended to i32
    row                 a vector result that ignores EXEC (v_writelane)
    f16hi               a float written to the high half

An instruction that starts with `s_` works on scalars: the same kinds without lanes. A `@` before an input's kind reads the destination's
old value. Kinds in `IMPLIED` are not in the operand list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias, cast

from tessera.errors import UnsupportedArchError
from tessera.llvmtext import Function

# A semantic's function: the builder, then an argument per input. Spelled by arity, so that a lambda's builder has its type.
Emit: TypeAlias = (
    Callable[[Function, Any], Any]
    | Callable[[Function, Any, Any], Any]
    | Callable[[Function, Any, Any, Any], Any]
    | Callable[[Function, Any, Any, Any, Any], Any]
    | Callable[[Function, Any, Any, Any, Any, Any], Any]
    | Callable[[Function, Any, Any, Any, Any, Any, Any, Any], Any]
)


class Generation(Enum):
    """Architectures whose vector and scalar ALUs mean the same by one mnemonic."""

    GFX9 = "gfx9"
    GFX10 = "gfx10"
    GFX11 = "gfx11"
    GFX12 = "gfx12"
    GFX125 = "gfx125"


CDNA = frozenset({Generation.GFX9})
RDNA = frozenset({Generation.GFX10, Generation.GFX11, Generation.GFX12, Generation.GFX125})
GFX11_ON = frozenset({Generation.GFX11, Generation.GFX12, Generation.GFX125})
GFX12_ON = frozenset({Generation.GFX12, Generation.GFX125})
BEFORE_GFX11 = frozenset({Generation.GFX9, Generation.GFX10})
BEFORE_GFX12 = frozenset(Generation) - GFX12_ON
GFX125_ON = frozenset({Generation.GFX125})
ALL = frozenset(Generation)

_ARCHES = {
    Generation.GFX9: ("gfx908", "gfx90a", "gfx942", "gfx950"),
    Generation.GFX10: ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    Generation.GFX11: ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    Generation.GFX12: ("gfx1200", "gfx1201"),
    Generation.GFX125: ("gfx1250", "gfx1251"),
}
_GENERATION = {arch: generation for generation, arches in _ARCHES.items() for arch in arches}


def generation_of(arch: str) -> Generation:
    """The generation of an architecture by its exact name. Raises UnsupportedArchError."""
    if arch not in _GENERATION:
        raise UnsupportedArchError(f"the simulator has no architecture {arch!r}; it has {', '.join(_GENERATION)}")
    return _GENERATION[arch]


_VALUES = frozenset(
    {"f16", "h16", "f32", "f64", "bf16", "i16", "u16", "b16", "i32", "u32", "b32", "i64", "u64", "b64"}
    | {"2f16", "2h16", "2bf16", "2i16", "2u16", "2f32"}
)
INPUT_KINDS = _VALUES | {"4x8", "4u8", "4i8", "8x4", "8u4", "8i4", "mix", "mask", "s32", "s64", "simm", "uimm"}
OUTPUT_KINDS = _VALUES | {"mask", "s32", "row", "f16hi"}

# Kinds that are not in the operand list. Inputs: `scc` (i1), `exec32` and `exec64` (EXEC as an integer), `active` (EXEC as a mask), `m0`,
# `lane` (each lane's number), `mode` (the FloatMode), `op_sel` (its bits, padded with zeros), `scratch` (memory for one row). Outputs:
# likewise; `execmask` is a mask written to EXEC.
IMPLIED_INPUTS = frozenset({"scc", "exec32", "exec64", "active", "m0", "lane", "mode", "op_sel", "scratch"})
IMPLIED_OUTPUTS = frozenset({"scc", "exec32", "exec64", "execmask", "m0"})


@dataclass(frozen=True, slots=True)
class Semantic:
    """One row. `inputs` are kinds without their `@`; `reads_destination` the position of the `@` input, or -1. `clamp` computes the result
    under the clamp modifier where that is not the float clamp (saturating integer arithmetic)."""

    mnemonic: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reads_destination: int
    emit: Emit
    clamp: Emit | None
    scalar: bool


TABLE: dict[tuple[Generation, str], Semantic] = {}
_ALIASES: dict[tuple[Generation, str], str] = {}


def semantics(mnemonic: str, signature: str, *, on: frozenset[Generation] = ALL, clamp: Emit | None = None) -> Callable[[Emit], Emit]:
    """Define `mnemonic` on the generations `on`; `clamp` is as in `Semantic`.

    Raises ValueError for a second definition, an unknown kind or generation, a wrong arity.
    """
    left, arrow, right = signature.partition("->")
    words = left.split()
    outputs = tuple(right.split())
    inputs = tuple(word.lstrip("@") for word in words)
    old = next((i for i, word in enumerate(words) if word[0] == "@"), -1)
    if not arrow or not outputs or not set(inputs) <= INPUT_KINDS | IMPLIED_INPUTS or not set(outputs) <= OUTPUT_KINDS | IMPLIED_OUTPUTS:
        raise ValueError(f"{mnemonic}: bad signature {signature!r}")
    if not on or not on <= ALL:
        raise ValueError(f"{mnemonic}: unknown generations {on}")

    def define(emit: Emit) -> Emit:
        for body in (emit, clamp):
            if body is not None and (arity := cast(Any, body).__code__.co_argcount) != 1 + len(inputs):
                raise ValueError(f"{mnemonic}: {signature!r} does not fit a function of {arity} arguments")
        row = Semantic(mnemonic, inputs, outputs, old, emit, clamp, mnemonic.startswith("s_"))
        for generation in on:
            if (generation, mnemonic) in TABLE or (generation, mnemonic) in _ALIASES:
                raise ValueError(f"{mnemonic} is defined twice for {generation.value}")
            TABLE[generation, mnemonic] = row
        return emit

    return define


def rows(signature: str, *, on: frozenset[Generation] = ALL, **table: Emit) -> None:
    """Define many one-expression instructions that share a signature."""
    for mnemonic, emit in table.items():
        semantics(mnemonic, signature, on=on)(emit)


def aliases(on: frozenset[Generation] = ALL, **names: str) -> None:
    """Other names, on the generations `on`, of instructions that are filed under one name: `aliases(CDNA, v_add_u32="v_add_nc_u32")`."""
    for name, filed in names.items():
        for generation in on:
            if (generation, name) in TABLE or (generation, name) in _ALIASES:
                raise ValueError(f"{name} is defined twice for {generation.value}")
            _ALIASES[generation, name] = filed


def check_table() -> None:
    """Every alias names a row of its generation. Called once all rows are in. Raises ValueError."""
    for (generation, name), filed in _ALIASES.items():
        if (generation, filed) not in TABLE:
            raise ValueError(f"{name} is an alias of {filed}, which {generation.value} lacks")


def lookup(mnemonic: str, generation: Generation) -> Semantic | None:
    """The row of a mnemonic without encoding suffix, or None where this table doesn't hold it (memory, matrix and control instructions)."""
    found = TABLE.get((generation, mnemonic))
    if found is None and (filed := _ALIASES.get((generation, mnemonic))) is not None:
        found = TABLE[generation, filed]
    return found


def mnemonics(generation: Generation) -> list[str]:
    """Every mnemonic that the table knows on a generation, sorted."""
    return sorted({name for g, name in TABLE if g is generation} | {name for g, name in _ALIASES if g is generation})


@dataclass(frozen=True, slots=True)
class FloatMode:
    """What the MODE register says of float arithmetic. `flush32`, `flush64`: subnormal f32 (or f64 and f16) inputs and results become zero.
    Where `dynamic`, the kernel changes the denormal bits as it runs, and the register is asked each time."""

    ieee: bool = True
    dx10_clamp: bool = True
    flush32: bool = False
    flush64: bool = False
    dynamic: bool = False

    def without_ieee(self) -> FloatMode:
        """The same mode, but signalling NaNs are nothing special: gfx12 and later."""
        return replace(self, ieee=False)

    @classmethod
    def of_register(cls, value: int, dynamic: bool = False) -> FloatMode:
        """From the bits of the MODE register: 4-5 and 6-7 denormals, 8 DX10_CLAMP, 9 IEEE. Bits 0-3 (rounding) are the caller's."""
        return cls(bool(value >> 9 & 1), bool(value >> 8 & 1), value >> 4 & 3 == 0, value >> 6 & 3 == 0, dynamic)
