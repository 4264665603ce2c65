"""The arch table: names, gates, and numbers compared with the facts' public sources."""

from __future__ import annotations

import pytest

from tessera.errors import UnsupportedArchError
from tessera.targets.rocm.arch import DEFAULT, Family, arch, arches, compilable, supported_names

RDNA3 = [f"gfx{n}" for n in (1100, 1101, 1102, 1103, 1150, 1151, 1152, 1153)]
ALL = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", *RDNA3, "gfx1200", "gfx1201", "gfx1250", "gfx1251"]


def test_every_arch_has_a_row() -> None:
    assert [a.name for a in arches()] == ALL
    assert supported_names() == tuple(RDNA3)
    assert compilable(DEFAULT).name == "gfx1151"


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("gfx942:sramecc+:xnack-", "gfx942"), ("gfx1151", "gfx1151"), ("gfx90a:xnack+", "gfx90a"), ("gfx1100:", "gfx1100")],
)
def test_feature_suffixes(spelled: str, name: str) -> None:
    assert arch(spelled).name == name


@pytest.mark.parametrize("name", ["gfx", "gfx11", "gfx1104", "gfx110", "gfx11000", "GFX1100", "gfx906", "", " gfx1100", "sm_90"])
def test_unknown_names_are_refused_and_list_what_exists(name: str) -> None:
    with pytest.raises(UnsupportedArchError) as e:
        arch(name)
    assert repr(name) in str(e.value)
    assert "gfx1151" in str(e.value)
    assert "gfx942" in str(e.value)


def test_close_names_are_suggested() -> None:
    with pytest.raises(UnsupportedArchError, match=r"Close to it: gfx115[0-3]"):
        arch("gfx1154")


@pytest.mark.parametrize("name", [n for n in ALL if n not in supported_names()])
def test_known_but_not_compiled_for(name: str) -> None:
    with pytest.raises(UnsupportedArchError) as e:
        compilable(name)
    text = str(e.value)
    assert text.startswith(f"{name} (")
    assert "this version doesn't compile for it yet; it compiles for gfx1100, gfx1101" in text


def test_matrix_cores_and_executors() -> None:
    for a in arches():
        cdna = a.family.value.startswith("CDNA")
        assert (a.matrix_core == "mfma") == cdna == (a.wave_size == 64) == (a.agprs == 256)
        assert a.executor == ("rocm_mfma" if cdna else "rocm_wmma")
    assert arch("gfx1030").matrix_core is None
    assert arch("gfx1250").matrix_core == "wmma"
    assert arch("gfx1250").family is Family.GFX125


# LLVM's occupancy for a number of VGPRs ("; Occupancy" of its assembly output), at each step of the function.
OCCUPANCY = {
    "gfx908": [(1, 10), (25, 9), (29, 8), (33, 7), (37, 6), (41, 5), (49, 4), (65, 3), (85, 2), (129, 1)],
    "gfx90a": [(1, 8), (65, 7), (73, 6), (81, 5), (97, 4), (129, 3), (169, 2)],
    "gfx1102": [(1, 16), (65, 12), (81, 10), (97, 9), (113, 8), (129, 7), (145, 6), (161, 5), (193, 4)],
    "gfx1151": [(1, 16), (97, 12), (121, 10), (145, 9), (169, 8), (193, 7), (217, 6), (241, 5)],
    "gfx1201": [(1, 16), (97, 12), (121, 10), (145, 9), (169, 8), (193, 7), (217, 6), (241, 5)],
    "gfx1250": [(1, 16), (65, 12), (81, 10), (97, 9), (113, 8), (129, 7), (145, 6), (161, 5), (193, 4)],
}


@pytest.mark.parametrize("name", OCCUPANCY)
def test_occupancy_by_registers(name: str) -> None:
    row, steps = arch(name), OCCUPANCY[name]
    for (first, waves), (after, _) in zip(steps, [*steps[1:], (257, 0)], strict=True):
        assert [row.waves_per_simd(v) for v in (first, after - 1)] == [waves, waves], (first, after)


def test_limits() -> None:
    assert {a.name: a.lds_bytes for a in arches() if a.lds_bytes != 65536} == {"gfx950": 163840, "gfx1250": 327680, "gfx1251": 327680}
    assert all(a.max_workgroup_threads == 1024 for a in arches())
    assert arch("gfx1151").max_waves == 32
    assert arch("gfx942").max_waves == 16
