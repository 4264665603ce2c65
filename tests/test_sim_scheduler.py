"""Workgroups, waves, barriers, threads: what runs when, and what is reported when it can't go on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tessera.errors import DeadlockError, MemoryFaultError, SimulatorError
from tessera.runtime.simulator import engine, scheduler
from tests.sim_asm import IDS, POINTERS, build, run

WAVE = "v_lshrrev_b32 v5, 5, v1\ns_nop 0\nv_readfirstlane_b32 s14, v5\n"  # s14: number of the wave

# Each work-item writes LDS, then reads what the opposite one wrote, `rounds` times (the third argument).
EXCHANGE = (
    IDS
    + POINTERS
    + """
  s_load_b64 s[20:21], s[0:1], 0x8      ; work-items, rounds
  v_add_nc_u32 v11, 1, v1
  s_waitcnt lgkmcnt(0)
  s_mul_i32 s22, s2, 1000
  v_add_nc_u32 v11, s22, v11
  s_sub_i32 s23, s20, 1
  v_lshlrev_b32 v4, 2, v1
  v_sub_nc_u32 v5, s23, v1
  v_lshlrev_b32 v5, 2, v5
again:
  ds_store_b32 v4, v11
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_load_b32 v12, v5
  s_waitcnt lgkmcnt(0)
  v_mad_u32_u24 v11, v12, 3, v1
  v_and_b32 v11, 0xffff, v11
  s_barrier
  s_sub_i32 s21, s21, 1
  s_cmp_lg_u32 s21, 0
  s_cbranch_scc1 again
  v_mov_b32 v6, s2
  v_mad_u32_u24 v10, v6, s20, v1
  v_lshlrev_b32 v10, 2, v10
  global_store_b32 v10, v11, s[8:9]
  s_endpgm
