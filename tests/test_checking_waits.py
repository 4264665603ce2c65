"""The checking mode's missing waits: counters, order within them, paths, halves of registers; what is right isn't reported."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.errors import Location, MissingWaitError
from tessera.runtime.simulator import engine
from tests.sim_asm import POINTERS, build, run

HEAD = POINTERS + "  v_and_b32 v1, 0x3ff, v0\n  v_lshlrev_b32 v2, 2, v1\n"
STORE = "  global_store_b32 v2, v10, s[10:11]\n  s_endpgm\n"


def message(body: str, **options: object) -> str:
    with pytest.raises(MissingWaitError) as caught:
        engine.prepare(build(HEAD + body + STORE, **options), check=True)  # type: ignore[arg-type]
    return str(caught.value)


def accepted(body: str, **options: object) -> None:
    engine.prepare(build(HEAD + body + STORE, **options), check=True)  # type: ignore[arg-type]


def test_a_load_is_used_without_a_wait() -> None:
    text = message("  global_load_b32 v3, v2, s[8:9]\n  v_add_nc_u32 v10, 1, v3\n")
    assert text.startswith("v_add_nc_u32 at pc 0x")
    assert "reads v3 before it has been loaded: no s_waitcnt vmcnt covers global_load_b32 at pc 0x" in text


def test_the_error_names_its_instruction_and_both_lines() -> None:
    body = HEAD + "  global_load_b32 v3, v2, s[8:9]\n  v_add_nc_u32 v10, 1, v3\n" + STORE
    program = engine.prepare(build(body))
    load, use = ((i.pc, i.mnemonic) for i in program.instructions if i.mnemonic in ("global_load_b32", "v_add_nc_u32"))
    with pytest.raises(MissingWaitError) as caught:
        engine.prepare(build(body), check=True, lines=lambda pc: Location("kernel.py", {load[0]: 7, use[0]: 9}.get(pc, 1)))
    error = caught.value
    assert (error.pc, error.mnemonic) == use
    assert error.location == Location("kernel.py", 9)
    assert f"global_load_b32 at pc 0x{load[0]:x} (kernel.py:7)" in error.message


def test_it_is_raised_where_a_launch_asks_for_checks_and_not_otherwise() -> None:
    code = build(HEAD + "  global_load_b32 v10, v2, s[8:9]\n" + STORE)
    a, b = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    run(code, [a, b, b])
    assert b.tolist() == list(range(32))
    with pytest.raises(MissingWaitError, match=r"global_store_b32 .* reads v10"):
        run(code, [a, b, b], check=True)


TWO_LOADS = "  global_load_b32 v3, v2, s[8:9]\n  global_load_b32 v4, v2, s[8:9] offset:4\n"


def test_vector_loads_come_in_order() -> None:
    accepted(TWO_LOADS + "  s_waitcnt vmcnt(1)\n  v_mov_b32 v10, v3\n  s_waitcnt vmcnt(0)\n")
    text = message(TWO_LOADS + "  s_waitcnt vmcnt(1)\n  v_mov_b32 v10, v4\n")
    assert "v_mov_b32" in text
    assert "reads v4" in text


def test_stores_have_a_counter_of_their_own() -> None:
    store = "  global_store_b32 v2, v1, s[12:13]\n"
    # The store isn't counted by vmcnt, so one load is outstanding at most.
    assert "reads v3" in message("  global_load_b32 v3, v2, s[8:9]\n" + store + "  s_waitcnt vmcnt(1)\n  v_mov_b32 v10, v3\n")
    accepted("  global_load_b32 v3, v2, s[8:9]\n" + store + "  s_waitcnt vmcnt(0)\n  v_mov_b32 v10, v3\n")
    assert "vmcnt covers" in message("  global_load_b32 v3, v2, s[8:9]\n  s_waitcnt_vscnt null, 0x0\n  v_mov_b32 v10, v3\n")


def test_registers_of_a_store_may_be_overwritten() -> None:
    accepted("  v_mov_b32 v5, 1\n  v_mov_b32 v10, 0\n  global_store_b32 v2, v5, s[12:13]\n  v_mov_b32 v5, 2\n")


def test_atomics_that_return_are_loads() -> None:
    atomic = "  v_mov_b32 v5, 1\n  global_atomic_add_u32 v3, v2, v5, s[12:13] glc\n"
    assert "vmcnt covers global_atomic_add_u32" in message(atomic + "  v_mov_b32 v10, v3\n")
    accepted(atomic + "  s_waitcnt vmcnt(0)\n  v_mov_b32 v10, v3\n")
    accepted("  v_mov_b32 v10, 1\n  global_atomic_add_u32 v2, v10, s[12:13]\n  v_mov_b32 v10, 2\n")


def test_scalar_loads_come_in_any_order() -> None:
    two = "  s_load_b32 s20, s[8:9], 0x0\n  s_load_b32 s21, s[8:9], 0x4\n"
    assert "reads s20" in message(two + "  s_waitcnt lgkmcnt(1)\n  v_mov_b32 v10, s20\n")
    accepted(two + "  s_waitcnt lgkmcnt(0)\n  v_mov_b32 v10, s20\n")


def test_the_pair_that_a_scalar_load_gives_is_an_address() -> None:
    text = message("  s_load_b64 s[20:21], s[8:9], 0x0\n  global_load_b32 v10, v2, s[20:21]\n  s_waitcnt vmcnt(0)\n")
    assert "global_load_b32" in text
    assert "reads s20 before it has been loaded: no s_waitcnt lgkmcnt covers s_load_b64" in text


def test_lds_comes_in_order_among_itself() -> None:
    two = "  v_mov_b32 v10, 0\n  ds_load_b32 v3, v2\n  ds_load_b32 v4, v2 offset:128\n"
    accepted(two + "  s_waitcnt lgkmcnt(1)\n  v_mov_b32 v10, v3\n", lds=256)
    assert "reads v4" in message(two + "  s_waitcnt lgkmcnt(1)\n  v_mov_b32 v10, v4\n", lds=256)
    # With a scalar load among them: two LDS operations may be left when the counter says 1, if the scalar load came first.
    mixed = "  ds_load_b32 v3, v2\n  s_load_b32 s20, s[8:9], 0x0\n"
    assert "reads v3" in message(mixed + "  s_waitcnt lgkmcnt(1)\n  v_mov_b32 v10, v3\n", lds=256)
    accepted(mixed + "  s_waitcnt lgkmcnt(0)\n  v_mov_b32 v10, v3\n", lds=256)


def test_overwriting_a_load_that_is_under_way() -> None:
    text = message("  global_load_b32 v10, v2, s[8:9]\n  v_mov_b32 v10, 0\n")
    assert "v_mov_b32" in text
    assert "overwrites v10 before it has been loaded" in text
    # A later load of the same kind writes later.
    accepted("  global_load_b32 v10, v2, s[8:9]\n  global_load_b32 v10, v2, s[8:9] offset:4\n  s_waitcnt vmcnt(0)\n")
    text = message("  global_load_b32 v10, v2, s[8:9]\n  ds_load_b32 v10, v2\n  s_waitcnt vmcnt(0) lgkmcnt(0)\n", lds=256)
    assert "ds_load_b32" in text
    assert "overwrites v10" in text


def test_every_path_counts() -> None:
    skip = """
      s_cmp_eq_u32 s2, 12345
      s_cbranch_scc1 skip
      {inside}
    skip:
    """
    load = "  v_mov_b32 v3, 0\n  global_load_b32 v3, v2, s[8:9]\n"
    assert "reads v3" in message(load + skip.format(inside="s_waitcnt vmcnt(0)") + "  v_mov_b32 v10, v3\n")
    assert "reads v3" in message("  v_mov_b32 v3, 0\n" + skip.format(inside="global_load_b32 v3, v2, s[8:9]") + "  v_mov_b32 v10, v3\n")
    accepted(load + skip.format(inside="s_waitcnt vmcnt(0)") + "  s_waitcnt vmcnt(0)\n  v_mov_b32 v10, v3\n")


def test_the_shortest_queue_of_all_paths_counts() -> None:
    """One more load is issued on one path than on the other: on the other, vmcnt(1) doesn't cover the first load."""
    body = """
      global_load_b32 v3, v2, s[8:9]
      s_cmp_eq_u32 s2, 12345
      s_cbranch_scc1 skip
      global_load_b32 v4, v2, s[8:9]
    skip:
      s_waitcnt vmcnt({count})
      v_mov_b32 v10, v3
      s_waitcnt vmcnt(0)
    """
    assert "reads v3" in message(body.format(count=1))
    accepted(body.format(count=0))


