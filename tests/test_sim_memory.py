"""Memory instructions of the simulator: every width and form against NumPy, bounds, faults, atomics, LDS, lane exchange."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tessera import llvm
from tessera.errors import Location, MemoryFaultError, UnsupportedInstructionError
from tessera.runtime.simulator import engine
from tessera.runtime.simulator.memory import canonical, swizzle_sources
from tests.sim_asm import IDS, POINTERS, build, run

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(7)
SIZES = {"u8": 1, "i8": 1, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "d16_u8": 1, "d16_hi_u8": 1, "d16_i8": 1}
SIZES |= {"d16_hi_i8": 1, "d16_b16": 2, "d16_hi_b16": 2, "b8": 1, "b16": 2, "d16_hi_b8": 1}
LOADS = ["u8", "i8", "u16", "i16", "b32", "b64", "b96", "b128"]
LOADS += ["d16_u8", "d16_hi_u8", "d16_i8", "d16_hi_i8", "d16_b16", "d16_hi_b16"]
STORES = ["b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16"]
# Lane i's place, in units of the access: consecutive, strided, shuffled with repeats.
PATTERNS = {"consecutive": "1", "strided": "3", "backwards": "-1"}


def registers(first: int, size: int) -> str:
    return f"v{first}" if size <= 4 else f"v[{first}:{first + size // 4 - 1}]"


def expected_load(op: str, raw: Array, at: Array) -> Array:
    """The four registers of each lane after a load from byte offsets `at`, over registers that held 0x55667788."""
    size = SIZES[op]
    result = np.full((4, len(at)), 0x55667788, np.uint32)
    for lane, start in enumerate(at):
        piece = raw[start : start + size].tobytes()
        if op.startswith("d16"):
            value = int.from_bytes(piece, "little", signed="_i" in op) & 0xFFFF
            result[0, lane] = value << 16 | 0x7788 if "_hi_" in op else 0x55660000 | value
        elif size < 4:
            result[0, lane] = int.from_bytes(piece, "little", signed=op[0] == "i") & 0xFFFFFFFF
        else:
            result[: size // 4, lane] = np.frombuffer(piece, np.uint32)
    return result


def lanes(size: int, pattern: str) -> tuple[str, Array]:
    """Code that leaves each lane's byte offset in v4, and the offsets of 32 lanes."""
    step = int(PATTERNS[pattern]) * size
    start = 0 if step > 0 else -step * 31
    return f"v_mul_i32_i24 v4, {step}, v1\nv_add_nc_u32 v4, {start}, v4\n", start + step * np.arange(32)


WIDE = "v_add_co_u32 v6, vcc_lo, s8, v4\nv_mov_b32 v7, s9\nv_add_co_ci_u32 v7, vcc_lo, 0, v7, vcc_lo\n"


FILL = "".join(f"v_mov_b32 v{r}, 0x55667788\n" for r in range(20, 24))
DUMP = "v_lshlrev_b32 v10, 4, v1\nglobal_store_b128 v10, v[20:23], s[10:11]\ns_endpgm\n"


def dumped(b: Array, threads: int) -> Array:
    return b.view(np.uint32).reshape(-1, 4)[:threads].T


@pytest.mark.parametrize("op", LOADS)
def test_loads_in_every_form(op: str) -> None:
    """Each form with each pattern of addresses, from full and partial waves."""
    size = SIZES[op]
    raw = RNG.integers(0, 256, 2048, np.uint8)
    target = registers(20, size)
    forms = {
        f"global_load_{op} {target}, v4, s[8:9] offset:36": 36,
        f"{WIDE}global_load_{op} {target}, v[6:7], off offset:-20": -20,
        f"{WIDE}flat_load_{op} {target}, v[6:7] offset:8": 8,
        f"buffer_load_{op} {target}, v4, s[12:15], s16 offen offset:24": 36,
    }
    body, expected = IDS + POINTERS + buffer_words("0x7d0") + "s_mov_b32 s16, 12\nv_lshlrev_b32 v10, 4, v1\n", list[Array]()
    for pattern in PATTERNS:
        code, offsets = lanes(size, pattern)
        for text, extra in forms.items():
            body += f"{FILL}{code}{text}\ns_waitcnt vmcnt(0)\nglobal_store_b128 v10, v[20:23], s[10:11]\nv_add_nc_u32 v10, 512, v10\n"
            expected.append(expected_load(op, raw, offsets + extra + 32).T)
    program = engine.prepare(build(body + "s_endpgm"))
    for threads in (32, 21):
        b = np.zeros((len(expected), 32, 4), np.uint32)
        arguments = struct.pack("<QQ", raw.ctypes.data + 32, b.ctypes.data)  # so that negative offsets stay inside
        buffers = [engine.Buffer("a", raw.ctypes.data, raw.nbytes, False), engine.Buffer("b", b.ctypes.data, b.nbytes)]
        program.run((1, 1, 1), (threads, 1, 1), arguments, buffers)
        np.testing.assert_array_equal(b[:, :threads], np.stack(expected)[:, :threads])
        assert (b[:, threads:] == 0).all()


