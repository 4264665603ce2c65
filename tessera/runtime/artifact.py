"""Artifacts: everything that a launch needs, without the Python source it came from.

An artifact is immutable and identified by its content. `save` writes one file:

    8 bytes   magic
    4 bytes   schema version, little endian
    8 bytes   length of the payload in bytes, little endian
    32 bytes  SHA-256 of schema version, length and payload
    payload   a MessagePack array of the fields below, in order

The same artifact always gives the same bytes, and `load` accepts no file that differs from one in a single bit.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from .. import dtypes
from ..dtypes import DType
from ..errors import ArtifactError

SCHEMA = 1

_msgpack: Any = msgpack
_MAGIC = b"TESSERA\x1a"
_HEADER = struct.Struct("<8sIQ32s")
_ALIGNS = (16, 8, 4, 2, 1)

Plain: TypeAlias = "bool | int | float | str | tuple[Plain, ...] | Mapping[str, Plain] | None"


@dataclass(frozen=True, slots=True)
class ArrayParameter:
    """An array that a kernel takes, and the class of arrays that its code was compiled for.

    `align` (bytes: 16, 8, 4 or the element's size) divides the address and every stride but the contiguous axis's; `contiguous` is the
    axis whose elements lie side by side, if any; `small`: extents and bytes spanned are below 2**31; `disjoint`: no other argument
    overlaps it where one of the two is written. `reads` and `writes` say what the kernel does to it. `offset` is where it starts in the
    kernarg segment.
    """

    name: str
    dtype: DType
    ndim: int
    align: int
    contiguous: int | None = None
    small: bool = False
    disjoint: bool = True
    reads: bool = True
    writes: bool = True
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes in the kernarg segment: the pointer, the extents, the strides."""
        return 8 + 16 * self.ndim


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """A scalar that a kernel takes. Weak ones are Python numbers: int64 or float64. `offset` is where it lies in the kernarg segment."""

    name: str
    dtype: DType
    weak: bool = False
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes in the kernarg segment."""
        return self.dtype.bytes


Parameter: TypeAlias = ArrayParameter | ScalarParameter


def kernarg_layout(parameters: Iterable[Parameter]) -> tuple[tuple[Parameter, ...], int]:
    """The parameters with their kernarg offsets filled in, and the segment's size in bytes (docs/abi.md).

    Every field lies at its natural alignment; the size is rounded up to a whole dword, as LLVM's `.kernarg_segment_size` is.
    """
    placed: list[Parameter] = []
    end = 0
    for parameter in parameters:
        align = 8 if isinstance(parameter, ArrayParameter) else parameter.dtype.bytes
        start = -(-end // align) * align
        placed.append(replace(parameter, offset=start))
        end = start + parameter.size
    return tuple(placed), -(-end // 4) * 4


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled kernel. Equality and hash are those of the content.

    `executor` names the hardware executor that the code is for; `matrix_core` is "wmma", "mfma" or "none". `line_table` maps code to
    source: (offset in .text, file, line), sorted by offset, each row holding up to the next; line 0 is code of no
    line. `resources` and `versions` are plain data.
    Raises ArtifactError where the fields contradict each other.
    """

    code_object: bytes = field(repr=False)
    kernel_name: str
    target: str
    arch: str
    matrix_core: str
    executor: str
    parameters: tuple[Parameter, ...]
    kernarg_size: int
    num_waves: int
    wave_size: int
    lds_bytes: int
    resources: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"], repr=False)
    tile_ir: str = field(default="", repr=False)
    rocm_ir: str = field(default="", repr=False)
    llvm_ir: str = field(default="", repr=False)
    assembly: str = field(default="", repr=False)
    line_table: tuple[tuple[int, str, int], ...] = field(default=(), repr=False)
    versions: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"], repr=False)

    def __post_init__(self) -> None:
        # Sorted, tuples for lists: what is held is what a file gives back, and one content has one encoding.
        object.__setattr__(self, "resources", _normal(self.resources))
        object.__setattr__(self, "versions", _normal(self.versions))
        object.__setattr__(self, "line_table", tuple(tuple(row) for row in self.line_table))
        _check(self)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Artifact) and self.content_hash == other.content_hash)

    def __hash__(self) -> int:
        return hash(self.content_hash)

    @property
    def threads(self) -> int:
        """Threads of a workgroup, all along x."""
        return self.num_waves * self.wave_size

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything in the artifact, in hexadecimal."""
        return _digest(self._payload).hex()

    @cached_property
    def _payload(self) -> bytes:
        values = [getattr(self, f.name) for f in fields(self)]
        values[_PARAMETERS] = [_encode_parameter(p) for p in self.parameters]
        return _msgpack.packb(values, use_bin_type=True)

    def to_bytes(self) -> bytes:
        """The contents of the file that `save` writes."""
        return _HEADER.pack(_MAGIC, SCHEMA, len(self._payload), _digest(self._payload)) + self._payload

    @staticmethod
    def from_bytes(data: bytes, source: str = "the data") -> Artifact:
        """The artifact that `to_bytes` encoded. Raises ArtifactError, naming `source`, for anything else."""
        return _decode(data, source)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the artifact to `path`, replacing what is there in one step; no reader sees half a file. Returns the path.

        Raises ArtifactError where the file can't be written.
        """
        import tempfile  # slow to import, and needed here alone

        target = Path(path)
        temporary = ""
        try:
            descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except OSError as error:
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)
            raise ArtifactError(f"can't write the artifact {target}: {error}") from error
        return target