def test_around_a_loop() -> None:
    """The load at the end of an iteration is used at the start of the next."""
    loop = """
      s_mov_b32 s20, 4
      v_mov_b32 v10, 0
      global_load_b32 v3, v2, s[8:9]
      s_waitcnt vmcnt(0)
    loop:
      {wait}
      v_add_nc_u32 v10, v10, v3
      global_load_b32 v3, v2, s[8:9]
      s_sub_u32 s20, s20, 1
      s_cmp_lg_u32 s20, 0
      s_cbranch_scc1 loop
      s_waitcnt vmcnt(0)
    """
    text = message(loop.format(wait=""))
    assert "v_add_nc_u32" in text
    assert "reads v3" in text
    accepted(loop.format(wait="s_waitcnt vmcnt(0)"))


def test_halves_of_a_register() -> None:
    low = "  v_mov_b32 v3, 0\n  global_load_d16_b16 v3, v2, s[8:9]\n"
    accepted(low + "  v_cvt_f32_f16 v10, v3.h\n  s_waitcnt vmcnt(0)\n")
    assert "reads v3" in message(low + "  v_cvt_f32_f16 v10, v3.l\n  s_waitcnt vmcnt(0)\n")
    accepted(low + "  v_mov_b16 v3.h, v1.l\n  s_waitcnt vmcnt(0)\n  v_mov_b32 v10, v3\n")
    assert "overwrites v3" in message(low + "  v_mov_b16 v3.l, v1.l\n  s_waitcnt vmcnt(0)\n  v_mov_b32 v10, v3\n")
    high = "  v_mov_b32 v10, 0\n  global_load_d16_hi_b16 v10, v2, s[8:9]\n"
    accepted(high + "  global_store_b16 v2, v10, s[12:13]\n  s_waitcnt vmcnt(0)\n")
    assert "reads v10" in message(high + "  global_store_d16_hi_b16 v2, v10, s[12:13]\n  s_waitcnt vmcnt(0)\n")


