"""Wrong programs: each shows the error's class, what the carets point at, the exact message, and so the line.

In messages, "line +2" is the second line below the `def` of the function at fault.
"""
# ruff: noqa (the programs are wrong on purpose)
# fmt: off

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.errors import KernelError, KernelNameError, KernelSyntaxError, KernelTypeError, KernelValueError, ResourceError
from tessera.frontend.parameters import Signature
from tessera.frontend.staging import Scalar, Spec, trace
from tessera.ir.types import ArrayType

A = np.zeros(64, np.float32)
B = np.zeros((32, 32), np.float16)
I = np.zeros(64, np.int32)
U = np.zeros(64, np.uint64)
TABLE = np.arange(16, dtype=np.float32)


@dataclass
class Case:
    """A wrong program and its error."""

    function: Callable[..., Any]
    error: type[Exception]
    under: str
    message: str
    args: tuple[Any, ...]


GALLERY: list[Case] = []


def wrong(error: type[Exception], under: str, message: str, *args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a kernel to the gallery: `under` is the text that the carets point at."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        GALLERY.append(Case(function, error, under, message, args))
        return function

    return add


def halve(x, n):
    return halve(x, n - 1) / 2 if n else x


def either(x, n):
    if n > 3:
        return x
    return x.astype(ts.float64)


def add_eight(x):
    return x + ts.zeros(8, ts.float32)


def failure(case: Case) -> Any:
    """The error that a case raises."""
    function: Any = case.function
    signature = Signature(function)
    specs: dict[str, Spec] = {}
    constants: dict[str, Any] = {}
    for name, value in zip(signature.names, signature.bind(case.args, {}), strict=True):
        if name in signature.constexprs:
            constants[name] = value
        elif isinstance(value, np.ndarray):
            specs[name] = ArrayType(ts.dtypes.from_numpy(value.dtype), value.ndim, 16, value.ndim - 1, True, True)
        else:
            specs[name] = Scalar(ts.int64, weak=True)
    with pytest.raises(ts.TesseraError) as found:
        trace(function, specs, constants)
    return found.value


def relative(case: Case, error: Any) -> str:
    """A message with its line numbers counted from the `def` of the function that it is about."""
    code = globals()[error.location.function].__code__
    first = code.co_firstlineno
    while not linecache.getline(code.co_filename, first).startswith("def "):
        first += 1
    return re.sub(r"\bline (\d+)", lambda m: f"line {int(m[1]) - first:+}", error.message)


def pointed_at(error: Any) -> str:
    """The source text above the carets."""
    numbered, carets = error.location.excerpt().split("\n")
    start = carets.index("^")
    return numbered[start : start + carets.count("^")]


def test_the_gallery_is_large() -> None:
    assert len(GALLERY) >= 100
    assert len({case.function.__name__ for case in GALLERY}) == len(GALLERY)



# ---- names -----------------------------------------------------------------------------------------------------------------------


@wrong(KernelNameError, 'bais', "the name 'bais' is not defined", A)
def unknown_name(a):
    x = ts.load(a, 0, shape=16)
    ts.store(a, 0, x + bais)


@wrong(KernelNameError, 'weihgts', "the name 'weihgts' is not defined; did you mean 'weights'?", A)
def unknown_name_like_another(a):
    weights = ts.load(a, 0, shape=16)
    ts.store(a, 0, weihgts)


@wrong(KernelNameError, 'ts.lod', "module 'tessera' has no attribute 'lod'; did you mean 'load'?", A)
def unknown_function_of_ts(a):
    x = ts.lod(a, 0, shape=16)


@wrong(KernelTypeError, 'ts.load(a, 0, shape=16).mean', "a float32 tile of shape (16,) has no attribute 'mean': write ts.sum(x, axis) / n, n being the number of elements; it has shape, dtype, ndim, size, T, astype, reshape, transpose, sum, max, min", A)
def unknown_attribute_of_a_tile(a):
    mean = ts.load(a, 0, shape=16).mean()


@wrong(KernelTypeError, 'a.T', "the array 'a' has no attribute 'T' in a kernel; it has shape, strides, dtype, ndim, size and itemsize. Tiles have more: ts.load(a, …).T", A)
def unknown_attribute_of_an_array(a):
    x = a.T


@wrong(KernelNameError, 'late', "'late' is used before it is assigned", A)
def used_before_assignment(a):
    ts.store(a, 0, late)
    late = ts.load(a, 0, shape=16)


@wrong(KernelNameError, 'y', "'y' is first assigned in the loop on line +2, and the loop may run no times; assign 'y' before the loop", A, 3)
def first_assigned_in_a_loop(a, n):
    for i in range(n):
        y = ts.load(a, i, shape=16)
    ts.store(a, 0, y)


@wrong(KernelNameError, 'i', "'i' is the loop's variable on line +1, and the loop may run no times; assign 'i' before the loop", A, 3)
def loop_variable_after_a_loop(a, n):
    for i in range(n):
        a[i] = 1.0
    a[i] = 2.0


@wrong(KernelNameError, 'x', "'x' has a value only where the branch on line +2 is taken; assign it before the if, or on both sides of it", A, 3)
def assigned_on_one_side(a, n):
    if n > 3:
        x = 1.0
    a[0] = x


@wrong(KernelNameError, 'x', "'x' is assigned in the loop's condition; give it a value before the loop", A, 3)
def assigned_in_the_condition(a, n):
    while (x := a[n]) > 0:
        n += 1
        a[0] = x


# ---- Python that kernels can't use -----------------------------------------------------------------------------------------------


@wrong(KernelSyntaxError, 'try', 'try is not available in kernels: nothing in them raises at run time', A)
def try_statement(a):
    try:
        x = ts.load(a, 0, shape=16)
    except ValueError:
        pass


@wrong(KernelSyntaxError, 'with', 'with is not available in kernels', A)
def with_statement(a):
    with open("x"):
        pass


@wrong(KernelSyntaxError, 'yield ts.load(a, i, shape=16)', "yield is not available in kernels: a kernel can't be a generator; collect values in a tuple, or store them", A)
def generator(a):
    for i in range(3):
        yield ts.load(a, i, shape=16)


@wrong(KernelSyntaxError, 'class', "classes can't be defined in kernels: define the class outside", A)
def class_statement(a):
    class Pair:
        pass


@wrong(KernelSyntaxError, 'import', 'import is not available in kernels: import at the top of the file', A)
def import_statement(a):
    import math


@wrong(KernelSyntaxError, 'global', "global is not available in kernels: a kernel can't set Python variables; return the value, or store it in an array", A)
def global_statement(a):
    global COUNT
    COUNT = 1


@wrong(KernelSyntaxError, 'del', 'del is not available in kernels: tiles take no memory once nothing uses them', A)
def del_statement(a):
    x = ts.load(a, 0, shape=16)
    del x


@wrong(KernelSyntaxError, 'match', 'match is not available in kernels: write if and elif', A, 3)
def match_statement(a, n):
    match n:
        case 1:
            a[0] = 1.0


@wrong(KernelSyntaxError, 'async', 'async is not available in kernels', A)
def async_function(a):
    async def inner():
        return 1


@wrong(KernelSyntaxError, 'staticmethod', 'functions defined in kernels take no decorators', A)
def decorated_inner_function(a):
    @staticmethod
    def inner(x):
        return x


@wrong(KernelSyntaxError, 'lambda t: t + x', "a lambda in a loop that is staged for run time can't capture 'x', a run-time value: define it before the loop and pass 'x' as an argument", A)
def lambda_in_a_loop(a):
    x = ts.load(a, 0, shape=16)
    for i in range(3):
        f = lambda t: t + x
        x = f(x)


@wrong(KernelSyntaxError, 'def scaled', "the function 'scaled' in a loop that is staged for run time can't capture 'i', a run-time value: define it before the loop and pass 'i' as an argument", A, 3)
def inner_function_in_a_loop(a, n):
    for i in range(n):
        def scaled(t):
            return t * i
        a[i] = scaled(a[i])


@wrong(KernelSyntaxError, 'n > 3', "assert can't check a run-time value: a kernel can't raise; store a flag and check it after the launch", A, 3)
def assert_of_a_run_time_value(a, n):
    assert n > 3


@wrong(KernelSyntaxError, 'raise ValueError("too many")', "raise in the branch of line +1, which is staged for run time: a kernel can't raise; store a flag and check it after the launch", A, 3)
def raise_in_a_branch(a, n):
    if n > 3:
        raise ValueError("too many")


@wrong(KernelValueError, 'raise ValueError("no such mode")', 'no such mode', A)
def raise_of_what_is_known(a):
    raise ValueError("no such mode")


@wrong(KernelError, '1 // 0', 'ZeroDivisionError: integer division or modulo by zero', A)
def division_by_zero_while_tracing(a):
    x = 1 // 0


@wrong(KernelSyntaxError, 'eval("1 + 1")', 'eval() is not available in kernels', A)
def eval_call(a):
    x = eval("1 + 1")


@wrong(KernelTypeError, 'x', "an f-string can't hold a float32 tile of shape (16,), which has no value while the kernel is traced; ts.static_print shows its type", A)
def f_string(a):
    x = ts.load(a, 0, shape=16)
    text = f"x = {x}"


@wrong(KernelTypeError, 'print("n is", n)', 'print would show a value that is not known yet: ts.static_print shows types while the kernel is traced', A, 3)
def printed(a, n):
    print("n is", n)


@wrong(KernelSyntaxError, 'halve(x, n - 1)', 'halve calls itself; kernels have no recursion: write a loop', A)
def recursion(a, n: ts.constexpr = 3):
    ts.store(a, 0, halve(ts.load(a, 0, shape=16), n))


@wrong(KernelTypeError, 'range(n)', 'range with run-time bounds stands in a for statement only: for i in range(…)', A, 3)
def comprehension_over_run_time_bounds(a, n):
    items = [a[i] for i in range(n)]


@wrong(KernelSyntaxError, 'i < n', "a comprehension's if can't depend on a run-time value: how many items there are must be known", A, 3)
def comprehension_with_a_run_time_if(a, n):
    items = [i for i in (1, 2, 3) if i < n]


@wrong(KernelTypeError, 'TABLE', "'TABLE' is a NumPy array from outside the kernel; pass it to the kernel as an argument", A)
def captured_array(a):
    ts.store(a, 0, TABLE)


# ---- leaving early ---------------------------------------------------------------------------------------------------------------


@wrong(KernelSyntaxError, 'break', 'break in the branch of line +2, which is staged for run time: let a while condition end the loop, or guard the rest of the body with if', A, 3)
def break_in_a_staged_branch(a, n):
    for i in range(n):
        if a[i] > 3:
            break


@wrong(KernelSyntaxError, 'continue', 'continue in the loop of line +1, which is staged for run time: guard the rest of the body with if', A, 3)
def continue_in_a_staged_loop(a, n):
    for i in range(n):
        continue


@wrong(KernelSyntaxError, 'return', 'return in the loop of line +1, which is staged for run time: set a variable and return after the loop', A, 3)
def return_in_a_staged_loop(a, n):
    for i in range(n):
        return


@wrong(KernelSyntaxError, 'break', 'break in the branch of line +2, which is staged for run time: let a while condition end the loop, or guard the rest of the body with if', A, 3)
def break_out_of_an_unrolled_loop(a, n):
    for i in ts.static_range(4):
        if i > n:
            break


@wrong(KernelSyntaxError, 'return', 'return in the branch of line +2, which is staged for run time: set a variable and return after the loop', A, 3)
def return_from_an_unrolled_loop(a, n):
    for i in ts.static_range(4):
        if i > n:
            return


@wrong(KernelTypeError, 'return ts.load(a, 0, shape=16)', 'a kernel returns nothing, and this one returns a float32 tile of shape (16,): ts.store it in an array', A)
def kernel_that_returns(a):
    return ts.load(a, 0, shape=16)


@wrong(KernelTypeError, 'return x.astype(ts.float64)', 'the return value is a float32 tile of shape (16,) in one branch (line +2) and a float64 tile of shape (16,) in the other (line +3): cast one of them, as with .astype(ts.float32)', A, 3)
def returns_of_two_types(a, n):
    ts.store(a, 0, either(ts.load(a, 0, shape=16), n))


# ---- truth -----------------------------------------------------------------------------------------------------------------------


@wrong(KernelTypeError, 'x > 0', 'if needs one truth value, not a bool tile of shape (16,): reduce it, as in ts.max(x), or choose per element with ts.where; for tiles write & | ~ in place of and, or, not', A)
def if_of_a_tile(a):
    x = ts.load(a, 0, shape=16)
    if x > 0:
        ts.store(a, 0, x)


@wrong(KernelTypeError, 'x > 0', 'while needs one truth value, not a bool tile of shape (16,): reduce it, as in ts.max(x), or choose per element with ts.where; for tiles write & | ~ in place of and, or, not', A)
def while_of_a_tile(a):
    x = ts.load(a, 0, shape=16)
    while x > 0:
        x = x - 1


@wrong(KernelTypeError, 'x > 0', 'and needs one truth value, not a bool tile of shape (16,): reduce it, as in ts.max(x), or choose per element with ts.where; for tiles write & | ~ in place of and, or, not', A, 3)
def and_of_tiles(a, n):
    x = ts.load(a, 0, shape=16)
    y = (x > 0) and (x < n)


@wrong(KernelTypeError, 'not ts.load(a, 0, shape=16)', 'not needs one truth value, not a float32 tile of shape (16,): reduce it, as in ts.max(x), or choose per element with ts.where; for tiles write & | ~ in place of and, or, not', A)
def not_of_a_tile(a):
    y = not ts.load(a, 0, shape=16)


@wrong(KernelTypeError, '0 < ts.load(a, 0, shape=16) < 3', 'a chain of comparisons needs scalars: for tiles write (a < b) & (b < c)', A)
def chain_of_tiles(a):
    y = 0 < ts.load(a, 0, shape=16) < 3


@wrong(KernelError, 'sorted([n, 1])', "a run-time bool has no value while the kernel is traced, so Python can't branch on it here; use it in an if, while, and, or, not or a conditional expression of the kernel or a helper, or in ts.where", A, 3)
def truth_in_pythons_own_functions(a, n):
    found = sorted([n, 1])


@wrong(KernelTypeError, '~(n > 3)', '~ of a Python bool is -1 or -2, which is never meant: write `not x`', A, 3)
def invert_of_a_python_bool(a, n):
    x = ~(n > 3)


@wrong(KernelTypeError, 'n in (1, 2)', "`in` can't look for a run-time value: compare with each, as in (x == 1) | (x == 2)", A, 3)
def in_with_a_run_time_value(a, n):
    x = n in (1, 2)


@wrong(KernelTypeError, '(1.0, 2.0)[n]', "a Python tuple can't be indexed by a run-time value; unroll with ts.static_range", A, 3)
def run_time_index_of_a_tuple(a, n):
    x = (1.0, 2.0)[n]


# ---- loops and branches that change types ----------------------------------------------------------------------------------------


@wrong(KernelTypeError, 'acc += ts.load(a, i, shape=16)', "'acc' is a float16 tile of shape (16,) before the loop (line +1) and a float32 tile of shape (16,) after its body (line +3): a loop can't change a variable's dtype: write (…).astype(ts.float16) on line +3, or start with the other dtype", A)
def dtype_changes_in_a_loop(a):
    acc = ts.zeros(16, ts.float16)
    for i in range(4):
        acc += ts.load(a, i, shape=16)
    ts.store(a, 0, acc)


@wrong(KernelTypeError, 'acc += ts.load(a, i, shape=16)', "'acc' is a float before the loop (line +1) and a float32 tile of shape (16,) after its body (line +3): a loop can't change a variable's shape: start with ts.zeros or ts.full of the final shape", A, 3)
def shape_changes_in_a_loop(a, n):
    acc = 0.0
    for i in range(n):
        acc += ts.load(a, i, shape=16)
    ts.store(a, 0, acc)


@wrong(KernelTypeError, 'mode', "'mode' is 'first' before the loop (line +1) and 'other' after its body (line +4): a Python value must stay the same in every trip of a loop that is staged for run time (ts.static_range unrolls)", A, 3)
def python_value_changes_in_a_loop(a, n):
    mode = "first"
    for i in range(n):
        a[i] = 1.0 if mode == "first" else 2.0
        mode = "other"


@wrong(KernelTypeError, 'x', "'x' is a float in one branch (line +2) and a float32 tile of shape (16,) in the other (line +4): both sides must give the same shape", A, 3)
def shapes_of_two_branches(a, n):
    if n > 3:
        x = 1.0
    else:
        x = ts.load(a, 0, shape=16)
    ts.store(a, 0, x)


@wrong(KernelTypeError, 'x', "'x' is a float16 tile of shape (16,) in one branch (line +3) and a float32 tile of shape (16,) in the other (line +1): cast one of them, as with .astype(ts.float16)", A, 3)
def dtypes_of_two_branches(a, n):
    x = ts.load(a, 0, shape=16)
    if n > 3:
        x = x.astype(ts.float16)
    ts.store(a, 0, x)


@wrong(KernelTypeError, 'for i in range(n)', "a list, 'found', is changed in place inside a loop that is staged for run time; assign variables or new tuples instead, or unroll with ts.static_range", A, 3)
def list_that_grows_in_a_loop(a, n):
    found = []
    for i in range(n):
        found.append(ts.load(a, i, shape=16))
    ts.store(a, 0, found[0])


@wrong(KernelTypeError, 'if n > 3', "a list, 'pair', is changed in place inside a branch that is staged for run time; assign variables or new tuples instead, or unroll with ts.static_range", A, 3)
def list_that_changes_in_a_branch(a, n):
    pair = [1.0, 2.0]
    if n > 3:
        pair[0] = 5.0
    a[0] = pair[0]


# ---- what must be known ----------------------------------------------------------------------------------------------------------


@wrong(KernelTypeError, 'ts.zeros((n,), ts.float32)', "an extent of shape must be known while the kernel is traced, and 'n', a run-time int, is not: pass it as a ts.constexpr", A, 3)
def shape_of_run_time(a, n):
    x = ts.zeros((n,), ts.float32)


@wrong(KernelTypeError, 'ts.load(a, 0, shape=a.shape)', 'an extent of shape must be known while the kernel is traced, and a run-time int is not: pass it as a ts.constexpr', A)
def shape_from_an_extent(a):
    x = ts.load(a, 0, shape=a.shape)


@wrong(KernelTypeError, 'ts.static_range(n)', "a bound of static_range must be known while the kernel is traced, and 'n', a run-time int, is not: pass it as a ts.constexpr", A, 3)
def static_range_of_run_time(a, n):
    for i in ts.static_range(n):
        a[i] = 1.0


@wrong(KernelTypeError, 'int(n)', 'int(…) of a run-time value: write x.astype(ts.int64), or ts.floor for a float', A, 3)
def int_of_run_time(a, n):
    x = ts.zeros(int(n), ts.float32)


@wrong(KernelTypeError, 'math.exp(a[0])', 'float(…) of a run-time value: write x.astype(ts.float32); functions of math and NumPy have counterparts in ts (ts.exp, …)', A)
def math_function(a):
    x = math.exp(a[0])


@wrong(KernelTypeError, 'np.exp(ts.load(a, 0, shape=16))', "np.exp doesn't work on tiles; ts.exp does", A)
def numpy_function(a):
    x = np.exp(ts.load(a, 0, shape=16))


@wrong(KernelTypeError, 'np.sum(ts.load(a, 0, shape=16))', "np.sum doesn't work on tiles; ts.sum does", A)
def numpy_reduction(a):
    x = np.sum(ts.load(a, 0, shape=16))


@wrong(KernelTypeError, 'x, y', "a tile can't be unpacked or looped over; loop with range(…) and load a tile in each trip", A)
def unpacked_tile(a):
    x, y = ts.load(a, 0, shape=2)


@wrong(KernelTypeError, 'x, y', "3 values can't be unpacked into 2 variables", A)
def too_many_values(a):
    x, y = 1, 2, 3


@wrong(KernelValueError, 'range(0, n, 0)', 'the step of range is 0', A, 3)
def range_step_zero(a, n):
    for i in range(0, n, 0):
        pass


@wrong(KernelTypeError, 'range(1.5)', 'the stop of range is a float; it takes integer scalars', A)
def range_of_a_float(a):
    for i in range(1.5):
        pass


@wrong(KernelSyntaxError, 'i, j', 'a loop over range has one variable, a plain name', A)
def range_with_two_variables(a):
    for i, j in range(3):
        pass


@wrong(KernelTypeError, 'range(3, num_stages=2)', "range takes no keyword 'num_stages' yet; loops of dots are pipelined without being asked", A)
def range_with_a_keyword(a):
    for i in range(3, num_stages=2):
        pass


@wrong(KernelError, 'ts.static_assert(N >= 16, "N must be 16 or more")', 'static_assert: N must be 16 or more', A)
def failed_static_assert(a, N: ts.constexpr = 8):
    ts.static_assert(N >= 16, "N must be 16 or more")


# ---- shapes and dtypes -----------------------------------------------------------------------------------------------------------


@wrong(KernelValueError, 'ts.load(a, 0, shape=12)', 'shape (12,): the extent of axis 0 is 12; tile extents are powers of two: the next one is 16 (loads fill what lies outside the array, stores drop it)', A)
def extent_no_power_of_two(a):
    x = ts.load(a, 0, shape=12)


@wrong(KernelValueError, 'ts.zeros((4, 0), ts.float32)', 'shape (4, 0): the extent of axis 1 is 0; tile extents are 1 or more', A)
def extent_zero(a):
    x = ts.zeros((4, 0), ts.float32)


@wrong(ResourceError, 'ts.zeros((1024, 2048), ts.float32)', 'a tile of shape (1024, 2048) has 2097152 elements; the limit is 1048576: (1024, 1024) fits', A)
def tile_too_large(a):
    x = ts.zeros((1024, 2048), ts.float32)


@wrong(KernelTypeError, 'x + ts.zeros((8, 16), ts.float32)', "+: shapes (16, 16) and (8, 16) don't broadcast: axis -2 is 8 and 16; axes are matched from the last, and extents must be equal or 1 (x[:, None] adds one)", B)
def shapes_that_do_not_broadcast(b):
    x = ts.load(b, (0, 0), shape=(16, 16))
    z = x + ts.zeros((8, 16), ts.float32)


@wrong(ResourceError, 'ts.zeros((2048, 1), ts.float32) + ts.zeros((1, 1024), ts.float32)', 'a tile of shape (2048, 1024) has 2097152 elements; the limit is 1048576: (1024, 1024) fits', A)
def broadcast_grows_too_large(a):
    x = ts.zeros((2048, 1), ts.float32) + ts.zeros((1, 1024), ts.float32)


@wrong(KernelTypeError, 'ts.load(u, 0, shape=16) + ts.full(16, 1, ts.int32)', 'uint64 and int32 have no common integer dtype (float64 would lose digits): cast the uint64 operand with .astype(ts.int64) or the int32 operand with .astype(ts.uint64)', A, U)
def uint64_with_signed(a, u):
    x = ts.load(u, 0, shape=16) + ts.full(16, 1, ts.int32)


@wrong(KernelValueError, 'ts.load(i, 0, shape=16) + 2**31', '2147483648 does not fit int32 (-2147483648 … 2147483647); cast the tile to a wider dtype with .astype(…)', I)
def int_that_does_not_fit(i):
    x = ts.load(i, 0, shape=16) + 2**31


@wrong(KernelTypeError, 'x - x', '- on bools is not defined, as in NumPy: write a ^ b, or cast with .astype(ts.int8)', A)
def minus_of_bools(a):
    x = ts.load(a, 0, shape=16) > 0
    y = x - x


@wrong(KernelTypeError, 'ts.load(a, 0, shape=16) & 3', '& works on bools and integers, not on a float32 tile of shape (16,) and an int', A)
def bits_of_a_float(a):
    x = ts.load(a, 0, shape=16) & 3


@wrong(KernelTypeError, 'ts.load(a, 0, shape=16) ** 3', '** 3 of a float is not available: write x * x * x for small powers, ts.exp2(3 * ts.log2(x)) for others', A)
def power_of_a_float(a):
    x = ts.load(a, 0, shape=16) ** 3


@wrong(KernelTypeError, 'ts.zeros(16, "float23")', "dtype must be a dtype, not 'float23'; there are ts.bool, ts.int8, ts.int16, ts.int32, ts.int64, ts.uint8, ts.uint16, ts.uint32, ts.uint64, ts.float16, ts.bfloat16, ts.float32, ts.float64", A)
def unknown_dtype(a):
    x = ts.zeros(16, "float23")


@wrong(KernelTypeError, 'ts.zeros(16)', "zeros() missing 1 required positional argument: 'dtype'; zeros takes shape, dtype", A)
def missing_dtype(a):
    x = ts.zeros(16)


@wrong(KernelValueError, 'ts.load(a, 0, shape=16).reshape(4, 8)', 'reshape: a tile of shape (16,) has 16 elements, (4, 8) has 32', A)
def reshape_to_another_size(a):
    x = ts.load(a, 0, shape=16).reshape(4, 8)


@wrong(KernelValueError, 'ts.sum(ts.load(a, 0, shape=16), axis=1)', 'sum: axis 1 is outside the tile: it has axes -1 … 0', A)
def axis_outside(a):
    x = ts.sum(ts.load(a, 0, shape=16), axis=1)


@wrong(KernelTypeError, 'ts.load(a, 0, shape=16)[3]', 'tiles are indexed only by `:` and `None`, which add axes; load the part that is needed from the array, or pick elements with ts.where and a reduction', A)
def element_of_a_tile(a):
    x = ts.load(a, 0, shape=16)[3]


@wrong(KernelTypeError, 'x[0]', 'tiles are immutable; make a new one with ts.where(mask, new, old)', A)
def assignment_to_a_tile(a):
    x = ts.load(a, 0, shape=16)
    x[0] = 1.0


@wrong(KernelTypeError, 'x @ x', 'tiles have no @: write ts.dot(a, b, acc), which says what the sum is held in', A)
def matmul_operator(a):
    x = ts.zeros((16, 16), ts.float16)
    y = x @ x


@wrong(KernelTypeError, 'ts.dot(x, ts.load(b, (0, 0), shape=(8, 16)))', 'dot: a is (16, 16) and b is (8, 16); the columns of a must be as many as the rows of b: b.T has the right shape', B)
def dot_of_shapes_that_do_not_fit(b):
    x = ts.load(b, (0, 0), shape=(16, 16))
    y = ts.dot(x, ts.load(b, (0, 0), shape=(8, 16)))


@wrong(KernelTypeError, 'ts.dot(x, x, ts.zeros((16, 16), ts.int32))', 'dot: the accumulator is int32 for operands of float16; float32 would do', B)
def dot_accumulator_of_another_kind(b):
    x = ts.load(b, (0, 0), shape=(16, 16))
    y = ts.dot(x, x, ts.zeros((16, 16), ts.int32))


@wrong(KernelTypeError, 'max(ts.load(b, (0, 0), shape=(16, 16)))', 'max() compares scalars: ts.max(x, axis) reduces a tile, ts.maximum(x, y) compares elementwise', B)
def python_max_of_a_tile(b):
    x = max(ts.load(b, (0, 0), shape=(16, 16)))


# ---- memory ----------------------------------------------------------------------------------------------------------------------


@wrong(KernelTypeError, 'ts.load(a, 0)', "load needs shape=(…): the extents of the tile, one for each of the 1 axes of 'a'", A)
def load_without_shape(a):
    x = ts.load(a, 0)


@wrong(KernelTypeError, 'ts.load(a, (0, 1), shape=16)', "the index of load (0, 1) has 2 entries, and 'a' has 1 axes", A)
def load_with_another_rank(a):
    x = ts.load(a, (0, 1), shape=16)


@wrong(KernelTypeError, 'ts.load(ts.load(a, 0, shape=16), 0, shape=4)', 'load takes an array that is a parameter of the kernel, not a float32 tile of shape (16,)', A)
def load_of_a_tile(a):
    x = ts.load(ts.load(a, 0, shape=16), 0, shape=4)


@wrong(KernelTypeError, 'ts.load(a, 0.5, shape=16)', 'the index of load takes integers, not a float', A)
def load_at_a_float(a):
    x = ts.load(a, 0.5, shape=16)


@wrong(KernelTypeError, 'ts.load(a, 0, shape=16, mask=None)', "load() got an unexpected keyword argument 'mask'; load takes a, index, shape, offset, other; masks aren't needed: elements outside the array are `other` (ts.where chooses inside)", A)
def load_with_an_unknown_keyword(a):
    x = ts.load(a, 0, shape=16, mask=None)


@wrong(KernelTypeError, 'ts.load(a, 0, offset=3, shape=16)', "load takes the tile's index, or offset=(…) in elements, not both", A)
def load_at_two_places(a):
    x = ts.load(a, 0, offset=3, shape=16)


@wrong(KernelValueError, 'ts.load(i, 0, shape=16, other=3.5)', "other=3.5 does not fit int32, the array's dtype", I)
def other_that_does_not_fit(i):
    x = ts.load(i, 0, shape=16, other=3.5)


@wrong(KernelValueError, 'a[-1]', "a[…]: the index -1 is below 0, and indices don't count from the end: write a.shape[0] - 1", A)
def element_from_the_end(a):
    a[0] = a[-1]


@wrong(KernelTypeError, 'a[0:16]', 'a[…] reads one element; for a tile write ts.load(a, index, shape=…), whose index counts in tiles', A)
def slice_of_an_array(a):
    x = a[0:16]


@wrong(KernelTypeError, 'a + 1', "operators can't be applied to the array 'a' itself: load a tile of it with ts.load(a, …)", A)
def operator_on_an_array(a):
    x = a + 1


@wrong(KernelTypeError, 'ts.store(a, 0, ts.zeros(16, ts.float64))', "a float64 tile of shape (16,) doesn't go into 'a', an array of float32, by itself: write tile.astype(a.dtype) where the loss is meant (float64 comes from ts.full of a float without dtype=, from / of integers, and from floats that meet integers)", A)
def store_that_narrows(a):
    ts.store(a, 0, ts.zeros(16, ts.float64))


@wrong(KernelTypeError, 'ts.store(i, 0, 1.5)', "the float 1.5 can't become int32 by itself: write int(1.5), or cast the other side", I)
def store_of_a_float(i):
    ts.store(i, 0, 1.5)


@wrong(KernelTypeError, 'ts.store(a, 0, ts.zeros((16, 1), ts.float32))', "store: a tile of shape (16, 1) has 2 axes, and 'a' has 1: add axes of extent 1 with tile[:, None] or tile[None, :], or give shape=(…)", A)
def store_of_another_rank(a):
    ts.store(a, 0, ts.zeros((16, 1), ts.float32))


# ---- calls -----------------------------------------------------------------------------------------------------------------------


@wrong(KernelTypeError, 'x + ts.zeros(8, ts.float32)', "+: shapes (16,) and (8,) don't broadcast: axis -1 is 8 and 16; axes are matched from the last, and extents must be equal or 1 (x[:, None] adds one)", A)
def shape_error_in_a_helper(a):
    x = add_eight(
        ts.load(a, 0, shape=16),
    )


@wrong(KernelTypeError, 'either(ts.load(a, 0, shape=16))', "either() misses 'n'", A)
def helper_without_an_argument(a):
    x = either(ts.load(a, 0, shape=16))


@wrong(KernelTypeError, 'add_eight(ts.load(a, 0, shape=16), 3)', 'add_eight() takes 1 arguments, and 2 were given', A)
def helper_with_too_many_arguments(a):
    x = add_eight(ts.load(a, 0, shape=16), 3)


@wrong(KernelTypeError, 'add_eight(ts.load(a, 0, shape=16), scale=3)', "add_eight() has no parameter 'scale'; it has x", A)
def helper_with_an_unknown_argument(a):
    x = add_eight(ts.load(a, 0, shape=16), scale=3)

@pytest.mark.parametrize("case", GALLERY, ids=[case.function.__name__ for case in GALLERY])
def test_gallery(case: Case) -> None:
    error = failure(case)
    assert type(error) is case.error
    assert relative(case, error) == case.message
    assert pointed_at(error) == case.under
    assert error.location.file == __file__
    shown = str(error)
    assert f"line {error.location.line}, in {error.location.function}" in shown
    builtin = {KernelTypeError: TypeError, KernelSyntaxError: SyntaxError, KernelNameError: NameError, KernelValueError: ValueError}
    assert isinstance(error, builtin.get(case.error, ts.TesseraError))


def test_an_error_in_a_helper_shows_who_called_it() -> None:
    case = next(case for case in GALLERY if case.function.__name__ == "shape_error_in_a_helper")
    error = failure(case)
    assert error.location.function == "add_eight"
    assert error.location.caller.function == "shape_error_in_a_helper"
    assert "called from" in str(error)
