"""What to write for names that users of NumPy and Triton expect, and that this version doesn't have."""

from __future__ import annotations

from collections.abc import Iterable

_FUNCTIONS = {
    "tanh": "write 1 - 2 / (ts.exp(2 * x) + 1)",
    "sigmoid": "write 1 / (1 + ts.exp(-x))",
    "relu": "write ts.maximum(x, 0)",
    "silu": "write x / (1 + ts.exp(-x))",
    "softmax": "write e = ts.exp(x - ts.max(x)); e / ts.sum(e)",
    "expm1": "write ts.exp(x) - 1, which is less exact near 0",
    "log1p": "write ts.log(1 + x), which is less exact near 0",
    "log10": "write ts.log2(x) * 0.30102999566398120",
    "pow": "write ts.exp2(y * ts.log2(x)), or x * x for small powers",
    "power": "write ts.exp2(y * ts.log2(x)), or x * x for small powers",
    "square": "write x * x",
    "reciprocal": "write 1 / x",
    "round": "write ts.floor(x + 0.5)",
    "trunc": "write ts.where(x < 0, ts.ceil(x), ts.floor(x))",
    "sign": "write (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)",
    "fma": "write x * y + z, which is rounded twice",
    "clip": "write ts.minimum(ts.maximum(x, low), high)",
    "clamp": "write ts.minimum(ts.maximum(x, low), high)",
    "isnan": "write x != x",
    "isinf": "write ts.abs(x) == float('inf')",
    "mean": "write ts.sum(x, axis) / n, n being the number of elements",
    "var": "write m = ts.sum(x) / n; ts.sum((x - m) * (x - m)) / n",
    "any": "write ts.max(mask, axis)",
    "all": "write ts.min(mask, axis)",
    "argmax": "write ts.min(ts.where(x == ts.max(x), ts.arange(n), n)), the first index of the largest",
    "argmin": "write ts.min(ts.where(x == ts.min(x), ts.arange(n), n)), the first index of the smallest",
    "matmul": "write ts.dot(a, b, acc)",
    "zeros_like": "write ts.zeros(x.shape, x.dtype)",
    "full_like": "write ts.full(x.shape, value, x.dtype)",
    "ones": "write ts.full(shape, 1, dtype)",
    "ones_like": "write ts.full(x.shape, 1, x.dtype)",
    "empty": "write ts.zeros(shape, dtype)",
    "squeeze": "write ts.reshape(x, shape)",
    "ravel": "write ts.reshape(x, -1)",
    "trans": "write ts.transpose(x)",
    "multiple_of": "alignment is found from the arguments",
    "max_contiguous": "contiguity is found from the arguments",
    "make_block_ptr": "ts.load and ts.store take arrays and the tile's index",
    "advance": "ts.load and ts.store take arrays and the tile's index",
    "debug_barrier": "the compiler places barriers",
    "syncthreads": "the compiler places barriers",
    "device_print": "ts.static_print shows types while the kernel is traced; store values to look at them",
    **dict.fromkeys(
        ("sin", "cos", "tan", "erf", "sinh", "cosh", "arctan", "atan2"),
        "compute it from exp, exp2, log, log2, sqrt and rsqrt, or on the host",
    ),
    **dict.fromkeys(
        ("prod", "cumsum", "cumprod", "associative_scan", "reduce"),
        "the reductions are sum, max and min: loop over elements with x[i] for others",
    ),
    **dict.fromkeys(("sort", "argsort", "topk", "histogram", "unique"), "do it on the host"),
    **dict.fromkeys(
        ("cat", "concatenate", "stack", "split", "join", "interleave"), "store the parts to an array, and load what is needed from it"
    ),
    **dict.fromkeys(("gather", "scatter", "take"), "x[i] reads one element, x[i] = v writes one, at run-time indices, in a loop"),
    **dict.fromkeys(
        [f"atomic_{op}" for op in ("add", "sub", "max", "min", "and", "or", "xor", "xchg", "cas")],
        "give each program its own elements to write, and combine them in a second kernel",
    ),
    **dict.fromkeys(("rand", "randn", "randint"), "make random numbers on the host, and pass them as an array"),
}

_ATTRIBUTES = {
    "to": "write x.astype(dtype)",
    "cast": "write x.astype(dtype)",
    "view": "write x.reshape(shape) for another shape; bits can't be taken for another dtype",
    "item": "a scalar is one already; x[i] of an array reads an element",
    "flatten": "write x.reshape(-1)",
    "permute": "write x.transpose(axes)",
    "data": "tiles have no address",
    "copy": "tiles are immutable, so that no copy is needed",
}

_KEYWORDS = {
    ("load", "mask"): "; masks aren't needed: elements outside the array are `other` (ts.where chooses inside)",
    ("store", "mask"): "; masks aren't needed: elements outside the array aren't written",
    ("load", "eviction_policy"): "; caches aren't controlled",
    ("load", "cache_modifier"): "; caches aren't controlled",
}


def function(name: str) -> str:
    """What to write for `ts.name`, or "" where nothing is known."""
    found = _FUNCTIONS.get(name)
    return f"ts.{name} is not in this version: {found}" if found else ""


def attribute(name: str) -> str:
    """A clause on what to write for an attribute of tiles, or ""."""
    found = _ATTRIBUTES.get(name) or _FUNCTIONS.get(name)
    return f": {found}" if found else ""


def keyword(function_name: str, message: str) -> str:
    """A clause on a keyword that a function of `ts` doesn't take, from Python's message, or ""."""
    return next((text for (owner, word), text in _KEYWORDS.items() if owner == function_name and f"'{word}'" in message), "")


def close(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` where a known name is spelled much like this one, or ""."""
    import difflib  # for errors only: importing Tessera is quick

    found = difflib.get_close_matches(name, known, 1, 0.75)
    return f"; did you mean {found[0]!r}?" if found else ""
