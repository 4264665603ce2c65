"""How undefined bits travel through vector and scalar instructions.

The general rule: a result is undefined, wholly, in a lane where any bit that goes into it is. What moves bits, combines them bit by bit, or
only carries upwards has a rule of its own (`RULES`), for compilers put values into half a register and leave the rest as it was. A rule
gets an `Operation`: the shadows of the inputs (`s`), their real bits (`v`) and what the instruction does to given values (`apply`), inputs
being numbered as in the row's signature. It returns the shadows of the outputs.

`_ShadowTemplate` is the operand plumbing of `shapes` on the shadow state: what fetches and writes a register also fetches and writes its
shadow, with DPP, halves and packed selections; constants are defined, and neither signs nor rounding change what is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ....llvmtext import Function, Value, element, like, vector
from ..instruction import Instruction, Number, Operand
from ..semantics import FloatMode, Generation, Semantic, lookup
from ..semantics.table import IMPLIED_INPUTS
from ..shapes import HALVES, WIDTH, Pair, Template
from ..state import VCC, WaveState
from .shadow import ShadowState, any_bit, is_zero, zero

Rule = Callable[["Operation"], "list[Value]"]
RULES: dict[str, Rule] = {}

COUNTED: dict[str, dict[int, int]] = {}
"""Bits of an input that an instruction looks at, where it isn't all: of a shift's amount, whose upper half compilers leave undefined."""
for _counted, _names in {
    (0, 15): "v_lshlrev_b16 v_lshrrev_b16 v_ashrrev_i16 v_pk_lshlrev_b16 v_pk_lshrrev_b16 v_pk_ashrrev_i16",
    (0, 31): "v_lshlrev_b32 v_lshrrev_b32 v_ashrrev_i32",
    (0, 63): "v_lshlrev_b64 v_lshrrev_b64 v_ashrrev_i64",
    (1, 31): "v_bfe_u32 v_bfe_i32 v_lshl_add_u32 v_lshl_or_b32 s_lshl_b32 s_lshr_b32 s_ashr_i32 s_bitcmp0_b32 s_bitcmp1_b32",
    (1, 63): "s_lshl_b64 s_lshr_b64 s_ashr_i64",
    (2, 31): "v_bfe_u32 v_bfe_i32 v_add_lshl_u32 v_alignbit_b32",
    (2, 3): "v_alignbyte_b32",
}.items():
    for _name in _names.split():
        COUNTED.setdefault(_name, {})[_counted[0]] = _counted[1]


def rule(*mnemonics: str) -> Callable[[Rule], Rule]:
    """Register the rule of some mnemonics."""

    def register(function: Rule) -> Rule:
        for mnemonic in mnemonics:
            if mnemonic in RULES:
                raise ValueError(f"two rules for {mnemonic}")
            RULES[mnemonic] = function
        return function

    return register


# ---- plumbing -------------------------------------------------------------------------------------------------------------------------


class _ShadowTemplate(Template):
    """Fetches shadows and writes shadows."""

    def typed(self, raw: Value, kind: str, operand: Operand, neg: bool = False, absolute: bool = False) -> Value:
        return raw

    def scalar_bits(self, operand: Operand, width: int, kind: str) -> Value:
        return zero(f"i{width}") if isinstance(operand.base, Number) else super().scalar_bits(operand, width, kind)

    def moved(self, operand: Operand, value: Value, index: int) -> Value:
        moved = super().moved(operand, value, index)
        return value if is_zero(value) else moved

    def pair(self, operand: Operand, kind: str, index: int) -> Pair:
        return super().pair(Operand(operand.base), kind, index)

    def pair_of_halves(self, operand: Operand, kind: str, index: int) -> tuple[Value, Value]:
        if isinstance(operand.base, Number):
            nothing = zero(vector(self.state.wave, "i16"))
            return nothing, nothing
        return super().pair_of_halves(operand, kind, index)

    def parts(self, operand: Operand, kind: str, index: int) -> list[Value]:
        return [self.moved(operand, self.lane_bits(operand, 32, "u32", False), index)]

    def fetch(self, operand: Operand, kind: str, index: int) -> object:
        if kind == "mask" and isinstance(operand.base, Number):
            return zero(self.state.mask_type)
        return super().fetch(operand, kind, index)

    def bits(self, value: Value, kind: str) -> Value:
        return value

    def join(self, low: Value, high: Value, kind: str) -> Value:
        if is_zero(low) and is_zero(high):
            return zero(like(low.type, "i64" if kind == "2f32" else "i32"))
        return super().join(low, high, kind)

    def active_only(self, mask: Value) -> Value:
        return mask if is_zero(mask) else super().active_only(mask)

    def write_operand(self, operand: Operand, kind: str, value: Value) -> None:
        if is_zero(value) and element(value.type) == "i64" and not self.semantic.scalar:
            for index in (0, 1):
                self.write_row(self.state.row(cast(Any, operand.base), index), zero(self.state.lane_type))
            return
        super().write_operand(operand, kind, value)

    def write_half(self, row: int, high: bool, bits: Value, kind: str) -> None:
        if is_zero(bits) and self.valid is None:
            self.state.write_half(row, high, bits)
        else:
            super().write_half(row, high, bits, kind)


class Operation:
    """One instruction (or half of a dual-issue one) as its rule sees it."""

    def __init__(
        self, real: WaveState, shadow: ShadowState, instruction: Instruction, semantic: Semantic, generation: Generation, mode: FloatMode
    ) -> None:
        self.semantic = semantic
        self.real = Template(real, instruction, semantic, generation, mode)
        self.template = _ShadowTemplate(shadow, instruction, semantic, generation, mode)
        self.inputs: list[Any] = self.template.inputs()
        self.f: Function = real.f
        self.wave = real.wave

    def s(self, index: int) -> Value:
        """The shadow of an input."""
        value = self.inputs[index]
        assert isinstance(value, Value)
        return value

    def v(self, index: int) -> Any:
        """The real bits of an input."""
        kind, operand, source = self.real.plan()[index]
        if operand is None:
            return self.real.state.read_mask_slot(VCC) if kind == "mask" else self.real.implied(kind)
        if kind in WIDTH and kind[0] not in "fhb":
            return self.real.fetch(operand, kind, source)
        if kind in WIDTH:
            return self.real.raw(operand, WIDTH[kind], kind, source)
        return self.real.fetch(operand, kind, source)

    def undefined(self, *indices: int) -> Value:
        """Per lane, or i1 for a scalar instruction: whether any of these inputs has an undefined bit (all inputs where none is named)."""
        found: Value | None = None
        for index in indices or range(len(self.inputs)):
            if self.semantic.inputs[index] in IMPLIED_INPUTS - {"scc", "m0"}:
                continue
            counted = COUNTED.get(self.semantic.mnemonic, {}).get(index)
            for part in _flat(self.inputs[index]):
                looked_at = part if counted is None or is_zero(part) else self.f.and_(part, counted)
                found = self.either(found, self.lanes(any_bit(self.template.state, looked_at)))
        return found if found is not None else self.lanes(zero("i1"))

    def lanes(self, flag: Value) -> Value:
        """A flag for each lane, where the instruction has lanes."""
        if self.semantic.scalar or flag.type != "i1":
            return flag
        return self.f.splat(flag, self.wave)

    def either(self, x: Value | None, y: Value) -> Value:
        """The union of two shadows."""
        return y if x is None or is_zero(x) else x if is_zero(y) else self.f.or_(x, y)

    def both(self, x: Value, y: Value) -> Value:
        """Their intersection."""
        return zero(x.type) if is_zero(x) or is_zero(y) else self.f.and_(x, y)

    def spread(self, flag: Value, type_: str) -> Value:
        """A flag as the shadow of a whole value."""
        if is_zero(flag):
            return zero(type_)
        return flag if flag.type == type_ else self.f.cast("sext", flag, type_)

    def upwards(self, shadow: Value) -> Value:
        """From the lowest undefined bit on, all: what addition and multiplication do."""
        if is_zero(shadow):
            return shadow
        return self.f.or_(shadow, self.f.sub(zero(shadow.type), shadow))

    def output_type(self, kind: str) -> str:
        """The type of an output's shadow."""
        scalar = {"scc": "i1", "s32": "i32", "exec32": "i32", "exec64": "i64", "m0": "i32"}.get(kind)
        if scalar is not None:
            return scalar
        if kind in ("mask", "execmask"):
            return vector(self.wave, "i1")
        width = {"row": 32, "f16hi": 16, "2f32": 64}.get(kind) or (32 if kind in HALVES else WIDTH[kind])
        return f"i{width}" if self.semantic.scalar else vector(self.wave, f"i{width}")

    def generally(self) -> list[Value]:
        """The general rule."""
        kinds = self.semantic.outputs
        if kinds[0] in HALVES:
            low, high = (
                self.spread(self._undefined_half(half), vector(self.wave, "i32" if kinds[0] == "2f32" else "i16")) for half in (0, 1)
            )
            return [self.template.join(low, high, kinds[0])]
        flag = self.undefined()
        result: list[Value] = []
        for kind in kinds:
            type_ = self.output_type(kind)
            if not type_.startswith("<") and flag.type != "i1":  # a scalar result of all lanes
                whole = self.f.bitcast(flag, f"i{self.wave}")
                one = zero("i1") if is_zero(flag) else self.f.icmp("ne", whole, 0)
                result.append(self.spread(one, type_))
            else:
                result.append(self.spread(flag, type_))
        return result

    def _undefined_half(self, half: int) -> Value:
        found: Value | None = None
        for kind, value in zip(self.semantic.inputs, self.inputs, strict=True):
            if kind in IMPLIED_INPUTS:
                continue
            parts = [value[half]] if isinstance(value, Pair) else _flat(value)
            for part in parts:
                found = self.either(found, self.lanes(any_bit(self.template.state, part)))
        assert found is not None
        return found

    def apply(self, *data: int) -> list[Value]:
        """What the instruction does with the shadows of the inputs `data` and the real values of the others: for moves of bits. Where
        one of the others is undefined, so is everything."""
        pairs = zip(self.semantic.inputs, self.inputs, strict=True)
        if all(is_zero(part) for kind, value in pairs if kind not in IMPLIED_INPUTS for part in _flat(value)):
            return [zero(self.output_type(kind)) for kind in self.semantic.outputs]
        inputs = [value if i in data else self.v(i) for i, value in enumerate(self.inputs)]
        others = [i for i, kind in enumerate(self.semantic.inputs) if i not in data and kind not in IMPLIED_INPUTS]
        wrong = self.undefined(*others) if others else self.lanes(zero("i1"))
        body = cast("Callable[..., Any]", self.semantic.emit)
        if self.semantic.outputs[0] in HALVES:
            halves = [body(self.f, *(x[h] if isinstance(x, Pair) else x for x in inputs)) for h in (0, 1)]
            return [self.either(self.template.join(halves[0], halves[1], self.semantic.outputs[0]), self.spread_flag(wrong, 0))]
        made = body(self.f, *inputs)
        results = [made] if isinstance(made, Value) else list(made)
        return [self.either(result, self.spread_flag(wrong, i)) for i, result in enumerate(results)]

    def spread_flag(self, flag: Value, output: int) -> Value:
        type_ = self.output_type(self.semantic.outputs[output])
        if not type_.startswith("<") and flag.type != "i1":
            flag = zero("i1") if is_zero(flag) else self.f.icmp("ne", self.f.bitcast(flag, f"i{self.wave}"), 0)
        return self.spread(flag, type_)

    def with_scc(self, result: Value) -> list[Value]:
        """The result, and SCC where the instruction sets it (to whether the result is zero)."""
        return [result] + [any_bit(self.template.state, result) for kind in self.semantic.outputs[1:] if kind == "scc"]


