"""What Tessera costs and how good its code is, next to its peers, in one run.

    python benchmarks/run.py [--quick] [--json FILE] [--triton PYTHON]

Times are medians on this machine; compare the ratios, not the milliseconds. Triton 3.9 (it compiles for AMD without a GPU) lives in an
environment of its own, made on first use in `.cache/triton`, or is reached by an interpreter that `--triton` names; "none" leaves it out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PEERS = ROOT / "benchmarks" / "peers"
ARCH = "gfx1151"
FIRST = "gemm_f16_128x128x32_w4s2"


def median_ms(action: Callable[[], object], runs: int) -> float:
    """Median wall time of `action` in milliseconds, after one run that is not counted."""
    action()
    times: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def fresh_ms(command: list[str], runs: int, **env: str) -> float:
    """Median wall time in milliseconds of a whole process."""
    return median_ms(lambda: subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **env}), runs)


# ---- peers -------------------------------------------------------------------------------------------------------------------


def triton_python(named: str | None) -> str | None:
    """An interpreter that has Triton 3.9, made if need be; None with a message where that fails."""
    if named:
        return None if named == "none" else named
    home = ROOT / ".cache" / "triton"
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (home / "ready").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "triton==3.9.*", "numpy"], check=True)
        except subprocess.CalledProcessError as error:
            print(f"Triton can't be installed here ({error}); its columns stay empty", file=sys.stderr)
            return None
        (home / "ready").touch()
    return str(python)


def triton(python: str, *options: str) -> dict[str, Any]:
    """Run the peer's compiler in its own process."""
    command = [python, "compile_triton.py", FIRST, ARCH, "--aligned", *options]
    done = subprocess.run(command, cwd=PEERS, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---- what is measured --------------------------------------------------------------------------------------------------------


def arrays(dtype: str, m: int, n: int, k: int, *, a_transposed: bool = False, b_transposed: bool = False) -> list[Any]:
    """A, B and C of a matmul, of random values; transposed operands are views of transposed storage."""
    import ml_dtypes
    import numpy as np

    rng = np.random.default_rng(0)
    kind = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "i8": np.int8}[dtype]

    def make(rows: int, columns: int, transposed: bool) -> Any:
        shape = (columns, rows) if transposed else (rows, columns)
        x = rng.integers(-8, 8, shape).astype(kind) if dtype == "i8" else rng.standard_normal(shape).astype(kind)
        return x.T if transposed else x

    return [make(m, k, a_transposed), make(k, n, b_transposed), np.zeros((m, n), np.int32 if dtype == "i8" else np.float32)]


def simulator_speed(runs: int) -> list[dict[str, Any]]:
    """GFLOP/s of an f16 matmul in the simulator and of NumPy's float32 matmul, both on one core."""
    import numpy as np

    import tessera as ts
    from corpus import kernels

    rows: list[dict[str, Any]] = []
    for size in (512, 1024):
        a, b, c = arrays("f16", size, size, size)
        kernel = kernels.matmul.compile(a, b, c, BM=128, BN=128, BK=32, arch=ARCH)
        grid = (ts.cdiv(size, 128), ts.cdiv(size, 128))
        ours = median_ms(lambda k=kernel, g=grid, args=(a, b, c): ts.runtime.launch(k.artifact, g, args, executor="rocm_sim"), runs)
        x, y = a.astype(np.float32), b.astype(np.float32)
        theirs = median_ms(lambda x=x, y=y: x @ y, runs)
        work = 2 * size**3 / 1e6
        rows.append({"size": size, "simulator_gflops": work / ours, "numpy_f32_gflops": work / theirs, "ratio": theirs / ours})
    return rows


def compile_speed(python: str | None, runs: int) -> dict[str, Any]:
    """Trace to code object of the f16 128x128x32 kernel with 4 waves: in a warm process, and from a fresh process, imports included."""
    from corpus import kernels

    args = arrays("f16", 256, 256, 64)

    def warm() -> None:
        kernels.matmul.cache_clear()
        kernels.matmul.compile(*args, BM=128, BN=128, BK=32, arch=ARCH)

    found: dict[str, Any] = {"warm_ms": median_ms(warm, runs)}
    found["fresh_ms"] = fresh_ms([sys.executable, str(ROOT / "benchmarks" / "fresh.py")], runs)
    if python:
        found["triton_warm_ms"] = statistics.median(triton(python, "--again", str(runs))["again_ms"])
        command = [python, str(PEERS / "compile_triton.py"), FIRST, ARCH, "--aligned"]
        found["triton_fresh_ms"] = fresh_ms(command, runs)
        found["warm_ratio"] = found["warm_ms"] / found["triton_warm_ms"]
        found["fresh_ratio"] = found["fresh_ms"] / found["triton_fresh_ms"]
    return found


