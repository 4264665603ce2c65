"""Exponentials, logarithms and reciprocal square roots.

float32 uses the hardware's `v_exp_f32`, `v_log_f32` and `v_rsq_f32`, whose results are within 1 ulp (the RDNA3 and CDNA3 ISA documents) but
which take subnormal numbers for zero: LLVM's expansions of `llvm.exp`, `exp2`, `log` and `log2` scale around them, and carry the product with
log2(e) or ln(2) in two parts. float16 and bfloat16 are computed in float32 and rounded once; there, one rounded product will do.
"""

from __future__ import annotations

import math

from ....errors import CompilerBug
from ....ir.ops import arith
from ....llvmtext import Value, const, element
from .context import Context, lowers
from .elementwise import round_to, to_float

LOG2_E = math.log2(math.e)
LN_2 = math.log(2.0)


@lowers(arith.Exp, arith.Exp2, arith.Log, arith.Log2)
def lower_function(cx: Context, op: arith.Unary) -> None:
    x = cx.get(op.source)
    scalar = element(x.type)
    if scalar == "double":
        raise CompilerBug(f"{op.name} of float64 has no lowering yet", op.location)
    if scalar == "float":
        result = cx.f.intrinsic(op.name, [x])
    else:
        result = round_to(cx, _NARROW[type(op)](cx, to_float(cx, x), scalar == "half"), x.type)
    cx.set(op.result, result)


@lowers(arith.Rsqrt)
def lower_rsqrt(cx: Context, op: arith.Rsqrt) -> None:
    x = cx.get(op.source)
    if element(x.type) == "double":
        raise CompilerBug("rsqrt of float64 has no lowering yet", op.location)
    cx.set(op.result, round_to(cx, _rsqrt_f32(cx, to_float(cx, x), element(x.type) == "half"), x.type))


def each(cx: Context, name: str, x: Value) -> Value:
    """An intrinsic that takes scalars only, of a scalar or of each element of a vector."""
    if element(x.type) == x.type:
        return cx.f.intrinsic(name, [x])
    return cx.join([cx.f.intrinsic(name, [item]) for item in cx.split(x)])


def _rsqrt_f32(cx: Context, x: Value, half: bool) -> Value:
    """v_rsq_f32, with subnormals scaled by 2^24 and their results by 2^12 (float16 has none in float32)."""
    if half:
        return each(cx, "amdgcn.rsq", x)
    f, one = cx.f, const(x.type, 1.0)
    small = f.fcmp("olt", x, const(x.type, 2.0**-126))
    root = each(cx, "amdgcn.rsq", f.binary("fmul", x, f.select(small, const(x.type, 2.0**24), one)))
    return f.binary("fmul", root, f.select(small, const(x.type, 2.0**12), one))


# ---- float16 and bfloat16, as float32 ----------------------------------------------------------------------------------------
#
# The product x log2(e) is at most 2^7.1 where the result is neither 0 nor infinite, and wrong by 2^-23 of itself: the result is wrong
# by 2^-16.4 of itself, 0.003 ulp of bfloat16.


def _exp2_narrow(cx: Context, x: Value, half: bool) -> Value:
    if not half:
        return cx.f.intrinsic("exp2", [x])
    # What v_exp_f32 flushes is 0 in float16 too.
    return cx.f.intrinsic("exp2", [x], flags="afn")


def _exp_narrow(cx: Context, x: Value, half: bool) -> Value:
    return _exp2_narrow(cx, cx.f.binary("fmul", x, const(x.type, LOG2_E)), half)


def _log2_narrow(cx: Context, x: Value, half: bool) -> Value:
    return cx.f.intrinsic("log2", [x])


def _log_narrow(cx: Context, x: Value, half: bool) -> Value:
    return cx.f.binary("fmul", _log2_narrow(cx, x, half), const(x.type, LN_2))


_NARROW = {arith.Exp: _exp_narrow, arith.Exp2: _exp2_narrow, arith.Log: _log_narrow, arith.Log2: _log2_narrow}