def _flat(value: object) -> list[Value]:
    if isinstance(value, Value) and not isinstance(value, Pair):
        return [value]
    return list(cast("Sequence[Value]", value)) if isinstance(value, (tuple, list)) else []


def propagate(real: WaveState, shadow: ShadowState, instruction: Instruction, generation: Generation, mode: FloatMode) -> bool:
    """Write the shadows of an instruction's results, before the instruction itself is lifted. False where the table doesn't hold it."""
    halves = [instruction] if instruction.second is None else [instruction, instruction.second]
    made: list[tuple[Operation, list[Value]]] = []
    for half in halves:
        semantic = lookup(half.mnemonic, generation)
        if semantic is None:
            return False
        operation = Operation(real, shadow, half, semantic, generation, mode)
        own = RULES.get(half.mnemonic)
        made.append((operation, own(operation) if own is not None else operation.generally()))
    for operation, results in made:
        operation.template.write(results)
    return True


# ---- bit by bit -------------------------------------------------------------------------------------------------------------------------


def _and(o: Operation, x: Value, xv: Value, y: Value, yv: Value) -> Value:
    """A bit is defined where both are, or where one is a defined 0."""
    if is_zero(x) and is_zero(y):
        return zero(x.type)
    return o.either(o.either(o.both(x, y), o.both(x, yv)), o.both(xv, y))


