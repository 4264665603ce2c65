"""The matrix instructions that we emit, one row each, and how a dot picks one.

A row names the instruction, its LLVM intrinsic and types, and how the elements of one fragment of A (M, K), B (K, N) and the accumulator
(M, N) lie in the registers of a wave, as layouts of one wave. Layouts: RDNA3 ISA guide §7.9 (WMMA) and AMD's matrix instruction
calculator; intrinsics: LLVM 22's IntrinsicsAMDGPU.td. The simulator describes the same instructions independently; tests compare both with
the calculator, element by element.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera import dtypes
from tessera.dtypes import DType
from tessera.errors import KernelValueError, UnsupportedDtypeError
from tessera.llvmtext import Function, Value, const, element, lanes, vector

from .arch import Arch, arch, arches, supported_names
from .layout import Layout, parse


@dataclass(frozen=True)
class MatrixInstruction:
    """One matrix instruction with fixed operand dtypes: acc + a @ b for one fragment of each."""

    mnemonic: str
    intrinsic: str  # without "llvm."
    m: int
    n: int
    k: int
    a: DType
    b: DType
    acc: DType
    arches: tuple[str, ...]
    a_layout: Layout
    b_layout: Layout
    acc_layout: Layout
    operand_type: str  # LLVM's type of A and of B
    acc_type: str  # LLVM's type of the accumulator
    signs: bool = False  # takes an i1 in front of A and of B (signed or not), and a clamp
    op_sel: bool = False  # takes which halves of the registers hold the accumulator; we use the low ones
    wave_size: int = 32
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.mnemonic.removeprefix("v_"))
        self._check()

    def _check(self) -> None:
        shapes = ((self.m, self.k), (self.k, self.n), (self.m, self.n))
        for layout, shape in zip((self.a_layout, self.b_layout, self.acc_layout), shapes, strict=True):
            if layout.shape != shape or layout.wave_size != self.wave_size or layout.waves:
                raise ValueError(f"{self.mnemonic}: the layout {layout} is not one of {shape} over {self.wave_size} lanes")
        for layout, dtype, type_ in (
            (self.a_layout, self.a, self.operand_type),
            (self.b_layout, self.b, self.operand_type),
            (self.acc_layout, self.acc, self.acc_type),
        ):
            slots = lanes(type_) * int(_WIDTHS[element(type_)]) // dtype.bits
            if slots not in (layout.count, 2 * layout.count if self.op_sel else layout.count):
                raise ValueError(f"{self.mnemonic}: {type_} does not hold the {layout.count} elements of {layout}")
        for name in self.arches:
            row = arch(name)
            if row.matrix_core is None or not self.mnemonic.startswith(f"v_{row.matrix_core}_") or row.wave_size != self.wave_size:
                raise ValueError(f"{self.mnemonic} can't be an instruction of {name}")

    def emit(self, f: Function, a: Value, b: Value, acc: Value) -> Value:
        """Call the intrinsic on fragments given as vectors of their dtypes (one element per register of the layout), as the result is."""
        x, y = f.bitcast(a, self.operand_type), f.bitcast(b, self.operand_type)
        count = self.acc_layout.count
        spread = self.op_sel and lanes(self.acc_type) != count
        raw = f.bitcast(acc, vector(count, element(self.acc_type)))
        c = f.shuffle(raw, None, [i // 2 if i % 2 == 0 else -1 for i in range(2 * count)]) if spread else raw
        false = const("i1", 0)
        operands = [x, y, c]
        if self.signs:
            operands = [const("i1", self.a.is_signed), x, const("i1", self.b.is_signed), y, c, false]
        elif self.op_sel:
            operands.append(false)
        result = f.intrinsic(self.intrinsic, operands, self.acc_type, [self.acc_type, self.operand_type])
        packed = f.shuffle(result, None, [2 * i for i in range(count)]) if spread else result
        return f.bitcast(packed, acc.type)

    def __str__(self) -> str:
        return self.mnemonic


_WIDTHS = {"half": 16, "i16": 16, "float": 32, "i32": 32}

# RDNA3: the 16 elements of a row of A, or column of B, lie in one lane and again in the lane 16 above; row 2*r + (lane >= 16) of the
# accumulator is in register r.
_RDNA3_A = parse("16x16/j1.j2.j4.j8/i1.i2.i4.i8.-/")
_RDNA3_B = parse("16x16/i1.i2.i4.i8/j1.j2.j4.j8.-/")
_RDNA3_ACC = parse("16x16/i2.i4.i8/j1.j2.j4.j8.i1/")
_RDNA3 = ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153")


def _rdna3(
    result: str,
    operand: str,
    a: DType,
    b: DType,
    acc: DType,
    operand_type: str,
    acc_type: str,
    *,
    signs: bool = False,
    op_sel: bool = False,
) -> MatrixInstruction:
    return MatrixInstruction(
        f"v_wmma_{result}_16x16x16_{operand}", f"amdgcn.wmma.{result}.16x16x16.{operand}", 16, 16, 16, a, b, acc, _RDNA3,
        _RDNA3_A, _RDNA3_B, _RDNA3_ACC, operand_type, acc_type, signs, op_sel,
    )  # fmt: skip


_F16, _BF16, _F32, _I32 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int32
_BYTES = (dtypes.int8, dtypes.uint8)

ROWS: tuple[MatrixInstruction, ...] = (
    _rdna3("f32", "f16", _F16, _F16, _F32, "<16 x half>", "<8 x float>"),
    _rdna3("f32", "bf16", _BF16, _BF16, _F32, "<16 x i16>", "<8 x float>"),
    *(_rdna3("i32", "iu8", a, b, _I32, "<4 x i32>", "<8 x i32>", signs=True) for a in _BYTES for b in _BYTES),
    _rdna3("f16", "f16", _F16, _F16, _F16, "<16 x half>", "<16 x half>", op_sel=True),
    _rdna3("bf16", "bf16", _BF16, _BF16, _BF16, "<16 x i16>", "<16 x i16>", op_sel=True),
)

# Which dots the matrix cores of each arch can do, for messages: "operands" or "a*b" where they differ; the accumulator where it isn't the
# usual one. All arches are here, those included that this version doesn't compile for.
_FP8 = "float8_e4m3fn float8_e5m2"
_CDNA = "float16 bfloat16 int8 float32"
_WMMA = "float16 bfloat16 int8 uint8 int8*uint8 uint8*int8 float16->float16 bfloat16->bfloat16"
_DOTS: dict[str, str] = {
    "gfx908": _CDNA,
    "gfx90a": f"{_CDNA} float64",
    "gfx942": f"{_CDNA} float64 float8_e4m3fnuz float8_e5m2fnuz",
    "gfx950": f"{_CDNA} float64 {_FP8} float6_e2m3fn float6_e3m2fn float4_e2m1fn",
    "gfx1030": "",
    **dict.fromkeys(_RDNA3, _WMMA),
    **dict.fromkeys(("gfx1200", "gfx1201"), f"{_WMMA} {_FP8}"),
    **dict.fromkeys(("gfx1250", "gfx1251"), f"{_WMMA} float32 {_FP8} float6_e2m3fn float6_e3m2fn float4_e2m1fn"),
}


def dots(name: str) -> tuple[str, ...]:
    """What the matrix core of an arch multiplies: words such as "float16", "int8*uint8", "float16->float16" (the accumulator)."""
    return tuple(_DOTS[name].split())


def usual_accumulator(a: DType, b: DType) -> DType:
    """The accumulator of a dot unless the user asks for another: float32, int32 for integers, float64 for float64."""
    if dtypes.float64 in (a, b):
        return dtypes.float64
    return dtypes.float32 if a.is_float or b.is_float else dtypes.int32


def _word(a: DType, b: DType, acc: DType) -> str:
    word = a.name if a is b else f"{a.name}*{b.name}"
    return word if acc is usual_accumulator(a, b) else f"{word}->{acc.name}"


def _check_tables() -> None:
    if set(_DOTS) != {row.name for row in arches()}:
        raise ValueError("the table of dots and the table of arches differ")
    seen: set[tuple[str, str, DType, DType]] = set()
    for row in ROWS:
        for name in row.arches:
            if _word(row.a, row.b, row.acc) not in dots(name):
                raise ValueError(f"{row.mnemonic} multiplies what the table of dots lacks for {name}")
            key = (name, row.mnemonic, row.a, row.b)
            if key in seen:
                raise ValueError(f"{name} has two rows {row.mnemonic} for {row.a} and {row.b}")
            seen.add(key)
    for info in arches():
        if info.supported and {_word(r.a, r.b, r.acc) for r in ROWS if info.name in r.arches} != set(dots(info.name)):
            raise ValueError(f"{info} is supported, but the rows don't cover its dots")


_check_tables()


def instruction(arch: Arch, mnemonic: str, a: DType, b: DType) -> MatrixInstruction:
    """The row of an instruction that has been selected. Raises KeyError for what `select_matrix_instruction` can't have given."""
    for row in ROWS:
        if row.mnemonic == mnemonic and row.a is a and row.b is b and arch.name in row.arches:
            return row
    raise KeyError(f"{arch} has no {mnemonic} for {a} and {b}")


