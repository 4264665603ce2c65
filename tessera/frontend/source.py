"""The source of Python functions as syntax trees with positions, and what can be said of them before they run."""

from __future__ import annotations

import ast
import linecache
import os
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ..errors import KernelSyntaxError, Location

FunctionNode: TypeAlias = "ast.FunctionDef | ast.Lambda"

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Source:
    """A function's tree. `text` is its source, which is part of what identifies a kernel."""

    file: str
    node: FunctionNode
    name: str
    text: str

    @cached_property
    def locals(self) -> frozenset[str]:
        """Parameters and every name that the body assigns."""
        args = self.node.args
        names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a is not None]
        body: list[ast.AST] = list(self.node.body) if isinstance(self.node, ast.FunctionDef) else [self.node.body]
        return frozenset([*names, *assigned(*body)])

    def location(self, node: ast.AST, caller: Location | None = None) -> Location:
        """The place of a node in the file."""
        last = node.iter if isinstance(node, ast.For) else node.test if isinstance(node, (ast.While, ast.If)) else node  # heads only
        line: int = getattr(node, "lineno", self.node.lineno)
        column: int = getattr(node, "col_offset", 0)
        end: int = getattr(last, "end_lineno", None) or line
        end_column: int = getattr(last, "end_col_offset", None) or 0
        if isinstance(node, ast.FunctionDef):
            end, end_column = line, column + len(f"def {node.name}".encode())
        return Location(self.file, line, column, end, end_column, self.name, caller)


# ---- finding the source ------------------------------------------------------------------------------------------------------------

_trees: dict[tuple[str, int], tuple[list[str], ast.Module]] = {}  # by file and the hash of its text
_sources: dict[types.CodeType, Source] = {}
_STARTED = time.time()  # files older than this are those that were imported


def read_lines(function: types.FunctionType) -> list[str]:
    """The lines of the file that a function is from, as they are now; [] where there is none."""
    file = function.__code__.co_filename
    linecache.checkcache(file)
    return linecache.getlines(file, function.__globals__)


def source_of(function: types.FunctionType, lines: list[str] | None = None) -> Source | None:
    """The source of a function, or None where there is none. `lines` are those of its file from when it was defined.

    Raises KernelSyntaxError for Python that a kernel can't use, and where the file has changed since it was imported.
    """
    code = function.__code__
    if code in _sources:
        return _sources[code]
    given = bool(lines)
    lines = lines or read_lines(function)
    if not lines:
        return None
    text = "".join(lines)
    key = (code.co_filename, hash(text))
    if key not in _trees:
        try:
            _trees[key] = (lines, ast.parse(text))
        except SyntaxError:  # the file has changed since it was imported
            return None
    node = _find(_trees[key][1], code)
    if node is None:
        return None
    if not given and _changed_since_start(code.co_filename) and not _compiles_to(_trees[key][1], code):
        raise KernelSyntaxError(
            f"{code.co_filename} has changed since {function.__qualname__!r} was imported from it: restart, or import it again",
            Location(code.co_filename, code.co_firstlineno, function=function.__qualname__),
        )
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    source = Source(code.co_filename, node, function.__qualname__, "".join(lines[first - 1 : node.end_lineno]))
    check_supported(source)
    return _sources.setdefault(code, source)