def _or(o: Operation, x: Value, xv: Value, y: Value, yv: Value) -> Value:
    if is_zero(x) and is_zero(y):
        return zero(x.type)
    f = o.f
    first = zero(x.type) if is_zero(x) else f.and_(x, f.not_(yv))
    second = zero(x.type) if is_zero(y) else f.and_(y, f.not_(xv))
    return o.either(o.either(o.both(x, y), first), second)


def _same(o: Operation) -> bool:
    """Whether both operands are one register, as in `v_xor_b32 v0, v1, v1`."""
    planned = [operand for _, operand, _ in o.real.plan() if operand is not None]
    return len(planned) == 2 and planned[0] == planned[1]


def _scalar_logic(o: Operation, result: Value) -> list[Value]:
    """SCC is whether the result is zero: known where a defined bit of it is set."""
    if len(o.semantic.outputs) == 1:
        return [result]
    if is_zero(result):
        return [result, zero("i1")]
    real = o.semantic.emit(o.f, o.v(0), o.v(1))[0]  # type: ignore[call-arg]  (these rows have two operands)
    known = o.f.icmp("eq", o.f.and_(cast(Value, real), o.f.not_(result)), 0)
    return [result, o.f.and_(known, o.f.icmp("ne", result, 0))]


@rule("v_and_b32", "v_and_b16", "s_and_b32", "s_and_b64", "s_nand_b32", "s_nand_b64")
def _and_rule(o: Operation) -> list[Value]:
    return _scalar_logic(o, _and(o, o.s(0), o.v(0), o.s(1), o.v(1)))