def select_matrix_instruction(
    arch: Arch, a: DType, b: DType, acc: DType, shape: tuple[int, int, int], wanted: str = ""
) -> MatrixInstruction:
    """The instruction for `acc + a @ b` of tiles with `shape` (M, N, K); `wanted` forces a mnemonic (with or without "v_").

    Raises UnsupportedDtypeError where the matrix core doesn't take the dtypes, naming what it takes, who takes them and what would work;
    KernelValueError where the shape isn't made of whole fragments or `wanted` isn't one of the instructions for these dtypes.
    """
    fitting = [row for row in ROWS if arch.name in row.arches and (row.a, row.b, row.acc) == (a, b, acc)]
    if not fitting:
        raise UnsupportedDtypeError(_refusal(arch, a, b, acc))
    chosen = [row for row in fitting if not wanted or wanted.removeprefix("v_") == row.name]
    if not chosen:
        legal = ", ".join(row.mnemonic for row in fitting)
        raise KernelValueError(f"{wanted!r} is no instruction of {arch} for {a.name} @ {b.name} + {acc.name}; legal: {legal}")
    row = chosen[0]
    if any(extent % size for extent, size in zip(shape, (row.m, row.n, row.k), strict=True)):
        m, n, k = shape
        raise KernelValueError(
            f"dot of tiles ({m}, {k}) @ ({k}, {n}): {row.mnemonic} of {arch} works on multiples of {row.m} rows, {row.n} columns and "
            f"{row.k} along the summed axis; pad the tiles to ({_up(m, row.m)}, {_up(k, row.k)}) @ ({_up(k, row.k)}, {_up(n, row.n)})"
        )
    return row


