"""LLVM's assembly spelling of AMDGPU instructions, taken apart into `Instruction`.

Only spelling: nothing here knows what an instruction does or how many operands it has. The machine words decide what the text leaves
out: branch targets (the listing prints `""`), the codes behind `hwreg(…)` and `sendmsg(…)`, the literal behind a symbol, and whether a
number took a literal dword.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...errors import SimulatorError
from .instruction import Base, File, Instruction, Modifiers, Named, Number, Operand, Registers, Symbol

_REGISTER = re.compile(r"(s|v|a|ttmp)(?:(\d+)|\[(\d+)(?::(\d+))?\])(?:\.([lh]))?")
_INTEGER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
_FLOAT = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")
_TOKEN = re.compile(r"(,?)\s*((?:[^\s,\[\]()]|\[[^\]]*\]|\((?:[^()]|\([^()]*\))*\))+)")
_MODIFIER = re.compile(r"([a-z_]\w*):(.+)")
_COUNTER = re.compile(r"(\w+)\((\d+)\)")
_HIGH_VGPRS = re.compile(r"[va](?:\d+|\[\d+:\d+\])((?:\.[lh])?) /\*([va](?:\d+|\[\d+:\d+\]))\*/")
_SUFFIX = re.compile(r"_(?:e64_dpp|e32|e64|dpp|sdwa)$")
_NAMED = {name.value: name for name in Named} | {"scc": Named.SCC, "vccz": Named.VCCZ, "execz": Named.EXECZ}
_FILES = {file.value: file for file in File}

# Modifiers without a value that can stand where an operand could.
_FLAGS = frozenset((
    "glc", "slc", "dlc", "scc", "nt", "nv", "sc0", "sc1", "offen", "idxen", "addr64", "lds", "tfe", "lwe", "gds", "clamp", "done", "vm",
    "unorm", "da", "r128", "a16", "d16", "swz", "row_mirror", "row_half_mirror", "wave_shl", "wave_shr", "wave_rol", "wave_ror",
    "scale_offset", "matrix_a_reuse", "matrix_b_reuse",
))  # fmt: skip
_BRANCHES = ("s_branch", "s_cbranch_", "s_call_b64", "s_subvector_loop_")
_SCALAR_MEMORY = ("s_load_", "s_buffer_load_", "s_scratch_load_", "s_store_", "s_buffer_store_", "s_scratch_store_")
_WAIT_GFX12 = re.compile(r"s_wait_(?:(load|store)cnt_(ds)cnt|(load|store|sample|bvh|exp|ds|km|x|async|tensor)cnt)")
_WAIT_GFX10 = re.compile(r"s_waitcnt_(vscnt|vmcnt|expcnt|lgkmcnt)")
# The leading bits of encodings whose 16-bit immediate the two sources spell differently: "-1" here, "0xffff" there.
_SOPP, _SOPK = 0b101111111, 0b1011
_SHORT = ("s_movk_", "s_cmovk_", "s_cmpk_", "s_addk_", "s_mulk_")
# Instructions whose text is a phrase about that immediate.
_PHRASES = frozenset(("s_delay_alu", "s_waitcnt_depctr", "s_wait_alu", "s_sendmsg", "s_sendmsghalt"))


def is_branch(mnemonic: str) -> bool:
    """Whether the low 16 bits of the first word are a branch offset in dwords."""
    return mnemonic.startswith(_BRANCHES)


def base_words(word: int) -> int:
    """How many words an instruction that may take a literal has without it, by its first word: 1 for the 32-bit encodings (VOP1,
    VOP2, VOPC, SOP*), else 2 (VOP3, VOP3P, VOPD)."""
    return 1 if word >> 31 == 0 or word >> 30 == 0b10 else 2


def parse_instruction(text: str, pc: int, words: tuple[int, ...]) -> Instruction:
    """One line of a listing, without encoding and comments. `pc` is the address of its first word. Raises SimulatorError on text that
    is not an instruction."""
    first, dual, second = text.partition(" :: ")
    if not dual:
        return _parse(text, pc, words, text)
    rest = _parse(second, pc, words, second)
    start = _parse(first, pc, words, text)
    return Instruction(pc, words, start.mnemonic, start.operands, start.modifiers, start.suffix, None, rest, text)


def _parse(line: str, pc: int, words: tuple[int, ...], text: str) -> Instruction:
    spelled, _, rest = line.strip().partition(" ")
    if spelled.startswith("v_dual_"):
        spelled = "v_" + spelled[7:]
    match = _SUFFIX.search(spelled)
    suffix = match.group() if match else ""
    mnemonic = spelled[: len(spelled) - len(suffix)]
    if not mnemonic or not re.fullmatch(r"[a-z.][a-z0-9_]*", mnemonic):
        raise SimulatorError(f"not an instruction: {text!r}", pc=pc)
    immediate = words[0] & 0xFFFF

    if mnemonic in _PHRASES:
        return Instruction(pc, words, mnemonic, (Operand(Number(rest.strip(), immediate)),), text=text)
    if mnemonic == "s_waitcnt":
        counters: Modifiers = {name: int(value) for name, value in _COUNTER.findall(rest)}
        if not counters:
            raise SimulatorError(f"a wait without counters: {text!r}", mnemonic=mnemonic, pc=pc)
        return Instruction(pc, words, mnemonic, (), counters, text=text)

    target = None
    if is_branch(mnemonic):
        target = pc + 4 + 4 * (immediate - (immediate >> 15 << 16))
        rest = rest.rpartition(",")[0]
    elif "/*" in rest:  # registers past v255: "v0 /*v256*/"
        rest = _HIGH_VGPRS.sub(r"\2\1", rest)

    literal = None
    if len(words) > (fixed := base_words(words[0])) and mnemonic[:2] in ("v_", "s_") and "dpp" not in suffix:
        literal = sum(word << 32 * i for i, word in enumerate(words[fixed:]))  # two words on gfx125x
    operands: list[Operand] = []
    modifiers: dict[str, int | str | bool | tuple[int, ...]] = {}
    for comma, token in _TOKEN.findall(rest):
        if (not comma and operands) or token in _FLAGS or _MODIFIER.fullmatch(token):
            key, value = _modifier(token)
            modifiers[key] = value
        else:
            operands.append(_operand(token))

    for index, operand in enumerate(operands):
        base = operand.base
        if isinstance(base, Number):
            if literal is not None and ("0x" in base.text or mnemonic == "s_setreg_imm32_b32"):
                operands[index] = Operand(Number(base.text, base.value, True), operand.neg, operand.abs, operand.sext)
            elif words[0] >> 23 == _SOPP:
                operands[index] = Operand(Number(hex(immediate), immediate))
            elif words[0] >> 28 == _SOPK and mnemonic.startswith(_SHORT) and index == len(operands) - 1:
                value = immediate if mnemonic.endswith("_u32") else immediate - (immediate >> 15 << 16)
                operands[index] = Operand(Number(str(value), value))
        elif isinstance(base, Symbol):
            if base.text.startswith(("hwreg(", "sendmsg(")):
                code = words[0] & 0xFF if mnemonic.startswith("s_sendmsg_rtn") else immediate
                operands[index] = Operand(Number(base.text, code))
            elif literal is not None and ("@" in base.text or base.text.startswith((".L", '(""-"")'))):
                operands[index] = Operand(Number(hex(literal), literal, True), operand.neg, operand.abs, operand.sext)

    if mnemonic.startswith(_SCALAR_MEMORY) and operands and operands[-1].base is Named.NULL:
        operands[-1] = Operand(Number("0x0", 0))  # llvm-objdump's spelling of no offset
    elif mnemonic == "v_cndmask_b32" and len(operands) == 3:
        operands.append(Operand(Named.VCC_LO))  # implied in dual-issue instructions, which exist on wave32 only
    elif mnemonic.startswith("s_wait"):
        modifiers |= _wait(mnemonic, operands)
    if isinstance(selected := modifiers.get("op_sel"), tuple) and any(operand.half for operand in operands):
        modifiers["op_sel"] = _without_halves(mnemonic, operands, selected)
        if not any(modifiers["op_sel"]):
            del modifiers["op_sel"]
    return Instruction(pc, words, mnemonic, tuple(operands), modifiers, suffix, target, None, text)


def _without_halves(mnemonic: str, operands: list[Operand], selected: tuple[int, ...]) -> tuple[int, ...]:
    """op_sel without the bits that the registers' `.h` already says: llvm-objdump prints both, LLVM's own listing doesn't. Bits are
    those of the sources, then the destination's."""
    results = 0 if mnemonic.startswith("v_cmpx_") else 1
    order = [*operands[results : results + len(selected) - 1], *operands[:results]]
    return tuple(0 if i < len(order) and order[i].half else bit for i, bit in enumerate(selected))


