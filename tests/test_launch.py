"""Launching: grids, devices, executors, and what happens where they don't fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import config, dtypes
from tessera.errors import DataRaceError, ExecutorUnavailableError, LaunchError, UnsupportedArchError
from tessera.runtime import device as device_module
from tessera.runtime import hip_api, registry
from tessera.runtime.artifact import ArrayParameter, Artifact, ScalarParameter, kernarg_layout
from tessera.runtime.device import Device, missing_gpu_hint, overridden_arch, override_note, parse_arch
from tessera.runtime.launch import check_grid, current_device, launch
from tessera.runtime.registry import LaunchRequest, LaunchResult, executors, find_executor, register_executor

# out[i] = i * n, one program an element; programs beyond the end write nothing.
COUNT = """\
kernel @count num_waves=1 weak=[n]
^(%out: array<i64,1,align=8>, %n: i64) {
  %0 = program_id axis=0 : i64
  %1 = mul %0 %n : i64
  %2 = splat %1 shape=(1,) : 1xi64
  store %out [%0] %2
  yield []
}
"""


def artifact(arch: str = "gfx1151", executor: str = "rocm_wmma", **changes: Any) -> Artifact:
    parameters, size = kernarg_layout([ArrayParameter("out", dtypes.int64, 1, 8), ScalarParameter("n", dtypes.int64, weak=True)])
    made = Artifact(b"\x7fELF", "count", "rocm", arch, "wmma", executor, parameters, size, 1, 32, 0, tile_ir=COUNT)
    return replace(made, **changes)


class Recorder:
    """An executor that notes what it is asked to run."""

    def __init__(self, kind: str, devices: list[Device], reason: str | None = None) -> None:
        self.kind, self._devices, self._reason = kind, devices, reason
        self.options = frozenset({"colour"})
        self.requests: list[LaunchRequest] = []

    def unavailable(self) -> str | None:
        return self._reason

    def devices(self) -> list[Device]:
        return self._devices

    def run(self, request: LaunchRequest) -> LaunchResult:
        self.requests.append(request)
        return LaunchResult(request, "recorder", seconds=0.5)


@pytest.fixture
def executors_in_place(monkeypatch: pytest.MonkeyPatch) -> dict[str, Recorder]:
    """rocm_wmma on two GPUs, rocm_mfma that isn't there, and a simulator; all recorders."""
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    monkeypatch.setattr(registry, "_instances", dict(registry._instances))
    gpus = [Device("hip", 0, "gfx1100", "Radeon"), Device("hip", 1, "gfx1151", "Strix Halo")]
    made = {
        "rocm_wmma": Recorder("hip", gpus),
        "rocm_mfma": Recorder("hip", [], "no GPU of that kind"),
        "rocm_sim": Recorder("sim", [Device("sim")]),
    }
    for name, executor in made.items():
        register_executor(name, lambda executor=executor: executor, replace=True)
    return made


# ---- grids -------------------------------------------------------------------------------------------------------------------------


def test_grids() -> None:
    block = (128, 1, 1)
    assert check_grid(5, block, "k") == (5, 1, 1)
    assert check_grid((5,), block, "k") == (5, 1, 1)
    assert check_grid([np.int32(5), 6], block, "k") == (5, 6, 1)
    assert check_grid((5, 6, 7), block, "k") == (5, 6, 7)
    assert check_grid((2, 0, 3), block, "k") == (2, 0, 3)
    top = (2**32 - 1) // 128
    assert check_grid((top, 65_535, 65_535), block, "k") == (top, 65_535, 65_535)
    with pytest.raises(LaunchError, match=f"grid axis x of kernel 'k' is {top + 1}; at most {top} fit"):
        check_grid(top + 1, block, "k")
    for axis, grid in (("y", (1, 65_536)), ("z", (1, 1, 65_536))):
        with pytest.raises(LaunchError, match=f"grid axis {axis} of kernel 'k' is 65536; at most 65535 fit"):
            check_grid(grid, block, "k")
    # The product is a multiple of 2**32: no axis may be taken for empty.
    assert check_grid((16_384, 16_384, 16), (32, 1, 1), "k") == (16_384, 16_384, 16)
    with pytest.raises(LaunchError, match="axis z"):
        check_grid((0, 1, 2**33), block, "k")
    with pytest.raises(LaunchError, match="axis y of kernel 'k' is -1"):
        check_grid((0, -1), block, "k")
    with pytest.raises(LaunchError, match="one to three axes"):
        check_grid((1, 1, 1, 1), block, "k")
    with pytest.raises(LaunchError, match="one to three axes"):
        check_grid((), block, "k")
    for bad in (1.0, "x", (1, 2.5), None):
        with pytest.raises(LaunchError, match="must be an integer or up to three"):
            check_grid(bad, block, "k")  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match=r"2048 threads per workgroup .*1024 is the limit"):
        check_grid(1, (2048, 1, 1), "k")