def start_up(runs: int) -> dict[str, float]:
    """Import time of `tessera` alone (a bare interpreter's start taken off), and the matmul example from nothing, caches empty."""
    bare = fresh_ms([sys.executable, "-c", "pass"], runs)
    imported = fresh_ms([sys.executable, "-c", "import tessera"], runs)
    example = fresh_ms([sys.executable, str(ROOT / "examples" / "matmul.py")], 1, TESSERA_CACHE_DIR="")
    return {"import_ms": imported - bare, "cold_example_ms": example}


def code_quality(python: str | None) -> list[dict[str, Any]]:
    """Hot loops: ours for every default configuration and variant, and Triton's for the first."""
    import hotloop
    import numpy as np

    import tessera as ts
    from corpus import kernels

    big = {"BM": 128, "BN": 128, "BK": 32}
    cases: list[tuple[str, Any, list[Any], dict[str, int]]] = [
        ("f16 128x128x32", kernels.matmul, arrays("f16", 256, 256, 128), big),
        ("bf16 128x128x32", kernels.matmul, arrays("bf16", 256, 256, 128), big),
        ("int8 128x128x32", kernels.matmul, arrays("i8", 256, 256, 128), big),
        ("f16 B transposed", kernels.matmul, arrays("f16", 256, 256, 128, b_transposed=True), big),
        ("f16 A transposed", kernels.matmul, arrays("f16", 256, 256, 128, a_transposed=True), big),
    ]
    for config in kernels.DEFAULT_CONFIGURATIONS:
        if config != big:
            cases.append((f"f16 {config['BM']}x{config['BN']}x{config['BK']}", kernels.matmul, arrays("f16", 256, 256, 128), config))
    a, b, c = arrays("f16", 256, 256, 128)
    cases.append(("f16 bias, relu", kernels.matmul_bias_activation, [a, b, np.zeros(256, np.float16), c.astype(np.float16)], big))
    rows: list[dict[str, Any]] = []
    for name, kernel, args, config in cases:
        built = kernel.compile(*args, **config, arch=ARCH)
        grid = (ts.cdiv(256, config["BM"]), ts.cdiv(256, config["BN"]))
        counters = ts.runtime.launch(built.artifact, grid, args, executor="rocm_sim", counters=True).counters
        report = hotloop.analyse(built.assembly)
        rows.append(row(name, report, waves=built.resources["waves_per_simd"], conflicts=counters.lds_conflicts))
    if python:
        folder = ROOT / ".cache"
        folder.mkdir(exist_ok=True)
        triton(python, "--out", str(folder))
        rows.insert(1, row("Triton 3.9: f16 128x128x32", hotloop.analyse((folder / f"{FIRST}.{ARCH}.s").read_text())))
    return rows


def row(name: str, report: Any, waves: int | None = None, conflicts: int | None = None) -> dict[str, Any]:
    """A line of the code-quality table."""
    loop = report.loop
    return {
        "kernel": name,
        "loop": loop.instructions,
        "matrix": loop.matrix,
        "per_matrix": loop.instructions / loop.matrix,
        "slack": min(loop.slack, default=0),
        "vgprs": report.vgprs,
        "spills": report.spills,
        "waves_per_simd": waves,
        "lds_conflicts": conflicts,
        "classes": loop.classes,
    }


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    columns = [c for c in rows[0] if c != "classes"]
    for column in columns:
        table.add_column(column.replace("_", " "), justify="left" if isinstance(rows[0][column], str) else "right")
    for line in rows:
        values = [line.get(c) for c in columns]
        table.add_row(*("-" if v is None else f"{v:.2f}" if isinstance(v, float) else str(v) for v in values))
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--json", type=Path, default=ROOT / ".cache" / "bench.json")
    parser.add_argument("--triton", help="an interpreter that has Triton 3.9, or none")
    options = parser.parse_args()
    os.environ["TESSERA_SIM_THREADS"] = "1"
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    runs = 3 if options.quick else 9
    python = triton_python(options.triton)
    results: dict[str, Any] = {"simulator": simulator_speed(runs)}
    show("f16 matmul in the simulator, one core", results["simulator"])
    results["compile"] = compile_speed(python, runs)
    show("trace to code object, f16 128x128x32, 4 waves, gfx1151", [results["compile"]])
    results["start"] = start_up(runs)
    show("start-up", [results["start"]])
    results["code"] = code_quality(python)
    show("hot loops, gfx1151", results["code"])
    options.json.parent.mkdir(exist_ok=True, parents=True)
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {options.json}")


if __name__ == "__main__":
    main()