def _wait(mnemonic: str, operands: list[Operand]) -> dict[str, int]:
    """Counters of the waits that name them in the mnemonic: `s_waitcnt_vscnt null, 0x0`, `s_wait_loadcnt_dscnt 0x0`."""
    base = operands[-1].base if operands else None
    if not isinstance(base, Number):
        return {}
    value = int(base.value)
    if match := _WAIT_GFX10.fullmatch(mnemonic):
        return {match[1]: value} if operands[0].base is Named.NULL else {}
    if match := _WAIT_GFX12.fullmatch(mnemonic):
        if match[2]:
            return {f"{match[1]}cnt": value >> 8 & 0x3F, "dscnt": value & 0x3F}
        return {f"{match[3]}cnt": value}
    return {}


@lru_cache(maxsize=1 << 14)
def _modifier(token: str) -> tuple[str, int | str | bool | tuple[int, ...]]:
    match = _MODIFIER.fullmatch(token)
    if match is None:
        return token, True
    key, value = match.groups()
    if key in ("mul", "div"):
        return "omod", token
    if key == "bound_ctrl":  # older LLVM prints 0 for the same bit
        return key, 1
    if value[0] == "[" and value[-1] == "]":
        items = [item.strip() for item in value[1:-1].split(",")]
        if all(_INTEGER.fullmatch(item) for item in items):
            return key, tuple(int(item, 0) for item in items)
        return key, ",".join(items)
    return key, int(value, 0) if _INTEGER.fullmatch(value) else value