def test_an_empty_grid_runs_nothing_and_checks_everything() -> None:
    out = np.full(4, -1, np.int64)
    for grid in (0, (0,), (2, 0, 3)):
        result = launch(artifact(), grid, (out, 3), executor="reference")
        assert out.tolist() == [-1] * 4
        assert result.seconds == 0
    with pytest.raises(LaunchError, match="missing n"):
        launch(artifact(), 0, (out,), executor="reference")
    with pytest.raises(LaunchError, match="gfx1100"):
        launch(artifact("gfx1100"), 0, (out, 3), device="sim:gfx1151")
    launch(artifact(), 1, (out, 3), executor="reference")
    assert out.tolist() == [0, -1, -1, -1]


def test_a_refused_launch_leaves_no_trace() -> None:
    out = np.full(4, -1, np.int64)
    with pytest.raises(LaunchError, match="2048 threads"):
        launch(artifact(num_waves=64), 4, (out, 3), executor="reference")
    with pytest.raises(LaunchError, match="axis y"):
        launch(artifact(), (4, 70_000), (out, 3), executor="reference")
    assert out.tolist() == [-1] * 4
    launch(artifact(), 4, (out, 3), executor="reference")
    assert out.tolist() == [0, 3, 6, 9]


# ---- the reference executor -----------------------------------------------------------------------------------------------------------


def test_reference_executor() -> None:
    out = np.full(8, -1, np.int64)
    result = launch(artifact(), 3, {"n": 7, "out": out[::2]}, executor="reference")
    assert out.tolist() == [0, -1, 7, -1, 14, -1, -1, -1]
    assert (result.executor, str(result.device), result.arch, result.grid) == ("reference", "reference", "gfx1151", (3, 1, 1))
    assert result.seconds > 0
    assert "count on reference" in repr(result)
    assert launch(artifact(), 1, (out, 7), device="reference").executor == "reference"
    with pytest.raises(LaunchError, match="no Tile IR"):
        launch(artifact(tile_ir=""), 1, (out, 7), executor="reference")
    with pytest.raises(LaunchError, match="takes no option colour; it takes none"):
        launch(artifact(), 1, (out, 7), executor="reference", colour="red")


# ---- the choice of executor and device ------------------------------------------------------------------------------------------------


def test_default_choice(executors_in_place: dict[str, Recorder]) -> None:
    out = np.zeros(4, np.int64)
    result = launch(artifact("gfx1151"), 4, (out, 1), colour="red")
    assert str(result.device) == "hip:1"
    (request,) = executors_in_place["rocm_wmma"].requests
    assert (request.device.arch, request.grid, request.block, request.options) == ("gfx1151", (4, 1, 1), (32, 1, 1), {"colour": "red"})
    assert result.seconds == 0.5
    # No GPU of that arch: the simulator as that arch, never a GPU of another.
    result = launch(artifact("gfx1101"), 4, (out, 1))
    assert str(result.device) == "sim:gfx1101"
    assert len(executors_in_place["rocm_wmma"].requests) == 1
    assert str(launch(artifact("gfx942", "rocm_mfma"), 4, (out, 1)).device) == "sim:gfx942"
    assert current_device() == Device("hip", 0, "gfx1100", "Radeon")


