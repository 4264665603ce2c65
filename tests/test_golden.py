"""Golden IR tests: text files in tests/golden, checked by FileCheck directives.

Each file names in its first line what is to be done with the kernel in it, and states what is to come out:

    // RUN: tile                 after the tile passes
    // RUN: gfx1100 stage        after the ROCm passes up to `stage` (select, assign, stage, …; `rocm`: all)
    // CHECK: …                  FileCheck directives on the printed result, or on `error: Class: message`

`python tests/test_golden.py --update` rewrites the directives of every file from what comes out now: read the difference before keeping it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import Options

import tessera.ir.ops  # noqa: F401  the parser knows ops by their classes
from tessera.errors import TesseraError
from tessera.ir import passes
from tessera.ir.text import parse_kernel, print_kernel
from tessera.ir.verify import verify
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.pipeline import ROCM_PASSES

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("*.ir"))


def output(text: str) -> str:
    """What the RUN line of a golden file asks for."""
    run, *words = text.splitlines()[0].removeprefix("// ").split()
    if run != "RUN:":
        raise ValueError("a golden file begins with // RUN:")
    kernel = parse_kernel(text)
    verify(kernel)
    try:
        if words == ["tile"]:
            passes.run(kernel)
        else:
            name, last = words
            names = [step.__name__ for step in ROCM_PASSES]
            for step in ROCM_PASSES[: None if last == "rocm" else names.index(last) + 1]:
                step(kernel, arch(name))
                verify(kernel)
    except TesseraError as error:
        return f"error: {type(error).__name__}: {error}\n"
    return print_kernel(kernel, locations=False)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_golden(path: Path, tmp_path: Path) -> None:
    printed = tmp_path / "output.ir"
    printed.write_text(output(path.read_text(encoding="utf-8")), encoding="utf-8")
    options = Options(match_filename=str(path), input_file=str(printed))
    assert Matcher.from_opts(options).run() == 0, printed.read_text(encoding="utf-8")


def test_there_are_golden_files_of_both_levels() -> None:
    levels = {path.read_text(encoding="utf-8").splitlines()[0].split()[-1] for path in FILES}
    assert {"tile", "rocm"} <= levels


def update(path: Path) -> None:
    """Rewrite the directives of one file."""
    text = path.read_text(encoding="utf-8")
    head, *rest = text.splitlines()
    kept = [line for line in rest if not line.startswith("// CHECK")]
    lines = [line.rstrip() for line in output(text).splitlines()]
    checks = [f"// CHECK{'-NEXT' if number else ''}: {line}" for number, line in enumerate(lines)]
    path.write_text("\n".join([head, *checks, *kept]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(__doc__)
    for file in FILES:
        update(file)
