"""Reports from the field: messages, tables of what works, examples. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from itertools import product
from pathlib import Path

import both
import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import dtypes
from tessera.errors import TesseraError, UnsupportedArchError, UnsupportedDtypeError
from tessera.targets.rocm.arch import arches

pytestmark = pytest.mark.filterwarnings("ignore:kernel .* has been compiled")
ROOT = Path(__file__).resolve().parent.parent


@ts.jit
def one_dot(a, b, c, M: ts.constexpr, N: ts.constexpr, K: ts.constexpr):
    x, y = ts.load(a, (0, 0), shape=(M, K)), ts.load(b, (0, 0), shape=(K, N))
    ts.store(c, (0, 0), ts.dot(x, y, ts.zeros((M, N), c.dtype)))


TAKEN = {
    (ts.float16, ts.float16, ts.float32), (ts.bfloat16, ts.bfloat16, ts.float32), (ts.float16, ts.float16, ts.float16),
    (ts.bfloat16, ts.bfloat16, ts.bfloat16), (ts.int8, ts.int8, ts.int32), (ts.int8, ts.uint8, ts.int32), (ts.uint8, ts.int8, ts.int32),
    (ts.uint8, ts.uint8, ts.int32),
}  # fmt: skip


@pytest.mark.parametrize("accumulator", [ts.float16, ts.bfloat16, ts.float32, ts.float64, ts.int32, ts.int64], ids=repr)
def test_msg_02_every_dtype_is_taken_or_refused(accumulator) -> None:
    """vllm-project/vllm#33180: each pair of dtypes gives code or an exception that says what the arch does take; never an abort."""
    for first, second in product(dtypes.ALL, dtypes.ALL):
        arrays = [ts.Array(dtype, 2) for dtype in (first, second, accumulator)]
        if (first, second, accumulator) in TAKEN:
            assert one_dot.compile(*arrays, M=16, N=16, K=16, arch="gfx1100").resources["matrix_instruction"].startswith("v_wmma_")
            continue
        with pytest.raises(TesseraError) as caught:
            one_dot.compile(*arrays, M=16, N=16, K=16, arch="gfx1100")
        message = str(caught.value)
        assert "ts.dot(x, y" in message
        if isinstance(caught.value, UnsupportedDtypeError):
            assert "gfx1100" in message
            assert "float16" in message


def test_msg_02_every_arch_is_taken_or_refused() -> None:
    """vllm-project/vllm#33180: an arch that this version doesn't compile for is refused by name, whatever the dtype."""
    half, single = ts.Array(ts.float16, 2), ts.Array(ts.float32, 2)
    for row in arches():
        if row.supported:
            assert "wmma" in one_dot.compile(half, half, single, M=16, N=16, K=16, arch=row.name).resources["matrix_instruction"]
            with pytest.raises(UnsupportedDtypeError, match=row.name):
                one_dot.compile(single, single, single, M=16, N=16, K=16, arch=row.name)
        else:
            with pytest.raises(UnsupportedArchError, match=row.name):
                one_dot.compile(half, half, single, M=16, N=16, K=16, arch=row.name)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn", "int4"])
def test_msg_03_no_stand_in_for_what_is_missing(dtype: str) -> None:
    """ROCm/aiter#3667: an array of a dtype that this version lacks is refused by name, never taken as something else."""
    x = np.zeros(4, getattr(ml_dtypes, dtype))

    @ts.jit
    def copy(a, b):
        ts.store(b, 0, ts.load(a, 0, shape=4))

    with pytest.raises(UnsupportedDtypeError, match=dtype):
        copy[1](x, x.copy())

    @ts.jit
    def convert(a):
        ts.store(a, 0, ts.load(a, 0, shape=4).astype(np.dtype(getattr(ml_dtypes, dtype))))

    with pytest.raises(TesseraError, match=dtype):
        convert[1](np.zeros(4, np.float32))


@pytest.mark.parametrize("k", [16, 32, 128])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_msg_04_every_shape_of_dot(dtype: str, k: int) -> None:
    """ROCm/FlyDSL#790: extents from 16 to 128 all work, and give the right numbers."""
    narrow, wide = np.dtype(dtype), np.float32 if dtype == "float16" else np.int32
    rng = np.random.default_rng(k)
    for m, n in ((16, 16), (16, 128), (128, 16), (32, 64), (64, 16)):
        a, b = rng.integers(-4, 5, (m, k)).astype(narrow), rng.integers(-4, 5, (k, n)).astype(narrow)
        c = np.zeros((m, n), wide)
        both.run(one_dot, 1, a, b, c, M=m, N=n, K=k)
        assert c.tolist() == (a.astype(np.int64) @ b.astype(np.int64)).tolist()