"""
)


def exchanged(groups: int, items: int, rounds: int) -> np.ndarray[Any, np.dtype[Any]]:
    i = np.arange(items)
    value = 1000 * np.arange(groups)[:, None] + i + 1
    for _ in range(rounds):
        value = value[:, ::-1] * 3 + i & 0xFFFF
    return value


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("items", [32, 100, 256, 1024])
def test_waves_exchange_data_between_barriers(items: int, threads: int) -> None:
    groups, rounds = 9, 7
    a = np.zeros((groups, items), np.uint32)
    report = run(build(EXCHANGE, lds=4096), [a], [items, rounds], grid=(groups, 1, 1), block=(items, 1, 1), threads=threads)
    np.testing.assert_array_equal(a, exchanged(groups, items, rounds))
    waves = -(-items // 32) * groups
    assert report.counters.by_mnemonic["s_barrier"] == 2 * rounds * waves
    assert report.counters.lds_bytes_stored == 4 * rounds * items * groups


def test_more_work_than_one_thread_is_given_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "WORTH_WAKING", 0.0)
    groups, items = 300, 64
    a = np.zeros((groups, items), np.uint32)
    run(build(EXCHANGE, lds=4096), [a], [items, 3], grid=(groups, 1, 1), block=(items, 1, 1), threads=3)
    np.testing.assert_array_equal(a, exchanged(groups, items, 3))


def test_one_program_from_many_python_threads() -> None:
    program = engine.prepare(build(EXCHANGE, lds=4096))
    results = [np.zeros((4, 64), np.uint32) for _ in range(6)]

    def go(a: np.ndarray[Any, Any]) -> None:
        arguments = a.ctypes.data.to_bytes(8, "little") + (64).to_bytes(4, "little") + (5).to_bytes(4, "little")
        program.run((4, 1, 1), (64, 1, 1), arguments, [engine.Buffer("a", a.ctypes.data, a.nbytes)], threads=2)

    workers = [threading.Thread(target=go, args=(a,)) for a in results]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for a in results:
        np.testing.assert_array_equal(a, exchanged(4, 64, 5))


def test_registers_live_over_barriers_and_yields() -> None:
    """Each wave loops longer than a slice, with values in registers that only the end reads."""
    body = (
        IDS
        + POINTERS
        + WAVE
        + """
      v_mul_u32_u24 v20, 3, v1
      s_mul_i32 s20, s14, 7
      v_cmp_lt_u32 s22, 11, v1
      s_mov_b32 s21, 0
    again:
      s_add_i32 s21, s21, 1
      s_cmp_lt_u32 s21, 0x8000
      s_cbranch_scc1 again
      s_barrier
      v_cndmask_b32 v21, 0, 1, s22
      v_add_nc_u32 v11, s20, v20
      v_lshl_or_b32 v11, v21, 16, v11
      v_lshlrev_b32 v10, 2, v1
      global_store_b32 v10, v11, s[8:9]
      s_endpgm
    """
    )
    a = np.zeros(96, np.uint32)
    report = run(build(body), [a], block=(96, 1, 1))
    i = np.arange(96)
    np.testing.assert_array_equal(a, 3 * i + 7 * (i // 32) + ((i > 11).astype(int) << 16))
    assert report.counters.by_mnemonic["s_cmp_lt_u32"] == 3 * 0x8000


def test_dynamic_lds() -> None:
    body = IDS + POINTERS + "v_lshlrev_b32 v4, 2, v1\nds_store_b32 v4, v1 offset:512\nds_load_b32 v11, v4 offset:512\n"
    body += "s_waitcnt lgkmcnt(0)\nglobal_store_b32 v4, v11, s[8:9]\ns_endpgm"
    a = np.zeros(32, np.uint32)
    run(build(body, lds=64), [a], dynamic_lds=640)
    np.testing.assert_array_equal(a, np.arange(32))
    with pytest.raises(MemoryFaultError, match="LDS offset 576"):
        run(build(body, lds=64), [a], dynamic_lds=512)


def test_lds_and_registers_start_as_nan_patterns() -> None:
    body = IDS + POINTERS + "v_lshlrev_b32 v4, 2, v1\nds_load_b32 v11, v4\ns_waitcnt lgkmcnt(0)\n"
    body += "v_and_b32 v11, v11, v90\nglobal_store_b32 v4, v11, s[8:9]\nds_store_b32 v4, v4\ns_endpgm"
    a = np.zeros(32, np.uint32)
    run(build(body, lds=128), [a], grid=(5, 1, 1), threads=1)  # later workgroups find nothing of earlier ones
    assert (a == 0xFFFFFFFF).all()


# ---- workgroups that wait for one another -----------------------------------------------------------------------------------------------

# Workgroup g waits until a[0] = g, then adds one: backwards, so that the first to run has to wait for all others.
CHAIN = (
    IDS
    + POINTERS
    + """
  s_load_b32 s20, s[0:1], 0x8
  s_waitcnt lgkmcnt(0)
  s_sub_i32 s20, s20, s2
  v_mov_b32 v4, 0
  v_mov_b32 v6, 1
again:
  {pause}
  global_load_b32 v5, v4, s[8:9] glc
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s21, v5
  s_cmp_lg_u32 s21, s20
  s_cbranch_scc1 again
  s_mov_b32 exec_lo, 1
  global_atomic_add_u32 v4, v6, s[8:9]
  s_endpgm