def test_a_branch_on_what_is_loaded() -> None:
    assert "s_cbranch_vccz" in message("  v_mov_b32 v10, 0\n  s_load_b32 vcc_lo, s[8:9], 0x0\n  s_cbranch_vccz skip\nskip:\n")


def test_flat_accesses_count_twice() -> None:
    address = "  v_mov_b32 v4, s8\n  v_mov_b32 v5, s9\n  flat_load_b32 v10, v[4:5]\n"
    assert "reads v10" in message(address + "  s_waitcnt vmcnt(0)\n")
    assert "reads v10" in message(address + "  s_waitcnt lgkmcnt(0)\n")
    accepted(address + "  s_waitcnt vmcnt(0) lgkmcnt(0)\n")


def test_lane_exchanges_through_lds_hardware_count() -> None:
    exchange = "  ds_bpermute_b32 v10, v2, v1\n"
    assert "lgkmcnt covers ds_bpermute_b32" in message(exchange)
    accepted(exchange + "  s_waitcnt lgkmcnt(0)\n")


def test_both_halves_of_a_dual_issue_instruction() -> None:
    load = "  global_load_b32 v3, v2, s[8:9]\n  v_mov_b32 v5, 0\n"
    pair = "  v_dual_mov_b32 v10, v5 :: v_dual_mov_b32 v7, v3\n"
    assert "reads v3" in message(load + pair)
    accepted(load + "  s_waitcnt vmcnt(0)\n" + pair)


def test_transcendental_results_need_a_wait_on_the_first_chips() -> None:
    """LLVM's VALUTransUseHazard: gfx1100 to gfx1103."""
    slow = "  v_rcp_f32 v3, v1\n"
    use = "  v_mov_b32 v10, v3\n"
    filler = "  v_mov_b32 v20, 0\n"
    text = message(slow + use, arch="gfx1100")
    assert text.startswith("v_mov_b32 at pc 0x")
    assert "reads v3 too soon after v_rcp_f32 at pc 0x" in text
    assert "gfx1100 needs s_waitcnt_depctr depctr_va_vdst(0) between them" in text
    accepted(slow + use, arch="gfx1151")
    accepted(slow + "  s_waitcnt_depctr depctr_va_vdst(0)\n" + use, arch="gfx1100")
    accepted(slow + "  global_load_b32 v4, v2, s[8:9]\n" + use + "  s_waitcnt vmcnt(0)\n", arch="gfx1103")
    message(slow + 5 * filler + use, arch="gfx1100")
    accepted(slow + 6 * filler + use, arch="gfx1100")
    message(slow + "  v_exp_f32 v5, v1\n" + use, arch="gfx1100")
    accepted(slow + "  v_exp_f32 v5, v1\n  v_log_f32 v6, v1\n" + use, arch="gfx1100")
    around = "  s_cmp_eq_u32 s2, 5\n  s_cbranch_scc1 skip\n" + 6 * filler + "skip:\n"
    message(slow + around + use, arch="gfx1100")
    accepted(slow + around.replace("skip:\n", "").replace("s_cbranch_scc1 skip", "s_nop 0") + use, arch="gfx1100")
