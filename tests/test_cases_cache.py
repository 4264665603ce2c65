"""Reports from the field: caches and specialisation. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import both
import numpy as np
import pytest

import tessera as ts
from corpus.kernels import matmul
from tessera.errors import LaunchError

ROOT = Path(__file__).resolve().parent.parent


def script(text: str, folder: Path, **environment: str) -> str:
    """Run a Python file in a process of its own; returns what it prints."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**clean, "PYTHONPATH": str(ROOT), "TESSERA_CACHE_DIR": str(folder / "cache"), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SCALED = """
import numpy as np, tessera as ts
SCALE = {first}
@ts.jit
def k(x):
    x[0] = x[0] * SCALE
x = np.array([5.0]); k[1](x); print(int(x[0]))
SCALE = {second}
x = np.array([5.0]); k[1](x); print(int(x[0]))
"""


def test_jit_03_an_edited_global_is_noticed(tmp_path: Path) -> None:
    """triton-lang/triton#7322: in one process, and in the next with the same cache directory."""
    assert script(SCALED.format(first=2, second=3), tmp_path).split() == ["10", "15"]
    assert script(SCALED.format(first=3, second=2), tmp_path).split() == ["15", "10"]
    assert any((tmp_path / "cache").rglob("*"))


def test_jit_03_closures_and_defaults() -> None:
    """triton-lang/triton#7322: closure cells too."""
    factor = 2

    @ts.jit
    def k(x):
        x[0] = x[0] * factor

    found = []
    for factor in (2, 3, 3, 2):  # noqa: B007
        x = np.array([5.0])
        k[1](x)
        found.append(x[0])
    assert found == [10, 15, 15, 10]
    assert k.cache_info().compiles <= 3


def make(body: str, folder: Path, name: str):
    """`k`, defined in a module of its own."""
    import importlib.util

    path = folder / f"{name}.py"
    path.write_text(f"import tessera as ts\n@ts.jit\ndef k(x):\n    ts.store(x, 0, {body})\n")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.k


def test_jit_05_identity_is_content(tmp_path: Path) -> None:
    """ml-explore/mlx#4275: two kernels called `k`, in turn, in one process and one cache."""
    double, shifted = make("ts.load(x, 0, shape=4) * 2", tmp_path, "one"), make("ts.load(x, 0, shape=4) + 100", tmp_path, "two")
    for _ in range(3):
        first, second = np.arange(3), np.arange(3)
        double[1](first)
        shifted[1](second)
        assert (first.tolist(), second.tolist()) == ([0, 2, 4], [100, 101, 102])
    a, b = double.compile(first).artifact, shifted.compile(first).artifact
    assert a.kernel_name == b.kernel_name
    assert a.content_hash != b.content_hash


def test_jit_06_the_arch_is_in_the_key(tmp_path: Path) -> None:
    """vllm-project/vllm#41871: two arches are two entries, and code for one is refused on the other, from file too."""
    a, b, c = np.ones((16, 16), np.float16), np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)
    made = {arch: matmul.compile(a, b, c, BM=16, BN=16, BK=16, arch=arch).artifact for arch in ("gfx1100", "gfx1101", "gfx1151")}
    assert len({artifact.content_hash for artifact in made.values()}) == 3
    assert len({artifact.code_object for artifact in made.values()}) == 3
    for arch, artifact in made.items():
        artifact.save(tmp_path / f"{arch}.tsa")
        loaded = ts.runtime.load(tmp_path / f"{arch}.tsa")
        assert loaded.arch == arch
        c[...] = 0
        assert ts.runtime.launch(loaded, 1, (a, b, c)).arch == arch
        assert np.all(c == 16)
        for other in set(made) - {arch}:
            with pytest.raises(LaunchError, match=rf"compiled for {arch}, but device sim:{other}"):
                ts.runtime.launch(loaded, 1, (a, b, c), device=f"sim:{other}")


def test_jit_08_sizes_compile_nothing_anew() -> None:
    """AMD-AGI/Primus-Turbo#473: a hundred sizes, a handful of classes, every result right."""

    @ts.jit
    def scale(x, y, n, BLOCK: ts.constexpr = 16):
        i = ts.program_id(0)
        tile = ts.load(x, (i, 0), shape=(BLOCK, 16))
        ts.store(y, (i, 0), ts.where((i * BLOCK + ts.arange(BLOCK))[:, None] < n, tile * 2, 0))

    for m in range(1, 101):
        x = np.arange(m * 16, dtype=np.float32).reshape(m, 16)
        y = np.full((m, 16), -1, np.float32)
        scale[ts.cdiv(m, 16)](x, y, m - 1)
        assert np.all(y[:-1] == 2 * x[:-1])
        assert np.all(y[-1] == 0)
    assert scale.cache_info().compiles <= 3
    assert scale.cache_info().hits >= 97


def test_jit_08_a_storm_is_reported() -> None:
    """AMD-AGI/Primus-Turbo#473: what compiles again and again is named."""

    @ts.jit
    def storm(x, n: ts.constexpr):
        x[0] = n

    x = np.zeros(1, np.int64)

    def forty() -> None:
        for n in range(40):
            storm.compile(x, n)

    with pytest.warns(UserWarning, match="kernel 'storm' has been compiled 32 times"):
        forty()


REPEATED = """
import gc, numpy as np, tessera as ts
def define():
    @ts.jit
    def k(x, y):
        ts.store(y, 0, ts.load(x, 0, shape=64) + 1)
    return k
x = np.arange(50.0)
for _ in range(3):
    k = define()
    for _ in range(2):
        y = np.zeros(50)
        k[1](x, y)
        assert (y == x + 1).all()
        k.cache_clear()
    result = k.compile(x, y)
    del k
    gc.collect()
    y[:] = 0
    result[1](x, y)
    assert (y == x + 1).all()
    del result
    gc.collect()
print("fine")
"""


@pytest.mark.parametrize(
    "switches",
    [
        {"TESSERA_CACHE_DIR": ""},
        {"TESSERA_CACHE_DIR": "", "TESSERA_DEBUG": "1"},
        {"TESSERA_DEBUG": "1", "TESSERA_SIM_THREADS": "1", "TESSERA_DUMP": "dump"},
        {"TESSERA_DEVICE": "sim:gfx1100", "TESSERA_CACHE_DIR": "", "TESSERA_DUMP": "dump"},
        {"TESSERA_DEVICE": "reference"},
    ],
    ids=lambda s: "-".join(s),
)
def test_jit_09_every_switch_survives_repeated_calls(switches: dict[str, str], tmp_path: Path) -> None:
    """ROCm/FlyDSL#265: kernels called again, dropped and collected, without caches and with every debugging switch."""
    made = {name: str(tmp_path / value) if name == "TESSERA_DUMP" else value for name, value in switches.items()}
    assert script(REPEATED, tmp_path, **made) == "fine\n"
    if "TESSERA_DUMP" in made:
        assert any((tmp_path / "dump").rglob("*.ll"))


def test_jit_09_a_kernel_outlives_its_function() -> None:
    """ROCm/FlyDSL#265: compiled code is kept for as long as what launches it."""

    @ts.jit
    def k(x):
        x[0] += 1

    x = np.zeros(1)
    compiled = k.compile(x)
    del k
    gc.collect()
    for _ in range(3):
        both.launch(compiled, 1, x)
        gc.collect()
    assert x[0] == 3
