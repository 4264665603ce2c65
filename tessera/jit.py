"""`@jit`: specialise a kernel on what its code depends on, compile it once for each, and launch it.

What compiled code depends on is its key: the classes of the arguments (for arrays dtype, rank, alignment, contiguous axis, size; for
scalars the dtype and whether it is weak, never the value), the constexprs by type and value, the arch, and everything that the trace read
from outside: helpers, globals, closures. The source and the options belong to the decorated function itself. Which arguments overlap is
known to matter only once it is known which are written, and is looked up last.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast, overload

import numpy as np

from . import config, dtypes
from .dtypes import DType
from .errors import (
    ConfigError,
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    LaunchError,
    ResourceError,
    TesseraError,
    UnsupportedArchError,
    UnsupportedDtypeError,
    warn,
)
from .frontend.captures import Captures, freeze
from .frontend.parameters import Array, Signature, elsewhere, python_type
from .frontend.source import read_lines
from .frontend.staging import Scalar, Spec, trace
from .ir import passes
from .ir.core import Kernel
from .ir.ops.memory import Load, Store
from .ir.text import print_kernel
from .ir.types import ArrayType
from .runtime import ArrayParameter, Artifact, LaunchResult, ScalarParameter, current_device, kernarg_layout
from .runtime import launch as run_launch
from .runtime.arguments import classify
from .runtime.artifact import Parameter
from .runtime.views import ArrayView, overlap, view
from .version import VERSION

TARGETS = ("rocm",)
STORM = 32
"""A kernel that has been compiled this often is reported: something that changes all the time is in its key."""

Grid: TypeAlias = "int | Iterable[int]"


class CacheInfo(NamedTuple):
    """What `kernel.cache_info()` says: how often the kernel was compiled, how often a launch found it compiled, how many are kept."""

    compiles: int
    hits: int
    size: int


@dataclass(frozen=True)
class Options:
    """How a kernel is compiled. `num_waves`: waves of a workgroup; the others are those of the target."""

    target: str = "rocm"
    num_waves: int = 4
    fp_contract: bool = False
    optimize: int = 0
    codegen: int = 1

    def check(self) -> None:
        """Raises KernelTypeError or UnsupportedArchError for a value that doesn't exist."""
        if self.target not in TARGETS:
            raise UnsupportedArchError(f"there is no target {self.target!r}; there is {', '.join(map(repr, TARGETS))}")
        waves = cast(object, self.num_waves)
        if not isinstance(waves, int) or isinstance(waves, bool) or not 1 <= waves <= 32:
            raise KernelTypeError(f"num_waves is {waves!r}; a workgroup has 1 to 32 waves")
        for name, limit in (("optimize", 3), ("codegen", 3)):
            level: object = getattr(self, name)
            if not isinstance(level, int) or isinstance(level, bool) or not 0 <= level <= limit:
                raise KernelTypeError(f"{name} is {level!r}; the levels are 0 to {limit}")
        if not isinstance(cast(object, self.fp_contract), bool):
            raise KernelTypeError(f"fp_contract is {self.fp_contract!r}; it is True or False")


class CompiledKernel:
    """A kernel for one arch and one class of arguments. `artifact` is everything a launch needs."""

    def __init__(self, artifact: Artifact, assembly: Callable[[], str]) -> None:
        self.artifact = artifact
        self._assembly = assembly

    @property
    def tile_ir(self) -> str:
        """The Tile IR, as traced."""
        return self.artifact.tile_ir

    @property
    def rocm_ir(self) -> str:
        """The IR after matrix selection and layouts."""
        return self.artifact.rocm_ir

    @property
    def llvm_ir(self) -> str:
        return self.artifact.llvm_ir

    @property
    def assembly(self) -> str:
        """The machine code as text; made when it is asked for."""
        return self._assembly()

    @property
    def code_object(self) -> bytes:
        """The AMDGPU ELF file."""
        return self.artifact.code_object

    @property
    def resources(self) -> dict[str, Any]:
        """Registers, LDS, spills and occupancy."""
        return dict(self.artifact.resources)

    def __getitem__(self, grid: Grid) -> Callable[..., LaunchResult]:
        """`compiled[grid](a, b, c)`: launch with run-time arguments."""

        def start(*args: Any, **kwargs: Any) -> LaunchResult:
            known = {parameter.name for parameter in self.artifact.parameters}
            for name in kwargs:
                if name not in known and (hint := elsewhere(name)):
                    raise LaunchError(f"kernel {self.artifact.kernel_name!r} has no parameter {name!r}{hint}")
            if args and kwargs:
                raise LaunchError("a compiled kernel takes its run-time arguments in order or by name, not both")
            return run_launch(self.artifact, grid, kwargs or args)

        return start

    def __repr__(self) -> str:
        return f"<compiled kernel {self.artifact.kernel_name} for {self.artifact.arch}>"