"""
)


@pytest.mark.parametrize("pause", ["s_sleep 1", "s_nop 0"])
@pytest.mark.parametrize("threads", [1, 2])
def test_spin_loops_across_workgroups(pause: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_SIM_MAX_INSTRUCTIONS", str(10**9))
    groups = 12 if pause == "s_nop 0" else 50
    a = np.zeros(1, np.uint32)
    run(build(CHAIN.replace("{pause}", pause)), [a], [groups - 1], grid=(groups, 1, 1), threads=threads)
    assert a[0] == groups


def test_waves_of_a_workgroup_spin_on_lds() -> None:
    body = (
        IDS
        + POINTERS
        + WAVE
        + """
      v_mov_b32 v4, 0
      s_cmp_lg_u32 s14, 3
      s_cbranch_scc1 wait
      v_mov_b32 v11, 42
      ds_store_b32 v4, v11
      s_waitcnt lgkmcnt(0)
    wait:
      ds_load_b32 v12, v4
      s_waitcnt lgkmcnt(0)
      v_readfirstlane_b32 s20, v12
      s_cmp_lg_u32 s20, 42
      s_cbranch_scc1 wait
      v_lshlrev_b32 v10, 2, v1
      global_store_b32 v10, v12, s[8:9]
      s_endpgm
    """
    )
    a = np.zeros(128, np.uint32)
    run(build(body, lds=64), [a], block=(128, 1, 1))
    assert (a == 42).all()


# ---- what can't go on -------------------------------------------------------------------------------------------------------------------


def test_a_barrier_that_some_waves_never_reach_is_a_deadlock() -> None:
    body = IDS + WAVE + "s_cmp_gt_u32 s14, 1\ns_cbranch_scc1 end\ns_barrier\nend:\ns_endpgm"
    with pytest.raises(DeadlockError) as caught:
        run(build(body), [], grid=(3, 1, 1), block=(128, 1, 1), threads=1)
    text = caught.value.message
    assert "workgroup (0, 0, 0)" in text
    assert "waves 0, 1 waiting at the barrier at pc 0x" in text
    assert "waves 2, 3 ended" in text


def test_waiting_for_a_wave_that_never_ends_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_SIM_MAX_INSTRUCTIONS", "300000")
    body = IDS + WAVE + "s_cmp_gt_u32 s14, 0\ns_cbranch_scc1 wait\nagain:\ns_branch again\nwait:\ns_barrier\ns_endpgm"
    with pytest.raises(DeadlockError, match=r"wave 0 running at pc 0x[0-9a-f]+; waves 1, 2 waiting"):
        run(build(body), [], block=(96, 1, 1))


def test_an_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_SIM_MAX_INSTRUCTIONS", "1000000")
    for body in ("again:\ns_branch again", "again:\ns_barrier\ns_branch again", "again:\ns_sleep 3\ns_branch again"):
        with pytest.raises(SimulatorError, match="TESSERA_SIM_MAX_INSTRUCTIONS") as caught:
            run(build(body + "\ns_endpgm"), [], grid=(2, 1, 1), block=(64, 1, 1))
        assert not isinstance(caught.value, DeadlockError)
        assert "endless loop" in caught.value.message


def test_a_fault_stops_other_threads_and_names_its_workgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "WORTH_WAKING", 0.0)
    body = (
        IDS
        + POINTERS
        + """
      s_mul_i32 s20, s3, 5
      s_add_i32 s20, s20, s2
      s_cmp_lg_u32 s20, 13
      s_cselect_b32 s21, 0, 0x1000
      v_lshlrev_b32 v4, 2, v1
      v_add_nc_u32 v4, s21, v4
      global_load_b32 v11, v4, s[8:9]
    again:
      s_cmp_eq_u32 s20, 14               ; the one after it never ends
      s_cbranch_scc1 again
      s_endpgm
    """
    )
    with pytest.raises(MemoryFaultError, match=r"workgroup \(3, 2, 0\)"):
        run(build(body), [np.zeros(32, np.uint32)], grid=(5, 5, 1), threads=2)


def test_a_loop_stops_at_a_fault() -> None:
    body = IDS + POINTERS + "v_lshlrev_b32 v4, 2, v1\nagain:\nglobal_load_b32 v11, v4, s[8:9] offset:4\ns_branch again\ns_endpgm"
    with pytest.raises(MemoryFaultError, match="lane 31 reads"):
        run(build(body), [np.zeros(32, np.uint32)])
