"""Source lines: each op's location becomes a DILocation, so that the code object's line table leads back to the user's Python.

Only what a line table needs is emitted: one compile unit, one subprogram, a file per source file, and a lexical-block file for lines of
other files than the kernel's.
"""

from __future__ import annotations

import os

from ....errors import Location
from ....ir.core import Kernel
from ....llvmtext import Module


def _quoted(text: str) -> str:
    """A string as LLVM's metadata spells it."""
    return "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in text)


class DebugInfo:
    """The debug metadata of one kernel; `subprogram` is None for a kernel without locations."""

    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.module = module
        self._known: dict[tuple[str, int, int], int] = {}
        self._scopes: dict[str, int] = {}
        self.subprogram: int | None = None
        first = next((op.location for op in kernel.body.walk() if op.location is not None), None)
        if first is None:
            return
        main = self._file(first.file)
        unit = module.metadata(
            f'distinct !DICompileUnit(language: DW_LANG_Python, file: !{main}, producer: "tessera", '
            "isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)"
        )
        routine = module.metadata("!DISubroutineType(types: !{null})")
        self.subprogram = module.metadata(
            f'distinct !DISubprogram(name: "{_quoted(kernel.name)}", scope: !{main}, file: !{main}, line: {first.line}, '
            f"type: !{routine}, scopeLine: {first.line}, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !{unit})"
        )
        module.named_metadata["llvm.dbg.cu"] = [unit]
        module.named_metadata.setdefault("llvm.module.flags", []).append(module.metadata('!{i32 2, !"Debug Info Version", i32 3}'))
        self._scopes[first.file] = self.subprogram

    def _file(self, path: str) -> int:
        folder, name = os.path.split(path)
        return self.module.metadata(f'!DIFile(filename: "{_quoted(name)}", directory: "{_quoted(folder)}")')

    def _scope(self, path: str) -> int:
        if path not in self._scopes:
            self._scopes[path] = self.module.metadata(
                f"!DILexicalBlockFile(scope: !{self.subprogram}, file: !{self._file(path)}, discriminator: 0)"
            )
        return self._scopes[path]

    def locate(self, location: Location | None) -> int | None:
        """The metadata number of the DILocation of a source place; for an op without one, the subprogram's first line."""
        if self.subprogram is None:
            return None
        if location is None:
            return self.module.metadata(f"!DILocation(line: 0, scope: !{self.subprogram})")
        key = (location.file, location.line, location.column)
        if key not in self._known:
            column = min(location.column + 1, 0xFFFF)
            self._known[key] = self.module.metadata(
                f"!DILocation(line: {location.line}, column: {column}, scope: !{self._scope(location.file)})"
            )
        return self._known[key]
