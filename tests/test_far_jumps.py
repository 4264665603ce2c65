"""Branches beyond 128 KiB: LLVM computes the address, and the simulator sees through it."""

from __future__ import annotations

import numpy as np
import pytest
from test_corpus import run as run_member

import tessera as ts
from corpus.generated import FAMILIES, Member
from tessera.errors import UnsupportedInstructionError
from tests.sim_asm import IDS, POINTERS, build, run

JUMP = """
  s_getpc_b64 s[20:21]
.Lpost{n}:
  s_add_u32 s20, s20, ({to}-.Lpost{n})&4294967295
  s_addc_u32 s21, s21, ({to}-.Lpost{n})>>32
  s_setpc_b64 s[20:21]
"""


def test_a_jump_forward_and_one_back() -> None:
    """A loop of five trips, closed by a computed jump back, with a computed jump over what must not run."""
    body = (
        IDS + POINTERS + "s_mov_b32 s4, 0\n.Lloop:\n s_add_u32 s4, s4, 1\n" + JUMP.format(n=1, to=".Lover") + "s_mov_b32 s4, 77\n.Lover:\n"
        " s_cmp_lt_u32 s4, 5\n s_cbranch_scc0 .Ldone\n" + JUMP.format(n=2, to=".Lloop") + ".Ldone:\n v_mov_b32 v4, s4\n"
        " v_lshlrev_b32 v5, 2, v1\n global_store_b32 v5, v4, s[8:9]\n s_endpgm\n"
    )  # fmt: skip
    out = np.zeros(32, np.uint32)
    run(build(body), [out])
    assert out.tolist() == [5] * 32


def test_other_computed_jumps_are_refused() -> None:
    body = IDS + POINTERS + " s_getpc_b64 s[20:21]\n s_add_u32 s20, s20, s4\n s_addc_u32 s21, s21, 0\n s_setpc_b64 s[20:21]\n s_endpgm\n"
    with pytest.raises(UnsupportedInstructionError, match="computed jumps"):
        run(build(body), [np.zeros(32, np.uint32)])


@pytest.mark.slow
def test_a_kernel_of_more_than_128_kib() -> None:
    """64-bit divisions of 64 elements a lane, through our own listing, in which the distances are not filled in yet."""
    division = next(family for family in FAMILIES if family.name == "division")
    member = Member(division, ts.int64, "contiguous", "large", 1, "O0")
    assert member.compile("gfx1151").assembly.count("s_setpc_b64") > 0
    run_member(member)
