"""Specialisation, the cache, ahead-of-time compilation, and launching through the decorator."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import threading
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.errors import (
    ArtifactError,
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    LaunchError,
    TesseraWarning,
    UnsupportedArchError,
    UnsupportedDtypeError,
)


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are evaluated by the reference executor, which needs no host code to be compiled."""
    monkeypatch.setenv("TESSERA_DEVICE", "reference")
    monkeypatch.delenv("TESSERA_ARCH", raising=False)


def add(x, y, out, n):
    i = ts.program_id(0)
    ts.store(out, i, (ts.load(x, i, shape=16) + ts.load(y, i, shape=16) * n).astype(out.dtype))


def vectors(count: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.arange(count, dtype=np.float32), np.arange(count, dtype=np.float32)[::-1] * 100, np.zeros(count, np.float32)


def module_from(path: Path, text: str) -> types.ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- launching ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["reference", "sim:gfx1151", "sim"])
def test_launch(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_DEVICE", device)
    kernel = ts.jit(add)
    x, y, out = vectors()
    result = kernel[ts.cdiv(40, 16)](x, y, out, 3)
    np.testing.assert_array_equal(out, x + y * 3)
    assert result.executor == ("reference" if device == "reference" else "rocm_sim")
    assert result.grid == (3, 1, 1)


@pytest.mark.parametrize("num_waves", [1, 2, 4, 8])
def test_run_time_trip_counts_on_the_simulator(num_waves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_DEVICE", "sim:gfx1151")

    def sums(x, out, n):
        for t in range(n):
            out[0] += ts.sum(ts.load(x, t, shape=8))

    def down(x, out, start, stop, step):
        total = 0
        i = -1
        for i in range(start, stop, step):
            total += x[i]
        out[0] = total
        out[1] = i

    def fixed(x, out, N: ts.constexpr):
        for t in range(N):
            out[0] += ts.sum(ts.load(x, t, shape=8))

    x = np.arange(512.0)
    waves = ts.jit(num_waves=num_waves)
    run, constant, back = waves(sums), waves(fixed), waves(down)
    for n in (0, 1, 2, 63, 64):
        out = np.zeros(2)
        run[1](x, out, n)
        assert out[0] == x[: 8 * n].sum()
        again = np.zeros(2)
        constant[1](x, again, n)
        assert again[0] == out[0]
    for bounds in ((45, -1, -5), (5, 10, -3), (10, 1, -3), (0, 7, 3)):
        out = np.zeros(2)
        back[1](x + 1, out, *bounds)
        assert out.tolist() == [sum(i + 1 for i in range(*bounds)), [-1, *range(*bounds)][-1]]


def test_the_decorator_with_and_without_options() -> None:
    for kernel in (ts.jit(add), ts.jit()(add), ts.jit(target="rocm", num_waves=2)(add)):
        x, y, out = vectors()
        kernel[3](x, y, n=2.5, out=out)
        np.testing.assert_array_equal(out, x + y * np.float32(2.5))
        assert kernel.__name__ == "add"
        assert kernel.__wrapped__ is add


def test_arguments_that_may_be_absent() -> None:
    @ts.jit
    def kernel(x, out, bias=None, n=2):
        tile = ts.load(x, 0, shape=16) * n
        if bias is not None:
            tile = tile + ts.load(bias, 0, shape=16)
        ts.store(out, 0, tile)

    x, y, out = vectors(16)
    kernel[1](x, out)
    np.testing.assert_array_equal(out, x * 2)
    kernel[1](x, out, y, n=3)
    np.testing.assert_array_equal(out, x * 3 + y)
    assert [p.name for p in kernel.compile(x, out).artifact.parameters] == ["x", "out", "n"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, x: k[1](x), "kernel 'add' misses 'y', 'out', 'n'; it takes x, y, out, n"),
        (lambda k, x: k[1](x, x, x, 1, 2), "kernel 'add' takes 4 positional arguments, and 5 were given"),
        (lambda k, x: k[1](x, x, x, m=1), "kernel 'add' has no parameter 'm'; it has x, y, out, n"),
        (lambda k, x: k[1](x, x, x, 1, x=x), "kernel 'add' got two values for 'x'"),
        (lambda k, x: k[1](x, x, x, "three"), r"argument 'n' of kernel 'add' is 'three' \(str\); .* n: ts.constexpr"),
        (lambda k, x: k[1](x, x.astype(">f4"), x, 1), "argument 'y' of kernel 'add': the array has the other byte order"),
        (lambda k, x: k[-1](x, x, x.copy(), 1), "grid axis x of kernel 'add' is -1"),
        (lambda k, x: k[1.5](x, x, x.copy(), 1), "the grid of kernel 'add' must be an integer"),
        (lambda k, x: k[1](x, x, x.copy(), 2**63), "does not fit int64"),
    ],
)
def test_arguments_that_do_not_fit(call: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        call(ts.jit(add), vectors()[0])


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [("complex64", "it has bool, int8"), ("float8_e4m3fn", r"a\.astype\(np\.float16\)"), ("float8_e5m2fnuz", "float16"), ("int4", "int8")],
)
def test_dtypes_that_there_are_not(dtype: str, advice: str) -> None:
    x = vectors()[0]
    y = x.astype(getattr(ml_dtypes, dtype, dtype))
    with pytest.raises(UnsupportedDtypeError, match=f"argument 'y' of kernel 'add': Tessera has no dtype for NumPy's {dtype}.*{advice}"):
        ts.jit(add)[1](x, y, x.copy(), 1)
    compiled = ts.jit(add).compile(x, x, x.copy(), 1)
    with pytest.raises(LaunchError, match=f"argument 'y' .* no dtype for NumPy's {dtype}"):
        ts.runtime.launch(compiled.artifact, 1, (x, y, x.copy(), 1))