def test_explicit_choice(executors_in_place: dict[str, Recorder]) -> None:
    out = np.zeros(4, np.int64)
    assert str(launch(artifact("gfx1151"), 4, (out, 1), executor="rocm_sim").device) == "sim:gfx1151"
    assert str(launch(artifact("gfx1151"), 4, (out, 1), device="sim").device) == "sim:gfx1151"
    assert str(launch(artifact("gfx1151"), 4, (out, 1), executor="rocm_wmma").device) == "hip:1"
    assert str(launch(artifact("gfx1100"), 4, (out, 1), device=Device("hip", 0)).device) == "hip:0"
    count = {name: len(executor.requests) for name, executor in executors_in_place.items()}

    def refused(kind: type[Exception], match: str, made: Artifact, **where: Any) -> None:
        with pytest.raises(kind, match=match):
            launch(made, 4, (out, 1), **where)

    refused(LaunchError, r"'count' is compiled for gfx1151, but device hip:0 \(device='hip:0'\) is gfx1100", artifact(), device="hip:0")
    refused(
        LaunchError,
        r"compiled for gfx1100, but device sim:gfx1151 \(device='sim:gfx1151'\) is gfx1151",
        artifact("gfx1100"),
        device="sim:gfx1151",
    )
    refused(LaunchError, r"there is no hip:7 \(device='hip:7'\); there is hip:0 \(gfx1100\), hip:1 \(gfx1151\)", artifact(), device="hip:7")
    refused(LaunchError, "executor 'rocm_wmma' has no such device", artifact("gfx1101"), executor="rocm_wmma")
    refused(LaunchError, r"runs on sim devices, not on hip:1", artifact(), executor="rocm_sim", device="hip:1")
    refused(
        ExecutorUnavailableError,
        r"'rocm_mfma' \(asked for by executor='rocm_mfma'\) is not available here: no GPU of that kind",
        artifact(),
        executor="rocm_mfma",
    )
    refused(
        ExecutorUnavailableError,
        "no executor 'cuda' is registered; there are reference, rocm_mfma, rocm_sim, rocm_wmma",
        artifact(),
        executor="cuda",
    )
    refused(LaunchError, "'tpu:0' is not a device; devices are hip:0", artifact(), device="tpu:0")
    assert count == {name: len(executor.requests) for name, executor in executors_in_place.items()}


def test_code_for_one_executor_is_refused_by_another(executors_in_place: dict[str, Recorder]) -> None:
    out = np.zeros(4, np.int64)
    register_executor("rocm_mfma", lambda: Recorder("hip", [Device("hip", 0, "gfx1151")]), replace=True)
    with pytest.raises(LaunchError, match="is for executor 'rocm_wmma', not 'rocm_mfma'"):
        launch(artifact(), 4, (out, 1), executor="rocm_mfma")