def _up(extent: int, size: int) -> int:
    return -(-extent // size) * size


def _refusal(arch: Arch, a: DType, b: DType, acc: DType) -> str:
    asked = f"dot of {a.name} @ {b.name} with a {acc.name} accumulator"
    word, takes = _word(a, b, acc), dots(arch.name)
    if not takes:
        text = f"{arch} has no matrix core, so it can't do a {asked}."
    else:
        core = "WMMA" if arch.matrix_core == "wmma" else "MFMA"
        text = f"{arch} can't do a {asked}: its {core} instructions take {', '.join(_spell(w) for w in takes)}."
    others = [row.name for row in arches() if word in dots(row.name)]
    if others:
        ours = [name for name in others if name in supported_names()]
        text += f" Arches that take it: {', '.join(others)}; this version compiles for {', '.join(ours) or 'none of them'}."
    else:
        text += " No arch takes it."
    usual = usual_accumulator(a, b)
    if acc is not usual and _word(a, b, usual) in takes:
        return f"{text} Accumulate in {usual.name} and cast the result: `.astype({acc.name})`."
    if takes and (dtypes.float32 in (a, b) or dtypes.float64 in (a, b)):
        text += " Casting the operands works, with less precision: `.astype(ts.float16)` or `.astype(ts.bfloat16)`."
    elif takes and a.is_integer and b.is_integer and max(a.bits, b.bits) > 8:
        text += " Where the values fit 8 bits, casting the operands works: `.astype(ts.int8)`; small products can be written as"
        text += " `ts.sum(a[:, :, None] * b[None, :, :], axis=1)`."
    elif a is not b and takes:
        text += " Casting both operands to one of these dtypes works."
    return f'{text} The opt-ins fallback="vector" (full precision, without the matrix core) and fallback="upcast" come in a later version.'


def _spell(word: str) -> str:
    operands, _, acc = word.partition("->")
    return f"{operands} (accumulating in {acc})" if acc else operands