@pytest.mark.parametrize("op", STORES)
def test_stores_in_every_form(op: str) -> None:
    size = SIZES[op]
    data = RNG.integers(0, 1 << 32, (32, 4), np.uint32)
    source = registers(20, size)
    forms = {
        f"global_store_{op} v4, {source}, s[8:9] offset:36": 36,
        f"{WIDE}global_store_{op} v[6:7], {source}, off offset:20": 20,
        f"{WIDE}flat_store_{op} v[6:7], {source} offset:8": 8,
        f"buffer_store_{op} {source}, v4, s[12:15], s16 offen offset:24": 36,
    }
    load = "v_lshlrev_b32 v10, 4, v1\nglobal_load_b128 v[20:23], v10, s[10:11]\ns_waitcnt vmcnt(0)\n"
    body, places = IDS + POINTERS + load + "s_mov_b32 s16, 12\n", list[Array]()
    for pattern in PATTERNS:
        code, offsets = lanes(size, pattern)
        for text, extra in forms.items():
            body += f"{buffer_words('0x7d0')}{code}{text}\ns_add_u32 s8, s8, 0x800\ns_addc_u32 s9, s9, 0\n"
            places.append(offsets + extra)
    code = build(body + "s_endpgm")
    for threads in (32, 21):
        a = np.full((len(places), 2048), 0xA5, np.uint8)
        run(code, [a, data], block=(threads, 1, 1))
        expected = np.full((len(places), 2048), 0xA5, np.uint8)
        for row, offsets in enumerate(places):
            for lane, at in enumerate(offsets[:threads]):
                raw = data[lane].view(np.uint8)
                expected[row, at : at + size] = raw[2 : 2 + size] if "_hi_" in op else raw[:size]
        np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("op", ["u8", "i8", "u16", "i16", "b32", "b64", "b96", "b128"])
def test_lds_there_and_back(op: str) -> None:
    size = SIZES[op]
    store = {"u8": "b8", "i8": "b8", "u16": "b16", "i16": "b16"}.get(op, op)
    data = RNG.integers(0, 1 << 32, (32, 4), np.uint32)
    body = IDS + POINTERS + "v_lshlrev_b32 v10, 4, v1\nglobal_load_b128 v[24:27], v10, s[8:9]\ns_waitcnt vmcnt(0)\n"
    for pattern in PATTERNS:
        body += FILL + lanes(size, pattern)[0]
        body += f"ds_store_{store} v4, {registers(24, size)} offset:40\nds_load_{op} {registers(20, size)}, v4 offset:40\n"
        body += "s_waitcnt lgkmcnt(0)\nglobal_store_b128 v10, v[20:23], s[10:11]\nv_add_nc_u32 v10, 512, v10\n"
    code = build(body + "s_endpgm", lds=2048)
    for threads in (32, 13):
        b = np.zeros((len(PATTERNS), 32, 4), np.uint32)
        run(code, [data, b], block=(threads, 1, 1))
        expected = expected_load(op, data.view(np.uint8).reshape(-1), 16 * np.arange(32)).T
        for row in b:
            np.testing.assert_array_equal(row[:threads], expected[:threads])


def test_lds_d16_forms() -> None:
    body = (
        IDS
        + POINTERS
        + """
      v_mul_u32_u24 v11, 0x01030507, v1
      v_lshlrev_b32 v4, 2, v1
      ds_store_b32 v4, v11
      v_mov_b32 v20, 0x55667788
      v_mov_b32 v21, 0x55667788
      v_mov_b32 v22, 0x55667788
      v_mov_b32 v23, 0x55667788
      ds_load_u8_d16 v20, v4 offset:1
      ds_load_i8_d16_hi v21, v4
      ds_load_u16_d16 v22, v4 offset:2
      ds_load_u16_d16_hi v23, v4
      ds_store_b16_d16_hi v4, v11 offset:256
      ds_store_b8_d16_hi v4, v11 offset:259
      ds_load_b32 v24, v4 offset:256
      s_waitcnt lgkmcnt(0)
      v_lshlrev_b32 v10, 4, v1
      global_store_b128 v10, v[20:23], s[8:9]
      global_store_b32 v4, v24, s[10:11]
      s_endpgm
    """
    )
    a, b = np.zeros((32, 4), np.uint32), np.zeros(32, np.uint32)
    run(build(body, lds=512), [a, b])
    data = (np.arange(32, dtype=np.uint64) * (0x01030507 & 0xFFFFFF) & 0xFFFFFFFF).astype(np.uint32)
    np.testing.assert_array_equal(a[:, 0], 0x55660000 | (data >> 8 & 0xFF))
    signed = (data & 0xFF).astype(np.uint8).astype(np.int8).astype(np.int32).astype(np.uint32) & 0xFFFF
    np.testing.assert_array_equal(a[:, 1], signed << 16 | 0x7788)
    np.testing.assert_array_equal(a[:, 2], 0x55660000 | data >> 16)
    np.testing.assert_array_equal(a[:, 3], (data & 0xFFFF) << 16 | 0x7788)
    np.testing.assert_array_equal(b & 0xFFFF, data >> 16)
    np.testing.assert_array_equal(b >> 24, data >> 16 & 0xFF)


