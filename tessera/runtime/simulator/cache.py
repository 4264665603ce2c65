"""Host code that was compiled before, in memory and on disk.

A key covers everything that the code depends on: what is asked for, this host's CPU and features, LLVM's version, and the simulator's own
source files. Files are written aside and renamed, so that processes may share a folder; each starts with a checksum, and a damaged or
unreadable one counts as absent. A folder that can't be written is no error: nothing is kept then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ... import config, llvm

_MEMORY_LIMIT = 256  # entries
_MAGIC = b"tessera host code 1\n"

_memory: OrderedDict[str, Entry] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class Entry:
    """An object file for this host and what was noted about it (JSON)."""

    code: bytes
    meta: dict[str, Any]


@cache
def _sources() -> bytes:
    """A digest of the files that decide what the simulator's code looks like."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    package = here.parents[1]
    for path in [*sorted(here.rglob("*.py")), package / "llvm.py", package / "llvmtext.py"]:
        digest.update(path.read_bytes())
    return digest.digest()


@cache
def _host_key(cpu: str, features: str, triple: str) -> bytes:
    return hashlib.sha256(json.dumps([cpu, features, triple, llvm.version()]).encode()).digest()


def key(*parts: str | bytes | int | bool) -> str:
    """The key of host code made from `parts` by this version for this host."""
    host = llvm.host()
    digest = hashlib.sha256(_sources() + _host_key(host.cpu, host.features, host.triple))
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def _path(name: str) -> Path | None:
    folder = config.cache_folder()
    return folder / "sim" / name[:2] / name[2:] if folder is not None else None


def fetch(name: str) -> Entry | None:
    """What was kept under a key, or None."""
    with _lock:
        if name in _memory:
            _memory.move_to_end(name)
            return _memory[name]
    path = _path(name)
    if path is None:
        return None
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    body = raw[len(_MAGIC) + 32 :]
    if not raw.startswith(_MAGIC) or hashlib.sha256(body).digest() != raw[len(_MAGIC) : len(_MAGIC) + 32]:
        return None
    length = int.from_bytes(body[:8], "little")
    entry = Entry(body[8 + length :], json.loads(body[8 : 8 + length]))
    _remember(name, entry)
    return entry


def _remember(name: str, entry: Entry) -> None:
    with _lock:
        _memory[name] = entry
        while len(_memory) > _MEMORY_LIMIT:
            _memory.popitem(last=False)


def keep(name: str, code: bytes, meta: dict[str, Any]) -> None:
    """Keep host code under a key."""
    _remember(name, Entry(code, meta))
    path = _path(name)
    if path is None:
        return
    noted = json.dumps(meta).encode()
    body = len(noted).to_bytes(8, "little") + noted + code
    temporary = ""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
        temporary = ""
    if temporary:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def forget() -> None:
    """Empty the memory (not the disk)."""
    with _lock:
        _memory.clear()