@rule("s_and_not1_b32", "s_and_not1_b64")
def _and_not_rule(o: Operation) -> list[Value]:
    return _scalar_logic(o, _and(o, o.s(0), o.v(0), o.s(1), o.f.not_(o.v(1))))


@rule("v_or_b32", "v_or_b16", "s_or_b32", "s_or_b64", "s_nor_b32", "s_nor_b64")
def _or_rule(o: Operation) -> list[Value]:
    return _scalar_logic(o, _or(o, o.s(0), o.v(0), o.s(1), o.v(1)))


@rule("s_or_not1_b32", "s_or_not1_b64")
def _or_not_rule(o: Operation) -> list[Value]:
    return _scalar_logic(o, _or(o, o.s(0), o.v(0), o.s(1), o.f.not_(o.v(1))))


@rule("v_xor_b32", "v_xor_b16", "v_xnor_b32", "s_xor_b32", "s_xor_b64", "s_xnor_b32", "s_xnor_b64")
def _xor_rule(o: Operation) -> list[Value]:
    if _same(o):
        return [zero(o.output_type(kind)) for kind in o.semantic.outputs]
    return _scalar_logic(o, o.either(o.s(0), o.s(1)))


@rule("v_xor3_b32")
def _xor3_rule(o: Operation) -> list[Value]:
    return [o.either(o.either(o.s(0), o.s(1)), o.s(2))]


@rule("v_and_or_b32")
def _and_or_rule(o: Operation) -> list[Value]:
    inner = _and(o, o.s(0), o.v(0), o.s(1), o.v(1))
    return [_or(o, inner, o.f.and_(o.v(0), o.v(1)), o.s(2), o.v(2))]


@rule("v_or3_b32")
def _or3_rule(o: Operation) -> list[Value]:
    inner = _or(o, o.s(0), o.v(0), o.s(1), o.v(1))
    return [_or(o, inner, o.f.or_(o.v(0), o.v(1)), o.s(2), o.v(2))]


@rule("v_bfi_b32")
def _bfi_rule(o: Operation) -> list[Value]:
    mask, x, y = o.s(0), o.s(1), o.s(2)
    chosen = o.either(o.both(o.v(0), x), zero(x.type) if is_zero(y) else o.f.and_(o.f.not_(o.v(0)), y))
    return [o.either(mask, chosen)]


