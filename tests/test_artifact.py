"""Artifacts: one file, the same bytes every time, and no damage goes unnoticed."""

from __future__ import annotations

import os
import struct
from dataclasses import fields, replace
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import dtypes
from tessera.errors import ArtifactError
from tessera.runtime.artifact import ArrayParameter, Artifact, Parameter, ScalarParameter, _digest, kernarg_layout, load


def sample(**changes: object) -> Artifact:
    parameters, size = kernarg_layout(
        [
            ArrayParameter("a", dtypes.float16, 2, 16, 1, small=True, writes=False),
            ScalarParameter("n", dtypes.int64, weak=True),
            ScalarParameter("flag", dtypes.bool_),
            ArrayParameter("out", dtypes.float32, 1, 4, None, disjoint=False, reads=False),
        ]
    )
    artifact = Artifact(
        code_object=b"\x7fELF" + bytes(range(64)),
        kernel_name="scale",
        target="rocm",
        arch="gfx1151",
        matrix_core="wmma",
        executor="rocm_wmma",
        parameters=parameters,
        kernarg_size=size,
        num_waves=4,
        wave_size=32,
        lds_bytes=8192,
        resources={"vgprs": 37, "matrix_instruction": None, "upcasts": ["f8"], "more": {"z": 1.5, "b": True}},
        tile_ir="kernel scale …",
        rocm_ir="rocm",
        llvm_ir="define",
        assembly="s_endpgm",
        line_table=((0, "kernel.py", 12), (16, "kernel.py", 13)),
        versions={"tessera": "0.1.0", "llvm": "22.1"},
    )
    return replace(artifact, **changes) if changes else artifact


def test_save_and_load(tmp_path: Path) -> None:
    artifact = sample()
    path = artifact.save(tmp_path / "scale.tsa")
    again = load(path)
    for f in fields(Artifact):
        assert getattr(again, f.name) == getattr(artifact, f.name), f.name
    assert again == artifact
    assert hash(again) == hash(artifact)
    assert again.content_hash == artifact.content_hash
    assert again.parameters[3].offset == 56  # 8 + 32, then i64, bool, and the pointer at its own alignment
    assert os.listdir(tmp_path) == ["scale.tsa"]


def test_bytes_are_reproducible(tmp_path: Path) -> None:
    one = sample(resources={"a": 1, "b": {"x": 1, "y": 2}}).save(tmp_path / "one")
    two = sample(resources={"b": {"y": 2, "x": 1}, "a": 1}).save(str(tmp_path / "two"))
    assert one.read_bytes() == two.read_bytes()
    assert Artifact.from_bytes(one.read_bytes()).to_bytes() == two.read_bytes()


@pytest.mark.parametrize("f", [f.name for f in fields(Artifact)])
def test_every_field_is_part_of_the_content(f: str) -> None:
    other: object = {
        "code_object": b"\x7fELFother",
        "parameters": None,
        "kernarg_size": None,
        "num_waves": 2,
        "wave_size": 64,
        "lds_bytes": 1,
        "resources": {"vgprs": 38},
        "line_table": (),
        "versions": {},
    }.get(f, "other")
    if other is None:
        parameters, size = kernarg_layout([ScalarParameter("n", dtypes.int32)])
        changed = sample(parameters=parameters, kernarg_size=size)
    else:
        changed = sample(**{f: other})
    assert changed != sample()
    assert changed.content_hash != sample().content_hash


def test_replaces_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "k.tsa"
    path.write_bytes(b"old")
    sample().save(path)
    assert load(path) == sample()
    with pytest.raises(ArtifactError, match="can't write"):
        sample().save(tmp_path / "no" / "such" / "folder.tsa")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArtifactError, match="can't write"):
        sample().save(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "k.tsa"], "a failed save left a temporary file"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_is_noticed(data: st.DataObject) -> None:
    good = sample().to_bytes()
    kind = data.draw(st.sampled_from(["cut", "flip", "append", "insert", "swap"]))
    at = data.draw(st.integers(0, len(good) - 1))
    if kind == "cut":
        bad = good[:at]
    elif kind == "flip":
        bad = good[:at] + bytes([good[at] ^ (1 << data.draw(st.integers(0, 7)))]) + good[at + 1 :]
    elif kind == "append":
        bad = good + data.draw(st.binary(min_size=1, max_size=9))
    elif kind == "insert":
        bad = good[:at] + data.draw(st.binary(min_size=1, max_size=9)) + good[at:]
    else:
        bad = good[at:] + good[:at]
    if bad != good:
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(bad)