@pytest.mark.parametrize("shape", [(1, 16, 16), (8, 16, 16), (16, 4, 16), (16, 16, 2), (16, 16, 8), (1, 1, 1), (2, 64, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_msg_04_dots_smaller_than_the_instruction(dtype: str, shape) -> None:
    """ROCm/FlyDSL#790: below the instruction's 16x16x16, the rest of a fragment is zeros."""
    m, n, k = shape
    a, b = (np.arange(m * k).reshape(m, k) % 5 + 1).astype(dtype), (np.arange(k * n).reshape(k, n) % 7 + 1).astype(dtype)
    c = np.zeros((m, n), np.float32 if dtype == "float16" else np.int32)
    both.run(one_dot, 1, a, b, c, M=m, N=n, K=k)
    assert c.tolist() == (a.astype(np.int64) @ b.astype(np.int64)).tolist()


EXAMPLE = """
import numpy as np
import tessera as ts

@ts.jit
def scale(x, y, factor, N: ts.constexpr = 64):
    i = ts.program_id(0)
    ts.store(y, i, ts.load(x, i, shape=N) * factor)

x = np.arange(100, dtype=np.float32)
y = np.zeros_like(x)
scale[ts.cdiv(x.size, 64)](x, y, 2.0)
assert (y == 2 * x).all()
print("fine")
"""


def outcome(*command: str, stdin: str = "") -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, *command], input=stdin, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


def test_msg_05_an_example_from_anywhere(tmp_path: Path) -> None:
    """ROCm/FlyDSL#286: from a file it runs; from -c, standard input and exec it runs or says what to do, and nothing aborts.

    (All examples of the README, the documents and the docstrings are run by test_frontdoor.py and test_language_docs.py.)
    """
    path = tmp_path / "example.py"
    path.write_text(EXAMPLE)
    assert outcome(str(path)) == (0, "fine\n", "")
    for command, stdin in ((("-c", EXAMPLE), ""), (("-",), EXAMPLE), (("-c", f"exec({EXAMPLE!r})"), "")):
        code, out, err = outcome(*command, stdin=stdin)
        assert (code, out) == (0, "fine\n") or (code == 1 and "source" in err and "file" in err), (command, err)
        assert "Fatal" not in err
        assert "core dumped" not in err


def test_msg_05_an_example_in_a_notebook() -> None:
    """ROCm/FlyDSL#286: IPython keeps the source of its cells in linecache, where it is found."""
    text = textwrap.dedent(
        f"""
        import linecache
        source = {EXAMPLE!r}
        linecache.cache["<ipython-input-1>"] = (len(source), None, source.splitlines(True), "<ipython-input-1>")
        exec(compile(source, "<ipython-input-1>", "exec"), {{"__name__": "__main__"}})
        """
    )
    assert outcome("-c", text)[:2] == (0, "fine\n")


@pytest.mark.parametrize(
    "body",
    [
        "ts.store(x, 0, ts.load(x, 0, shape=3))", "ts.store(x, 0, 5, 6, 7)", "x[0] = undefined", "ts.load(x)", "ts.dot(1, 2)", "x.missing",
        "x + 1", "x[0][0]", "ts.zeros((2**40,), ts.float32)", "ts.sum(ts.load(x, 0, shape=4), axis=7)", "print(int(x[0]))",
        "ts.load(x, 0.5, shape=4)", "ts.store(x, 0, 'text')", "ts.zeros(4, 'no dtype')", "ts.arange(-1)", "ts.where(x, 1, 2)",
        "x[0] = 1 / 0", "ts.program_id(3)", "ts.load(x, 0, shape=4).reshape(3)", "raise ValueError('mine')",
    ],
)  # fmt: skip
def test_msg_05_mistakes_never_abort(body: str, tmp_path: Path) -> None:
    """ROCm/FlyDSL#286: each is an exception that points at its line."""
    path = tmp_path / "mistake.py"
    path.write_text(f"import tessera as ts\n@ts.jit\ndef k(x):\n    {body}\n")
    import importlib.util

    spec = importlib.util.spec_from_file_location("mistake", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        module.k.compile(np.zeros(4, np.int32))
    assert isinstance(caught.value, TesseraError), repr(caught.value)
    assert "mistake.py" in str(caught.value)
    assert body.split("(")[0] in str(caught.value)