@rule("v_not_b32", "v_not_b16", "s_not_b32", "s_not_b64", "v_mov_b32", "v_mov_b16", "s_mov_b32", "s_mov_b64")
def _move_rule(o: Operation) -> list[Value]:
    return o.with_scc(o.s(0))


def _saved(o: Operation, result: Value) -> list[Value]:
    return [zero(o.output_type(o.semantic.outputs[0])), result, zero("i1")]


@rule(*(f"s_{name}_{form}_b{size}" for name in ("and", "and_not0") for form in ("saveexec",) for size in (32, 64)))
def _and_saveexec_rule(o: Operation) -> list[Value]:
    """exec & s, or exec & ~s: a bit that EXEC clears is defined."""
    return _saved(o, o.both(o.s(0), o.v(1)))


@rule("s_and_not1_saveexec_b32", "s_and_not1_saveexec_b64")
def _and_not1_saveexec_rule(o: Operation) -> list[Value]:
    """s & ~exec."""
    return _saved(o, zero(o.s(0).type) if is_zero(o.s(0)) else o.f.and_(o.s(0), o.f.not_(o.v(1))))


@rule("s_or_saveexec_b32", "s_or_saveexec_b64")
def _or_saveexec_rule(o: Operation) -> list[Value]:
    return _saved(o, zero(o.s(0).type) if is_zero(o.s(0)) else o.f.and_(o.s(0), o.f.not_(o.v(1))))


# ---- carrying upwards -------------------------------------------------------------------------------------------------------------------


@rule("v_add_nc_u32", "v_add_nc_u16", "v_mul_lo_u32", "v_mul_lo_u16", "s_mul_i32", "s_mulk_i32")
def _add_rule(o: Operation) -> list[Value]:
    return [o.upwards(o.either(o.s(0), o.s(1)))]


@rule("v_sub_nc_u32", "v_subrev_nc_u32", "v_sub_nc_u16")
def _sub_rule(o: Operation) -> list[Value]:
    return [zero(o.s(0).type)] if _same(o) else [o.upwards(o.either(o.s(0), o.s(1)))]


@rule("s_add_i32", "s_add_u32", "s_sub_i32", "s_sub_u32", "s_addk_i32", "v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32")
def _add_with_carry_out_rule(o: Operation) -> list[Value]:
    either = o.either(o.s(0), o.s(1))
    return [o.upwards(either), any_bit(o.template.state, either)]


@rule("v_add3_u32", "v_xad_u32")
def _add3_rule(o: Operation) -> list[Value]:
    return [o.upwards(o.either(o.either(o.s(0), o.s(1)), o.s(2)))]


@rule("v_lshl_add_u32", "v_lshl_or_b32")
def _shift_then_rule(o: Operation) -> list[Value]:
    """(x << n) + y, (x << n) | y."""
    wrong, x, y = o.undefined(1), o.s(0), o.s(2)
    amount = o.f.and_(o.v(1), 31)
    shifted = o.either(zero(x.type) if is_zero(x) else o.f.shl(x, amount), o.spread(wrong, x.type))
    if o.semantic.mnemonic == "v_lshl_add_u32":
        return [o.upwards(o.either(shifted, y))]
    return [_or(o, shifted, o.f.shl(o.v(0), amount), y, o.v(2))]


@rule("v_add_lshl_u32")
def _add_then_shift_rule(o: Operation) -> list[Value]:
    total = o.upwards(o.either(o.s(0), o.s(1)))
    shifted = total if is_zero(total) else o.f.shl(total, o.f.and_(o.v(2), 31))
    return [o.either(shifted, o.spread(o.undefined(2), total.type))]


def _low24(o: Operation, index: int) -> Value:
    return o.s(index) if is_zero(o.s(index)) else o.f.and_(o.s(index), 0xFFFFFF)


@rule("v_mul_u32_u24", "v_mul_i32_i24")
def _mul24_rule(o: Operation) -> list[Value]:
    return [o.upwards(o.either(_low24(o, 0), _low24(o, 1)))]


@rule("v_mad_u32_u24", "v_mad_i32_i24")
def _mad24_rule(o: Operation) -> list[Value]:
    return [o.upwards(o.either(o.either(_low24(o, 0), _low24(o, 1)), o.s(2)))]


