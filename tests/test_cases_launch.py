"""Reports from the field: grids, the launch ABI, arches, WSL. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import both
import numpy as np
import pytest

import tessera as ts
from tessera.errors import LaunchError, ResourceError, TesseraError, UnsupportedArchError
from tessera.jit import JitFunction
from tessera.runtime import device as device_module


@ts.jit
def count_programs(out):
    out[ts.program_id(0), ts.program_id(1), ts.program_id(2)] = 1 + ts.num_programs(0) * 100


def test_bnd_16_an_empty_grid_is_a_success() -> None:
    """tracel-ai/cubecl#1349: nothing runs, arguments are checked all the same, and the next launch works."""
    out = np.zeros((2, 3, 4), np.int32)
    for grid in ((0,), (2, 0, 3), (0, 0, 0), (2, 3, 0)):
        result = count_programs[grid](out)
        assert result.grid == (*grid, 1, 1)[:3]
        assert not out.any()
        with pytest.raises(LaunchError, match=r"misses 'out'"):
            count_programs[grid]()
        compiled = count_programs.compile(out)
        with pytest.raises(LaunchError, match="float64"):
            ts.runtime.launch(compiled.artifact, grid, (np.zeros((2, 3, 4)),))
    count_programs[1](out)
    assert (out.sum(), out[0, 0, 0]) == (101, 101)


def test_grd_01_no_grid_is_skipped() -> None:
    """triton-lang/triton#7260: a product of 2**32 isn't an empty grid. Each axis is checked by itself, and named."""
    out = np.zeros((2, 3, 4), np.int32)
    compiled = count_programs.compile(out)
    for grid, axis in (
        ((16384, 16384, 65536), "z"),
        ((1, 65536), "y"),
        ((2**32,), "x"),
        ((2**26,), "x"),
        ((2**64,), "x"),
        ((1, 2**32), "y"),
    ):
        with pytest.raises(LaunchError, match=rf"grid axis {axis} of kernel 'count_programs' is \d+; at most \d+ fit"):
            ts.runtime.launch(compiled.artifact, grid, (out,))
        assert not out.any()
    with pytest.raises(LaunchError, match="negative"):
        count_programs[-1](out)
    assert 16384 * 16384 * 16 % 2**32 == 0


@ts.jit
def touch(out):
    if ts.program_id(0) + ts.program_id(1) + ts.program_id(2) == 0:
        out[0] += 1
    if (ts.program_id(0) == 255) & (ts.program_id(1) == 255) & (ts.program_id(2) == 7):
        out[1] += 1


def test_grd_01_a_large_grid_runs_whole() -> None:
    """triton-lang/triton#7260: half a million programs over three axes, the first and the last among them."""
    out = np.zeros(2, np.int32)
    touch[256, 256, 8](out)
    assert out.tolist() == [1, 1]


def test_grd_04_a_refused_launch_raises_and_writes_nothing() -> None:
    """iree-org/iree#21509: the error names kernel and grid; what can't run is refused while compiling or launching."""
    out = np.full((2, 3, 4), 7, np.int32)
    with pytest.raises(LaunchError) as caught:
        count_programs[2**27](out)
    assert "count_programs" in str(caught.value)
    assert str(2**27) in str(caught.value)
    assert np.all(out == 7)
    for waves in (33, 64, 0, -1):
        with pytest.raises(TypeError, match=f"num_waves is {waves}"):
            ts.jit(num_waves=waves)(count_programs.function)

    @ts.jit
    def too_much(a, c):
        x = ts.load(a, (0, 0), shape=(256, 256))
        ts.store(c, (0, 0), ts.dot(x, x, ts.zeros((256, 256), ts.float32)))

    square = np.full((256, 256), 7, np.float32)
    with pytest.raises(ResourceError, match="LDS"):
        too_much[1](square.astype(np.float16), square)
    assert np.all(square == 7)


def test_grd_05_an_error_is_over_when_it_was_caught() -> None:
    """ROCm/triton#943: the launch after a refused one works. (On HIP: tests/test_hip.py::test_every_status_is_checked.)"""
    out = np.zeros((2, 3, 4), np.int32)
    for bad in (lambda: count_programs[2**27](out), lambda: count_programs[1, 70000](out), lambda: count_programs[1](np.zeros(3))):
        with pytest.raises(TesseraError):
            bad()
        out[...] = 0
        count_programs[2, 3, 4](out)
        assert np.all(out == 201)


