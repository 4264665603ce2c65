"""A decoded instruction: what the listing produces and the lifter consumes. No meaning here, only spelling taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class File(Enum):
    """A register file. VCC, EXEC, M0 and friends are scalar registers with fixed numbers (`SPECIAL`)."""

    SGPR = "s"
    VGPR = "v"
    AGPR = "a"
    TTMP = "ttmp"


@dataclass(frozen=True, slots=True)
class Registers:
    """`count` consecutive 32-bit registers from `first` on."""

    file: File
    first: int
    count: int = 1


class Named(Enum):
    """Operands that are neither numbered registers nor numbers. VCC and EXEC are 64 bits wide in wave64 code, else 32."""

    VCC = "vcc"
    VCC_LO = "vcc_lo"
    VCC_HI = "vcc_hi"
    EXEC = "exec"
    EXEC_LO = "exec_lo"
    EXEC_HI = "exec_hi"
    SCC = "src_scc"
    VCCZ = "src_vccz"
    EXECZ = "src_execz"
    M0 = "m0"
    NULL = "null"  # reads as zero, writes vanish
    OFF = "off"  # no address register
    SHARED_BASE = "src_shared_base"
    SHARED_LIMIT = "src_shared_limit"
    PRIVATE_BASE = "src_private_base"
    PRIVATE_LIMIT = "src_private_limit"
    FLAT_SCRATCH = "flat_scratch"
    FLAT_SCRATCH_LO = "flat_scratch_lo"
    FLAT_SCRATCH_HI = "flat_scratch_hi"
    XNACK_MASK = "xnack_mask"
    XNACK_MASK_LO = "xnack_mask_lo"
    XNACK_MASK_HI = "xnack_mask_hi"
    SCRATCH_BASE_LO = "src_flat_scratch_base_lo"
    SCRATCH_BASE_HI = "src_flat_scratch_base_hi"
    LDS_DIRECT = "src_lds_direct"


@dataclass(frozen=True, slots=True)
class Number:
    """A constant as written. `text` keeps the spelling: "1.0" and "0x3f800000" mean different bits in some operand types, and the
    instruction's operand width decides. `value` is the number; `literal` whether it took a literal dword. A symbol that the linker
    resolved is its literal. `hwreg(…)`, `sendmsg(…)` and `s_delay_alu`'s phrase are Numbers too: `value` is the immediate field."""

    text: str
    value: int | float
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """Anything else that stands in an operand's place: `gpr_idx(SRC0)`, `mrt0`. No instruction of a compute kernel for RDNA has one."""

    text: str


Base: TypeAlias = "Registers | Named | Number | Symbol"
Modifiers: TypeAlias = "Mapping[str, int | str | bool | tuple[int, ...]]"


@dataclass(frozen=True, slots=True)
class Operand:
    """A source or destination with its modifiers."""

    base: Base
    neg: bool = False
    abs: bool = False
    sext: bool = False
    half: str = ""  # "l" or "h" of a true16 register


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction.

    `mnemonic` has no encoding suffix ("_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp" go to `suffix`, with the underscore). `modifiers` holds
    everything after the operands: flags as True (`glc`, `clamp`), numbers as int (`offset`, `row_mask`, `row_shr`), lists as tuples
    (`quad_perm`, `dpp8`, and `op_sel` without the bits that a register's `half` says), words as str (`dst_sel`), the output modifier as
    `omod`: "mul:2", "mul:4" or "div:2". `target` is the pc that a branch goes to; it is not among the operands.

    A dual-issue (VOPD) instruction holds its second half in `second`; the first half is this one, under its ordinary mnemonic
    (`v_dual_add_f32` is `v_add_f32`), and `v_cndmask_b32` always has its condition operand.

    Waits are decoded by counter: `s_waitcnt` is `modifiers = {"vmcnt": 0}` without operands, `s_waitcnt_vscnt` has {"vscnt": 0} and
    `s_wait_loadcnt_dscnt` {"loadcnt": …, "dscnt": …} besides their operands; a counter that isn't waited for is absent.
    """

    pc: int
    words: tuple[int, ...]
    mnemonic: str
    operands: tuple[Operand, ...] = ()
    modifiers: Mapping[str, int | str | bool | tuple[int, ...]] = field(default_factory=dict[str, "int | str | bool | tuple[int, ...]"])
    suffix: str = ""
    target: int | None = None
    second: Instruction | None = None
    text: str = ""

    @property
    def size(self) -> int:
        """Length in bytes."""
        return 4 * len(self.words)

    @property
    def next_pc(self) -> int:
        return self.pc + self.size