def test_the_device_of_the_process(executors_in_place: dict[str, Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    out = np.zeros(4, np.int64)
    monkeypatch.setenv("TESSERA_DEVICE", "hip:0")
    assert str(launch(artifact("gfx1100"), 4, (out, 1)).device) == "hip:0"
    assert current_device().arch == "gfx1100"
    with pytest.raises(LaunchError, match=r"compiled for gfx1151, but device hip:0 \(TESSERA_DEVICE=hip:0\) is gfx1100"):
        launch(artifact("gfx1151"), 4, (out, 1))
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
    with pytest.raises(LaunchError, match=r"is gfx1100; HSA_OVERRIDE_GFX_VERSION=11\.0\.0 makes ROCm take every GPU for gfx1100"):
        launch(artifact("gfx1151"), 4, (out, 1))
    assert launch(artifact("gfx1151"), 4, (out, 1), executor="reference").executor == "reference"
    assert str(launch(artifact("gfx1151"), 4, (out, 1), device="hip:1").device) == "hip:1"
    with pytest.raises(ExecutorUnavailableError, match="asked for by TESSERA_DEVICE=hip:0"):
        launch(artifact("gfx942", "rocm_mfma"), 4, (out, 1))
    monkeypatch.setenv("TESSERA_DEVICE", "sim:gfx1102")
    assert current_device() == Device("sim", arch="gfx1102")
    with pytest.raises(LaunchError, match=r"but device sim:gfx1102 \(TESSERA_DEVICE=sim:gfx1102\) is gfx1102$"):
        launch(artifact("gfx1151"), 4, (out, 1))
    monkeypatch.setenv("TESSERA_DEVICE", "sim")
    assert current_device() == Device("sim", arch=config.default_arch())
    monkeypatch.setenv("TESSERA_DEVICE", "hip:9")
    with pytest.raises(LaunchError, match=r"there is no hip:9 \(TESSERA_DEVICE=hip:9\)"):
        current_device()


def test_registration(executors_in_place: dict[str, Recorder]) -> None:
    mine = Recorder("mine", [Device("mine")])
    register_executor("mine", lambda: mine)
    with pytest.raises(ValueError, match="registered already"):
        register_executor("mine", lambda: mine)
    assert executors() == {"rocm_wmma": None, "rocm_mfma": "no GPU of that kind", "rocm_sim": None, "reference": None, "mine": None}
    assert launch(artifact(), 1, (np.zeros(1, np.int64), 1), executor="mine").executor == "recorder"
    assert find_executor("mine") is mine


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is given, with a hint under WSL; nothing is decided by files in /dev."""
    monkeypatch.setattr(hip_api, "_found", hip_api._Found(reason="no GPU at all"))
    with pytest.raises(ExecutorUnavailableError, match=r"'rocm_wmma' .*not available here: no GPU at all"):
        launch(artifact(), 1, (np.zeros(1, np.int64), 1), executor="rocm_wmma")
    monkeypatch.setenv("TESSERA_DEVICE", "hip:0")
    with pytest.raises(ExecutorUnavailableError, match=r"TESSERA_DEVICE=hip:0.*no GPU at all"):
        current_device()
    monkeypatch.delenv("TESSERA_DEVICE")
    assert current_device() == Device("sim", arch="gfx1151")


# ---- names and the environment --------------------------------------------------------------------------------------------------------


def test_device_names() -> None:
    for text, expected in {
        "hip:0": Device("hip", 0),
        "hip": Device("hip", 0),
        "hip:12": Device("hip", 12),
        "sim:gfx1151": Device("sim", arch="gfx1151"),
        "sim": Device("sim"),
        "reference": Device("reference"),
    }.items():
        assert Device.parse(text) == expected
    assert [str(Device.parse(text)) for text in ("hip", "hip:3", "sim:gfx90a", "sim", "reference")] == [
        "hip:0",
        "hip:3",
        "sim:gfx90a",
        "sim",
        "reference",
    ]
    for bad in ("", "hip:", "hip:x", "hip:-1", "cuda:0", "reference:1", "sim:"):
        with pytest.raises(LaunchError, match="is not a device"):
            Device.parse(bad)
    with pytest.raises(UnsupportedArchError):
        Device.parse("sim:sm_90")


def test_arch_names() -> None:
    assert parse_arch("gfx942:sramecc+:xnack-") == ("gfx942", ("sramecc+", "xnack-"))
    for name in ("gfx90a", "gfx1250", "gfx1151", "gfx11-generic", "gfx9-4-generic"):
        assert parse_arch(name) == (name, ())
    for bad in ("sm_90", "", "gfx", "1151", "gfx1151:", "gfx1151:xnack", "GFX1151", "gfx1151 x"):
        with pytest.raises(UnsupportedArchError, match=re.escape(repr(bad))):
            parse_arch(bad)


def test_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"11.0.0": "gfx1100", "11.5.1": "gfx1151", "12.0.1": "gfx1201", "9.4.2": "gfx942", "9.0.10": "gfx90a"}
    assert {version: overridden_arch(version) for version in known} == known
    monkeypatch.delenv("HSA_OVERRIDE_GFX_VERSION", raising=False)
    assert override_note() == ""
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "gfx1100")
    assert "is not three numbers" in override_note()


def test_wsl_hints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "_DEV", tmp_path)
    assert missing_gpu_hint() == ""
    (tmp_path / "dxg").touch()
    assert "set HSA_ENABLE_DXG_DETECTION=1" in missing_gpu_hint()
    monkeypatch.setenv("HSA_ENABLE_DXG_DETECTION", "1")
    assert "HSA_ENABLE_DXG_DETECTION is set" in missing_gpu_hint()
    (tmp_path / "kfd").touch()
    assert missing_gpu_hint() == ""


def test_what_isnt_an_artifact() -> None:
    with pytest.raises(LaunchError, match=r"read a file with tessera\.runtime\.load"):
        launch("kernel.tsa", 1)
    with pytest.raises(LaunchError, match="takes an Artifact, or a code object from simulator"):
        launch(3, 1)
    with pytest.raises(LaunchError, match="holds kernel 'count', not 'other'"):
        launch(artifact(), 1, kernel="other")
    with pytest.raises(LaunchError, match=r"workgroups of \(32, 1, 1\) threads, not 64"):
        launch(artifact(), 1, (np.zeros(1, np.int64), 1), block=64, executor="reference")


# ---- what users write at first ----------------------------------------------------------------------------------------------------


@ts.jit
def everyone_writes(x, y):
    t = ts.load(x, 0, shape=8)
    ts.store(y, 0, t + 1)  # every program, the same elements


def test_launch_takes_a_compiled_kernel_but_no_kernel() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    compiled = everyone_writes.compile(x, y)
    assert launch(compiled, 1, (x, y)).executor == "rocm_sim"
    assert (y == x + 1).all()
    with pytest.raises(LaunchError, match=r"takes what was compiled, not a kernel: write kernel\[grid\]\(…\), or launch\(kernel.compile"):
        launch(everyone_writes, 1, (x, y))


def test_options_of_another_executor_are_pointed_at() -> None:
    x = np.zeros(8, np.float32)
    compiled = everyone_writes.compile(x, x)
    with pytest.raises(LaunchError, match=r"'reference' takes no option check, counters; it takes none; executor='rocm_sim' does"):
        launch(compiled, 1, (x, x), executor="reference", check=True, counters=True)
    with pytest.raises(LaunchError, match=r"takes no option stream; .*; executor='rocm_wmma' does"):
        launch(compiled, 1, (x, x), executor="rocm_sim", stream=0)
    for threads in (0, -1, "two"):
        with pytest.raises(LaunchError, match=f"threads={threads!r}: the simulator takes 1 thread or more"):
            launch(compiled, 1, (x, x), executor="rocm_sim", threads=threads)


def test_a_race_of_programs_shows_its_statement_and_what_to_do() -> None:
    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(DataRaceError, match="give each program elements of its own, and combine them in a second kernel") as caught:
        launch(everyone_writes.compile(x, y), 2, (x, y), check=True)
    location = caught.value.location
    assert location is not None
    assert (location.file, location.function) == (__file__, "everyone_writes")
    assert str(caught.value).endswith("    |     " + "^" * len("ts.store(y, 0, t + 1)"))


@pytest.mark.parametrize("quote", ["'", '"'])
def test_what_hip_python_says_of_the_loader_is_shown_as_text(quote: str) -> None:
    raw = f"failed to dlopen 'b'libamdhip64.so'': b{quote}libamdhip64.so: cannot open shared object file{quote}"
    assert hip_api._plain(raw) == "failed to dlopen 'libamdhip64.so': libamdhip64.so: cannot open shared object file"
    assert hip_api._plain("no such symbol: hipInit") == "no such symbol: hipInit"