@lru_cache(maxsize=1 << 14)
def _operand(token: str) -> Operand:
    """An operand by its text: modifiers are `-x`, `neg(x)`, `|x|`, `abs(x)`, `sext(x)`, in this order from the outside."""
    neg = absolute = sext = False
    if token.startswith("neg("):
        neg, token = True, token[4:-1]
    elif token.startswith("-") and not (_INTEGER.fullmatch(token) or _FLOAT.fullmatch(token)):
        neg, token = True, token[1:]
    if token.startswith("|") and token.endswith("|") and len(token) > 2:
        absolute, token = True, token[1:-1]
    elif token.startswith("abs("):
        absolute, token = True, token[4:-1]
    if token.startswith("sext("):
        sext, token = True, token[5:-1]
    if token.startswith(("lit(", "lit64(")):  # a literal where an inline constant would do
        token = token[token.index("(") + 1 : -1]
    if match := _REGISTER.fullmatch(token):
        file, single, first, last, half = match.groups()
        start = int(single or first)
        count = int(last) - start + 1 if last else 1
        return Operand(Registers(_FILES[file], start, count), neg, absolute, sext, half or "")
    return Operand(_base(token), neg, absolute, sext)


def _base(token: str) -> Base:
    if token in _NAMED:
        return _NAMED[token]
    if _INTEGER.fullmatch(token):
        return Number(token, int(token, 16 if "0x" in token else 10))
    if _FLOAT.fullmatch(token):
        return Number(token, float(token))
    return Symbol(token)