@pytest.mark.parametrize(("stride", "unit"), [("", 1), ("stride64_", 64)])
@pytest.mark.parametrize("bits", [32, 64])
def test_lds_two_address_forms(stride: str, unit: int, bits: int) -> None:
    n = bits // 32
    first, second, both = registers(20, 4 * n), registers(20 + n, 4 * n), registers(24, 8 * n)
    body = (
        IDS
        + POINTERS
        + "v_lshlrev_b32 v10, 4, v1\nglobal_load_b128 v[20:23], v10, s[8:9]\ns_waitcnt vmcnt(0)\n"
        + f"v_lshlrev_b32 v4, {1 + n}, v1\n"
        + f"ds_store_2addr_{stride}b{bits} v4, {first}, {second} offset0:3 offset1:1\n"
        + "v_mov_b32 v24, 0\nv_mov_b32 v25, 0\nv_mov_b32 v26, 0\nv_mov_b32 v27, 0\n"
        + f"ds_load_2addr_{stride}b{bits} {both}, v4 offset0:1 offset1:3\ns_waitcnt lgkmcnt(0)\n"
        + "global_store_b128 v10, v[24:27], s[10:11]\ns_endpgm"
    )
    data = RNG.integers(0, 1 << 32, (32, 4), np.uint32)
    b = np.zeros((32, 4), np.uint32)
    run(build(body, lds=4096), [data, b])
    lds = np.zeros((4096 // (4 * n), n), np.uint32)
    for offset, column in ((3, 0), (1, n)):  # the second store of a pair comes last
        lds[np.arange(32) + offset * unit] = data[:, column : column + n]
    expected = np.zeros((32, 4), np.uint32)
    expected[:, :n], expected[:, n : 2 * n] = lds[np.arange(32) + unit], lds[np.arange(32) + 3 * unit]
    if unit == 64:
        np.testing.assert_array_equal(b, expected)
    else:  # the pair's ranges overlap: a byte has the value of one store or the other
        own = b[:, n : 2 * n]
        assert ((own == expected[:, n : 2 * n]) | (own == data[:, :n])).all()


# ---- buffers --------------------------------------------------------------------------------------------------------------------------


def buffer_words(records: str, flags: str = "0x31027000", stride: int = 0) -> str:
    return (
        f"s_mov_b32 s12, s8\ns_and_b32 s13, s9, 0xffff\ns_or_b32 s13, s13, {stride << 16:#x}\n"
        f"s_mov_b32 s14, {records}\ns_mov_b32 s15, {flags}\n"
    )


@pytest.mark.parametrize("records", [0, 4, 30, 64, 130])
@pytest.mark.parametrize("op", ["u8", "u16", "b32", "b64", "b128", "d16_hi_b16"])
def test_raw_buffers_check_each_dword(op: str, records: int) -> None:
    size = SIZES[op]
    raw = RNG.integers(1, 256, 2048, np.uint8)
    body = IDS + POINTERS + FILL + buffer_words(str(records)) + f"v_mul_u32_u24 v4, {size}, v1\n"
    body += f"buffer_load_{op} {registers(20, size)}, v4, s[12:15], 0 offen offset:4\ns_waitcnt vmcnt(0)\n" + DUMP
    b = np.zeros(512, np.uint8)
    run(build(body), [raw, b])
    seen = raw.copy()
    limit = records if size < 4 else records // 4 * 4
    seen[limit // min(size, 4) * min(size, 4) :] = 0
    np.testing.assert_array_equal(dumped(b, 32), expected_load(op, seen, 4 + size * np.arange(32)))


def test_offsets_do_not_wrap_and_the_scalar_offset_escapes_the_check() -> None:
    raw = np.arange(64, dtype=np.uint32) + 1000
    body = (
        IDS
        + POINTERS
        + buffer_words("128")
        + """
      v_lshlrev_b32 v4, 2, v1
      v_sub_nc_u32 v4, v4, 16             ; lanes 0 to 3 wrap to just below 4 GiB
      buffer_load_b32 v20, v4, s[12:15], 0 offen offset:16
      s_movk_i32 s16, 0x80                ; 128 bytes on: past num_records, inside the array
      v_lshlrev_b32 v5, 2, v1
      buffer_load_b32 v21, v5, s[12:15], s16 offen
      v_bfrev_b32 v6, 1                   ; 0x80000000: nowhere
      buffer_load_b32 v22, v6, s[12:15], 0 offen
      buffer_load_b32 v23, off, s[12:15], 0 offset:8
      s_waitcnt vmcnt(0)
    """
        + DUMP
    )
    b = np.zeros(512, np.uint8)
    run(build(body), [raw, b])
    got = dumped(b, 32)
    np.testing.assert_array_equal(got[0], np.where(np.arange(32) < 4, 0, 1000 + np.arange(32)))
    np.testing.assert_array_equal(got[1], 1032 + np.arange(32))
    assert (got[2] == 0).all()
    assert (got[3] == 1002).all()


def test_buffer_stores_are_dropped_out_of_range() -> None:
    a = np.full(64, 7, np.uint32)
    body = IDS + POINTERS + buffer_words("40") + "v_lshlrev_b32 v4, 3, v1\nv_mov_b32 v20, v1\nv_add_nc_u32 v21, 100, v1\n"
    body += "buffer_store_b64 v[20:21], v4, s[12:15], 0 offen offset:4\ns_endpgm"
    report = run(build(body), [a])
    expected = np.full(64, 7, np.uint32)
    for i in range(32):
        for j, value in enumerate((i, 100 + i)):
            if 4 + 8 * i + 4 * j + 4 <= 40:
                expected[1 + 2 * i + j] = value
    np.testing.assert_array_equal(a, expected)
    assert report.counters.bytes_stored == 36


@pytest.mark.parametrize(("select", "in_range"), [(3, "bytes"), (0, "both"), (1, "index"), (2, "always")])
def test_structured_buffers(select: int, in_range: str) -> None:
    raw = RNG.integers(1, 1 << 32, 512, np.uint32)
    records, stride = 20, 12
    flags = 0x01027000 | select << 28
    body = (
        IDS
        + POINTERS
        + buffer_words(str(records if select != 3 else 200), hex(flags), stride)
        + """
      v_mov_b32 v4, v1                 ; index
      v_and_b32 v5, 1, v1
      v_lshlrev_b32 v5, 3, v5          ; offset 0 or 8: offset + 4 + 4 is past the record for odd lanes
      buffer_load_b32 v20, v[4:5], s[12:15], 0 idxen offen offset:4
      s_waitcnt vmcnt(0)
    """
        + DUMP
    )
    b = np.zeros(512, np.uint8)
    run(build(body), [raw, b])
    lane = np.arange(32)
    inside = lane % 2 * 8 + 4
    offset = stride * lane + inside
    good = {
        "bytes": offset + 4 <= 200,
        "both": (lane < records) & (inside + 4 <= stride),
        "index": lane < records,
        "always": lane >= 0,
    }[in_range]
    np.testing.assert_array_equal(dumped(b, 32)[0], np.where(good, raw[offset // 4], 0))


def test_swizzled_buffers_are_refused() -> None:
    body = IDS + POINTERS + buffer_words("64") + "s_or_b32 s13, s13, 0x40000000\nv_lshlrev_b32 v4, 2, v1\n"
    body += "buffer_load_b32 v20, v4, s[12:15], 0 offen\ns_endpgm"
    with pytest.raises(UnsupportedInstructionError, match="swizzled"):
        run(build(body), [np.zeros(64, np.uint32)])


# ---- scalar loads ---------------------------------------------------------------------------------------------------------------------


def test_scalar_loads() -> None:
    a = RNG.integers(0, 1 << 32, 64, np.uint32)
    sizes = {"b32": 1, "b64": 2, "b128": 4, "b256": 8, "b512": 16}
    body = IDS + POINTERS + "s_movk_i32 s14, 8\nv_mov_b32 v11, 0\n"
    expected = np.zeros(32, np.uint32)
    at = 0
    for op, n in sizes.items():
        target = f"s[20:{19 + n}]" if n > 1 else "s20"
        body += f"s_load_{op} {target}, s[8:9], s14 offset:0x{4 * n:x}\ns_waitcnt lgkmcnt(0)\n"
        body += f"v_writelane_b32 v11, s20, {at}\nv_writelane_b32 v11, s{19 + n}, {at + 1}\n"
        expected[at], expected[at + 1] = a[2 + n], a[2 + 2 * n - 1]
        at += 2
    body += "v_lshlrev_b32 v10, 2, v1\nglobal_store_b32 v10, v11, s[10:11]\ns_endpgm"
    b = np.zeros(32, np.uint32)
    run(build(body), [a, b])
    np.testing.assert_array_equal(b, expected)


def test_scalar_buffer_loads_read_zero_past_the_end() -> None:
    a = np.arange(64, dtype=np.uint32) + 5
    body = IDS + POINTERS + buffer_words("44") + "s_buffer_load_b128 s[20:23], s[12:15], 0x20\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v11, 0\n"
    body += "".join(f"v_writelane_b32 v11, s{20 + i}, {i}\n" for i in range(4))
    body += "v_lshlrev_b32 v10, 2, v1\nglobal_store_b32 v10, v11, s[10:11]\ns_endpgm"
    b = np.zeros(32, np.uint32)
    run(build(body), [a, b])
    assert b[:4].tolist() == [13, 14, 15, 0]


# ---- scratch and flat -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [32, 19])
def test_scratch_is_private_and_byte_addressed(threads: int) -> None:
    body = (
        IDS
        + POINTERS
        + """
      v_lshlrev_b32 v10, 4, v1
      global_load_b128 v[20:23], v10, s[8:9]
      v_and_b32 v4, 7, v1                 ; each lane has its own offset, aligned or not
      s_mov_b32 s14, 16
      s_waitcnt vmcnt(0)
      scratch_store_b128 v4, v[20:23], s14 offset:8
      scratch_store_b32 off, v20, off offset:100
      scratch_store_b8 off, v21, off offset:101
      scratch_load_b64 v[24:25], v4, s14 offset:11
      scratch_load_u16 v26, v4, off offset:35
      scratch_load_b32 v27, off, off offset:100
      s_waitcnt vmcnt(0)
      global_store_b128 v10, v[24:27], s[10:11]
      s_endpgm
    """
    )
    data = RNG.integers(0, 1 << 32, (64, 4), np.uint32)
    b = np.zeros((64, 4), np.uint32)
    run(build(body, scratch=128, directives="  .amdhsa_enable_private_segment 1"), [data, b], block=(threads, 1, 1))
    for lane in range(threads):
        raw = data[lane].tobytes()
        assert b[lane, :2].tobytes() == raw[3:11]
        assert b[lane, 2] == int.from_bytes(raw[11:13], "little")
        assert b[lane, 3].tobytes() == bytes([raw[0], raw[4], raw[2], raw[3]])


def test_flat_addresses_reach_lds_and_scratch() -> None:
    body = (
        IDS
        + POINTERS
        + """
      s_mov_b64 s[20:21], src_shared_base
      s_mov_b64 s[22:23], src_private_base
      v_lshlrev_b32 v4, 2, v1
      v_add_nc_u32 v11, 500, v1
      ds_store_b32 v4, v11
      v_mul_u32_u24 v12, 3, v1
      scratch_store_b32 off, v12, off offset:8
      v_cmp_lt_u32 vcc_lo, 9, v1          ; lanes 10 and up go to LDS, the others to scratch
      v_mov_b32 v5, s21
      v_mov_b32 v6, s23
      v_cndmask_b32 v7, v6, v5, vcc_lo
      v_cndmask_b32 v6, 8, v4, vcc_lo
      s_waitcnt lgkmcnt(0)
      flat_load_b32 v11, v[6:7]
      s_waitcnt vmcnt(0) lgkmcnt(0)
      global_store_b32 v4, v11, s[8:9]
      s_endpgm
    """
    )
    a = np.zeros(32, np.uint32)
    run(build(body, lds=128, scratch=16, directives="  .amdhsa_enable_private_segment 1"), [a])
    i = np.arange(32)
    np.testing.assert_array_equal(a, np.where(i > 9, 500 + i, 3 * i))


# ---- faults ---------------------------------------------------------------------------------------------------------------------------


def fault(body: str, arrays: list[Array], integers: tuple[int, ...] = (), **options: Any) -> str:
    with pytest.raises(MemoryFaultError) as caught:
        run(build(IDS + POINTERS + body + "\ns_endpgm", lds=64, scratch=16), arrays, integers, **options)
    assert caught.value.mnemonic
    assert caught.value.pc is not None
    return caught.value.message


def test_a_load_past_the_end_says_how_far() -> None:
    arrays = [np.zeros(20, np.uint32), np.zeros(4096, np.uint32)]
    message = fault("v_lshlrev_b32 v4, 2, v1\nglobal_load_b32 v20, v4, s[8:9]", arrays)
    assert "global_load_b32 at pc 0x" in message
    assert "lane 20 reads 4 bytes" in message
    assert "0 bytes past the end of 'a' (80 bytes at" in message
    message = fault("v_lshlrev_b32 v4, 4, v1\nglobal_load_b128 v[20:23], v4, s[8:9] offset:8", arrays)
    assert "lane 4 reads 16 bytes" in message
    assert "8 of them past the end of 'a'" in message


def test_stores_before_the_start_and_to_read_only_buffers() -> None:
    whole = np.zeros(64, np.uint32)
    message = fault("v_lshlrev_b32 v4, 2, v1\nglobal_store_b32 v4, v1, s[8:9] offset:-8", [whole[16:40]])
    assert "lane 0 writes 4 bytes" in message
    assert "8 bytes before the start of 'a'" in message
    frozen = np.zeros(32, np.uint32)
    frozen.flags.writeable = False
    message = fault("v_lshlrev_b32 v4, 2, v1\nglobal_store_b32 v4, v1, s[8:9]", [frozen])
    assert "in 'a', which is read-only" in message
    assert whole[16:].any()  # the lanes inside did write
    assert not whole[:16].any()
    assert not frozen.any()


def test_inactive_lanes_and_scalar_loads() -> None:
    a = np.arange(8, dtype=np.uint32)
    # Only lanes below 8 are active: no fault.
    run(build(IDS + POINTERS + "v_cmp_gt_u32 vcc_lo, 8, v1\ns_and_b32 exec_lo, exec_lo, vcc_lo\nv_lshlrev_b32 v4, 2, v1\n"
              "global_load_b32 v20, v4, s[8:9]\ns_endpgm"), [a])  # fmt: skip
    message = fault("s_load_b64 s[20:21], s[8:9], 0x1c", [a])
    assert "s_load_b64" in message
    assert "4 of them past the end of 'a'" in message


def test_zero_size_buffers_hold_nothing() -> None:
    message = fault("v_mov_b32 v4, 0\nglobal_load_u8 v20, v4, s[8:9]", [np.zeros(0, np.uint8)])
    assert "lane 0 reads 1 bytes" in message


def test_lds_and_scratch_bounds() -> None:
    assert "LDS offset 64, of 64 bytes" in fault("v_lshlrev_b32 v4, 2, v1\nds_load_b32 v20, v4", [])
    assert "lane 13 writes 16 bytes at LDS offset 52" in fault("v_lshlrev_b32 v4, 2, v1\nds_store_b128 v4, v[20:23]", [])
    assert "scratch offset 16, of 16 bytes" in fault("scratch_store_b32 off, v1, off offset:16", [])


def test_a_fault_carries_the_source_line(tmp_path: Any) -> None:
    source = tmp_path / "user.py"
    source.write_text("x = ts.load(a, i)\n")
    code = build(IDS + POINTERS + "v_lshlrev_b32 v4, 2, v1\nglobal_load_b32 v20, v4, s[8:9] offset:64\ns_endpgm")
    program = engine.prepare(code, lines=lambda pc: Location(str(source), 1, 4, 1, 17))
    a = np.zeros(32, np.uint32)
    with pytest.raises(MemoryFaultError, match=r"ts\.load") as caught:
        program.run((1, 1, 1), (32, 1, 1), a.ctypes.data.to_bytes(8, "little"), [engine.Buffer("a", a.ctypes.data, a.nbytes)])
    assert caught.value.location is not None
    assert caught.value.location.line == 1


# ---- atomics --------------------------------------------------------------------------------------------------------------------------

INTEGER_ATOMICS = {
    "add_u32": lambda m, d: m + d,
    "sub_u32": lambda m, d: m - d,
    "min_i32": lambda m, d: min(m - (m >> 31 << 32), d - (d >> 31 << 32)),
    "max_i32": lambda m, d: max(m - (m >> 31 << 32), d - (d >> 31 << 32)),
    "min_u32": min,
    "max_u32": max,
    "and_b32": lambda m, d: m & d,
    "or_b32": lambda m, d: m | d,
    "xor_b32": lambda m, d: m ^ d,
    "inc_u32": lambda m, d: 0 if m >= d else m + 1,
    "dec_u32": lambda m, d: d if m == 0 or m > d else m - 1,
    "swap_b32": lambda m, d: d,
}


@pytest.mark.parametrize("op", list(INTEGER_ATOMICS))
def test_integer_atomics(op: str) -> None:
    """Lanes hit eight places four times each; the order of lanes is the simulator's, which is one of those allowed."""
    data = RNG.integers(0, 1 << 32, 32, np.uint32)
    memory = RNG.integers(0, 1 << 32, 8, np.uint32)
    lds = {"swap_b32": "storexchg_rtn_b32"}.get(op, op.replace("_", "_rtn_"))
    body = (
        IDS
        + POINTERS
        + """
      v_lshlrev_b32 v10, 2, v1
      global_load_b32 v20, v10, s[10:11]
      v_and_b32 v4, 7, v1
      v_lshlrev_b32 v4, 2, v4
      global_load_b32 v22, v4, s[8:9]
      s_waitcnt vmcnt(0)
      ds_store_b32 v4, v22
      ds_store_b32 v4, v22 offset:32
      s_mov_b32 s20, 0
    """
    )
    variants = {
        f"global_atomic_{op} v4, v20, s[8:9]": False,
        f"global_atomic_{op} v21, v4, v20, s[8:9] glc": True,
        f"{WIDE}flat_atomic_{op} v[6:7], v20": False,
        f"{WIDE}flat_atomic_{op} v21, v[6:7], v20 glc": True,
        f"buffer_atomic_{op} v20, v4, s[12:15], 0 offen": False,
        f"v_mov_b32 v21, v20\nbuffer_atomic_{op} v21, v4, s[12:15], 0 offen glc": True,
        f"ds_{lds} v21, v4, v20\nds_load_b32 v22, v4\ns_waitcnt lgkmcnt(0)\nglobal_store_b32 v4, v22, s[8:9]": True,
    }
    if op != "swap_b32":
        variants[f"ds_{op} v4, v20 offset:32\nds_load_b32 v22, v4 offset:32\ns_waitcnt lgkmcnt(0)\nglobal_store_b32 v4, v22, s[8:9]"] = (
            False
        )
    for text in variants:
        body += f"{buffer_words('32')}v_mov_b32 v21, 0x1234\n{text}\ns_waitcnt vmcnt(0) lgkmcnt(0)\n"
        body += "v_add_nc_u32 v10, 128, v10\nglobal_store_b32 v10, v21, s[10:11]\ns_add_u32 s8, s8, 32\ns_addc_u32 s9, s9, 0\n"
    a, b = np.tile(memory, (len(variants), 1)), np.zeros((1 + len(variants), 32), np.uint32)
    b[0] = data
    run(build(body + "s_endpgm", lds=64), [a, b])
    now, old = [int(m) for m in memory], []
    for lane in range(32):
        old.append(now[lane % 8])
        now[lane % 8] = INTEGER_ATOMICS[op](now[lane % 8], int(data[lane])) & 0xFFFFFFFF
    for row, (text, returning) in enumerate(variants.items()):
        assert a[row].tolist() == now, text
        assert b[1 + row].tolist() == (old if returning else [0x1234] * 32), text


def test_compare_and_swap_and_64_bits() -> None:
    body = (
        IDS
        + POINTERS
        + """
      v_lshlrev_b32 v10, 3, v1
      v_add_nc_u32 v20, 1000, v1         ; new
      v_and_b32 v21, 15, v1              ; compare
      v_lshlrev_b32 v4, 2, v1
      global_atomic_cmpswap_b32 v11, v4, v[20:21], s[8:9] glc
      v_mov_b32 v30, v20
      v_mov_b32 v31, 3
      v_mov_b32 v22, v21
      v_mov_b32 v23, 3
      ds_store_b64 v10, v[22:23]
      ds_cmpstore_rtn_b64 v[32:33], v10, v[30:31], v[22:23]
      v_mov_b32 v40, -1
      v_mov_b32 v41, 0
      global_atomic_add_u64 v10, v[40:41], s[10:11]
      ds_load_b64 v[34:35], v10
      s_waitcnt vmcnt(0) lgkmcnt(0)
      v_mul_u32_u24 v10, 20, v1
      global_store_b32 v10, v11, s[12:13]
      global_store_b64 v10, v[32:33], s[12:13] offset:4
      global_store_b64 v10, v[34:35], s[12:13] offset:12
      s_endpgm
    """
    )
    i = np.arange(32)
    a, b, c = i.astype(np.uint32), (i.astype(np.uint64) << np.uint64(32)) + np.uint64(7), np.zeros((32, 5), np.uint32)
    run(build(body, lds=256), [a, b, c])
    np.testing.assert_array_equal(a, np.where(i < 16, 1000 + i, i))
    np.testing.assert_array_equal(b, (i.astype(np.uint64) << np.uint64(32)) + np.uint64(7 + 0xFFFFFFFF))
    np.testing.assert_array_equal(c, np.stack([i, i % 16, 0 * i + 3, 1000 + i, 0 * i + 3], 1))


def test_float_atomics() -> None:
    body = (
        IDS
        + POINTERS
        + """
      v_cvt_f32_u32 v20, v1
      v_mov_b32 v4, 0
      global_atomic_add_f32 v4, v20, s[8:9]
      global_atomic_max_f32 v4, v20, s[8:9] offset:4
      ds_store_b32 v4, v4
      ds_add_f32 v4, v20
      ds_load_b32 v21, v4
      v_lshlrev_b32 v10, 2, v1
      s_waitcnt lgkmcnt(0)
      global_store_b32 v10, v21, s[10:11]
      s_endpgm
    """
    )
    a, b = np.array([0.5, 3], np.float32), np.zeros(32, np.float32)
    run(build(body, lds=64), [a, b])
    assert a.tolist() == [496.5, 31]
    assert (b == 496).all()


# ---- lane exchange --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [32, 20])
def test_permutes_give_zero_for_inactive_lanes(threads: int) -> None:
    body = (
        IDS
        + POINTERS
        + """
      v_add_nc_u32 v20, 100, v1
      v_mul_u32_u24 v4, 28, v1            ; lane 7*i
      v_mov_b32 v21, 9
      v_mov_b32 v22, 9
      ds_bpermute_b32 v21, v4, v20 offset:12
      ds_permute_b32 v22, v4, v20
      ds_swizzle_b32 v23, v20 offset:swizzle(BITMASK_PERM, "01pi0")
      ds_swizzle_b32 v20, v20 offset:swizzle(QUAD_PERM, 3, 2, 0, 1)
      s_waitcnt lgkmcnt(0)
    """
        + DUMP
    )
    b = np.zeros(512, np.uint8)
    run(build(body.replace("s[10:11]", "s[8:9]")), [b], block=(threads, 1, 1))
    got = dumped(b, threads)
    i = np.arange(threads)
    source = (7 * i + 3) % 32
    np.testing.assert_array_equal(got[1], np.where(source < threads, 100 + source, 0))
    sent = np.zeros(32, np.uint32)
    sent[7 * i % 32] = 100 + i
    np.testing.assert_array_equal(got[2], sent[:threads])
    mask = np.array([(lane & 0b00110 | 0b01000) ^ 0b00010 for lane in range(32)])[:threads]
    np.testing.assert_array_equal(got[3], np.where(mask < threads, 100 + mask, 0))
    quad = np.array([(lane & ~3) + (3, 2, 0, 1)[lane & 3] for lane in range(threads)])
    np.testing.assert_array_equal(got[0], np.where(quad < threads, 100 + quad, 0))


def test_swizzle_rotation() -> None:
    assert swizzle_sources(0xC000 | 1 << 5) == [(i + 1) % 32 for i in range(32)]
    assert swizzle_sources(0xC000 | 1 << 10 | 2 << 5 | 0x18) == [(i & 0x18) | ((i - 2) & 7) for i in range(32)]
    with pytest.raises(ValueError, match="FFT"):
        swizzle_sources(0xE000)


def test_spellings_of_other_generations() -> None:
    pairs = {
        "global_load_dwordx4": "global_load_b128",
        "buffer_store_short_d16_hi": "buffer_store_d16_hi_b16",
        "flat_load_sbyte_d16": "flat_load_d16_i8",
        "ds_read_u16_d16_hi": "ds_load_d16_hi_b16",
        "ds_write2st64_b64": "ds_store_2addr_stride64_b64",
        "ds_read2_b32": "ds_load_2addr_b32",
        "s_load_dwordx16": "s_load_b512",
        "s_buffer_load_dword": "s_buffer_load_b32",
    }
    assert {old: canonical(old) for old in pairs} == pairs


# ---- conflicts ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "stride", "cycles", "conflicts"),
    [
        ("b32", 4, 1, 0),  # neighbours
        ("b32", 0, 1, 0),  # one dword for all
        ("b32", 8, 2, 1),  # two dwords in each used bank
        ("b32", 128, 32, 31),  # all in one bank
        ("b64", 8, 2, 0),  # two groups of 16 lanes
        ("b64", 16, 4, 2),
        ("b128", 16, 4, 0),  # four groups of 8 lanes
        ("b128", 64, 16, 12),
        ("b128", 80, 4, 0),
    ],
)
def test_bank_conflicts(op: str, stride: int, cycles: int, conflicts: int) -> None:
    body = IDS + f"v_mul_u32_u24 v4, {stride}, v1\nds_load_{op} {registers(20, SIZES[op])}, v4\ns_waitcnt lgkmcnt(0)\ns_endpgm"
    report = run(build(body, lds=8192), [], counters=True)
    assert (report.counters.lds_cycles, report.counters.lds_conflicts) == (cycles, conflicts)
    assert report.counters.lds_bytes_loaded == 32 * SIZES[op]


@pytest.mark.parametrize("op", ["b32", "b128", "d16_hi_b16"])
def test_the_same_on_a_host_without_vector_extensions(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_HOST_FEATURES", "baseline")
    assert llvm.host().vector_bits == 128
    test_loads_in_every_form(op)
    if op in STORES:
        test_stores_in_every_form(op)
    if op in ("b128", "b32"):
        test_lds_there_and_back(op)