@pytest.mark.slow
def test_every_bit_counts() -> None:
    good = sample().to_bytes()
    for at in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            with pytest.raises(ArtifactError):
                Artifact.from_bytes(bytes(bad))
    for at in range(len(good)):
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(good[:at])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_no_artifact(noise: bytes) -> None:
    with pytest.raises(ArtifactError, match="not an artifact"):
        Artifact.from_bytes(noise)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=40,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(plain, min_size=18, max_size=18) | plain, st.booleans())
def test_a_valid_hash_over_other_contents(content: object, keep_most: bool) -> None:
    if keep_most and isinstance(content, list) and len(content) == 18:
        good = msgpack.unpackb(sample().to_bytes()[52:], raw=False)
        content = [*good[:6], *content[6:7], *good[7:]]
        if content == good:
            return
    payload = msgpack.packb(content)
    header = struct.pack("<8sIQ32s", b"TESSERA\x1a", 1, len(payload), _digest(payload))
    with pytest.raises(ArtifactError, match="contents"):
        Artifact.from_bytes(header + payload, "crafted.tsa")


def test_schema_version(tmp_path: Path) -> None:
    data = bytearray(sample().to_bytes())
    data[8:12] = struct.pack("<I", 7)
    path = tmp_path / "future.tsa"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"future\.tsa has schema version 7; .* reads 1"):
        load(path)
    with pytest.raises(ArtifactError, match="can't read"):
        load(tmp_path / "nothing.tsa")


MIXED = [
    ScalarParameter("a", dtypes.int8),
    ScalarParameter("b", dtypes.int64),
    ScalarParameter("c", dtypes.int32),
    ArrayParameter("p", dtypes.int8, 0, 1),
    ScalarParameter("d", dtypes.int16),
    ScalarParameter("e", dtypes.float64),
    ScalarParameter("f", dtypes.bool_),
]


def test_kernarg_layout() -> None:
    """Natural alignment, whatever the order; the size ends on a dword."""
    placed, size = kernarg_layout(MIXED)
    assert [p.offset for p in placed] == [0, 8, 16, 24, 32, 40, 48]
    assert placed[-1].offset + placed[-1].size == 49
    assert size == 52
    placed, size = kernarg_layout([MIXED[i] for i in (6, 0, 4, 2, 5, 3, 1)])
    assert [(p.name, p.offset) for p in placed] == [("f", 0), ("a", 1), ("d", 2), ("c", 4), ("e", 8), ("p", 16), ("b", 24)]
    assert size == 32
    assert kernarg_layout([]) == ((), 0)


@settings(max_examples=100, deadline=None)
@given(st.permutations(MIXED))
def test_kernarg_fields_never_overlap(parameters: list[Parameter]) -> None:
    placed, size = kernarg_layout(parameters)
    end = 0
    for p in placed:
        align = 8 if isinstance(p, ArrayParameter) else p.dtype.bytes
        assert p.offset % align == 0
        assert end <= p.offset < end + align
        end = p.offset + p.size
    assert end <= size < end + 4


def test_contradictions_are_refused() -> None:
    good = sample()
    with pytest.raises(ArtifactError, match="launch ABI"):
        replace(good, kernarg_size=good.kernarg_size + 4)
    with pytest.raises(ArtifactError, match="launch ABI"):
        replace(good, parameters=good.parameters[::-1])
    twice, size = kernarg_layout([MIXED[0], MIXED[0]])
    with pytest.raises(ArtifactError, match="share a name"):
        replace(good, parameters=twice, kernarg_size=size)
    for bad in (
        ArrayParameter("x", dtypes.float32, 2, 2),
        ArrayParameter("x", dtypes.float32, 2, 12),
        ArrayParameter("x", dtypes.float32, 2, 4, contiguous=2),
        ScalarParameter("x", dtypes.int32, weak=True),
    ):
        with pytest.raises(ArtifactError, match="'x'"):
            replace(good, parameters=(bad,), kernarg_size=kernarg_layout([bad])[1])
    with pytest.raises(ArtifactError, match="waves"):
        replace(good, wave_size=48)
    with pytest.raises(ArtifactError, match="plain data"):
        replace(good, resources={"x": object()})
    with pytest.raises(ArtifactError, match="plain data"):
        replace(good, resources={"x": 2**64})
    with pytest.raises(ArtifactError, match="keys"):
        replace(good, versions={1: "x"})
