"""The HIP executor through the real hip-python bindings, on a stand-in for the HIP runtime library that keeps memory on the host.

What is checked: which calls are made, in which order, with which kernarg bytes; what is copied; what errors say. Not checked: a GPU.
Each script runs in a process of its own, since the bindings load the library once.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tessera import dtypes
from tessera.runtime.artifact import ArrayParameter, kernarg_layout

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in library is built for ELF and Mach-O systems")

SOURCE = Path(__file__).parent / "data" / "hip_stub.c"

PRELUDE = """
import ctypes, sys
import numpy as np
import tessera.runtime as rt
from tessera import dtypes
from tessera.errors import ExecutorUnavailableError, LaunchError

stub = ctypes.CDLL(sys.argv[1])

def artifact(kernel="count", arch="gfx1151", code=b"\\x7fELFcode-of-a-kernel", waves=1, **more):
    if kernel == "shift":
        parameters = [rt.ArrayParameter(name, dtypes.float32, 1, 4, writes=name == "y", **more) for name in "xy"]
    else:
        parameters = [rt.ArrayParameter("out", dtypes.int64, 1, 8), rt.ScalarParameter("n", dtypes.int64, weak=True)]
    parameters, size = rt.kernarg_layout(parameters)
    return rt.Artifact(code, kernel, "rocm", arch, "wmma", "rocm_wmma", parameters, size, waves, 32, 0)