def test_a_kernel_is_launched_over_a_grid() -> None:
    with pytest.raises(KernelError, match=r"add\[grid\]"):
        ts.jit(add)(*vectors(), 1)


def test_what_cannot_be_a_kernel() -> None:
    with pytest.raises(KernelSyntaxError, match="can't be a lambda"):
        ts.jit(lambda x: x)
    with pytest.raises(KernelTypeError, match="decorates functions"):
        ts.jit(print)
    with pytest.raises(KernelSyntaxError, match=r"\*args"):

        @ts.jit
        def variadic(*arrays):
            pass


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_warps": 4}, KernelTypeError, "no option 'num_warps'; it has target, num_waves, fp_contract, optimize, codegen"),
        ({"target": "cuda"}, UnsupportedArchError, "no target 'cuda'; there is 'rocm'"),
        ({"num_waves": 0}, KernelTypeError, "num_waves is 0"),
        ({"num_waves": True}, KernelTypeError, "num_waves is True"),
        ({"optimize": 4}, KernelTypeError, "optimize is 4; the levels are 0 to 3"),
        ({"fp_contract": 1}, KernelTypeError, "fp_contract is 1; it is True or False"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ts.jit(**options)


# ---- what compiles anew ------------------------------------------------------------------------------------------------------------


def test_integers_never_compile_anew() -> None:
    kernel = ts.jit(add)
    base = np.arange(200, dtype=np.float32)
    for n in range(1, 60):
        x, out = base[:n], np.zeros(n, np.float32)
        kernel[ts.cdiv(n, 16)](x, x, out, n)
        np.testing.assert_array_equal(out, x + x * n)
    info = kernel.cache_info()
    assert info.compiles == info.size
    assert info.compiles <= 3
    assert info.hits == 59 - info.compiles


def test_scalars_specialise_on_their_type_alone() -> None:
    kernel = ts.jit(add)
    x, y, out = vectors()
    for n in (1, -5, 2**40, True, 2.5, float("nan"), np.int32(2), np.int32(9), np.float16(1.5)):
        kernel[3](x, y, out, n)
    assert kernel.cache_info().compiles == 5  # int, bool, float, int32, float16


def test_constexprs_compile_anew_by_type_and_value() -> None:
    @ts.jit
    def kernel(out, V: ts.constexpr):
        ts.store(out, 0, ts.full(4, V, ts.float32))

    out = np.zeros(4, np.float32)
    for value in (1, 1.0, np.float32(1), 0.0, -0.0, 1, 1.0, float("nan"), float("nan")):
        kernel[1](out, value)
        np.testing.assert_array_equal(out, np.float32(value))
        assert np.signbit(out).all() == np.signbit(np.float32(value))
    assert kernel.cache_info().compiles == 6


def test_constexprs_of_other_kinds() -> None:
    @ts.jit
    def kernel(x, out, f: ts.constexpr, shape: ts.constexpr = (16,), dtype: ts.constexpr = ts.float32, mode: ts.constexpr = "plain"):
        tile = f(ts.load(x, 0, shape=shape))
        assert mode in ("plain", "other")
        ts.store(out, 0, tile.astype(dtype))

    def double(t):
        return t + t

    x, _, out = vectors(16)
    kernel[1](x, out, double)
    np.testing.assert_array_equal(out, 2 * x)
    kernel[1](x, out, lambda t: -t, mode="other")
    np.testing.assert_array_equal(out, -x)
    kernel[1](x, out, ts.abs, (8,), np.float32)
    with pytest.raises(LaunchError, match="constexpr 'shape' of kernel 'kernel' is an array"):
        kernel[1](x, out, double, np.array([16]))


def test_array_classes() -> None:
    kernel = ts.jit(add)
    whole = np.arange(400, dtype=np.float32)
    out = np.zeros(32, np.float32)
    expected = {}
    for name, x in {
        "aligned": whole[:32], "also aligned": whole[64:96], "by 4 bytes": whole[1:33], "strided": whole[:64:2], "reversed": whole[31::-1],
        "broadcast": np.broadcast_to(whole[7], 32),
    }.items():  # fmt: skip
        before = kernel.cache_info().compiles
        kernel[2](x, whole[320:352], out, 2)
        np.testing.assert_array_equal(out, x + whole[320:352] * 2)
        expected[name] = kernel.cache_info().compiles - before
    assert expected["aligned"] == 1
    assert expected["also aligned"] == 0
    assert expected["by 4 bytes"] == expected["strided"] == 1
    classes = {(p.align, p.contiguous) for p in [kernel.compile(whole[1:33], whole, out, 2).artifact.parameters[0]]}
    assert classes == {(4, 0)}


def test_overlapping_arguments_are_a_class_of_their_own() -> None:
    @ts.jit
    def accumulate(x, y):
        i = ts.program_id(0)
        ts.store(x, i, ts.load(x, i, shape=16) + ts.load(y, i, shape=16))

    x, y, _ = vectors()
    expected = x + y
    accumulate[3](x, y)
    np.testing.assert_array_equal(x, expected)
    accumulate[3](x, x)
    np.testing.assert_array_equal(x, 2 * expected)
    accumulate[2](x[:30], x[10:])
    assert accumulate.cache_info().compiles == 3  # the last one is less aligned
    apart, same = accumulate.compile(x, y), accumulate.compile(x, x)
    assert [p.disjoint for p in apart.artifact.parameters] == [True, True]
    assert [p.disjoint for p in same.artifact.parameters] == [False, False]
    with pytest.raises(LaunchError, match="overlap"):
        apart[3](x, x)
    # Two that are only read may be one.
    kernel = ts.jit(add)
    out = np.zeros_like(x)
    kernel[3](x, y, out, 1)
    kernel[3](x, x, out, 1)
    assert kernel.cache_info().compiles == 1


def test_a_parameter_knows_whether_it_is_read_and_written() -> None:
    @ts.jit
    def kernel(x, y, z, n):
        if n > 0:
            ts.store(y, 0, ts.load(x, 0, shape=4) * z.shape[0])

    x = np.zeros(4, np.float32)
    found = kernel.compile(x, x.copy(), x.copy(), 1).artifact.parameters
    assert [(p.reads, p.writes) for p in found[:3]] == [(True, False), (False, True), (False, False)]


# ---- what is captured ---------------------------------------------------------------------------------------------------------------

SCALE = 2
TABLE = [1, 2]


@dataclass
class Config:
    factor: int = 2
    unused: int = 0


CONFIG = Config()


def helper(x):
    return x * SCALE


@ts.jit
def captures_global(x, out):
    ts.store(out, 0, helper(ts.load(x, 0, shape=16)))


def test_a_changed_global_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, out = vectors(16)
    for scale in (2, 3, 3, 2, 2.0, True):
        monkeypatch.setitem(globals(), "SCALE", scale)
        captures_global[1](x, out)
        np.testing.assert_array_equal(out, x * scale)
    assert captures_global.cache_info().compiles == 4  # 2, 3, 2.0, True

    monkeypatch.setitem(globals(), "helper", lambda x: x + 100)
    captures_global[1](x, out)
    np.testing.assert_array_equal(out, x + 100)


def test_a_global_is_noticed_in_a_new_process(tmp_path: Path) -> None:
    text = (
        "import numpy as np, tessera as ts\nSCALE = {}\n@ts.jit\ndef k(x):\n    x[0] = x[0] * SCALE\n"
        "x = np.array([5.0])\nk[1](x)\nprint(int(x[0]))\n"
    )
    found = []
    for scale in (2, 3, 3):
        script = tmp_path / "script.py"
        script.write_text(text.format(scale))
        found.append(int(subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True).stdout))
    assert found == [10, 15, 15]


