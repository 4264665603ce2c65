"""What a kernel's hot loop holds, read off an LLVM AMDGPU assembly listing, ours or another compiler's.

    python benchmarks/hotloop.py FILE.s ...

The hot loop is the innermost loop with most matrix instructions (then with most instructions). "Slack" of a global load: matrix
instructions that are issued between the load and the wait that retires it, with the loop unrolled so that a wait in a later trip counts.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

_CLASSES = (
    ("matrix", re.compile(r"v_(wmma|swmmac|mfma|smfmac)")),
    ("cache", re.compile(r"buffer_(gl[01]_inv|inv|wbl2)|global_(wb|inv)")),
    ("global load", re.compile(r"(buffer|global|flat)_load")),
    ("global store", re.compile(r"(buffer|global|flat)_(store|atomic)")),
    ("scratch", re.compile(r"scratch_")),
    ("lane", re.compile(r"ds_(bpermute|permute|swizzle)|v_permlane")),
    ("lds load", re.compile(r"ds_(load|read)")),
    ("lds store", re.compile(r"ds_(store|write)")),
    ("wait", re.compile(r"s_wait")),
    ("barrier", re.compile(r"s_barrier")),
    ("branch", re.compile(r"s_c?branch|s_endpgm|s_setpc")),
    ("hint", re.compile(r"s_(nop|clause|delay_alu|setprio|sleep|sched_barrier|code_end)$")),
    ("scalar load", re.compile(r"s_(buffer_)?load")),
    ("scalar", re.compile(r"s_")),
    ("vector", re.compile(r"v_")),
)


def kind(mnemonic: str) -> str:
    """The class of an instruction, for counting."""
    return next((name for name, pattern in _CLASSES if pattern.match(mnemonic)), "other")


@dataclass(frozen=True)
class Loop:
    """Instructions of one trip, by class; a dual-issue pair counts once. `s_delay_alu` and other hints are counted, as they are issued."""

    label: str
    instructions: int
    matrix: int
    classes: dict[str, int]
    matrix_instructions: dict[str, int]
    slack: list[int]


@dataclass(frozen=True)
class Report:
    """A kernel's resources and its hot loop (None where it has no loop)."""

    kernel: str
    vgprs: int
    sgprs: int
    spills: int
    lds_bytes: int
    loop: Loop | None


def _metadata(text: str, key: str) -> int:
    found = re.search(rf"^\s+\.{key}:\s+(\d+)", text, re.M)
    return int(found[1]) if found else 0


def analyse(text: str) -> Report:
    """Read the first kernel of an assembly listing."""
    name = re.search(r"^\t\.globl\t(\S+)", text, re.M)
    if name is None:
        raise ValueError("no kernel in this listing")
    spills = _metadata(text, "vgpr_spill_count") + _metadata(text, "sgpr_spill_count")
    registers = _metadata(text, "vgpr_count"), _metadata(text, "sgpr_count")
    return Report(name[1], *registers, spills, _metadata(text, "group_segment_fixed_size"), _hot_loop(_lines(text, name[1])))


def _lines(text: str, kernel: str) -> list[str]:
    """Labels (ending in a colon) and instructions of a kernel, without comments and directives."""
    body = text.split(f"\n{kernel}:", 1)[1].split(".Lfunc_end", 1)[0]
    lines = (re.split(r"\s*(?:;|//)", line, maxsplit=1)[0].strip() for line in body.splitlines())
    return [line for line in lines if line and (line.endswith(":") or not line.startswith("."))]


def _hot_loop(lines: list[str]) -> Loop | None:
    labels = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    spans: dict[str, tuple[int, int]] = {}
    for at, line in enumerate(lines):
        branch = re.match(r"s_c?branch\w* (\S+)", line)
        if branch is None or branch[1] not in labels or labels[branch[1]] > at:
            continue
        start = labels[branch[1]]
        # A rarely run block behind a loop branches back into its middle: that is not a loop of its own.
        if not any(first < start <= last for first, last in spans.values()):
            spans[branch[1]] = (start, at)
    inner = [s for s in spans.items() if not any(o != s[1] and s[1][0] <= o[0] and o[1] <= s[1][1] for o in spans.values())]
    loops = [_loop(label, [line for line in lines[a : b + 1] if not line.endswith(":")]) for label, (a, b) in inner]
    return max(loops, key=lambda loop: (loop.matrix, loop.instructions), default=None)


def _loop(label: str, body: list[str]) -> Loop:
    mnemonics = [line.split()[0] for line in body]
    classes = Counter(map(kind, mnemonics))
    matrix = Counter(m for m in mnemonics if kind(m) == "matrix")
    return Loop(label, len(body), classes["matrix"], dict(classes), dict(matrix), _slack(body) if matrix else [])


def _waited(line: str) -> int | None:
    """How many global loads may stay in flight after this line; None if it does not wait for any."""
    found = re.search(r"vmcnt\((\d+)\)", line) or re.match(r"s_wait_loadcnt (\w+)", line)
    if found:
        return int(found[1], 0)
    both = re.match(r"s_wait_loadcnt_dscnt (\w+)", line)
    return int(both[1], 0) >> 8 if both else None


def _slack(body: list[str]) -> list[int]:
    issued, flying, found = 0, list[tuple[int, int]](), list[int]()
    for trip in range(4):
        for line in body:
            what = kind(line.split()[0])
            if what == "matrix":
                issued += 1
            elif what in ("global load", "scratch"):
                flying.append((trip, issued))
            left = _waited(line)
            if left is not None:
                retired, flying = (flying[:-left], flying[-left:]) if left else (flying, [])
                found += [issued - at for begun, at in retired if begun == 1]
    return sorted(found)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(json.dumps(asdict(analyse(Path(path).read_text())), indent=1))
