"""How close a run is to hardware: bit for bit, or within stated bounds for the instructions that are named.

What isn't supported at all raises; this is about what runs and may differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import matrix
from .semantics.transcendental import HARDWARE_ULP, ULP_BOUND

_TRANSCENDENTAL = frozenset(
    f"v_{name}_{kind}" for name in ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos") for kind in ("f16", "f32", "f64", "bf16")
) | {"v_rcp_iflag_f32", "v_s_exp_f32", "v_s_log_f32", "v_s_rcp_f32", "v_s_rsq_f32", "v_s_sqrt_f32"}
_DOT = ("v_dot2_f32_", "v_dot2_f16_", "v_dot2_bf16_", "v_dot2acc_f32_", "v_dot2c_f32_", "v_dot4_f32_")


@dataclass(frozen=True)
class Approximation:
    """An instruction whose results may differ from the hardware's, and by how much."""

    mnemonic: str
    bound: str


@dataclass(frozen=True)
class Fidelity:
    """`exact` where every instruction of the kernel gives the hardware's bits (but for the payload of a NaN)."""

    approximations: tuple[Approximation, ...] = ()

    @property
    def exact(self) -> bool:
        return not self.approximations

    def __str__(self) -> str:
        if self.exact:
            return "exact"
        return "approximate: " + "; ".join(f"{a.mnemonic}: {a.bound}" for a in self.approximations)


def assess(mnemonics: Iterable[str]) -> Fidelity:
    """The fidelity of a kernel that consists of these mnemonics."""
    found: list[Approximation] = []
    for mnemonic in sorted(set(mnemonics)):
        if mnemonic in _TRANSCENDENTAL:
            found.append(Approximation(mnemonic, f"{ULP_BOUND} ulp from the true value, where the hardware promises {HARDWARE_ULP} ulp"))
        elif matrix.is_matrix(mnemonic) and "_i32_" not in mnemonic:
            found.append(Approximation(mnemonic, matrix.bound(mnemonic)))
        elif mnemonic.startswith(_DOT):
            found.append(Approximation(mnemonic, "each product and sum rounded as in IEEE f32; the hardware truncates some of them"))
    return Fidelity(tuple(found))
