"""Where a kernel spills: the source lines of the spill code in LLVM's assembly."""

from __future__ import annotations

import re

_FILE = re.compile(r'\t\.file\t(\d+) (?:"([^"]*)" )?"([^"]*)"')
_LOCATION = re.compile(r"\t\.loc\t(\d+) (\d+)")


def spill_lines(assembly: str) -> list[tuple[str, int]]:
    """(file, line) of each place with spill code, the most affected first."""
    files: dict[int, str] = {}
    counts: dict[tuple[str, int], int] = {}
    here: tuple[str, int] | None = None
    for text in assembly.splitlines():
        if match := _FILE.match(text):
            folder, name = match[2] or "", match[3]
            files[int(match[1])] = f"{folder}/{name}" if folder else name
        elif match := _LOCATION.match(text):
            here = (files.get(int(match[1]), "?"), int(match[2]))
        elif here is not None and here[1] and ("Folded Spill" in text or "Folded Reload" in text):
            counts[here] = counts.get(here, 0) + 1
    return sorted(counts, key=lambda at: -counts[at])
