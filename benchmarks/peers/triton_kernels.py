"""Plain Triton kernels: what another compiler makes of them is measured, and run in the simulator by the tests."""
# ruff: noqa: SIM108 (Triton stages `if` statements; the ternary of two pointer blocks is another thing)

import triton
import triton.language as tl


@triton.jit
def vadd(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    tl.store(z + i, tl.load(x + i, mask=ok) + tl.load(y + i, mask=ok), mask=ok)


@triton.jit
def softmax_row(src, dst, src_ld, dst_ld, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    ok = c < cols
    v = tl.load(src + r * src_ld + c, mask=ok, other=float("-inf")).to(tl.float32)
    v = v - tl.max(v, axis=0)
    e = tl.exp(v)
    e = e / tl.sum(e, axis=0)
    tl.store(dst + r * dst_ld + c, e.to(dst.dtype.element_ty), mask=ok)


@triton.jit
def layernorm(src, dst, gamma, beta, ld, cols, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    ok = c < cols
    v = tl.load(src + r * ld + c, mask=ok, other=0.0).to(tl.float32)
    mu = tl.sum(v, axis=0) / cols
    d = tl.where(ok, v - mu, 0.0)
    var = tl.sum(d * d, axis=0) / cols
    inv = 1.0 / tl.sqrt(var + eps)
    g = tl.load(gamma + c, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(beta + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(dst + r * ld + c, (d * inv * g + b).to(dst.dtype.element_ty), mask=ok)


@triton.jit
def gemm(
    a,
    b,
    c,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ACC: tl.constexpr,
    MASK: tl.constexpr,
    BT: tl.constexpr,
    PREC: tl.constexpr,
):
    """c[M,N] = a[M,K] @ b;  b is [K,N] row-major, or [N,K] row-major when BT."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    ap = a + rm[:, None] * lda + rk[None, :]
    if BT:
        bp = b + rn[None, :] * ldb + rk[:, None]
    else:
        bp = b + rk[:, None] * ldb + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, K, BK):
        if MASK:
            at = tl.load(ap, mask=(rm[:, None] < M) & (rk[None, :] < K - k), other=0.0)
            bt = tl.load(bp, mask=(rk[:, None] < K - k) & (rn[None, :] < N), other=0.0)
        else:
            at = tl.load(ap)
            bt = tl.load(bp)
        acc = tl.dot(at, bt, acc, input_precision=PREC, out_dtype=ACC)
        ap += BK
        if BT:
            bp += BK
        else:
            bp += BK * ldb
    cp = c + rm[:, None] * ldc + rn[None, :]
    if MASK:
        tl.store(cp, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))
    else:
        tl.store(cp, acc)


@triton.jit
def flash_fwd(q, k, v, o, S, ld, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """one head per program_id(1); tensors are [heads, S, D] with head stride ld, row stride D."""
    pm = tl.program_id(0)
    h = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    base = h * ld
    qt = tl.load(q + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    mi = tl.full((BM,), float("-inf"), tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    sc = scale * 1.4426950408889634
    if CAUSAL:
        hi = tl.minimum(S, (pm + 1) * BM)
    else:
        hi = S
    for n in range(0, hi, BN):
        cn = n + rn
        kt = tl.load(k + base + cn[None, :] * D + rd[:, None], mask=cn[None, :] < S, other=0.0)
        s = tl.dot(qt, kt) * sc
        keep = cn[None, :] < S
        if CAUSAL:
            keep = keep & (rm[:, None] >= cn[None, :])
        s = tl.where(keep, s, -1.0e30)
        mn = tl.maximum(mi, tl.max(s, axis=1))
        p = tl.exp2(s - mn[:, None])
        al = tl.exp2(mi - mn)
        li = li * al + tl.sum(p, axis=1)
        acc = acc * al[:, None]
        vt = tl.load(v + base + cn[:, None] * D + rd[None, :], mask=cn[:, None] < S, other=0.0)
        acc = tl.dot(p.to(tl.float16), vt, acc)
        mi = mn
    acc = acc / li[:, None]
    tl.store(o + base + rm[:, None] * D + rd[None, :], acc.to(tl.float16), mask=rm[:, None] < S)
