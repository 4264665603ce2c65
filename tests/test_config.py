"""Environment variables: defaults, what empty means, and errors that name the variable."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import config
from tessera.errors import ConfigError, SimulatorError, UnsupportedArchError
from tessera.runtime.simulator.scheduler import SLICE


@ts.jit
def double(x, y, N: ts.constexpr = 8):
    ts.store(y, 0, ts.load(x, 0, shape=N) * 2)


X, Y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)


@pytest.mark.parametrize(
    ("name", "read", "default", "lowest"),
    [
        ("TESSERA_SIM_THREADS", config.simulator_threads, 0, 0),
        ("TESSERA_SIM_MAX_INSTRUCTIONS", config.simulator_max_instructions, 10**9, 1),
    ],
)
def test_counts(monkeypatch: pytest.MonkeyPatch, name: str, read, default: int, lowest: int) -> None:
    monkeypatch.delenv(name, raising=False)
    assert read() == default
    for empty in ("", "  "):
        monkeypatch.setenv(name, empty)
        assert read() == default
    monkeypatch.setenv(name, "37")
    assert read() == 37
    for bad in ("abc", "-1", "1.5", str(lowest - 1)):
        monkeypatch.setenv(name, bad)
        with pytest.raises(ConfigError, match=rf"{name}='{bad}': it takes an integer of {lowest} or more; unset, it is {default:,}"):
            read()
        with pytest.raises(ValueError, match=name):  # ConfigError is one
            double[1](X, Y)


def test_an_empty_arch_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_ARCH", "")
    assert (config.default_arch(), config.arch_origin()) == ("gfx1151", "")
    assert double.compile(X, Y).artifact.arch == "gfx1151"
    monkeypatch.setenv("TESSERA_ARCH", "gfx1100")
    assert double.compile(X, Y).artifact.arch == "gfx1100"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TESSERA_ARCH", "nonsense", "TESSERA_ARCH=nonsense: there is no arch 'nonsense'"),
        ("TESSERA_ARCH", "gfx942", "TESSERA_ARCH=gfx942: gfx942 .CDNA3. is known but"),
        ("TESSERA_DEVICE", "sim:gfx9999", "TESSERA_DEVICE=sim:gfx9999: there is no arch 'gfx9999'"),
    ],
)
def test_an_arch_that_a_variable_asks_for_is_refused_in_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UnsupportedArchError, match=message):
        double[1](X, Y)
    with pytest.raises(UnsupportedArchError, match=message):
        double.compile(X, Y)
    with pytest.raises(UnsupportedArchError, match=r"^there is no arch 'gfx1'"):  # asked for by an argument
        double.compile(X, Y, arch="gfx1")


def test_a_dump_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    @ts.jit
    def triple(x, y):
        ts.store(y, 0, ts.load(x, 0, shape=8) * 3)

    monkeypatch.setenv("TESSERA_DUMP", str(file / "inside"))
    with pytest.raises(ConfigError, match=r"TESSERA_DUMP=.*inside: the stages of kernel 'triple' can't be written there"):
        triple.compile(X, Y)
    monkeypatch.setenv("TESSERA_DUMP", str(tmp_path / "new"))
    triple.compile(X, Y)
    assert len(list((tmp_path / "new").glob("triple.gfx1151.*/*"))) == 7


@ts.jit
def runs_away(x, n):
    i = x[0]
    while i < n:
        i = i * 1
    x[0] = i


@pytest.mark.parametrize("limit", [10, 1000, 300_000])
def test_a_small_cap_on_run_away_loops_holds_and_names_the_line(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setenv("TESSERA_SIM_MAX_INSTRUCTIONS", str(limit))
    with pytest.raises(SimulatorError, match=rf"the limit is {limit:,} \(TESSERA_SIM_MAX_INSTRUCTIONS raises it\)") as caught:
        runs_away[1](np.zeros(1, np.int64), 5)
    ran = int(re.findall(r"ran ([\d,]+) wave instructions", str(caught.value))[0].replace(",", ""))
    slack = 4 * 50 if limit < 1 << 16 else 4 * SLICE + 200  # a trip of each wave, or its slice
    assert limit < ran < limit + slack
    location = caught.value.location
    assert location is not None
    assert (location.file, location.function) == (__file__, "runs_away")
    assert location.line in range(runs_away.function.__code__.co_firstlineno + 2, runs_away.function.__code__.co_firstlineno + 5)
