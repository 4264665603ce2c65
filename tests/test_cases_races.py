"""Reports from the field: races and hazards. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import both
import compare
import numpy as np
import pytest
from poison import LAYOUTS, Arena

import tessera as ts
from corpus.kernels import matmul
from tessera.jit import JitFunction, Options

ROOT = Path(__file__).resolve().parent.parent
DTYPES = {"f16": (np.float16, np.float32), "bf16": (ts.bfloat16.numpy, np.float32), "s8": (np.int8, np.int32)}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("tile", "waves"), [((32, 32, 32), 1), ((64, 64, 32), 8), ((128, 64, 64), 4), ((16, 64, 16), 2), ((128, 128, 32), 8)], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_syn_01_no_operand_is_a_tile_late(dtype: str, tile, waves: int) -> None:
    """triton-lang/triton#11696: A holds the number of its K tile, so that one late tile changes the sum."""
    narrow, wide = DTYPES[dtype]
    bm, bn, bk = tile
    k = 7 * bk
    a = Arena((bm + 5, k), np.dtype(narrow), LAYOUTS["padded"])
    a.fill((np.tile(np.arange(k) // bk + 1, (bm + 5, 1)) * (1 + np.arange(bm + 5)[:, None] % 3)).astype(narrow))
    b = Arena((k, bn + 3), np.dtype(narrow), LAYOUTS["padded"])
    b.fill(((1 + np.arange(k) // bk)[:, None] * (np.arange(bn + 3) % 2 + 1)).astype(narrow))
    c = np.zeros((bm + 5, bn + 3), wide)
    kernel = JitFunction(matmul.function, Options(num_waves=waves))
    both.run(kernel, (2, 2), a.array, b.array, c, BM=bm, BN=bn, BK=bk)
    exact = a.array.astype(np.float64) @ b.array.astype(np.float64)
    assert c.tolist() == exact.tolist()  # small integers: every order of summation is exact


@ts.jit
def chained(a, b, c, d, after):
    x, y = ts.load(a, (0, 0), shape=(32, 32)), ts.load(b, (0, 0), shape=(32, 32))
    acc = ts.load(c, (0, 0), shape=(32, 32))
    first = ts.dot(x, y, acc)
    acc = acc * 2 + 1  # what held C is overwritten while the result may still be on its way
    second = ts.dot(x, y, first)
    ts.store(d, (0, 0), second)
    ts.store(after, (0, 0), ts.dot(x, y, acc))


@pytest.mark.parametrize("waves", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_syn_05_the_accumulator_may_be_overwritten(dtype: str, waves: int) -> None:
    """llvm/llvm-project#222932: dots that share operands and accumulators. (The machine's spacers are LLVM's, which knows gfx11.)"""
    narrow, wide = DTYPES[dtype]
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, (32, 32)).astype(narrow) for _ in range(2))
    c = rng.integers(-50, 50, (32, 32)).astype(wide)
    d, after = np.zeros_like(c), np.zeros_like(c)
    both.run(JitFunction(chained.function, Options(num_waves=waves)), 1, a, b, c, d, after)
    product = a.astype(np.int64) @ b.astype(np.int64)
    assert d.tolist() == (2 * product + c.astype(np.int64)).tolist()
    assert after.tolist() == (product + 2 * c.astype(np.int64) + 1).tolist()


ATTENTION = """
import hashlib, sys
import numpy as np, tessera as ts
sys.path.insert(0, {root!r})
from corpus.kernels import matmul, softmax
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((200, 64)).astype(np.float16) for _ in range(3))
seen = set()
for call in range(4):
    scores, weights, out = np.zeros((200, 200), np.float32), np.zeros((200, 200), np.float16), np.zeros((200, 64), np.float32)
    matmul[4, 4](q, k.T, scores)
    softmax[200](scores, weights, COLS=256)
    matmul[4, 1](weights, v, out)
    seen.add(hashlib.sha256(out.tobytes() + weights.tobytes()).hexdigest())
print(*seen)
"""


def test_syn_06_the_first_call_is_like_the_rest(tmp_path: Path) -> None:
    """vllm-project/vllm#50603: bit for bit, in fresh processes, with an empty cache, a warm one and none, and any number of threads."""
    import os

    found = set()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    for cache, threads in ((str(tmp_path), "2"), (str(tmp_path), "1"), ("", "3")):
        done = subprocess.run(
            [sys.executable, "-c", ATTENTION.format(root=str(ROOT))],
            env={**clean, "TESSERA_CACHE_DIR": cache, "TESSERA_SIM_THREADS": threads},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found |= set(done.stdout.split())
    assert len(found) == 1


def test_syn_06_programs_in_any_order() -> None:
    """vllm-project/vllm#50603: one thread and several give the same bits."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((150, 90)).astype(np.float16), rng.standard_normal((90, 170)).astype(np.float16)
    made = matmul.compile(a, b, np.zeros((150, 170), np.float32), BM=32, BN=32, arch="gfx1151")
    results = []
    for threads in (1, 2, 3, 8):
        c = np.zeros((150, 170), np.float32)
        ts.runtime.launch(made.artifact, (5, 6), (a, b, c), executor="rocm_sim", threads=threads)
        results.append(c)
    for c in results[1:]:
        compare.same_bits(c, results[0])