@rule("v_mad_u64_u32", "v_mad_i64_i32")
def _wide_mad_rule(o: Operation) -> list[Value]:
    """x * y + z with a z of 64 bits, whose upper half compilers leave undefined where they use the lower half of the result only."""
    factors, addend = o.either(o.s(0), o.s(1)), o.s(2)
    if factors.type.startswith("i"):
        factors = o.f.splat(factors, o.wave)
    wide = zero(addend.type) if is_zero(factors) else o.f.cast("zext", factors, addend.type)
    either = o.either(wide, addend)
    return [o.upwards(either), any_bit(o.template.state, either)]


# ---- moving bits ------------------------------------------------------------------------------------------------------------------------


def _moves(*data: int) -> Rule:
    return lambda o: o.apply(*data)


_MOVES: dict[tuple[int, ...], str] = {
    # shifts: the amount is a real value
    (1,): "v_lshlrev_b32 v_lshrrev_b32 v_ashrrev_i32 v_lshlrev_b16 v_lshrrev_b16 v_ashrrev_i16 v_lshlrev_b64 v_lshrrev_b64 "
    "v_ashrrev_i64 v_pk_lshlrev_b16 v_pk_lshrrev_b16 v_pk_ashrrev_i16",
    (0,): "v_bfe_u32 v_bfe_i32 v_bfrev_b32 s_brev_b32 s_brev_b64 s_sext_i32_i8 s_sext_i32_i16 v_readfirstlane_b32 v_readlane_b32 "
    "v_permlane64_b32 v_cvt_i32_i16 v_cvt_u32_u16",
    (0, 1): "v_alignbit_b32 v_alignbyte_b32 v_perm_b32 s_pack_ll_b32_b16 s_pack_lh_b32_b16 s_pack_hl_b32_b16 s_pack_hh_b32_b16 "
    "v_pack_b32_f16",
    (0, 2): "v_writelane_b32",
    (0, 3): "v_permlane16_b32 v_permlanex16_b32",
}  # fmt: skip
for _data, _names in _MOVES.items():
    for _name in _names.split():
        rule(_name)(_moves(*_data))


@rule(
    *("s_lshl_b32", "s_lshr_b32", "s_ashr_i32", "s_lshl_b64", "s_lshr_b64", "s_ashr_i64"),
    *("s_bfe_u32", "s_bfe_i32", "s_bfe_u64", "s_bfe_i64"),
)
def _scalar_shift_rule(o: Operation) -> list[Value]:
    return o.with_scc(o.apply(0)[0])


@rule("v_cndmask_b32", "v_cndmask_b16")
def _choice_rule(o: Operation) -> list[Value]:
    """Undefined where the chosen value is, or where the choice is."""
    x, y, choice = o.s(0), o.s(1), o.inputs[2]
    chosen = x if x == y else o.f.select(o.v(2), y, x)
    return [o.either(chosen, o.spread(choice, x.type))]


@rule("s_cselect_b32", "s_cselect_b64")
def _scalar_choice_rule(o: Operation) -> list[Value]:
    x, y, choice = o.s(0), o.s(1), o.s(2)
    return [o.either(o.f.select(o.v(2), x, y), o.spread(choice, x.type))]


@rule("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32")
def _scalar_move_rule(o: Operation) -> list[Value]:
    x, old, choice = o.s(0), o.s(1), o.s(2)
    return [o.either(o.f.select(o.v(2), x, old), o.spread(choice, x.type))]


@rule("s_bitcmp0_b32", "s_bitcmp1_b32")
def _bit_rule(o: Operation) -> list[Value]:
    x = o.s(0)
    bit = zero("i1") if is_zero(x) else o.f.cast("trunc", o.f.lshr(x, o.f.and_(o.v(1), 31)), "i1")
    return [o.either(bit, o.undefined(1))]


@rule(*(f"v_cvt_f32_ubyte{n}" for n in range(4)))
def _byte_rule(o: Operation) -> list[Value]:
    byte = int(o.semantic.mnemonic[-1])
    x = o.s(0)
    return [o.spread(zero(like(x.type, "i1")) if is_zero(x) else o.f.icmp("ne", o.f.and_(x, 0xFF << 8 * byte), 0), x.type)]


def _check() -> None:
    """Every rule is for a mnemonic that some generation has."""
    known = {name for generation in Generation for name in RULES if lookup(name, generation) is not None}
    if unknown := RULES.keys() - known:
        raise ValueError(f"rules for unknown mnemonics: {', '.join(sorted(unknown))}")


_check()