PARAMETERS = {
    "a": (np.int8(-5), 1), "b": (-(2**40) - 1, 8), "c": (np.int32(-70000), 4), "d": (np.int16(-300), 2), "e": (0.1, 8), "f": (True, 1),
    "g": (np.uint16(65535), 2), "h": (np.float32(1.5), 4), "i": (np.float16(-2.25), 2),
}  # fmt: skip


def kernel_of(order: list[str], folder: Path) -> JitFunction:
    """A kernel with parameters in this order (`p` is an array), which writes each scalar back."""
    body = "".join(f"    p[{k}] = ts.astype({name}, ts.float64)\n" for k, name in enumerate(n for n in sorted(order) if n != "p"))
    path = folder / f"order_{''.join(order)}.py"
    path.write_text(f"import tessera as ts\n@ts.jit\ndef written_back({', '.join(order)}):\n{body}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.written_back


def test_drv_01_every_argument_at_its_alignment(tmp_path: Path) -> None:
    """ROCm/hip#1974: mixed sizes in any order; offsets are those of the kernel metadata, and every value arrives."""
    orders = [list("abcpdef")]
    rng = random.Random(11)
    for _ in range(5):
        orders.append(rng.sample(["p", *PARAMETERS], 10))
    for order in orders:
        p = np.full(9, -99.0)
        args = [p if name == "p" else PARAMETERS[name][0] for name in order]
        compiled = both.run(kernel_of(order, tmp_path), 1, *args)
        scalars = [n for n in sorted(order) if n != "p"]
        assert p[: len(scalars)].tolist() == [float(PARAMETERS[n][0]) for n in scalars]
        at, offsets = 0, []
        for name in order:
            size, extra = (8, 16) if name == "p" else (PARAMETERS[name][1], 0)
            at = -(-at // size) * size
            offsets.append(at)
            at += size + extra
        assert [parameter.offset for parameter in compiled.artifact.parameters] == offsets
        assert compiled.artifact.kernarg_size >= at


def test_drv_01_the_offsets_of_the_report() -> None:
    """ROCm/hip#1974: bool, bytes and doubles between pointers (whose arrays also have an extent and a stride here)."""
    sizes = [1, 8, 4, 8, 2, 8, 1]
    at, offsets = 0, []
    for size in sizes:
        at = -(-at // size) * size
        offsets.append(at)
        at += size
    assert (offsets, at) == ([0, 8, 16, 24, 32, 40, 48], 49)


def test_drv_04_the_override_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """1bit-MONSTER#251: what a number means is said; the simulator and what is compiled don't follow it."""
    known = {"11.0.0": "gfx1100", "11.5.1": "gfx1151", "12.0.1": "gfx1201", "9.4.2": "gfx942", "9.0.10": "gfx90a"}
    for version, arch in known.items():
        monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", version)
        assert device_module.overridden_arch(version) == arch
        assert f"HSA_OVERRIDE_GFX_VERSION={version} makes ROCm take every GPU for {arch}" in device_module.override_note()
        out = np.zeros((1, 1, 1), np.int32)
        assert count_programs[1](out).arch == "gfx1151"
        assert out[0, 0, 0] == 101


def test_drv_05_wsl_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """unslothai/unsloth#9729: /dev/dxg without /dev/kfd gives a hint in the error, and decides nothing."""
    monkeypatch.setattr(device_module, "_DEV", tmp_path)
    (tmp_path / "dxg").touch()
    assert "set HSA_ENABLE_DXG_DETECTION=1" in device_module.missing_gpu_hint()
    (tmp_path / "kfd").touch()
    assert device_module.missing_gpu_hint() == ""


def test_drv_07_arches_are_names() -> None:
    """jax-ml/jax#34689: "gfx90a" and "gfx942:sramecc+:xnack-" are names with features; others are refused by name."""
    out = np.zeros((1, 1, 1), np.int32)
    for name in ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"):
        assert count_programs.compile(out, arch=name).artifact.arch == name
    for name in (
        "gfx90a",
        "gfx942",
        "gfx942:sramecc+:xnack-",
        "gfx1250",
        "gfx1201",
        "gfx11-generic",
        "sm_90",
        "",
        "gfx9999",
        "1151",
        "gfx115",
    ):
        with pytest.raises(UnsupportedArchError) as caught:
            count_programs.compile(out, arch=name)
        assert name.split(":")[0] in str(caught.value)
        assert "gfx1151" in str(caught.value)


def test_launching_for_each_arch_gives_the_same() -> None:
    """The eight arches of this version, through one kernel compiled for each."""
    for name in ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"):
        out = np.zeros((2, 3, 4), np.int32)
        both.run(count_programs, (2, 3, 4), out, arch=name)
        assert np.all(out == 201)
