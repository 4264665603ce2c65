"""Floor division and modulo of floats, exactly as NumPy computes them (`npy_divmod`)."""

from __future__ import annotations

from ....llvmtext import Value
from .context import Context


def float_divmod(cx: Context, x: Value, y: Value, *, quotient: bool) -> tuple[Value, Value]:
    raise NotImplementedError
