"""What a launch did: instructions by mnemonic and class, bytes moved, LDS bank conflicts.

Counts are of wave instructions: one for each time a wave executes it, whatever its active lanes. The halves of a dual-issue instruction
count by themselves. Bytes are those of active lanes that reached memory. The model of bank conflicts is described in
`atomics.build_conflicts`; its counts are only kept where a launch asks for counters, for they cost time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .instruction import Instruction

CLASSES = (
    "matrix",
    "vector",
    "scalar",
    "global load",
    "global store",
    "atomic",
    "scratch",
    "LDS",
    "scalar load",
    "wait",
    "barrier",
    "branch",
    "other",
)


def classify(mnemonic: str) -> str:
    """The class of an instruction, one of CLASSES."""
    if mnemonic.startswith(("v_wmma_", "v_swmmac_", "v_mfma_", "v_smfmac_")):
        return "matrix"
    if mnemonic.startswith("v_"):
        return "vector"
    if "_atomic_" in mnemonic:
        return "atomic"
    if mnemonic.startswith(("global_load", "flat_load", "buffer_load")):
        return "global load"
    if mnemonic.startswith(("global_store", "flat_store", "buffer_store")):
        return "global store"
    if mnemonic.startswith("scratch_"):
        return "scratch"
    if mnemonic.startswith("ds_"):
        return "LDS"
    if mnemonic.startswith(("s_load_", "s_buffer_load_")):
        return "scalar load"
    if mnemonic.startswith(("s_wait", "s_delay_alu", "s_nop", "s_clause")):
        return "wait"
    if mnemonic.startswith("s_barrier"):
        return "barrier"
    if mnemonic.startswith(("s_branch", "s_cbranch", "s_endpgm", "s_setpc", "s_swappc")):
        return "branch"
    return "scalar" if mnemonic.startswith("s_") else "other"


def count_block(instructions: Sequence[Instruction]) -> dict[str, int]:
    """How often each mnemonic occurs."""
    found: Counter[str] = Counter()
    for instruction in instructions:
        found[instruction.mnemonic] += 1
        if instruction.second is not None:
            found[instruction.second.mnemonic] += 1
    return dict(found)


@dataclass(frozen=True)
class Counters:
    """Counts of one launch. `lds_cycles` and `lds_conflicts` are None where the launch didn't ask for them."""

    instructions: int = 0
    by_mnemonic: Mapping[str, int] = field(default_factory=dict[str, int])
    by_class: Mapping[str, int] = field(default_factory=dict[str, int])
    bytes_loaded: int = 0
    bytes_stored: int = 0
    lds_bytes_loaded: int = 0
    lds_bytes_stored: int = 0
    lds_cycles: int | None = None
    lds_conflicts: int | None = None


def tally(blocks: Sequence[Mapping[str, int]], runs: Sequence[int]) -> tuple[int, dict[str, int], dict[str, int]]:
    """(all, by mnemonic, by class) from the mnemonics of each block and how often it ran."""
    by_mnemonic: Counter[str] = Counter()
    for block, times in zip(blocks, runs, strict=True):
        if times:
            for mnemonic, count in block.items():
                by_mnemonic[mnemonic] += count * times
    by_class: Counter[str] = Counter()
    for mnemonic, count in by_mnemonic.items():
        by_class[classify(mnemonic)] += count
    return sum(by_mnemonic.values()), dict(by_mnemonic.most_common()), dict(by_class.most_common())
