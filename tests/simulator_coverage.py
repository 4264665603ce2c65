"""Which instructions of RDNA3 and RDNA3.5 the simulator has: asks it about each, and writes docs/simulator-coverage.md.

    python tests/simulator_coverage.py

An instruction is there if the simulator lifts it. Arithmetic is looked up in the table of semantics; everything else is tried on operands
of its form.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tessera.errors import SimulatorError
from tessera.runtime.simulator import control, indirect, lifter, matrix
from tessera.runtime.simulator.asmtext import parse_instruction
from tessera.runtime.simulator.semantics import FloatMode
from tessera.runtime.simulator.semantics.table import Generation, lookup

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "data" / "rdna3_mnemonics.txt"
PAGE = ROOT / "docs" / "simulator-coverage.md"

# Operands to try an instruction on, by the form of its name; the first that matches.
OPERANDS = (
    (r"(global|flat)_load_addtid", ["v0, s[2:3]"]),
    (r"global_store_addtid", ["v0, s[2:3]"]),
    (r"global_load_", ["v[0:3], v[8:9], off"]),
    (r"flat_load_", ["v[0:3], v[8:9]"]),
    (r"scratch_load_", ["v[0:3], v8, off"]),
    (r"buffer_load_", ["v[0:3], v8, s[4:7], 0 offen"]),
    (r"global_store_", ["v[8:9], v[0:3], off"]),
    (r"flat_store_", ["v[8:9], v[0:3]"]),
    (r"scratch_store_", ["v8, v[0:3], off"]),
    (r"buffer_store_", ["v[0:3], v8, s[4:7], 0 offen"]),
    (r"global_atomic_", ["v[8:9], v[0:3], off"]),
    (r"flat_atomic_", ["v[8:9], v[0:3]"]),
    (r"buffer_atomic_", ["v[0:3], v8, s[4:7], 0 offen"]),
    (r"ds_load_2addr", ["v[0:3], v8 offset0:1 offset1:2"]),
    (r"ds_store_2addr", ["v8, v[0:1], v[2:3] offset0:1 offset1:2"]),
    (r"ds_load_addtid", ["v0"]),
    (r"ds_store_addtid", ["v0"]),
    (r"ds_load_", ["v[0:3], v8"]),
    (r"ds_store_b|ds_store_.*d16", ["v8, v[0:3]"]),
    (r"ds_cmpstore.*_rtn_", ["v[4:5], v8, v[0:1], v[2:3]"]),
    (r"ds_cmpstore", ["v8, v[0:1], v[2:3]"]),
    (r"ds_\w*permute", ["v0, v1, v2"]),
    (r"ds_swizzle", ["v0, v1 offset:32799"]),
    (r"ds_nop", [""]),
    (r"ds_.*_rtn_", ["v[4:5], v8, v[0:1]"]),
    (r"ds_(append|consume)", ["v0"]),
    (r"ds_", ["v8, v[0:1]"]),
    (r"s_buffer_load", ["s[16:31], s[4:7], 0x0"]),
    (r"s_load", ["s[16:31], s[4:5], 0x0"]),
    (r"s_c?branch|s_call|s_subvector", ["0"]),
    (r"s_denorm_mode|s_round_mode|s_sleep|s_setprio|s_trap|s_nop", ["0"]),
    (r"s_getpc", ["s[0:1]"]),
    (r"", [""]),
)

# Whose text is a phrase about the machine word.
ENCODED = {
    "s_getreg_b32": ("s_getreg_b32 s0, hwreg(HW_REG_MODE)", (0xB880F801,)),
    "s_setreg_b32": ("s_setreg_b32 hwreg(HW_REG_MODE, 4, 4), s0", (0xB9001901,)),
    "s_setreg_imm32_b32": ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0xf0", (0xB9801901, 0xF0)),
    "s_sendmsg": ("s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", (0xBFB60003,)),
    "s_sendmsghalt": ("s_sendmsghalt sendmsg(MSG_DEALLOC_VGPRS)", (0xBFB70003,)),
    "s_sendmsg_rtn_b64": ("s_sendmsg_rtn_b64 s[0:1], sendmsg(MSG_RTN_GET_REALTIME)", (0xBE804D83,)),
    "s_sendmsg_rtn_b32": ("s_sendmsg_rtn_b32 s0, sendmsg(MSG_RTN_GET_DOORBELL)", (0xBE804C80,)),
    "s_waitcnt": ("s_waitcnt vmcnt(0)", (0xBF8903F7,)),
}

CLASSES = (
    ("Matrix", r"v_wmma_"),
    ("Vector arithmetic", r"v_(?!cmp|interp)"),
    ("Vector comparisons", r"v_cmp"),
    ("Scalar arithmetic", r"s_(?!load|buffer|wait|cbranch|branch|endpgm|barrier|sleep|nop|send|set|get|trap|code_end|call|swappc|rfe|"
     r"subvector|delay|clause|dcache|gl1|icache|denorm|round|version|wakeup|ttrace|incperf|decperf|atc|cmp|bitcmp)"),
    ("Scalar comparisons", r"s_(cmp|bitcmp)"),
    ("Scalar loads", r"s_(load|buffer_load)"),
    ("Control", r"s_"),
    ("Global and flat memory", r"(global|flat)_(?!atomic)"),
    ("Scratch memory", r"scratch_"),
    ("Buffers", r"buffer_(?!atomic)"),
    ("Atomics in global memory", r"(global|flat|buffer)_atomic_"),
    ("LDS", r"ds_"),
    ("Graphics: images, exports, interpolation, typed buffers", r""),
)  # fmt: skip


def instructions() -> dict[str, bool]:
    """Every mnemonic of the list, and whether RDNA3.5 alone has it."""
    words = [line.split() for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return {word[0]: len(word) > 1 for word in words}


@cache
def implemented(mnemonic: str) -> bool:
    """Whether the simulator lifts this instruction of gfx1151."""
    if lookup(mnemonic, Generation.GFX11) is not None or mnemonic in indirect.HANDLERS:
        return True
    if matrix.is_matrix(mnemonic):
        return any(name == mnemonic for _, name, _ in matrix.TABLE)
    if mnemonic.startswith("s_endpgm"):
        return control.ends_block(parse_instruction(mnemonic, 0, (0xBFB00000,))) is False
    if mnemonic in ENCODED:
        return _lifts(*ENCODED[mnemonic])
    operands = next(tried for pattern, tried in OPERANDS if re.match(pattern, mnemonic))
    long = not mnemonic.startswith("s_") or mnemonic.startswith(("s_load", "s_buffer"))
    return any(_lifts(f"{mnemonic} {text}".strip(), (0xDC000000, 0) if long else (0xBF800000,)) for text in operands)


def _lifts(text: str, words: tuple[int, ...]) -> bool:
    try:
        first = parse_instruction(text, 0, words)
        last = parse_instruction("s_endpgm", first.next_pc, (0xBFB00000,))
        lifter.lift(lifter.Kernel((first, last), 0, "gfx1151", "gfx11", Generation.GFX11, 32, FloatMode(), False, 16))
    except (SimulatorError, AssertionError, ValueError, IndexError):
        return False
    return True


def page() -> str:
    """The document."""
    known = instructions()
    groups: dict[str, list[str]] = {title: [] for title, _ in CLASSES}
    for name in known:
        groups[next(title for title, pattern in CLASSES if re.match(pattern, name))].append(name)
    there = sum(map(implemented, known))
    lines = [
        "# Instructions that the simulator has",
        "",
        "Written by `python tests/simulator_coverage.py`; a test compares. The list is LLVM's of gfx1100 and gfx1151, halves of dual-issue",
        "instructions under their single names; \\* marks what only RDNA3.5 has. Every encoding, modifier and size of operand of an",
        "instruction is there or refused by name when a kernel is loaded: nothing is skipped.",
        "",
        f"{there} of {len(known)} instructions. Every instruction that LLVM emits for the corpus of kernels (`corpus/generated.py`), at",
        "each level of optimisation, is among them: `tests/test_corpus_mnemonics.py`.",
    ]
    for title, names in groups.items():
        have, lack = [n for n in names if implemented(n)], [n for n in names if not implemented(n)]
        lines += ["", f"## {title}: {len(have)} of {len(names)}", ""]
        lines += [", ".join(f"`{n}`{chr(92) + '*' if known[n] else ''}" for n in have)] if have else []
        lines += [""] if have and lack else []
        lines += ["Missing: " + ", ".join(f"`{n}`{chr(92) + '*' if known[n] else ''}" for n in lack)] if lack else []
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