def test_closures_objects_and_containers_are_captured() -> None:
    factor = 2
    inner = types.SimpleNamespace(deep=Config(3))

    def natively(v):
        return v * len(TABLE) if factor else v

    @ts.jit
    def kernel(x, out):
        tile = ts.load(x, 0, shape=16) * factor + CONFIG.factor + TABLE[0] + inner.deep.factor
        ts.store(out, 0, tile * natively(2))

    x, _, out = vectors(16)

    def check(compiles: int) -> None:
        kernel[1](x, out)
        np.testing.assert_array_equal(out, (x * factor + CONFIG.factor + TABLE[0] + inner.deep.factor) * 2 * len(TABLE))
        assert kernel.cache_info().compiles == compiles

    check(1)
    check(1)
    factor = 5
    check(2)
    try:
        CONFIG.factor = 7
        check(3)
        TABLE[0] = 9
        check(4)
        TABLE.append(1)
        check(5)
        inner.deep.factor = 11
        check(6)
        inner.deep = Config(12)
        check(7)
    finally:
        CONFIG.factor = 2
        TABLE[:] = [1, 2]


def test_kernels_of_one_name_are_two_kernels(tmp_path: Path) -> None:
    body = "import tessera as ts\n@ts.jit\ndef k(x):\n    ts.store(x, 0, ts.load(x, 0, shape=4) {} )\n"
    first = module_from(tmp_path / "one.py", body.format("* 2"))
    second = module_from(tmp_path / "two.py", body.format("+ 100"))
    for _ in range(2):
        a, b = np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32)
        first.k[1](a)
        second.k[1](b)
        assert (a.tolist(), b.tolist()) == ([0, 2, 4], [100, 101, 102])
    assert first.k.compile(a).artifact.kernel_name == second.k.compile(a).artifact.kernel_name
    assert first.k.compile(a).artifact.content_hash != second.k.compile(a).artifact.content_hash


