"""Compile plain Triton kernels for AMD arches, without a GPU. Runs in an environment of its own that holds Triton 3.9.

    python compile_triton.py NAME ARCH [--out DIR] [--again N]     one kernel; prints times as one JSON line
    python compile_triton.py --peers DIR                           the code objects that the simulator's tests run

The kernels get the hints that Triton's JIT would add for 16-byte aligned tensors below 2 GiB and sizes that are multiples of 16 only where
`--aligned` is given: the tests' sizes are ragged.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

START = time.perf_counter()
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
os.environ["TRITON_ALWAYS_COMPILE"] = "1"
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton  # noqa: E402  (the environment must be set before)
import triton.language as tl  # noqa: E402
import triton_kernels  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

IMPORTED = time.perf_counter()


def gemm(dtype, c, acc, bm, bn, bk, waves, transposed=0):
    pointers = {"a": f"*{dtype}", "b": f"*{dtype}", "c": f"*{c}"}
    sizes = dict.fromkeys(("M", "N", "K", "lda", "ldb", "ldc"), "i32")
    constants = {"BM": bm, "BN": bn, "BK": bk, "ACC": acc, "MASK": 1, "BT": transposed, "PREC": "ieee"}
    return triton_kernels.gemm, pointers | sizes, constants, {"num_warps": waves, "num_stages": 2}


def flash(dim, causal, waves):
    signature = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "o": "*fp16", "S": "i32", "ld": "i32", "scale": "fp32"}
    return triton_kernels.flash_fwd, signature, {"D": dim, "BM": 128, "BN": 64, "CAUSAL": causal}, {"num_warps": waves, "num_stages": 1}


def softmax(dtype, block, waves):
    signature = {"src": f"*{dtype}", "dst": f"*{dtype}", "src_ld": "i32", "dst_ld": "i32", "cols": "i32"}
    return triton_kernels.softmax_row, signature, {"BLOCK": block}, {"num_warps": waves, "num_stages": 2}


LAYERNORM = {"src": "*fp16", "dst": "*fp16", "gamma": "*fp16", "beta": "*fp16", "ld": "i32", "cols": "i32", "eps": "fp32"}
KERNELS = {
    "vadd_f32": (triton_kernels.vadd, {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"}, {"BLOCK": 1024}, {"num_warps": 4}),
    "softmax_f16_1024": softmax("fp16", 1024, 4),
    "softmax_f32_4096": softmax("fp32", 4096, 8),
    "layernorm_f16_1024": (triton_kernels.layernorm, LAYERNORM, {"BLOCK": 1024}, {"num_warps": 4}),
    "gemm_f16_64x64x32_w4s2": gemm("fp16", "fp32", tl.float32, 64, 64, 32, 4),
    "gemm_f16_128x128x32_w4s2": gemm("fp16", "fp32", tl.float32, 128, 128, 32, 4),
    "gemm_bf16_128x64x64_w8s2": gemm("bf16", "fp32", tl.float32, 128, 64, 64, 8),
    "gemm_i8_128x128x64_w4s2": gemm("i8", "i32", tl.int32, 128, 128, 64, 4),
    "flash_f16_d64": flash(64, 0, 4),
    "flash_f16_d64_causal_w8": flash(64, 1, 8),
}
PEER_ARCHES = ("gfx1100", "gfx1151")


def source(name: str, aligned: bool) -> tuple[ASTSource, dict[str, int]]:
    kernel, signature, constants, options = KERNELS[name]
    hints = {}
    if aligned:
        for index, kind in enumerate(signature.values()):
            if kind[0] == "*":
                hints[index,] = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
            elif kind == "i32":
                hints[index,] = [["tt.divisibility", 16]]
    signature = signature | dict.fromkeys(constants, "constexpr")
    return ASTSource(kernel, signature, constexprs=constants, attrs=hints), options


def build(name: str, arch: str, aligned: bool):
    src, options = source(name, aligned)
    return triton.compile(src, target=GPUTarget("hip", arch, 32), options=options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=list(KERNELS))
    parser.add_argument("arch", nargs="?", default="gfx1151")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", type=int, default=0, help="compile so often more in this process, and report those times")
    parser.add_argument("--aligned", action="store_true")
    parser.add_argument("--peers", type=Path)
    options = parser.parse_args()
    if options.peers:
        launches = {}
        for arch in PEER_ARCHES:
            for name in KERNELS:
                kernel = build(name, arch, False)
                (options.peers / f"{name}.{arch}.hsaco").write_bytes(kernel.asm["hsaco"])
                meta = kernel.metadata
                launches[f"{name}.{arch}"] = {"kernel": meta.name, "threads": meta.num_warps * meta.warp_size, "dynamic_lds": meta.shared}
        (options.peers / "launches.json").write_text(json.dumps(launches, indent=1) + "\n")
        return
    began = time.perf_counter()
    kernel = build(options.name, options.arch, options.aligned)
    done = time.perf_counter()
    again = []
    for _ in range(options.again):
        at = time.perf_counter()
        build(options.name, options.arch, options.aligned)
        again.append((time.perf_counter() - at) * 1e3)
    if options.out:
        (options.out / f"{options.name}.{options.arch}.s").write_text(kernel.asm["amdgcn"])
    times = {"import_ms": (IMPORTED - START) * 1e3, "compile_ms": (done - began) * 1e3, "again_ms": again}
    print(json.dumps({"name": options.name, "arch": options.arch, "triton": triton.__version__, **times}))


if __name__ == "__main__":
    main()