@dataclass
class _Entry:
    """What one trace gave: the reads it depends on, which parameters it writes, and the code for each pattern of overlaps."""

    captures: Captures
    written: frozenset[str]
    variants: dict[tuple[bool, ...], CompiledKernel] = field(default_factory=dict[tuple[bool, ...], CompiledKernel])


class JitFunction:
    """A decorated kernel: `kernel[grid](…)` launches, `kernel.compile(…)` compiles ahead of time."""

    def __init__(self, function: types.FunctionType, options: Options) -> None:
        if function.__name__ == "<lambda>":
            raise KernelSyntaxError("a kernel can't be a lambda: it has no statements to load and store with; write a def")
        self.function = function
        self.options = options
        self.signature = Signature(function)
        self._lines = read_lines(function)
        self._entries: dict[Hashable, list[_Entry]] = {}
        self._lock = threading.RLock()
        self._compiles = 0
        self._hits = 0
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    @property
    def __tessera_function__(self) -> types.FunctionType:
        """What other kernels stage where they call this one."""
        return self.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise KernelError(f"{self.__name__} is a kernel: launch it over a grid of programs, {self.__name__}[grid](…)")

    def __getitem__(self, grid: Grid) -> Callable[..., LaunchResult]:
        """`kernel[grid](…)`: compile for the current device where that hasn't been done, and launch. `grid` has one to three axes."""

        def start(*args: Any, **kwargs: Any) -> LaunchResult:
            values = self.signature.bind(args, kwargs)
            compiled, given = self._specialize(values, None)
            return run_launch(compiled.artifact, grid, given)

        return start

    def compile(self, *args: Any, arch: str | None = None, **kwargs: Any) -> CompiledKernel:
        """Compile for `arch` (default: the current device's) without launching. No GPU is needed.

        Arguments are those of a launch, or stand for them: `ts.Array(dtype, ndim, …)` for an array, a dtype for a NumPy scalar, and the
        types int, float and bool for Python numbers. Raises KernelError and its kin, UnsupportedArchError, UnsupportedDtypeError,
        ResourceError.
        """
        values = self.signature.bind(args, kwargs)
        if arch is not None and not isinstance(cast(object, arch), str):
            raise UnsupportedArchError(f"arch is {arch!r:.60}; it is one name, such as 'gfx1151': compile once for each arch")
        return self._specialize(values, arch)[0]

    def cache_info(self) -> CacheInfo:
        """How often this kernel was compiled, and found compiled."""
        return CacheInfo(self._compiles, self._hits, sum(len(e.variants) for entries in self._entries.values() for e in entries))

    def cache_clear(self) -> None:
        """Forget everything compiled; the counts start again."""
        with self._lock:
            self._entries.clear()
            self._compiles = self._hits = 0

    # ---- specialisation

    def _specialize(self, values: Sequence[Any], asked: str | None) -> tuple[CompiledKernel, list[Any]]:
        """The compiled kernel for these arguments, and the run-time arguments as a launch takes them. `asked` is an arch, or None for the
        current device's."""
        constexprs = self.signature.constexprs
        arch = (current_device().arch or config.default_arch()) if asked is None else asked
        key: list[Hashable] = [arch]
        given: list[Any] = []
        arrays: list[tuple[str, ArrayView | Array]] = []
        for name, value in zip(self.signature.names, values, strict=True):
            if name in constexprs:
                key.append(_constant_key(self.__name__, name, value))
            elif value is None:
                key.append(None)
            else:
                described, argument = _describe(self.__name__, name, value)
                key.append(described)
                given.append(argument)
                if isinstance(argument, (ArrayView, Array)):
                    arrays.append((name, argument))
        found = tuple(key)
        for entry in self._entries.get(found, ()):
            if entry.captures.valid():
                compiled = entry.variants.get(_disjoint(arrays, entry.written))
                if compiled is not None:
                    self._hits += 1
                    return compiled, given
                break
        try:
            with self._lock:
                return self._compile(found, values, arch, arrays), given
        except UnsupportedArchError as error:
            if asked is None and (origin := config.arch_origin()):
                raise UnsupportedArchError(f"{origin}: {error.message}", error.location) from None
            raise

    def _compile(self, key: Hashable, values: Sequence[Any], arch: str, arrays: list[tuple[str, ArrayView | Array]]) -> CompiledKernel:
        specs, constants = self._specs(values)
        traced = trace(self.function, specs, constants, num_waves=self.options.num_waves, lines=self._lines)
        kernel = traced.kernel
        written = _accessed(kernel, Store)
        flags = _disjoint(arrays, written)
        entries = self._entries.setdefault(key, [])
        entry = next((e for e in entries if e.captures.valid()), None)
        if entry is not None and flags in entry.variants:  # another thread was quicker
            return entry.variants[flags]
        disjoint = {name: flag for (name, _), flag in zip(arrays, flags, strict=True)}
        _set_disjoint(kernel, disjoint)
        try:
            compiled = compile_traced(kernel, arch, self.options)
        except ResourceError as error:
            raise self._with_advice(error, specs, constants, disjoint, arch) from None
        if entry is None:
            entry = _Entry(traced.captures, written)
            entries.insert(0, entry)
        entry.variants[flags] = compiled
        self._compiles += 1
        if self._compiles == STORM:
            warn(
                f"kernel {self.__name__!r} has been compiled {STORM} times: a constexpr or a captured variable changes from launch to "
                "launch; pass it as an argument"
            )
        return compiled

    def _with_advice(
        self, error: ResourceError, specs: dict[str, Spec], constants: dict[str, Any], disjoint: dict[str, bool], arch: str
    ) -> ResourceError:
        """For too much LDS: the same error with the constexprs that the need depends on, and the first halving of one that fits."""
        from .targets.rocm.allocate import LdsOverflowError

        if not isinstance(error, LdsOverflowError):
            return error
        numbers = {n: v for n, v in constants.items() if type(v) is int and v > 1}

        def need(name: str, value: int) -> int | None:
            """Bytes of LDS with another value of one constexpr; None where the kernel can't be made with it."""
            try:
                traced = trace(self.function, specs, constants | {name: value}, num_waves=self.options.num_waves, lines=self._lines)
                _set_disjoint(traced.kernel, disjoint)
                return lds_need(traced.kernel, arch)
            except TesseraError:
                return None

        halved = {name: need(name, value // 2) for name, value in numbers.items()}
        matters = [name for name, bytes_ in halved.items() if bytes_ not in (None, error.need)]
        if not matters:
            return error
        message = f"{error.message}\nIts shapes depend on {', '.join(f'{name}={numbers[name]}' for name in matters)}; "
        for shift in range(1, 8):
            for name in matters:
                value = numbers[name] >> shift
                bytes_ = (halved[name] if shift == 1 else need(name, value)) if value else None
                if bytes_ is not None and bytes_ <= error.limit:
                    message += f"{name}={value} fits, with {bytes_:,} bytes"
                    return LdsOverflowError(message, error.location, error.need, error.limit, error.buffers)
        message += "no smaller value of one of them alone fits"
        return LdsOverflowError(message, error.location, error.need, error.limit, error.buffers)

    def _specs(self, values: Sequence[Any]) -> tuple[dict[str, Spec], dict[str, Any]]:
        specs: dict[str, Spec] = {}
        constants: dict[str, Any] = {}
        for name, value in zip(self.signature.names, values, strict=True):
            if name in self.signature.constexprs or value is None:
                constants[name] = value
            else:
                specs[name] = _spec(_describe(self.__name__, name, value)[0])
        return specs, constants

    def __repr__(self) -> str:
        return f"<kernel {self.__qualname__}>"


# ---- what arguments are to the compiler ----------------------------------------------------------------------------------------------

Described: TypeAlias = "tuple[Any, ...]"
"""An argument's class: (dtype, rank, alignment, contiguous axis, small) of an array, (dtype, weak) of a scalar."""

_WEAK: dict[type, Described] = {bool: (dtypes.bool_, True), int: (dtypes.int64, True), float: (dtypes.float64, True)}


def _describe(kernel: str, name: str, value: Any) -> tuple[Described, Any]:
    """An argument's class, and the argument as a launch takes it."""
    weak = _WEAK.get(cast("type[Any]", type(value)))
    if weak is not None:
        return weak, value
    try:
        if isinstance(value, np.generic):
            return (dtypes.from_numpy(cast(Any, value).dtype), False), cast(Any, value)
        array = view(value)
        if array is not None:
            found = classify(array)
            return (found.dtype, found.ndim, found.align, found.contiguous, found.small), array
    except UnsupportedDtypeError as error:
        raise UnsupportedDtypeError(f"argument {name!r} of kernel {kernel!r}: {error}") from error
    except (LaunchError, TypeError) as error:
        raise LaunchError(f"argument {name!r} of kernel {kernel!r}: {error}") from error
    if isinstance(value, Array):
        type_ = value.type()
        return (type_.dtype, type_.ndim, type_.align, type_.axis, type_.small), value
    if isinstance(value, DType):
        return (value, False), value
    if (python := python_type(value)) is not None:
        return (python, True), value
    if isinstance(value, (int, float)):  # a subclass, such as an IntEnum
        return _describe(kernel, name, int(value) if isinstance(value, int) else float(value))
    raise LaunchError(
        f"argument {name!r} of kernel {kernel!r} is {value!r:.60} ({type(value).__name__}); kernels take arrays, numbers and NumPy "
        f"scalars. For anything else annotate the parameter: {name}: ts.constexpr"
    )


def _spec(described: Described) -> Spec:
    if len(described) == 2:
        return Scalar(*described)
    dtype, ndim, align, axis, small = described
    return ArrayType(dtype, ndim, align, axis, small, True)


def _constant_key(kernel: str, name: str, value: Any) -> Hashable:
    if type(value) is int:
        return value, int
    if isinstance(value, np.ndarray) or isinstance(view(value) if hasattr(value, "__dlpack__") else None, ArrayView):
        raise LaunchError(f"the constexpr {name!r} of kernel {kernel!r} is an array; pass arrays as arguments that aren't constexpr")
    frozen = freeze(value)
    try:
        hash(frozen)
    except TypeError:
        raise LaunchError(f"the constexpr {name!r} of kernel {kernel!r} is {value!r:.60}, which is not hashable") from None
    return frozen


def _disjoint(arrays: Sequence[tuple[str, ArrayView | Array]], written: frozenset[str]) -> tuple[bool, ...]:
    """For each array, whether it shares no byte with another where one of the two is written."""
    flags = [not isinstance(array, Array) or array.disjoint for _, array in arrays]
    for i, (name, a) in enumerate(arrays):
        if name not in written or not isinstance(a, ArrayView):
            continue
        for j, (other, b) in enumerate(arrays):
            if i != j and (other not in written or i < j) and isinstance(b, ArrayView) and overlap(a, b):
                flags[i] = flags[j] = False
    return tuple(flags)


def _accessed(kernel: Kernel, op_type: type[Load] | type[Store]) -> frozenset[str]:
    return frozenset(op.array.name for op in kernel.body.walk() if isinstance(op, op_type))


# ---- compilation ---------------------------------------------------------------------------------------------------------------------


def _set_disjoint(kernel: Kernel, disjoint: dict[str, bool]) -> None:
    for param in kernel.params:
        if isinstance(param.type, ArrayType):
            param.type = replace(param.type, disjoint=disjoint[param.name])


def lds_need(kernel: Kernel, arch: str) -> int:
    """Bytes of LDS that a traced kernel takes on an arch, which may be more than there are. The kernel is used up."""
    from .targets.rocm import compiler
    from .targets.rocm.allocate import LdsOverflowError, lds_bytes
    from .targets.rocm.arch import compilable

    passes.run(kernel)
    try:
        compiler.run_passes(kernel, compilable(arch))
    except LdsOverflowError as error:
        return error.need
    return lds_bytes(kernel)


def compile_traced(kernel: Kernel, arch: str, options: Options) -> CompiledKernel:
    """Passes, target, artifact. Raises UnsupportedArchError, UnsupportedDtypeError, ResourceError at the user's line."""
    from .targets.rocm import compiler
    from .targets.rocm.arch import compilable

    row = compilable(arch)
    if options.num_waves > row.max_waves:
        raise KernelTypeError(f"num_waves is {options.num_waves}; a workgroup of {row.name} has at most {row.max_waves} waves")
    traced_ir = print_kernel(kernel)
    reads, writes = _accessed(kernel, Load), _accessed(kernel, Store)
    passes.run(kernel)
    optimized_ir = print_kernel(kernel)
    made = compiler.compile_kernel(kernel, row.name, compiler.Options(options.optimize, options.codegen, options.fp_contract))
    parameters, size = kernarg_layout(_parameter(p.name, p.type, kernel, reads, writes) for p in kernel.params)
    artifact = Artifact(
        made.code_object,
        kernel.name,
        options.target,
        made.arch,
        made.matrix_core or "none",
        made.executor,
        parameters,
        size,
        options.num_waves,
        made.wave_size,
        made.lds_bytes,
        cast("dict[str, Any]", made.resources),
        traced_ir,
        made.rocm_ir,
        made.llvm_ir,
        "",
        made.lines,
        {"tessera": VERSION},
    )
    compiled = CompiledKernel(artifact, made.assembly)
    folder = config.dump_folder()
    if folder is not None:
        _dump(folder, compiled, optimized_ir)
    return compiled


def _parameter(name: str, type_: Any, kernel: Kernel, reads: frozenset[str], writes: frozenset[str]) -> Parameter:
    if isinstance(type_, ArrayType):
        return ArrayParameter(
            name, type_.dtype, type_.ndim, type_.align, type_.axis, type_.small, type_.disjoint, name in reads, name in writes
        )
    return ScalarParameter(name, type_.dtype, name in kernel.weak)


def _dump(folder: Path, compiled: CompiledKernel, optimized_ir: str) -> None:
    """Write every stage to a folder of the kernel's name and content hash. Raises ConfigError where that can't be written."""
    artifact = compiled.artifact
    place = folder / f"{artifact.kernel_name}.{artifact.arch}.{artifact.content_hash[:12]}"
    texts = {
        "1.traced.tile.ir": compiled.tile_ir,
        "2.optimized.tile.ir": optimized_ir,
        "3.rocm.ir": compiled.rocm_ir,
        "4.ll": compiled.llvm_ir,
        "5.s": compiled.assembly,
        "resources.txt": "".join(f"{name}: {value}\n" for name, value in compiled.resources.items()),
    }
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        (place / "6.hsaco").write_bytes(compiled.code_object)
    except OSError as error:
        raise ConfigError(
            f"TESSERA_DUMP={folder}: the stages of kernel {artifact.kernel_name!r} can't be written there: {error}"
        ) from error


# ---- the decorator -------------------------------------------------------------------------------------------------------------------

_ELSEWHERE = {
    "num_warps": ". For the waves of a workgroup write num_waves=…",
    "num_stages": ". Loops of dots are pipelined without being asked",
    "arch": ". An arch is chosen by kernel.compile(…, arch=…), or by TESSERA_ARCH",
    **dict.fromkeys(("grid", "check", "counters", "executor", "device"), ". That is chosen for each launch"),
}


@overload
def jit(function: Callable[..., Any], /) -> JitFunction: ...


@overload
def jit(
    *, target: str = "rocm", num_waves: int = 4, fp_contract: bool = False, optimize: int = 0, codegen: int = 1
) -> Callable[[Callable[..., Any]], JitFunction]: ...


def jit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a kernel of a function: `@ts.jit`, or `@ts.jit(target="rocm", num_waves=4, …)`.

    `num_waves`: waves of a workgroup; powers of two leave none idle. `fp_contract`: LLVM may fuse a product and a sum into one rounding.
    `optimize` and `codegen`: LLVM's levels.

    Raises KernelTypeError for options that don't exist, KernelSyntaxError for what can't be a kernel.
    """
    names = tuple(Options.__dataclass_fields__)
    for name in options:
        if name not in names:
            raise KernelTypeError(f"jit has no option {name!r}; it has {', '.join(names)}{_ELSEWHERE.get(name, '')}")
    chosen = Options(**options)
    chosen.check()

    def decorate(function: Callable[..., Any]) -> JitFunction:
        if not isinstance(function, types.FunctionType):
            raise KernelTypeError(f"jit decorates functions, not {function!r:.60}")
        return JitFunction(function, chosen)

    return decorate if function is None else decorate(function)