def test_the_source_is_that_of_the_definition(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    module = module_from(path, "import tessera as ts\n@ts.jit\ndef k(x):\n    x[0] = 1\n")
    path.write_text("import tessera as ts\n\n\n\n# moved\n@ts.jit\ndef k(x):\n    x[0] = 2\n")
    x = np.zeros(1)
    module.k[1](x)
    assert x[0] == 1


def test_a_helper_whose_file_was_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "helpers.py"
    module = module_from(path, "def twice(x):\n    return x * 2\n\ndef thrice(x):\n    return x * 3\n")
    path.write_text("def twice(x):\n    return x * 5\n\ndef thrice(x):\n    return x * 3\n")

    @ts.jit
    def kernel(x, f: ts.constexpr):
        x[0] = f(x[0])

    x = np.ones(1)
    kernel[1](x, module.thrice)
    assert x[0] == 3
    with pytest.raises(KernelSyntaxError, match=r"helpers.py has changed since 'twice' was imported"):
        kernel[1](x, module.twice)


# ---- the cache ------------------------------------------------------------------------------------------------------------------------


def test_clearing_collecting_and_compiling_again() -> None:
    x, y, out = vectors()
    for _ in range(3):
        kernel = ts.jit(add)
        for expected in (1, 1):
            kernel[3](x, y, out, 1)
            assert kernel.cache_info().compiles == expected
        kernel.cache_clear()
        assert kernel.cache_info() == (0, 0, 0)
        kernel[3](x, y, out, 1)
        assert kernel.cache_info() == (1, 0, 1)
        del kernel
        gc.collect()
        np.testing.assert_array_equal(out, x + y)


def test_threads_compile_once() -> None:
    kernel = ts.jit(add)
    outs = [np.zeros(40, np.float32) for _ in range(6)]
    x, y, _ = vectors()
    threads = [threading.Thread(target=lambda out=out: kernel[3](x, y, out, 2)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        np.testing.assert_array_equal(out, x + y * 2)
    assert kernel.cache_info().compiles == 1


def test_a_storm_of_compilations_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tessera.jit"], "STORM", 3)

    @ts.jit
    def kernel(x, N: ts.constexpr):
        x[0] = N

    x = np.zeros(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[1](x, 1)
        kernel[1](x, 2)
    with pytest.warns(TesseraWarning, match="kernel 'kernel' has been compiled 3 times"):
        kernel[1](x, 3)


def test_an_error_leaves_nothing_behind() -> None:
    @ts.jit
    def kernel(x, N: ts.constexpr):
        ts.store(x, 0, ts.full(N, 1, ts.float64))

    x = np.zeros(4)
    with pytest.raises(KernelError):
        kernel[1](x, 3)
    kernel[1](x, 4)
    assert x.tolist() == [1] * 4
    assert kernel.cache_info().compiles == 1


# ---- ahead of time ---------------------------------------------------------------------------------------------------------------------


def test_specs_stand_for_arguments(tmp_path: Path) -> None:
    kernel = ts.jit(add)
    x, y, out = (np.zeros(48, np.float32) for _ in range(3))
    spec = ts.Array(ts.float32, ndim=1)
    compiled = kernel.compile(spec, spec, ts.Array(np.float32, 1, align=16, disjoint=True), int, arch="gfx1100")
    assert compiled is kernel.compile(x, y, out, 5, arch="gfx1100")
    assert kernel.compile(spec, spec, spec, ts.int32).artifact.parameters[3].dtype is ts.int32
    loose = kernel.compile(ts.Array(ts.float32, 1, align=4, contiguous=None, small=False, disjoint=False), spec, spec, float)
    first = loose.artifact.parameters[0]
    assert (first.align, first.contiguous, first.small, first.disjoint) == (4, None, False, False)
    compiled.artifact.save(tmp_path / "add.tsa")
    assert ts.runtime.load(tmp_path / "add.tsa") == compiled.artifact


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ts.Array("float23", 1), "must be a dtype"),
        (lambda: ts.Array(ts.float64, 1, align=4), "align is 4"),
        (lambda: ts.Array(ts.float16, 2, contiguous=2), "no axis 2"),
        (lambda: ts.Array(ts.float16, -1), "ndim is -1"),
    ],
)
def test_specs_are_checked(make: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        make()


def test_each_arch_has_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ts.jit(add)
    args = (*vectors(), 1)
    one, two = kernel.compile(*args, arch="gfx1100"), kernel.compile(*args, arch="gfx1151")
    assert one.artifact.content_hash != two.artifact.content_hash
    assert kernel.compile(*args) is two
    assert kernel.cache_info().compiles == 2
    monkeypatch.setenv("TESSERA_ARCH", "gfx1100")
    assert kernel.compile(*args) is one
    with pytest.raises(LaunchError, match=r"gfx1100.*gfx1151|gfx1151.*gfx1100"):
        ts.runtime.launch(one.artifact, 3, args, device="sim:gfx1151")
    with pytest.raises(UnsupportedArchError, match=r"gfx942 .*doesn't compile for it yet"):
        kernel.compile(*args, arch="gfx942")
    with pytest.raises(UnsupportedArchError, match=r"no arch 'gfx1104'"):
        kernel.compile(*args, arch="gfx1104")


def test_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_DUMP", str(tmp_path / "dump"))
    compiled = ts.jit(add).compile(*vectors(), 1, arch="gfx1151")
    assert "kernel @add" in compiled.tile_ir
    assert "load %x" in compiled.tile_ir
    assert "kernel @add" in compiled.rocm_ir
    assert "amdgpu_kernel" in compiled.llvm_ir
    assert "s_endpgm" in compiled.assembly
    assert compiled.code_object[:4] == b"\x7fELF"
    assert compiled.resources["vgprs"] > 0
    (folder,) = (tmp_path / "dump").iterdir()
    assert folder.name.startswith("add.gfx1151.")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["1.traced.tile.ir", "2.optimized.tile.ir", "3.rocm.ir", "4.ll", "5.s", "6.hsaco", "resources.txt"]
    assert (folder / "6.hsaco").read_bytes() == compiled.code_object


def test_a_compiled_kernel_launches() -> None:
    x, y, out = vectors()
    compiled = ts.jit(add).compile(x, y, out, 1)
    compiled[3](x, y, out, 4)
    np.testing.assert_array_equal(out, x + y * 4)
    compiled[3](x=x, y=y, out=out, n=5)
    np.testing.assert_array_equal(out, x + y * 5)
    with pytest.raises(LaunchError, match="not both"):
        compiled[3](x, y, out=out, n=5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151"])
def test_a_dot_that_the_arch_lacks_is_refused_at_its_line(dtype: str, arch: str) -> None:
    @ts.jit
    def kernel(a, b, c):
        x = ts.load(a, (0, 0), shape=(16, 16))
        ts.store(c, (0, 0), ts.dot(x, ts.load(b, (0, 0), shape=(16, 16))))

    a = np.zeros((16, 16), dtype)
    with pytest.raises(UnsupportedDtypeError, match=f"{arch}.*{dtype}|{dtype}.*{arch}") as found:
        kernel.compile(a, a.copy(), a.copy(), arch=arch)
    assert found.value.location is not None
    assert found.value.location.excerpt().count("^") == len("ts.dot(x, ts.load(b, (0, 0), shape=(16, 16)))")


def test_kernels_without_source_say_why() -> None:
    space: dict[str, Any] = {"ts": ts}
    exec("def kernel(x):\n    x[0] = 1\n", space)
    with pytest.raises(KernelSyntaxError, match="source of 'kernel' can't be found"):
        ts.jit(space["kernel"])[1](np.zeros(1))
    with pytest.raises(ArtifactError):
        ts.runtime.load("no such file")


def test_importing_tessera_imports_nothing_heavy() -> None:
    heavy = ["llvmlite", "hip", "rich", "elftools", "ml_dtypes", "torch", "tessera.targets.rocm.compiler"]
    code = f"import sys, tessera\nprint([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == "[]"


@ts.jit
def _wide_dot(a, b, c, BM: ts.constexpr = 256, BN: ts.constexpr = 256, BK: ts.constexpr = 256):
    acc = ts.zeros((BM, BN), ts.float32)
    for k in range(ts.cdiv(a.shape[1], BK)):
        acc = ts.dot(ts.load(a, (0, k), shape=(BM, BK)), ts.load(b, (k, 0), shape=(BK, BN)), acc)
    ts.store(c, (0, 0), acc)


def test_too_much_lds_names_lines_constexprs_and_what_fits():
    f16, f32 = ts.Array(ts.float16, ndim=2), ts.Array(ts.float32, ndim=2)
    with pytest.raises(ts.errors.ResourceError) as caught:
        _wide_dot.compile(f16, f16, f32, arch="gfx1151")
    text = str(caught.value)
    assert "the kernel needs 269,312 bytes of LDS; a workgroup on gfx1151 has at most 65,536" in text
    assert text.count("134,656 bytes: 256x256 float16") == 2
    assert "Its shapes depend on BM=256, BN=256, BK=256; BK=32 fits, with 35,840 bytes" in text
    assert "acc = ts.dot(" in text
    assert _wide_dot.compile(f16, f16, f32, BM=64, BN=64, BK=32, arch="gfx1151").resources["lds_bytes"] <= 65536