def refused(kind, *args, **options):
    try:
        rt.launch(*args, **options)
    except kind as error:
        return error.message
    raise AssertionError("not refused")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, built by the system's C compiler, where hip-python looks for the runtime: $ROCM_PATH/lib."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang", "clang-22")
    compiler = next((path for name in names if name and (path := shutil.which(name))), None)
    if compiler is None:
        if os.environ.get("TESSERA_REQUIRE_TOOLS", "") not in ("", "0"):
            pytest.fail("there is no C compiler (TESSERA_REQUIRE_TOOLS is set)")
        pytest.skip("there is no C compiler to build the stand-in for the HIP runtime with")
    folder = tmp_path_factory.mktemp("rocm") / "lib"
    folder.mkdir()
    target = folder / ("libamdhip64.dylib" if sys.platform == "darwin" else "libamdhip64.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE)], check=True)
    return target


def run(library: Path, script: str, **environment: str) -> list[str]:
    """Run a script on the stand-in; returns the log."""
    log = library.parent / "log"
    log.unlink(missing_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TESSERA_", "HSA_", "HIP_", "STUB_"))}
    search = {"ROCM_PATH": str(library.parent.parent), "LD_LIBRARY_PATH": str(library.parent), "DYLD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(library)],
        env={**clean, **search, "STUB_LOG": str(log), **environment},
        cwd=library.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines() if log.exists() else []


def after(log: list[str], call: str) -> list[str]:
    """What was logged from the first call of a name on."""
    return log[next(i for i, line in enumerate(log) if line.startswith(call)) :]


def test_devices_are_probed_by_use(library: Path) -> None:
    log = run(
        library,
        """
        assert rt.executors()["rocm_wmma"] is None
        device = rt.current_device()
        assert (str(device), device.arch, device.name) == ("hip:0", "gfx1151", "Stub Graphics"), device
        assert stub.stub_live() == 0
        """,
        STUB_ARCHES="gfx1151:sramecc+:xnack-",
    )
    assert log == [
        "hipGetDeviceCount",
        "hipGetDeviceProperties 0",
        "hipMalloc 256",
        "hipMemcpy HostToDevice 256",
        "hipMemcpy DeviceToHost 256",
        "hipFree",
    ]


def test_a_count_of_zero_is_not_believed(library: Path) -> None:
    """Under WSL hipGetDeviceCount may say 0 while kernels run."""
    run(library, "assert rt.current_device().arch == 'gfx1151'", STUB_COUNT="0")


def test_a_launch_call_by_call(library: Path) -> None:
    log = run(
        library,
        """
        out = np.full(8, -1, np.int64)
        result = rt.launch(artifact(waves=4), (5, 2), (out[1::2], 7))
        assert out.tolist() == [-1, 0, -1, 7, -1, 14, -1, 21], out
        assert (result.executor, str(result.device), result.arch) == ("rocm_wmma", "hip:0", "gfx1151")
        assert abs(result.seconds - 0.0025) < 1e-9
        assert stub.stub_live() == 0
        """,
    )
    log = after(log, "hipModuleLoadData")
    assert [line.split()[0] for line in log] == [
        "hipModuleLoadData",
        "hipModuleGetFunction",
        "hipMalloc",
        "hipMemcpy",
        "hipEventCreate",
        "hipEventRecord",
        "hipModuleLaunchKernel",
        "hipEventCreate",
        "hipEventRecord",
        "hipEventSynchronize",
        "hipEventElapsedTime",
        "hipEventDestroy",
        "hipEventDestroy",
        "hipMemcpy",
        "hipFree",
    ]
    # The bytes that the view spans: from its first element to the end of its last.
    assert log[3] == "hipMemcpy HostToDevice 56"
    assert log[13] == "hipMemcpy DeviceToHost 56"
    words = log[6].split()
    assert words[1:12] == ["grid", "5", "2", "1", "block", "128", "1", "1", "shared", "0", "stream"]
    address, extent, stride, n = struct.unpack("<Qqqq", bytes.fromhex(words[-1]))
    assert (extent, stride, n) == (4, 16, 7)
    assert address


def test_only_what_is_written_comes_back(library: Path) -> None:
    log = run(
        library,
        """
        x, y = np.arange(6, dtype=np.float32), np.full(6, -1, np.float32)
        x.flags.writeable = False
        rt.launch(artifact("shift"), 4, (x[::-1], y))
        assert y.tolist() == [6, 5, 4, 3, -1, -1], y
        empty = np.zeros(0, np.float32)
        rt.launch(artifact("shift"), 4, (empty, empty))
        """,
    )
    copies = [line for line in after(log, "hipModuleLoadData") if "Memcpy" in line]
    assert copies == ["hipMemcpy HostToDevice 24", "hipMemcpy HostToDevice 24", "hipMemcpy DeviceToHost 24"]


def test_overlapping_arguments_overlap_on_the_device(library: Path) -> None:
    log = run(
        library,
        """
        x = np.arange(8, dtype=np.float32)
        made = artifact("shift", disjoint=False)
        rt.launch(made, 5, (x[:5], x[1:6]))          # in order: each sees its predecessor's result
        assert x.tolist() == [0, 1, 2, 3, 4, 5, 6, 7], x
        rt.launch(made, 8, (x, x))
        assert x.tolist() == [1, 2, 3, 4, 5, 6, 7, 8], x
        z = np.zeros((4, 2), np.float32)             # interleaved columns share a range of bytes and no element
        rt.launch(artifact("shift"), 4, (z[:, 0], z[:, 1]))
        assert z.tolist() == [[0, 1]] * 4
        """,
    )
    launches = [line.split()[-1] for line in log if line.startswith("hipModuleLaunchKernel")]
    first = [struct.unpack("<QqqQqq", bytes.fromhex(hexed)) for hexed in launches]
    assert [words[3] - words[0] for words in first] == [4, 0, 4]
    assert next(line for line in after(log, "hipModuleLoadData") if "ToDevice" in line) == "hipMemcpy HostToDevice 24"


def test_addresses_keep_their_alignment(library: Path) -> None:
    """A class holds on the device if it holds on the host: the address modulo 256 is kept."""
    log = run(
        library,
        """
        raw = np.zeros(4096, np.uint8)
        at = -raw.ctypes.data % 256 + 144
        rt.launch(artifact(), 3, (raw[at : at + 64].view(np.int64), 5))
        """,
    )
    (line,) = [line for line in log if line.startswith("hipModuleLaunchKernel")]
    assert struct.unpack("<Qqqq", bytes.fromhex(line.split()[-1]))[0] % 256 == 144


def test_modules_are_loaded_once_a_device(library: Path) -> None:
    log = run(
        library,
        """
        out = np.zeros(3, np.int64)
        for device in ("hip:0", "hip:1", "hip:0", "hip:1"):
            out[:] = -1
            assert str(rt.launch(artifact(), 3, (out, 2), device=device).device) == device
            assert out.tolist() == [0, 2, 4]
        rt.launch(artifact(code=b"\\x7fELF-other-code-of-that-name"), 3, (out, 3))
        assert out.tolist() == [0, 3, 6]
        """,
        STUB_ARCHES="gfx1151,gfx1151,gfx1100",
    )
    log = after(log, "hipModuleLoadData")
    loads = [line.split()[1] for line in log if line.startswith("hipModuleLoadData")]
    assert len(loads) == 3, "once on each device, and the other code of the same name"
    assert loads[0] == loads[1] != loads[2]
    assert [line for line in log if "hipSetDevice" in line] == ["hipSetDevice 1", "hipSetDevice 0"] * 2


def test_device_arrays_stay_where_they_are(library: Path) -> None:
    log = run(
        library,
        """
        x = rt.DeviceArray.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4))
        y = rt.DeviceArray.empty((3, 4), np.float32)
        y.copy_from(np.full((3, 4), -1, np.float32))
        rt.launch(artifact("shift"), 3, (x[:, 1], y[2, ::-1]), stream=0x1234).wait()
        assert y.numpy().tolist() == [[-1] * 4, [-1] * 4, [-1, 10, 6, 2]], y.numpy()
        assert x.T.numpy().tolist() == np.arange(12).reshape(3, 4).T.tolist()
        assert (x[1:, ::2].shape, x[1:, ::2].strides, x[..., 0].shape, x[0, 0].shape) == ((2, 2), (16, 8), (3,), ())
        assert refused(LaunchError, artifact("shift"), 3, (x[0], np.zeros(4, np.float32)), executor="rocm_sim").count("lies on hip:0")
        assert "overlap" in refused(LaunchError, artifact("shift"), 3, (x[0], x[0]))
        result = rt.launch(artifact("shift"), 3, (x[0], np.zeros(4, np.float32)))   # one on the device, one on the host
        live = stub.stub_live()
        del x, y, result
        assert stub.stub_live() == live - 2
        """,
    )
    log = after(log, "hipModuleLoadData")
    calls = [line.split()[0] for line in log]
    first = calls[: calls.index("hipModuleLaunchKernel") + 2]
    assert "hipMemcpy" not in first
    assert "hipMalloc" not in first
    assert log[calls.index("hipEventRecord")] == "hipEventRecord stream 0x1234"
    assert "stream 0x1234 kernarg" in log[calls.index("hipModuleLaunchKernel")]


def test_a_launch_on_device_arrays_is_in_stream_order(library: Path) -> None:
    log = run(
        library,
        """
        x, y = (rt.DeviceArray.from_numpy(np.zeros(4, np.float32)) for _ in range(2))
        result = rt.launch(artifact("shift"), 4, (x, y))
        assert "in flight" in repr(result)
        stub.hipGetLastError()                        # a mark in the log
        assert result.seconds == result.seconds == 0.0025000000000000001
        """,
    )
    calls = [line.split()[0] for line in after(log, "hipModuleLaunchKernel")]
    assert calls[:8] == [
        "hipModuleLaunchKernel",
        "hipEventCreate",
        "hipEventRecord",
        "hipGetLastError",
        "hipEventSynchronize",
        "hipEventElapsedTime",
        "hipEventDestroy",
        "hipEventDestroy",
    ]


FAILURES = {
    "hipModuleLoadData": (209, "hipErrorNoBinaryForGpu"),
    "hipModuleGetFunction": (500, "hipErrorNotFound"),
    "hipMalloc": (2, "hipErrorOutOfMemory"),
    "hipMemcpy": (1, "hipErrorInvalidValue"),
    "hipEventCreate": (2, "hipErrorOutOfMemory"),
    "hipEventRecord": (400, "hipErrorInvalidHandle"),
    "hipModuleLaunchKernel": (9, "hipErrorInvalidConfiguration"),
    "hipEventSynchronize": (700, "hipErrorIllegalAddress"),
    "hipEventElapsedTime": (600, "hipErrorNotReady"),
}


def test_every_status_is_checked(library: Path) -> None:
    """The error names call, kernel and arch; the record of the last error is cleared; the next launch works; nothing leaks."""
    log = run(
        library,
        f"""
        assert rt.executors()["rocm_wmma"] is None
        for call, (code, status) in {FAILURES!r}.items():
            made = artifact(code=b"\\x7fELF" + call.encode())
            out = np.full(4, -1, np.int64)
            stub.stub_fail(call.encode(), code, 1)
            message = refused(LaunchError, made, (4, 3), (out, 5))
            about = "kernel 'count' (gfx1151, grid (4, 3, 1), block (32, 1, 1))"
            assert message == f"{{call}} failed with {{status}} ({{code}}) for {{about}}", message
            assert out.tolist() == [-1] * 4, f"a failed {{call}} changed the output"
            assert stub.stub_live() == 0, f"a failed {{call}} leaks"
            assert stub.hipGetLastError() == 0
            rt.launch(made, 4, (out, 5))
            assert out.tolist() == [0, 5, 10, 15]
        """,
    )
    assert log.count("hipGetLastError") == 2 * len(FAILURES), "one to clear each record, one of this script"


def test_a_cpp_program_needs_nothing_else(library: Path, tmp_path: Path) -> None:
    """docs/abi.md's example in C++, compiled against a header of the calls that it makes."""
    names = (os.environ.get("CXX", ""), "c++", "g++", "clang++", "clang++-22")
    compiler = next((path for name in names if name and (path := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "hip").mkdir()
    (tmp_path / "hip" / "hip_runtime.h").write_text(HEADER)
    program, image = tmp_path / "launch_hip", tmp_path / "vector_add.hsaco"
    source = Path(__file__).resolve().parent.parent / "examples" / "launch_hip.cpp"
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", str(source), "-o", str(program)]
    subprocess.run([*command, f"-L{library.parent}", "-lamdhip64", f"-Wl,-rpath,{library.parent}"], check=True)
    image.write_bytes(b"\x7fELF" + bytes(60))
    log = tmp_path / "log"
    environment = {**os.environ, "STUB_LOG": str(log)}
    done = subprocess.run(
        [program, image, "vector_add", "128", "1024"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "vector_add: 100003 elements, 0 wrong\n"), done.stderr
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("hipModuleLaunchKernel")]
    assert line.startswith("hipModuleLaunchKernel grid 98 1 1 block 128 1 1 shared 0 stream 0 kernarg ")
    parameters, size = kernarg_layout([ArrayParameter(name, dtypes.float32, 1, 16, 0) for name in "xyz"])
    kernarg = bytes.fromhex(line.split()[-1])
    assert len(kernarg) == size
    assert [struct.unpack_from("<qq", kernarg, p.offset + 8) for p in parameters] == [(100_003, 4)] * 3


HEADER = """
#include <cstddef>
typedef int hipError_t;
typedef void *hipModule_t, *hipFunction_t, *hipStream_t;
enum { hipSuccess = 0 };
enum hipMemcpyKind { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 };
#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#define HIP_LAUNCH_PARAM_END ((void *)3)
extern "C" {
const char *hipGetErrorString(hipError_t);
hipError_t hipModuleLoadData(hipModule_t *, const void *);
hipError_t hipModuleUnload(hipModule_t);
hipError_t hipModuleGetFunction(hipFunction_t *, hipModule_t, const char *);
typedef unsigned U;
hipError_t hipModuleLaunchKernel(hipFunction_t, U, U, U, U, U, U, U, hipStream_t, void **, void **);
hipError_t hipMalloc(void **, size_t);
hipError_t hipFree(void *);
hipError_t hipMemcpy(void *, const void *, size_t, hipMemcpyKind);
}
"""


def test_wrong_devices_and_arches(library: Path) -> None:
    run(
        library,
        """
        out = np.full(4, -1, np.int64)
        message = refused(LaunchError, artifact(arch="gfx1151"), 4, (out, 5), executor="rocm_wmma")
        assert "compiled for gfx1151" in message and "(hip:0 is gfx1100, hip:1 is gfx1201)" in message, message
        assert "HSA_OVERRIDE_GFX_VERSION=11.0.0 makes ROCm take every GPU for gfx1100" in message, message
        message = refused(LaunchError, artifact(arch="gfx1151"), 4, (out, 5), device="hip:1")
        assert "device hip:1 (device='hip:1') is gfx1201" in message, message
        far = rt.DeviceArray.from_numpy(out, "hip:1")
        message = refused(LaunchError, artifact(arch="gfx1100"), 4, (far, 5))
        assert "argument 'out' lies on hip:1" in message and "runs on hip:0" in message, message
        try:
            rt.DeviceArray.empty(3, np.int8, "hip:4")
        except ExecutorUnavailableError as error:
            assert "there is hip:0, hip:1" in error.message, error
        else:
            raise AssertionError
        result = rt.launch(artifact(arch="gfx1100"), 4, (out, 5))
        assert any("HSA_OVERRIDE_GFX_VERSION=11.0.0" in note for note in result.notes), result.notes
        """,
        STUB_ARCHES="gfx1100,gfx1201",
        HSA_OVERRIDE_GFX_VERSION="11.0.0",
    )


def test_a_device_that_fails_its_probe(library: Path) -> None:
    run(
        library,
        """
        stub.stub_fail(b"hipMemcpy", 999, 9)
        reason = rt.executors()["rocm_wmma"]
        assert "hip:0 doesn't work: hipMemcpy failed with hipErrorUnknown (999) for hip:0" in reason, reason
        message = refused(ExecutorUnavailableError, artifact(), 1, (np.zeros(1, np.int64), 1), executor="rocm_wmma")
        assert "hipMemcpy failed" in message
        assert str(rt.current_device()) == "sim:gfx1151"
        assert stub.stub_live() == 0
        """,
    )


def test_without_the_runtime_library(tmp_path: Path) -> None:
    """hip-python imports without ROCm; what is missing is said, and nothing runs."""
    (tmp_path / "lib").mkdir()
    script = """
        reason = rt.executors()["rocm_wmma"]
        assert "libamdhip64" in reason, reason
        message = refused(ExecutorUnavailableError, artifact(), 1, (np.zeros(1, np.int64), 1), executor="rocm_wmma")
        assert message.startswith("executor 'rocm_wmma' (asked for by executor='rocm_wmma') is not available here: "), message
        assert "libamdhip64" in message, message
        try:
            rt.DeviceArray.empty(3, np.int8)
        except ExecutorUnavailableError as error:
            assert "libamdhip64" in error.message
        else:
            raise AssertionError
    """
    prelude = PRELUDE.replace("stub = ctypes.CDLL(sys.argv[1])", "")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TESSERA_", "HSA_", "LD_", "DYLD_"))}
    if any(Path(folder, "libamdhip64.so").exists() for folder in ("/opt/rocm/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")):
        pytest.skip("this machine has ROCm")
    subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(script)], env={**clean, "ROCM_PATH": str(tmp_path)}, check=True, timeout=120
    )