def _find(tree: ast.Module, code: types.CodeType) -> FunctionNode | None:
    """The node of a code object: by the line it begins on, its name and its parameters. None where that leaves a choice."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found: list[FunctionNode] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if node.name != code.co_name or line != code.co_firstlineno:
                continue
        elif isinstance(node, ast.Lambda):
            if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
                continue
        else:
            continue
        args = node.args
        if tuple(a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)) == names:
            found.append(node)
    return found[0] if len(found) == 1 else None


def _changed_since_start(file: str) -> bool:
    try:
        return os.path.getmtime(file) > _STARTED
    except OSError:  # a notebook cell
        return False


def _compiles_to(tree: ast.Module, code: types.CodeType) -> bool:
    """Whether a file's tree still gives a function's code."""

    def codes(outer: types.CodeType) -> Iterator[types.CodeType]:
        yield outer
        for constant in outer.co_consts:
            if isinstance(constant, types.CodeType):
                yield from codes(constant)

    compiled = compile(tree, code.co_filename, "exec", dont_inherit=True)
    return any(
        (found.co_name, found.co_firstlineno, found.co_code, found.co_names, found.co_varnames)
        == (code.co_name, code.co_firstlineno, code.co_code, code.co_names, code.co_varnames)
        and [c for c in found.co_consts if not isinstance(c, types.CodeType)]
        == [c for c in code.co_consts if not isinstance(c, types.CodeType)]
        for found in codes(compiled)
    )


# ---- what a body assigns ------------------------------------------------------------------------------------------------------------


def assigned(*nodes: ast.AST) -> list[str]:
    """The names that statements or expressions bind in their own scope, in order of appearance."""
    names: dict[str, None] = {}
    for node in nodes:
        for inner in _own_scope(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                names[inner.id] = None
            elif isinstance(inner, ast.FunctionDef):
                names[inner.name] = None
    return list(names)


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it that belongs to the same scope, in source order."""
    yield node
    if isinstance(node, _SCOPES):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            for inner in ast.walk(node):  # a walrus in a comprehension binds outside of it
                if isinstance(inner, ast.NamedExpr):
                    yield inner.target
        return
    for child in ast.iter_child_nodes(node):
        yield from _own_scope(child)


def returns(*statements: ast.stmt) -> bool:
    """Whether there is a `return` among statements, nested functions aside."""
    return any(isinstance(inner, ast.Return) for statement in statements for inner in _own_scope(statement))


def free_names(node: ast.Lambda | ast.FunctionDef) -> set[str]:
    """The names that a nested function reads and doesn't bind itself."""
    args = node.args
    bound = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a is not None}
    body: list[ast.AST] = list(node.body) if isinstance(node, ast.FunctionDef) else [node.body]
    bound.update(assigned(*body))
    return {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - bound


# ---- what a kernel can't use ---------------------------------------------------------------------------------------------------------

_REFUSED: dict[type[ast.AST], str] = {
    ast.Try: "try is not available in kernels: nothing in them raises at run time",
    ast.With: "with is not available in kernels",
    ast.AsyncWith: "async is not available in kernels",
    ast.AsyncFor: "async is not available in kernels",
    ast.AsyncFunctionDef: "async is not available in kernels",
    ast.Await: "await is not available in kernels",
    ast.Yield: "yield is not available in kernels: a kernel can't be a generator; collect values in a tuple, or store them",
    ast.YieldFrom: "yield is not available in kernels: a kernel can't be a generator; collect values in a tuple, or store them",
    ast.ClassDef: "classes can't be defined in kernels: define the class outside",
    ast.Import: "import is not available in kernels: import at the top of the file",
    ast.ImportFrom: "import is not available in kernels: import at the top of the file",
    ast.Global: "global is not available in kernels: a kernel can't set Python variables; return the value, or store it in an array",
    ast.Nonlocal: "nonlocal is not available in kernels: return the value, and assign it in the caller",
    ast.Delete: "del is not available in kernels: tiles take no memory once nothing uses them",
    ast.Match: "match is not available in kernels: write if and elif",
}
for _later, _reason in (  # syntax of Python 3.11, 3.12 and 3.14
    ("TryStar", _REFUSED[ast.Try]),
    ("TypeAlias", "type is not available in kernels: name types outside"),
    ("TemplateStr", "t-strings are not available in kernels"),
):
    if hasattr(ast, _later):
        _REFUSED[getattr(ast, _later)] = _reason


def check_supported(source: Source) -> None:
    """Raises KernelSyntaxError at the first statement or expression that a kernel can't use."""
    found = [node for node in ast.walk(source.node) if type(node) in _REFUSED]
    if not found:
        return
    node = min(found, key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))
    reason, location = _REFUSED[type(node)], source.location(node)
    if isinstance(node, ast.stmt):  # the keyword, not the block
        keyword = "async" if reason.startswith("async") else "class" if reason.startswith("classes") else reason.split()[0]
        end = location.column + len(keyword)
        location = Location(location.file, location.line, location.column, location.line, end, source.name)
    raise KernelSyntaxError(reason, location)
