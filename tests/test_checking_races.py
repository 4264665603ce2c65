"""The checking mode's data races: in LDS between waves, in global memory between waves and between workgroups."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tessera.errors import DataRaceError, Location, SimulatorError
from tessera.runtime.simulator import engine
from tessera.runtime.simulator.checking import records, session
from tests.sim_asm import POINTERS, build, run

# v1: the work-item, v2: four times that, v3: the item of the other wave of two, v4: four times that; s20: the wave.
HEAD = (
    POINTERS
    + """
  v_and_b32 v1, 0x3ff, v0
  v_lshlrev_b32 v2, 2, v1
  v_xor_b32 v3, 32, v1
  v_lshlrev_b32 v4, 2, v3
  v_readfirstlane_b32 s20, v1
  s_lshr_b32 s20, s20, 5
"""
)
OUT = "  global_store_b32 v2, v10, s[8:9]\n  s_endpgm\n"
WAIT = "  s_waitcnt lgkmcnt(0)\n"
CLEAN = "  s_waitcnt vmcnt(0)\n  s_waitcnt_vscnt null, 0x0\n"


def arrays() -> list[np.ndarray[Any, Any]]:
    return [np.zeros(256, np.uint32), np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)]


def checked(body: str, block: int = 64, grid: int = 1, **options: Any) -> list[np.ndarray[Any, Any]]:
    """Run a kernel in the checking mode: the arrays afterwards."""
    given = arrays()
    run(build(HEAD + body, lds=4096, **options), given, block=(block, 1, 1), grid=(grid, 1, 1), check=True)
    return given


def race(body: str, block: int = 64, grid: int = 1, **options: Any) -> str:
    with pytest.raises(DataRaceError) as caught:
        checked(body, block, grid, **options)
    return str(caught.value)


EXCHANGE = "  ds_store_b32 v2, v1\n{between}  ds_load_b32 v10, v4\n" + WAIT + OUT


def test_an_exchange_with_a_barrier_and_waits_is_right() -> None:
    out = checked(EXCHANGE.format(between=WAIT + "  s_barrier\n"))[0]
    assert out[:64].tolist() == [i ^ 32 for i in range(64)]


def test_an_exchange_without_a_barrier() -> None:
    text = race(EXCHANGE.format(between=WAIT))
    # Waves run in turn here, so the second wave finds the first one's read; on hardware either may come first.
    assert re.search(
        r"data race on LDS byte 128: wave 1 \(lane 0\) writes it with ds_store_b32 at pc 0x\w+, "
        r"wave 0 reads it with ds_load_b32 at pc 0x\w+, and no barrier orders them; workgroup \(0, 0, 0\)",
        text,
    )


def test_an_exchange_whose_store_is_not_waited_for() -> None:
    text = race(EXCHANGE.format(between="  s_barrier\n"))
    assert "data race on LDS byte" in text
    assert "no barrier orders them: no wait covers ds_store_b32 at pc 0x" in text
    assert "before the barrier, so that it may still be under way behind it" in text


def test_the_error_has_the_instruction_and_its_line() -> None:
    code = build(HEAD + EXCHANGE.format(between=WAIT), lds=4096)
    program = engine.prepare(code, check=True, lines=lambda pc: Location("kernel.py", pc))
    given = arrays()
    kernarg = b"".join(a.ctypes.data.to_bytes(8, "little") for a in given)
    buffers = [engine.Buffer("abc"[i], a.ctypes.data, a.nbytes) for i, a in enumerate(given)]
    with pytest.raises(DataRaceError) as caught:
        program.run((1, 1, 1), (64, 1, 1), kernarg, buffers, check=True)
    store = next(i for i in program.instructions if i.mnemonic == "ds_store_b32")
    load = next(i for i in program.instructions if i.mnemonic == "ds_load_b32")
    assert (caught.value.mnemonic, caught.value.pc) == ("ds_store_b32", store.pc)
    assert caught.value.location == Location("kernel.py", store.pc)
    assert f"ds_load_b32 at pc 0x{load.pc:x} (kernel.py:{load.pc})" in caught.value.message


def test_waves_that_keep_to_their_own_part_need_no_barrier() -> None:
    checked("  ds_store_b32 v2, v1\n" + WAIT + "  ds_load_b32 v10, v2\n" + WAIT + OUT)


def test_one_wave_never_races_with_itself() -> None:
    checked("  v_mov_b32 v5, 64\n  ds_store_b32 v5, v1\n  ds_load_b32 v10, v5\n" + WAIT + OUT, block=32)


def test_neighbouring_bytes_are_different() -> None:
    """Each wave writes every second byte."""
    body = """
      v_and_b32 v5, 31, v1
      v_lshl_or_b32 v5, v5, 1, s20
      ds_store_b8 v5, v1
    """
    checked(body + "  v_mov_b32 v10, 0\n" + WAIT + OUT)
    text = race(body.replace("ds_store_b8", "ds_store_b16") + "  v_mov_b32 v10, 0\n" + WAIT + OUT)
    assert "wave 1 (lane 0) writes it with ds_store_b16" in text
    assert "wave 0 writes it with ds_store_b16" in text


def test_reading_before_the_other_wave_overwrites() -> None:
    """The second barrier of a loop: without it, the next tile's store meets the last tile's load."""
    loop = """
      s_mov_b32 s21, 3
      v_mov_b32 v10, 0
    loop:
      ds_store_b32 v2, v1
      s_waitcnt lgkmcnt(0)
      s_barrier
      ds_load_b32 v5, v4
      s_waitcnt lgkmcnt(0)
      v_add_nc_u32 v10, v10, v5
      {second}
      s_sub_u32 s21, s21, 1
      s_cmp_lg_u32 s21, 0
      s_cbranch_scc1 loop
    """
    out = checked(loop.format(second="s_barrier") + OUT)[0]
    assert out[:64].tolist() == [3 * (i ^ 32) for i in range(64)]
    text = race(loop.format(second="s_nop 0") + OUT)
    assert "writes it with ds_store_b32" in text
    assert "reads it with ds_load_b32" in text


def test_a_load_that_is_under_way_at_the_barrier() -> None:
    """The other wave overwrites what this one may still be reading."""
    body = """
      ds_store_b32 v2, v1
      s_waitcnt lgkmcnt(0)
      s_barrier
      ds_load_b32 v10, v4
      {wait}
      s_barrier
      ds_store_b32 v2, v3
      s_waitcnt lgkmcnt(0)
    """
    out = checked(body.format(wait="s_waitcnt lgkmcnt(0)") + OUT)[0]
    assert out[:64].tolist() == [i ^ 32 for i in range(64)]
    assert "no wait covers ds_load_b32" in race(body.format(wait="s_nop 0") + OUT)


def test_a_wait_that_leaves_some_under_way() -> None:
    """Two stores, and a wait for all but one: only the second may be late."""
    body = "  ds_store_b32 v2, v1\n  ds_store_b32 v2, v1 offset:512\n  s_waitcnt lgkmcnt(1)\n  s_barrier\n  ds_load_b32 v10, v4{offset}\n"
    out = checked(body.format(offset="") + WAIT + OUT)[0]
    assert out[:64].tolist() == [i ^ 32 for i in range(64)]
    assert "data race on LDS byte 640" in race(body.format(offset=" offset:512") + WAIT + OUT)


def test_what_is_late_is_not_late_for_ever() -> None:
    """An unfinished store that nobody reads in the next phase, and that a later wait covers."""
    body = "  ds_store_b32 v2, v1\n  s_barrier\n  v_mov_b32 v10, 0\n" + WAIT + "  s_barrier\n  ds_load_b32 v10, v4\n" + WAIT + OUT
    out = checked(body)[0]
    assert out[:64].tolist() == [i ^ 32 for i in range(64)]


def test_lds_atomics_do_not_race_with_each_other() -> None:
    atomic = "  v_mov_b32 v5, 0\n  v_mov_b32 v6, 1\n  ds_add_u32 v5, v6\n" + WAIT
    zeroed = "  v_mov_b32 v5, 0\n  ds_store_b32 v5, v5\n" + WAIT + "  s_barrier\n"
    only_first = zeroed.replace("ds_store_b32", "s_cmp_lg_u32 s20, 0\n  s_cbranch_scc1 skip\n  ds_store_b32").replace(
        WAIT, WAIT + "skip:\n"
    )
    end = "  s_barrier\n  ds_load_b32 v10, v5\n" + WAIT + OUT
    out = checked(only_first + atomic + end)[0]
    assert out[:64].tolist() == [64] * 64
    # A plain read in the same phase does race.
    text = race(only_first + atomic + end.replace("  s_barrier\n", ""))
    assert "ds_add_u32" in text
    assert "updates it" in text


def test_a_barrier_of_other_instructions_does_not_help() -> None:
    text = race("  ds_store_b32 v2, v1\n  s_barrier\n" + WAIT + "  ds_store_b32 v4, v1\n" + WAIT + "  v_mov_b32 v10, 0\n" + OUT)
    assert "no wait covers ds_store_b32" in text


# ---- global memory ------------------------------------------------------------------------------------------------------------------

THROUGH_MEMORY = "  global_store_b32 v2, v1, s[8:9]\n{between}  global_load_b32 v10, v4, s[8:9]\n  s_waitcnt vmcnt(0)\n"
END = "  global_store_b32 v2, v10, s[12:13]\n  s_endpgm\n"


def test_waves_exchange_through_global_memory() -> None:
    between = CLEAN + "  s_barrier\n  buffer_gl0_inv\n"
    out = checked(THROUGH_MEMORY.format(between=between) + END)[2]
    assert out[:64].tolist() == [i ^ 32 for i in range(64)]
    text = race(THROUGH_MEMORY.format(between=CLEAN + "  buffer_gl0_inv\n") + END)
    assert re.search(r"data race on byte 128 of 'a': wave 1 \(lane 0\) writes it with global_store_b32", text)
    text = race(THROUGH_MEMORY.format(between="  s_barrier\n  buffer_gl0_inv\n") + END)
    assert "no wait covers global_store_b32" in text


def test_a_cache_that_is_not_invalidated() -> None:
    for between in (CLEAN + "  s_barrier\n", CLEAN + "  buffer_gl0_inv\n  s_barrier\n"):
        text = race(THROUGH_MEMORY.format(between=between) + END)
        assert "the reader has not invalidated its cache since the barrier between them (buffer_gl0_inv)" in text
        # On one compute unit there is one cache.
        checked(THROUGH_MEMORY.format(between=between) + END, directives="  .amdhsa_workgroup_processor_mode 0")


def test_a_wave_sees_its_own_stores() -> None:
    checked("  global_store_b32 v2, v1, s[8:9]\n  global_load_b32 v10, v2, s[8:9]\n  s_waitcnt vmcnt(0)\n" + END)


def test_workgroups_are_never_ordered() -> None:
    assert checked("  v_mov_b32 v10, 7\n" + OUT, grid=1)[0][:64].tolist() == [7] * 64
    text = race("  v_mov_b32 v10, 7\n" + OUT, grid=2)
    assert re.search(
        r"data race on byte 0 of 'a': workgroup \(1, 0, 0\), wave 0, \(lane 0\) writes it with global_store_b32 at pc 0x(\w+), "
        r"workgroup \(0, 0, 0\), wave 0, writes it with global_store_b32 at pc 0x\1, and nothing but atomics orders workgroups",
        text,
    )


def test_reading_what_another_workgroup_writes() -> None:
    """Workgroup g writes element g and reads element 0."""
    body = """
      s_lshl_b32 s21, s2, 2
      v_mov_b32 v5, s21
      v_mov_b32 v6, 0
      global_store_b32 v5, v1, s[8:9]
      global_load_b32 v10, v6, s[8:9]
      s_waitcnt vmcnt(0)
      s_endpgm
    """
    checked(body, block=1)
    text = race(body, block=1, grid=3)
    assert "workgroup (1, 0, 0), wave 0, (lane 0) reads it with global_load_b32" in text
    assert "workgroup (0, 0, 0), wave 0, writes it with global_store_b32" in text
    # Two have read before one writes: the order of running doesn't matter.
    late = body.replace("s_lshl_b32 s21, s2, 2", "s_sub_u32 s21, 2, s2\n  s_lshl_b32 s21, s21, 2")
    text = race(late, block=1, grid=3)
    assert "workgroup (2, 0, 0), wave 0, (lane 0) writes it with global_store_b32" in text
    assert "reads it with global_load_b32" in text


def test_scalar_loads_of_what_is_written() -> None:
    body = "  v_mov_b32 v10, s2\n  s_load_b32 s21, s[8:9], 0x0\n" + WAIT + OUT
    text = race(body, grid=2)
    assert "s_load_b32" in text
    assert "data race on byte 0 of 'a'" in text


def test_atomics_order_workgroups() -> None:
    body = "  v_mov_b32 v5, 0\n  v_mov_b32 v6, 1\n  global_atomic_add_u32 v5, v6, s[8:9]\n  s_endpgm\n"
    assert checked(body, grid=5)[0][0] == 5 * 64
    text = race(body.replace("  s_endpgm", "  global_load_b32 v7, v5, s[8:9]\n  s_endpgm"), grid=2)
    assert "updates it with global_atomic_add_u32" in text


def test_stores_that_are_dropped_do_not_race() -> None:
    """Buffer stores past the end of a descriptor of 64 bytes."""
    body = """
      s_mov_b32 s24, s8
      s_mov_b32 s25, s9
      s_mov_b32 s26, {size}
      s_mov_b32 s27, 0x31027000
      v_mov_b32 v10, 7
      s_lshl_b32 s21, s2, 6
      v_add_nc_u32 v5, s21, v2
      buffer_store_b32 v10, v5, s[24:27], 0 offen
      s_endpgm
    """
    out = checked(body.format(size=64), block=32, grid=2)[0]
    assert out[:16].tolist() == [7] * 16
    assert "buffer_store_b32" in race(body.format(size=128), block=32, grid=2)


def test_read_only_buffers_cannot_race_and_overlapping_ones_share_records() -> None:
    code = build(HEAD + "  global_load_b32 v10, v2, s[10:11]\n  s_waitcnt vmcnt(0)\n" + OUT, lds=64)
    memory = np.zeros(512, np.uint32)
    # Written and read ranges are the same memory under two names.
    with pytest.raises(DataRaceError, match="data race on byte"):
        run(code, [memory[:64], memory[:64], memory], grid=(2, 1, 1), block=(64, 1, 1), check=True)


def test_merging_of_ranges() -> None:
    merge = session._merged  # pyright: ignore[reportPrivateUsage]
    assert merge([(10, 5), (0, 4), (12, 8), (20, 1), (13, 2)]) == [(0, 4), (10, 10), (20, 1)]
    assert merge([]) == []


def test_what_is_too_big_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LIMIT", 1 << 10)
    with pytest.raises(SimulatorError, match=r"takes up to 0 MiB of such arrays; .* launch with check=False"):
        checked("  v_mov_b32 v10, 7\n" + OUT)
    monkeypatch.undo()
    monkeypatch.setattr(session, "MAX_GROUPS", 3)
    with pytest.raises(SimulatorError, match="takes up to 3 workgroups a launch, not 4"):
        checked("  v_mov_b32 v10, 7\n" + OUT, grid=4)


def test_too_many_barriers_are_refused_rather_than_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = """
      s_mov_b32 s21, {count}
    loop:
      s_barrier
      s_sub_u32 s21, s21, 1
      s_cmp_lg_u32 s21, 0
      s_cbranch_scc1 loop
      v_mov_b32 v10, 0
    """
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")
    monkeypatch.setattr(records, "MAX_PHASE", 7)
    checked(loop.format(count=7) + OUT)
    with pytest.raises(SimulatorError, match="the checking mode counts up to"):
        checked(loop.format(count=9) + OUT)
