"""The simulator: it executes the machine code of a code object on this machine's CPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .loader import CodeObject


def load(source: str | os.PathLike[str] | bytes) -> CodeObject:
    """A code object of any compiler, from a `.hsaco` file or its bytes, ready for `runtime.launch`.

    Takes code-object versions 4 to 6. Files without Tessera's listing are disassembled by `llvm-objdump` when they are first launched;
    where none is found the error says where it was looked for. Raises SimulatorError for what is not a code object, and OSError for a
    file that can't be read.
    """
    from .loader import load_code_object

    return load_code_object(source if isinstance(source, bytes) else Path(source).read_bytes())