_PARAMETERS = [f.name for f in fields(Artifact)].index("parameters")


def load(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact that `Artifact.save` wrote.

    Raises ArtifactError where the file can't be read, isn't an artifact, is damaged, or has another schema version.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(f"can't read the artifact {os.fspath(path)}: {error}") from error
    return _decode(data, os.fspath(path))


def _digest(payload: bytes) -> bytes:
    return hashlib.sha256(struct.pack("<IQ", SCHEMA, len(payload)) + payload).digest()


def _normal(value: Any) -> Any:
    """Plain data with keys sorted and sequences as tuples. Raises ArtifactError for anything that a file can't hold."""
    if value is None or isinstance(value, (bool, float, str)) or (isinstance(value, int) and -(2**63) <= value < 2**64):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        if not all(isinstance(key, str) for key in items):
            raise ArtifactError(f"keys must be strings in an artifact's plain data; found {list(items)}")
        return {key: _normal(items[key]) for key in sorted(items)}
    if isinstance(value, (list, tuple)):
        return tuple(_normal(item) for item in cast("list[Any]", value))
    raise ArtifactError(f"an artifact holds plain data only (None, bool, int of 64 bits, float, str, sequences, mappings), not {value!r}")


def _check(artifact: Artifact) -> None:
    placed, size = kernarg_layout(artifact.parameters)
    if placed != artifact.parameters or size != artifact.kernarg_size:
        raise ArtifactError(
            f"the parameters of {artifact.kernel_name!r} don't follow the launch ABI: offsets {[p.offset for p in artifact.parameters]} in "
            f"{artifact.kernarg_size} bytes; kernarg_layout() gives {[p.offset for p in placed]} in {size}"
        )
    names = [p.name for p in artifact.parameters]
    if len(set(names)) != len(names):
        raise ArtifactError(f"two parameters of {artifact.kernel_name!r} share a name: {names}")
    for p in artifact.parameters:
        if isinstance(p, ScalarParameter):
            if p.weak and p.dtype not in (dtypes.int64, dtypes.float64):
                raise ArtifactError(f"the weak scalar {p.name!r} must be int64 or float64, not {p.dtype.name}")
        elif p.align not in _ALIGNS or p.align < p.dtype.bytes or (p.contiguous is not None and not 0 <= p.contiguous < p.ndim):
            raise ArtifactError(
                f"the array {p.name!r} has an impossible class: align {p.align}, contiguous axis {p.contiguous} of {p.ndim}"
            )
    if artifact.num_waves < 1 or artifact.wave_size not in (32, 64) or artifact.lds_bytes < 0:
        raise ArtifactError(
            f"{artifact.kernel_name!r} has {artifact.num_waves} waves of {artifact.wave_size} threads and {artifact.lds_bytes} bytes of LDS"
        )


def _encode_parameter(p: Parameter) -> list[object]:
    if isinstance(p, ScalarParameter):
        return ["scalar", p.name, p.dtype.short, p.weak, p.offset]
    return ["array", p.name, p.dtype.short, p.ndim, p.align, p.contiguous, p.small, p.disjoint, p.reads, p.writes, p.offset]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _row(value: object) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise ValueError(f"a sequence expected, {type(value).__name__} found")
    return cast("tuple[Any, ...]", value)


def _is_line_table(value: object) -> bool:
    rows = [_row(row) for row in _row(value)]
    return all(len(row) == 3 and _is_int(row[0]) and isinstance(row[1], str) and _is_int(row[2]) for row in rows)


def _has_type(value: object, annotation: str) -> bool:
    """Whether a decoded field has the type of its declaration (the parameters are decoded apart)."""
    match annotation:
        case "bytes":
            return isinstance(value, bytes)
        case "str":
            return isinstance(value, str)
        case "int":
            return _is_int(value)
        case _ if annotation.startswith("Mapping"):
            return isinstance(value, dict)
        case _:
            return _is_line_table(value)


_ARRAY_TYPES = (str, str, str, int, int, (int, type(None)), bool, bool, bool, bool, int)
_SCALAR_TYPES = (str, str, str, bool, int)


def _decode_parameter(items: tuple[Any, ...]) -> Parameter:
    if not items or items[0] not in ("array", "scalar"):
        raise ValueError("a parameter is neither an array nor a scalar")
    types = _ARRAY_TYPES if items[0] == "array" else _SCALAR_TYPES
    if len(items) != len(types) or not all(isinstance(item, kind) for item, kind in zip(items, types, strict=True)):
        raise ValueError(f"the {items[0]} parameter {items[1:2]} has other fields than this version's")
    dtype = dtypes.parse(items[2])
    if items[0] == "scalar":
        return ScalarParameter(items[1], dtype, *items[3:])
    return ArrayParameter(items[1], dtype, *items[3:])


def _decode(data: bytes, source: str) -> Artifact:
    if len(data) < _HEADER.size or data[: len(_MAGIC)] != _MAGIC:
        raise ArtifactError(f"{source} is not an artifact ({len(data)} bytes, no header of one)")
    _, schema, length, digest = _HEADER.unpack_from(data)
    if schema != SCHEMA:
        raise ArtifactError(f"{source} has schema version {schema}; this version of Tessera reads {SCHEMA}: compile the kernel again")
    payload = data[_HEADER.size :]
    if len(payload) != length:
        raise ArtifactError(f"{source} is damaged: {len(payload)} bytes of payload where its header says {length}")
    if _digest(payload) != digest:
        raise ArtifactError(f"{source} is damaged: its hash is {_digest(payload).hex()[:16]}…, its header says {digest.hex()[:16]}…")
    try:
        values = _row(_msgpack.unpackb(payload, raw=False, use_list=False, strict_map_key=True))
        names = [f.name for f in fields(Artifact)]
        if len(values) != len(names):
            raise ValueError(f"{len(names)} fields expected, {len(values)} found")
        content: dict[str, Any] = dict(zip(names, values, strict=True))
        content["parameters"] = tuple(_decode_parameter(_row(row)) for row in _row(content["parameters"]))
        for f in fields(Artifact):
            if f.name != "parameters" and not _has_type(content[f.name], str(f.type)):
                raise ValueError(f"{f.name} is not of type {f.type}")
        return Artifact(**content)
    except (ArtifactError, ValueError, TypeError, KeyError, RecursionError, _msgpack.UnpackException) as error:
        raise ArtifactError(f"{source} has a valid hash, but not the contents of an artifact: {error}") from error
